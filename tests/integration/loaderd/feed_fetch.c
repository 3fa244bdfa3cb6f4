/*
 * Feeds of datasets in stores, with a double of loaderd-fetch (fetch_double.c). Whatever happens to
 * the fetcher, every batch equals that of a feed of the local file, or the feed ends with the
 * fetcher's sentence.
 */
#include "proto/client/feed.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SAMPLES = 320, BATCHES = SAMPLES / 32 };

struct scene {
	struct fixture *fixture;
	char path[PATH_MAX], url[PATH_MAX], run[PATH_MAX], starts[PATH_MAX];
	struct feed_options local, remote;
};

static const char *const variables[] = {"DOUBLE_PACE_US", "DOUBLE_EVICTIONS", "DOUBLE_FAIL_AFTER",
					"DOUBLE_REFUSES", "DOUBLE_ENDS"};

/* Each scene has a folder for the fetcher's socket, and so a fetcher. */
static void scene_init(struct scene *scene, struct fixture *fixture)
{
	static unsigned number;
	scene->fixture = fixture;
	snprintf(scene->path, sizeof(scene->path), "%s",
		 fixture_dataset(fixture, "fetched", SAMPLES, FIXTURE_JPEG, 0));
	snprintf(scene->url, sizeof(scene->url), "s3://test%.4000s", scene->path);
	snprintf(scene->run, sizeof(scene->run), "%.4000s/run%u", fixture->folder, number++);
	snprintf(scene->starts, sizeof(scene->starts), "%.4000s/starts", scene->run);
	assert_int_equal(mkdir(scene->run, 0700), 0);
	setenv("XDG_RUNTIME_DIR", scene->run, 1);
	setenv("DOUBLE_STARTS", scene->starts, 1);
	setenv("LOADERD_FETCH", getenv("FETCH_DOUBLE"), 1);
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	scene->local = fixture_options(fixture, scene->path, "random_resized_crop(32) hflip(0.5)");
	scene->remote = scene->local;
	scene->remote.dataset = scene->url;
}

/* Returns the fetcher that was started last, and how many have been. */
static pid_t last_fetcher(const struct scene *scene, unsigned *ret_starts)
{
	pid_t pid = 0;
	FILE *file = fopen(scene->starts, "r");
	*ret_starts = 0;
	while (file && fscanf(file, "%d", &pid) == 1)
		(*ret_starts)++;
	if (file)
		fclose(file);
	return pid;
}

static unsigned count_starts(const struct scene *scene)
{
	unsigned starts;
	last_fetcher(scene, &starts);
	return starts;
}

static void wait_for_end(pid_t pid)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	if (p.fd < 0)
		return;
	assert_int_equal(poll(&p, 1, 60000), 1);
	close(p.fd);
}

static void kill_fetcher(const struct scene *scene)
{
	unsigned starts;
	pid_t pid = last_fetcher(scene, &starts);
	kill(pid, SIGKILL);
	wait_for_end(pid);
}

static void expect_equal(struct feed *local, struct feed *remote, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(fixture_hash_next(remote), fixture_hash_next(local));
}

static void expect_refusal(const struct feed_options *options, int code, const char *text)
{
	struct feed *feed;
	char error[FEED_ERROR_MAX] = "";
	assert_int_equal(feed_open(options, &feed, error), code);
	if (!strstr(error, text))
		fail_msg("\"%s\" is not in: %s", text, error);
}

/* Reads until the feed fails. */
static void expect_failure(struct feed *feed, int code, const char *text)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	int r;
	while ((r = feed_next(feed, 60000, &batch)) == 0)
		feed_release(feed, &batch);
	assert_int_equal(r, code);
	if (!strstr(feed_error(feed), text))
		fail_msg("\"%s\" is not in: %s", text, feed_error(feed));
	/* It stays so. */
	assert_int_equal(feed_next(feed, 0, &batch), code);
	assert_non_null(strstr(feed_error(feed), text));
}

static int note_progress(void *user, uint64_t done, uint64_t total)
{
	*(bool *)user |= done == 12 && total == 80;
	return 0;
}

static int give_up(void *user, uint64_t done, uint64_t total)
{
	(void)user, (void)done, (void)total;
	return -EOVERFLOW;
}

TEST(an_epoch_equals_the_local_file)
{
	struct scene scene;
	bool progressed = false;
	scene_init(&scene, *state);
	setenv("DOUBLE_PACE_US", "300", 1);
	scene.remote.fetching = note_progress;
	scene.remote.progress_user = &progressed;
	struct feed *local = fixture_open(&scene.local), *remote = fixture_open(&scene.remote);
	assert_true(progressed);
	expect_equal(local, remote, 2 * BATCHES);
	assert_int_equal(count_starts(&scene), 1);
	feed_close(local);
	feed_close(remote);
	scene.remote.fetching = give_up;
	expect_refusal(&scene.remote, -EOVERFLOW, "given up");
}

TEST(facts)
{
	struct scene scene;
	struct feed_dataset *facts, *local;
	char error[FEED_ERROR_MAX];
	scene_init(&scene, *state);
	assert_int_equal(feed_dataset(scene.remote.socket, scene.url, &facts, error), 0);
	assert_int_equal(feed_dataset(scene.remote.socket, scene.path, &local, error), 0);
	assert_int_equal(facts->samples, SAMPLES);
	assert_memory_equal(facts->uuid, local->uuid, 16);
	feed_dataset_free(facts);
	feed_dataset_free(local);
}

TEST(the_fetcher_is_killed)
{
	struct scene scene;
	scene_init(&scene, *state);
	setenv("DOUBLE_EVICTIONS", "1", 1);
	struct feed *local = fixture_open(&scene.local), *remote = fixture_open(&scene.remote);
	while (count_starts(&scene) < 8) {
		kill_fetcher(&scene);
		expect_equal(local, remote, 5);
	}
	struct feed_info info = {.size = sizeof(info)};
	feed_info(remote, &info);
	assert_int_equal(info.reconnects, 0);
	feed_close(local);
	feed_close(remote);
}

TEST(the_daemon_is_killed)
{
	struct scene scene;
	struct fixture *fixture = *state;
	scene_init(&scene, fixture);
	setenv("DOUBLE_EVICTIONS", "1", 1);
	struct feed *remote = fixture_open(&scene.remote);
	uint64_t hash = fixture_hash(remote, 3);
	fixture_stop(fixture, SIGKILL);
	fixture_start(fixture, NULL, "--threads", "2", NULL);
	hash ^= fixture_hash(remote, BATCHES);
	struct feed *local = fixture_open(&scene.local);
	assert_int_equal(hash, fixture_hash(local, 3) ^ fixture_hash(local, BATCHES));
	assert_int_equal(count_starts(&scene), 1);
	feed_close(local);
	feed_close(remote);
}

TEST(the_dataset_is_replaced_in_the_store)
{
	struct scene scene;
	scene_init(&scene, *state);
	setenv("DOUBLE_FAIL_AFTER", "64", 1);
	setenv("DOUBLE_EVICTIONS", "1", 1);
	struct feed *remote = fixture_open(&scene.remote);
	expect_failure(remote, -ESTALE, "the dataset was replaced? in the store");
	feed_close(remote);
}

TEST(the_cache_is_removed)
{
	struct scene scene;
	glob_t mirrors;
	char pattern[PATH_MAX];
	scene_init(&scene, *state);
	setenv("DOUBLE_EVICTIONS", "1", 1);
	struct feed *local = fixture_open(&scene.local), *remote = fixture_open(&scene.remote);
	expect_equal(local, remote, 3);
	kill_fetcher(&scene);
	snprintf(pattern, sizeof(pattern), "%.4000s.mirror-*", scene.path);
	assert_int_equal(glob(pattern, 0, NULL, &mirrors), 0);
	for (size_t i = 0; i < mirrors.gl_pathc; i++)
		unlink(mirrors.gl_pathv[i]);
	globfree(&mirrors);
	expect_equal(local, remote, 3 * BATCHES);
	struct feed_info info = {.size = sizeof(info)};
	feed_info(remote, &info);
	assert_int_equal(info.reconnects, 1);
	assert_non_null(strstr(feed_reconnect_text(remote), "removed from the cache"));
	feed_close(local);
	feed_close(remote);
}

TEST(fetchers_that_end_at_once)
{
	struct scene scene;
	scene_init(&scene, *state);
	setenv("DOUBLE_EVICTIONS", "1", 1);
	setenv("DOUBLE_ENDS", "1", 1);
	struct feed *remote = fixture_open(&scene.remote);
	kill_fetcher(&scene);
	expect_failure(remote, -EIO, "ended 5 times in a row");
	feed_close(remote);
}

TEST(what_cannot_be_opened)
{
	struct scene scene;
	scene_init(&scene, *state);
	scene.remote.dataset = "s3://test/none.pimg";
	expect_refusal(&scene.remote, -ENOENT, "no such object");
	scene.remote.dataset = scene.url;
	const struct feed_filling filling = {sizeof(filling), 0, 0};
	scene.remote.filling = &filling;
	expect_refusal(&scene.remote, -EINVAL, "not together with the address");
	scene.remote.filling = NULL;
	const struct feed_part part = {.size = sizeof(part), .dataset = scene.url};
	const struct feed_part *const parts[] = {&part, &part};
	const uint32_t shares[] = {1, 1};
	const struct feed_stage stage = {.shares = shares};
	struct feed_order order = {.size = sizeof(order),
				   .parts = parts,
				   .part_count = 2,
				   .stages = &stage,
				   .stage_count = 1};
	scene.remote.dataset = NULL;
	scene.remote.order = &order;
	/* as of a fetcher that is older than these */
	expect_refusal(&scene.remote, -ENOTSUP,
		       "the fetcher does not know of feeds of several parts");
	/* One part is as good as a dataset. */
	order.part_count = 1;
	order.stage_count = 0;
	struct feed *local = fixture_open(&scene.local), *remote = fixture_open(&scene.remote);
	expect_equal(local, remote, BATCHES);
	feed_close(local);
	feed_close(remote);
}

/* At one of these limits the descriptors of map, page and file do not all fit. */
TEST(too_few_descriptors)
{
	struct scene scene;
	struct rlimit limit;
	char error[FEED_ERROR_MAX] = "";
	bool named = false;
	scene_init(&scene, *state);
	struct feed *feed = fixture_open(&scene.remote), *other;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	rlim_t most = limit.rlim_cur;
	int r = -1;
	for (limit.rlim_cur = 4; r < 0 && limit.rlim_cur < 64; limit.rlim_cur++) {
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		r = feed_open(&scene.remote, &other, error);
		assert_null(r < 0 ? strstr(error, "what the fetcher sends") : NULL);
		named |= r == -EMFILE && strstr(error, "ulimit -n");
	}
	limit.rlim_cur = most;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(r, 0);
	assert_true(named);
	feed_close(feed);
	feed_close(other);
}

TEST(a_fetcher_that_does_not_start)
{
	struct scene scene;
	scene_init(&scene, *state);
	setenv("DOUBLE_REFUSES", "The cache is on fire.", 1);
	expect_refusal(&scene.remote, -EIO, "cannot start: The cache is on fire.");
	setenv("LOADERD_FETCH", "/bin/false", 1);
	expect_refusal(&scene.remote, -EIO, "/bin/false ended with status 1 while starting");
	setenv("LOADERD_FETCH", "/nonexistent/loaderd-fetch", 1);
	expect_refusal(&scene.remote, -ENOENT, "packimg fetch s3://test");
}

TEST(the_folder_of_the_socket)
{
	struct scene scene;
	char folder[PATH_MAX];
	struct stat status;
	scene_init(&scene, *state);
	snprintf(folder, sizeof(folder), "%.4000s/loaderd", scene.run);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(chmod(folder, 0770), 0);
	expect_refusal(&scene.remote, -EPERM, "writable for others: remove it");
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(symlink(scene.run, folder), 0);
	expect_refusal(&scene.remote, -EPERM, "is a link");
	assert_int_equal(unlink(folder), 0);
	if (geteuid() == 0) {
		assert_int_equal(mkdir(folder, 0700), 0);
		assert_int_equal(chown(folder, 1, 1), 0);
		expect_refusal(&scene.remote, -EPERM, "belongs to another user");
		assert_int_equal(rmdir(folder), 0);
	}
	feed_close(fixture_open(&scene.remote));
	assert_int_equal(lstat(folder, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
}

static void *open_in_thread(void *options)
{
	return fixture_open(options);
}

TEST(feeds_share_a_fetcher)
{
	enum { FEEDS = 4 };
	struct scene scene;
	pthread_t threads[FEEDS];
	struct feed *feeds[FEEDS];
	scene_init(&scene, *state);
	for (unsigned i = 0; i < FEEDS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_in_thread, &scene.remote),
				 0);
	for (unsigned i = 0; i < FEEDS; i++)
		pthread_join(threads[i], (void **)&feeds[i]);
	assert_int_equal(count_starts(&scene), 1);
	struct feed *local = fixture_open(&scene.local);
	uint64_t hash = fixture_hash(local, BATCHES);
	feed_close(local);
	for (unsigned i = 0; i < FEEDS; i++) {
		assert_int_equal(fixture_hash(feeds[i], BATCHES), hash);
		feed_close(feeds[i]);
	}
	/* Another environment has another fetcher. */
	setenv("AWS_PROFILE", "other", 1);
	feed_close(fixture_open(&scene.remote));
	unsetenv("AWS_PROFILE");
	assert_int_equal(count_starts(&scene), 2);
}

/* A child keeps neither the feed nor the fetcher. */
TEST(a_fork)
{
	struct scene scene;
	unsigned starts;
	int status, gate[2];
	scene_init(&scene, *state);
	assert_int_equal(pipe(gate), 0);
	struct feed *local = fixture_open(&scene.local), *remote = fixture_open(&scene.remote);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		struct feed_batch batch = {.size = sizeof(batch)};
		close(gate[1]);
		int r = feed_next(remote, -1, &batch);
		while (read(gate[0], &byte, 1) > 0)
			;
		feed_close(remote);
		_exit(r == -ECHILD ? 0 : 1);
	}
	expect_equal(local, remote, BATCHES);
	feed_close(local);
	feed_close(remote);
	wait_for_end(last_fetcher(&scene, &starts));
	close(gate[0]);
	close(gate[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int setup(void **state)
{
	static struct fixture fixture;
	fixture_init(&fixture);
	fixture_start(&fixture, NULL, "--threads", "2", NULL);
	*state = &fixture;
	return 0;
}

TEST_MAIN(setup, fixture_teardown_running)
