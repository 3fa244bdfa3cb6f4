/* Refusals, configuration errors, sockets that are in use or stale, and shutdown. */
#include "proto/framing.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static const char pipeline[] = "random_resized_crop(32) hflip(0.5)";

static void refused(const struct feed_options *options, int expected, const char *part)
{
	char error[FEED_ERROR_MAX] = "";
	struct feed *feed;
	int r = feed_open(options, &feed, error);
	if (r != expected || !strstr(error, part))
		fail_msg("expected %d and \"%s\", got %d and \"%s\"", expected, part, r, error);
}

/* Sends a request that libfeed would not send, and expects this part of the answer's text. */
static void expect_raw_refusal(const struct fixture *fixture, const char *path,
			       Loaderd__OpenFeed *open_feed, const char *part)
{
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	open_feed->version = PROTO_VERSION;
	open_feed->dataset = (char *)path;
	open_feed->batch_size = 8;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = open_feed;
	int socket = fixture_connect(fixture);
	fixture_send(socket, &request);
	Loaderd__Reply *reply = fixture_receive(socket, NULL);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_NEED_FILES);
	fixture_send_file(socket, path, reply->need_files, 1);
	loaderd__reply__free_unpacked(reply, NULL);
	reply = fixture_receive(socket, NULL);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	assert_int_equal(reply->error->code, EINVAL);
	if (!strstr(reply->error->text, part))
		fail_msg("not \"%s\", but \"%s\"", part, reply->error->text);
	loaderd__reply__free_unpacked(reply, NULL);
	close(socket);
}

TEST(unknown_choices)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	Loaderd__OpenFeed last = LOADERD__OPEN_FEED__INIT, bad = LOADERD__OPEN_FEED__INIT;
	strcpy(path, fixture_dataset(fixture, "choices", 10, FIXTURE_RAW, 8));
	fixture_start(fixture, NULL, NULL);
	last.last = (Loaderd__LastBatch)7;
	expect_raw_refusal(fixture, path, &last,
			   "last = 7 is not known; it is 0 (LAST_DROP) or 1 (LAST_SHORT)");
	bad.bad = (Loaderd__BadSample)-1;
	expect_raw_refusal(fixture, path, &bad,
			   "bad = -1 is not known; it is 0 (BAD_SUBSTITUTE), 1 (BAD_SKIP) or 2");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(impossible_buckets)
{
	enum { COUNT = 257 };
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	Loaderd__OpenFeed open_feed = LOADERD__OPEN_FEED__INIT;
	Loaderd__Bucket bucket = LOADERD__BUCKET__INIT, *buckets[COUNT];
	strcpy(path, fixture_dataset(fixture, "buckets", 10, FIXTURE_RAW, 8));
	fixture_start(fixture, NULL, NULL);
	bucket.width = bucket.height = 16;
	for (int i = 0; i < COUNT; i++)
		buckets[i] = &bucket;
	open_feed.buckets = buckets;
	open_feed.n_buckets = COUNT;
	expect_raw_refusal(fixture, path, &open_feed, "257 buckets: a feed may have 256");
	open_feed.n_buckets = 1;
	expect_raw_refusal(fixture, path, &open_feed,
			   "buckets need a part: give the dataset as the only one");
	bucket.batch_size = 9;
	expect_raw_refusal(fixture, path, &open_feed,
			   "bucket 0 has a batch_size of 9, above that of the feed, 8");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(impossible_tokens)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	Loaderd__OpenFeed open_feed = LOADERD__OPEN_FEED__INIT;
	strcpy(path, fixture_dataset(fixture, "tokens", 10, FIXTURE_RAW, 8));
	fixture_start(fixture, NULL, NULL);
	open_feed.tokens_field = (char *)"a";
	expect_raw_refusal(fixture, path, &open_feed,
			   "tokens_field is for feeds with batch_tokens");
	open_feed.batch_tokens = 1;
	expect_raw_refusal(fixture, path, &open_feed,
			   "batch_tokens need a part: give the dataset as the only one");
	open_feed.batch_tokens = UINT32_MAX;
	expect_raw_refusal(fixture, path, &open_feed,
			   "batch_tokens 4294967295: a batch has at most");
	open_feed = (Loaderd__OpenFeed)LOADERD__OPEN_FEED__INIT;
	open_feed.pipeline = (char *)"patch_resize";
	expect_raw_refusal(fixture, path, &open_feed, "this program takes whole images");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(requests)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "images", 100, FIXTURE_JPEG, 0));
	const struct feed_options good = fixture_options(fixture, path, pipeline);
	struct feed_options bad;
	fixture_start(fixture, NULL, "--limit", "slots=8", "--limit", "batch_size=64", "--limit",
		      "image_side=512", "--limit", "shared_memory=4M", NULL);
	feed_close(fixture_open(&good));
	bad = good, bad.batch_size = 65;
	refused(&bad, -EDQUOT, "batch_size");
	bad = good, bad.slots = 9;
	refused(&bad, -EDQUOT, "slots");
	bad = good, bad.slots = 1;
	refused(&bad, -EINVAL, "slots");
	bad = good, bad.rank = 2, bad.world = 2;
	refused(&bad, -EINVAL, "rank");
	bad = good, bad.world = 4, bad.rank = 3;
	refused(&bad, -EINVAL,
		"batch_size"); /* a global batch has 128 samples, the dataset only 100 */
	bad = good, bad.batch = 4;
	refused(&bad, -EINVAL, "batch");
	bad = good, bad.pipeline = "random_resized_crop(224) hflop(0.5)";
	refused(&bad, -EINVAL, "hflop");
	bad = good, bad.pipeline = "resize(600)";
	refused(&bad, -EDQUOT, "image_side");
	bad = good, bad.pipeline = "random_resized_crop(64@0;600@5)";
	refused(&bad, -EDQUOT, "image_side");
	bad = good, bad.pipeline = "random_resized_crop(256)";
	refused(&bad, -EDQUOT, "shared memory");
	bad = good, bad.pipeline = "";
	bad.epoch_end = 1;
	/*
	 * the images have different sizes, which the daemon detects at the first sample that
	 * differs
	 */
	struct feed *unequal = fixture_open(&bad);
	struct feed_batch batch = {.size = sizeof(batch)};
	assert_int_equal(feed_next(unequal, 60000, &batch), -EBADMSG);
	assert_non_null(strstr(feed_error(unequal), "40 x 40"));
	feed_close(unequal);
	bad = good, bad.dataset = "/nonexistent/file.pimg";
	refused(&bad, -ENOENT, "/nonexistent/file.pimg");
	static const char *const fields[] = {"number", "nothing"};
	bad = good, bad.fields = fields, bad.field_count = 2;
	refused(&bad, -EINVAL, "no field \"nothing\": it has \"number\", \"half\", \"word\";");
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(counts)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "counted", 100, FIXTURE_JPEG, 0));
	const struct feed_options options = fixture_options(fixture, path, pipeline);
	struct feed *feeds[3];
	fixture_start(fixture, NULL, "--limit", "feeds_per_user=3", "--limit",
		      "connections_per_user=5", NULL);
	for (unsigned i = 0; i < 3; i++)
		feeds[i] = fixture_open(&options);
	refused(&options, -EDQUOT, "[limits] feeds_per_user");
	/* Closing a feed soon makes room for another one. */
	feed_close(feeds[0]);
	char error[FEED_ERROR_MAX];
	int r = -EDQUOT;
	for (unsigned i = 0; i < 6000 && r == -EDQUOT; i++) {
		r = feed_open(&options, &feeds[0], error);
		if (r == -EDQUOT)
			usleep(10000);
	}
	assert_int_equal(r, 0);
	int sockets[2] = {fixture_connect(fixture), fixture_connect(fixture)};
	refused(&options, -EDQUOT, "[limits] connections_per_user");
	for (unsigned i = 0; i < 3; i++) {
		assert_true(fixture_hash(feeds[i], 5) != 0);
		feed_close(feeds[i]);
	}
	close(sockets[0]);
	close(sockets[1]);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * Calls feed_open() as another user; returns the errno, which the child passes as its exit status.
 */
static int open_as(const struct feed_options *options, uid_t uid, gid_t gid)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct feed *feed;
		if (setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
			_exit(255);
		_exit(-feed_open(options, &feed, NULL));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Whichever user the daemon runs as, a client can use the files that the kernel lets it open. */
TEST(other_users)
{
	enum { SOMEBODY = 54321, GROUP = 54322 };
	struct fixture *fixture = *state;
	if (geteuid() != 0)
		skip();
	char path[PATH_MAX], link[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "theirs", 100, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	assert_int_equal(chmod(fixture->folder, 0755), 0);
	fixture_start(fixture, NULL, NULL);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), EACCES);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), 0);
	/* Group members get access; group members are denied although others are allowed. */
	assert_int_equal(chown(path, 0, GROUP), 0);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), EACCES);
	assert_int_equal(open_as(&options, SOMEBODY, GROUP), 0);
	assert_int_equal(chmod(path, 0604), 0);
	assert_int_equal(open_as(&options, SOMEBODY, GROUP), EACCES);
	/* An owner without permission does not get the permissions of others. */
	assert_int_equal(chown(path, SOMEBODY, GROUP), 0);
	assert_int_equal(chmod(path, 0044), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), EACCES);
	/* A link into a directory without access opens nothing. */
	snprintf(link, sizeof(link), "%.4000s/closed", fixture->folder);
	assert_int_equal(mkdir(link, 0700), 0);
	snprintf(link, sizeof(link), "%.4000s/closed/theirs.pimg", fixture->folder);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(rename(path, link), 0);
	assert_int_equal(symlink(link, path), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), EACCES);
	assert_int_equal(open_as(&options, 0, 0), 0);
	/* The overflow uid cannot be distinguished from other unmapped users. */
	assert_int_equal(open_as(&options, 65534, 65534), EPERM);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	/* A private daemon serves only its own user, whatever its socket's mode. */
	fixture_start(fixture, NULL, "--private", NULL);
	assert_int_equal(open_as(&options, 0, 0), 0);
	assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), EPERM);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Which clients may map a ring writable, and that such a ring gets the same batches. */
TEST(writable_rings)
{
	enum { SOMEBODY = 54321 };
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "written", 100, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	struct feed_info info = {.size = sizeof(info)};
	assert_int_equal(chmod(fixture->folder, 0755), 0);
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	uint64_t expected = fixture_hash(feed, 20);
	feed_close(feed);
	options.writable = 1;
	feed = fixture_open(&options);
	assert_int_equal(fixture_hash(feed, 20), expected);
	feed_info(feed, &info);
	memset((void *)(uintptr_t)info.memory, 0, info.memory_size);
	feed_close(feed);
	/* A writable ring affects only its own feed, so every user may have one. */
	if (geteuid() == 0)
		assert_int_equal(open_as(&options, SOMEBODY, SOMEBODY), 0);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);

	fixture_start(fixture, NULL, "--set", "access.writable_rings=no", NULL);
	refused(&options, -EPERM, "writable_rings = yes");
	options.writable = 0;
	feed_close(fixture_open(&options));
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Runs the daemon until it exits. Returns its wait status and stores its standard error in text. */
static int run(char text[4096], ...)
{
	const char *arguments[16] = {getenv("LOADERD")};
	unsigned count = 1;
	va_list list;
	va_start(list, text);
	while (count < 15 && (arguments[count] = va_arg(list, const char *)))
		count++;
	va_end(list);
	int output[2], status;
	assert_int_equal(pipe(output), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(output[1], STDERR_FILENO);
		dup2(output[1], STDOUT_FILENO);
		execv(arguments[0], (char **)arguments);
		_exit(127);
	}
	close(output[1]);
	size_t size = 0;
	for (ssize_t n; size < 4095 && (n = read(output[0], text + size, 4095 - size)) > 0;)
		size += (size_t)n;
	text[size] = '\0';
	close(output[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static const char *write_config(struct fixture *fixture, const char *text)
{
	static char path[PATH_MAX + 16];
	snprintf(path, sizeof(path), "%s/loaderd.conf", fixture->folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	return path;
}

static void wrong_config(struct fixture *fixture, const char *config, const char *part)
{
	char text[4096];
	int status = run(text, "--config", write_config(fixture, config), "--check-config", NULL);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 78 || !strstr(text, part))
		fail_msg("expected \"%s\", got status %#x and \"%s\"", part, (unsigned)status,
			 text);
}

TEST(environment)
{
	char text[4096];
	setenv("LOADERD_ISA", "avx3", 1);
	int status = run(text, "--config", "/dev/null", "--check-config", NULL);
	unsetenv("LOADERD_ISA");
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	if (!strstr(text, "loaderd: LOADERD_ISA = \"avx3\" in the environment: expected c, avx2, "
			  "avx512bw or avx512"))
		fail_msg("%s", text);
}

/* The exit statuses documented in loaderd(1). */
TEST(wrong_command_line)
{
	char text[4096];
	int status = run(text, "--frob", NULL);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 64);
	assert_non_null(strstr(text, "frob"));
}

TEST(configuration)
{
	struct fixture *fixture = *state;
	char text[4096];
	wrong_config(fixture, "[pool]\nthread = 4\n",
		     "loaderd.conf:2: [pool] thread: no such key; did you mean [pool] threads?");
	wrong_config(fixture, "threads = 4\n[pool]\n",
		     "loaderd.conf:1: threads: stands before any [section]; it belongs after a "
		     "line [pool]");
	wrong_config(fixture, "# all of it\nthread = 4\n",
		     "loaderd.conf:2: thread: stands before any [section]; did you mean [pool] "
		     "threads?");
	wrong_config(fixture, "[pool]\nfrobs = 4\n",
		     "loaderd.conf:2: [pool] frobs: no such key; loaderd.conf(5) lists them");
	wrong_config(fixture, "[pool]\n\nthreads = many\n",
		     "loaderd.conf:3: [pool] threads = many: must be a number from 0 to 1024");
	wrong_config(fixture, "[limits]\nslots = 1\n", "from 2 to 256");
	wrong_config(fixture, "[io]\nmode = fast\n",
		     "[io] mode = fast: must be one of auto, mmap, uring");
	wrong_config(fixture, "[daemon]\nnonsense\n", "loaderd.conf:2: expected");
	wrong_config(fixture, "[access]\nallow = /data\n", "clients open the files themselves");
	wrong_config(fixture, "[daemon]\nsocket_mode = 999\n", "octal");
	wrong_config(fixture, "[limits]\nshared_memory = 4X\n", "number of bytes");
	const char *path =
		write_config(fixture, "[limits]\nshared_memory = 3G ; enough\nslots = 12\n"
				      "[access]\nwritable_rings = no\n");
	int status = run(text, "--config", path, "--limit", "slots=14", "--check-config", NULL);
	assert_int_equal(status, 0);
	assert_non_null(strstr(text, "shared_memory = 3221225472\n"));
	assert_non_null(strstr(text, "slots = 14\n"));
	assert_non_null(strstr(text, "writable_rings = no\n"));
	/* The daemon can read the configuration that it prints. */
	char printed[4096], again[4096];
	strcpy(printed, text);
	assert_int_equal(
		run(again, "--config", write_config(fixture, printed), "--check-config", NULL), 0);
	assert_string_equal(again, printed);
	assert_int_equal(WEXITSTATUS(run(text, "--config", "/nonexistent.conf", NULL)), 78);
	assert_non_null(strstr(text, "/nonexistent.conf"));
	assert_true(run(text, "--threads", "nine", NULL) != 0);
	assert_true(run(text, "--cpus", "4-2", "--config", "/dev/null", "--socket", fixture->socket,
			NULL) != 0);
	assert_non_null(strstr(text, "cpus"));
}

/*
 * The daemon itself needs more fds than the limit. Uses a separate process, because a hard limit
 * cannot be raised again.
 */
TEST(few_descriptors)
{
	const struct fixture *fixture = *state;
	for (unsigned most = 12; most < 64; most += 6) {
		const struct rlimit limit = {most, most};
		char text[4096], expected[64];
		int status;
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			setrlimit(RLIMIT_NOFILE, &limit);
			status = run(text, "--config", "/dev/null", "--socket", fixture->socket,
				     NULL);
			snprintf(expected, sizeof(expected), "RLIMIT_NOFILE is %u (ulimit -n",
				 most);
			if (strstr(text, expected) && strstr(text, "raise it, ideally to 65536"))
				_exit(WEXITSTATUS(status));
			print_error("%s", text);
			_exit(2);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), 1);
	}
}

TEST(sockets)
{
	struct fixture *fixture = *state;
	char text[4096];
	fixture_start(fixture, NULL, NULL);
	assert_true(run(text, "--config", "/dev/null", "--socket", fixture->socket, NULL) != 0);
	assert_non_null(strstr(text, "another loaderd answers there"));
	/*
	 * A killed daemon leaves its socket behind, and the next one replaces it. A regular
	 * shutdown removes it.
	 */
	fixture_stop(fixture, SIGKILL);
	assert_int_equal(access(fixture->socket, F_OK), 0);
	fixture_start(fixture, NULL, NULL);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	assert_true(access(fixture->socket, F_OK) < 0);
	/* The daemon does not replace a file that is not a socket. */
	int fd = open(fixture->socket, O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_true(run(text, "--config", "/dev/null", "--socket", fixture->socket, NULL) != 0);
	assert_non_null(strstr(text, "not a socket"));
	unlink(fixture->socket);
	assert_true(run(text, "--config", "/dev/null", "--socket", "/nonexistent/loaderd.sock",
			NULL) != 0);
	assert_non_null(strstr(text, "/nonexistent/loaderd.sock: the socket's folder"));
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Waits until the administrator's status shows this many feeds, of all users. */
static void expect_feeds_as_administrator(const struct fixture *fixture, size_t feeds)
{
	struct fixture admin = *fixture;
	size_t seen = SIZE_MAX;
	uint64_t uptime_ns = 0;
	assert_true(snprintf(admin.socket, sizeof(admin.socket), "%.4000s.admin", fixture->socket) >
		    0);
	for (unsigned i = 0; i < 2000 && seen != feeds; i++) {
		Loaderd__Reply *reply = fixture_status(&admin);
		seen = reply->status->n_feeds;
		uptime_ns = reply->status->uptime_ns;
		loaderd__reply__free_unpacked(reply, NULL);
		if (seen != feeds)
			usleep(10000);
	}
	assert_int_equal(seen, feeds);
	assert_true(feeds == 0 || uptime_ns > 0); /* uptime of the oldest worker */
}

/* A worker reports its status while it has clients, and once more when the last one has left. */
TEST(status_of_all)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "shown", 100, FIXTURE_JPEG, 0));
	const struct feed_options options = fixture_options(fixture, path, pipeline);
	fixture_start(fixture, NULL, NULL);
	expect_feeds_as_administrator(fixture, 0);
	struct feed *feed = fixture_open(&options);
	expect_feeds_as_administrator(fixture, 1);
	feed_close(feed);
	expect_feeds_as_administrator(fixture, 0);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * SIGTERM: the client can still take finished batches, then the feed ends with the reason. The
 * daemon exits once its clients have left.
 */
TEST(drains)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "drained", 100, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	options.slots = 4;
	options.reconnect = FEED_RECONNECT_NEVER;
	fixture_start(fixture, NULL, "--set", "daemon.grace_ms=60000", NULL);
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	fixture_wait_for_slots(fixture, 3);
	uint64_t start_ms = now_ms();
	kill(fixture->daemon, SIGTERM);
	unsigned taken = 0;
	int r, status;
	/* All slots may be held until the daemon has handled the signal. */
	while ((r = feed_next(feed, 60000, &batch)) == 0 || r == -ENOBUFS)
		taken += r == 0;
	assert_int_equal(taken, 3);
	assert_int_equal(r, -ECONNRESET);
	assert_non_null(strstr(feed_error(feed), "shutting down"));
	char error[FEED_ERROR_MAX];
	struct feed *other;
	assert_true(feed_open(&options, &other, error) < 0);
	feed_close(feed);
	assert_int_equal(waitpid(fixture->daemon, &status, 0), fixture->daemon);
	fixture->daemon = 0;
	assert_int_equal(status, 0);
	assert_true(now_ms() - start_ms < 60000); /* the daemon exited before its timeout */
}

TEST(grace_ends)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	strcpy(path, fixture_dataset(fixture, "graced", 100, FIXTURE_JPEG, 0));
	struct feed_options options = fixture_options(fixture, path, pipeline);
	struct feed_batch batch = {.size = sizeof(batch)};
	fixture_start(fixture, NULL, "--set", "daemon.grace_ms=300", NULL);
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, 60000, &batch), 0);
	uint64_t start_ms = now_ms();
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	assert_true(now_ms() - start_ms >= 250);
	feed_close(feed);
}

/*
 * The client disconnects before the daemon serves it. The daemon reports this once, and does not
 * handle the event repeatedly until its worker has ended.
 */
TEST(client_gone)
{
	const struct sockaddr_un nowhere = {.sun_family = AF_UNIX};
	char text[4096], number[16], lifeline[16];
	int life[2], socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(pipe(life), 0);
	close(life[1]);
	snprintf(number, sizeof(number), "%d", socket_fd);
	snprintf(lifeline, sizeof(lifeline), "%d", life[0]);
	assert_int_equal(bind(socket_fd, (const struct sockaddr *)&nowhere, sizeof(sa_family_t)),
			 0);
	/* This socket does not listen. */
	assert_int_equal(WEXITSTATUS(run(text, "--config", "/dev/null", "--listen-fd", number,
					 "--lifeline-fd", lifeline, NULL)),
			 1);
	assert_non_null(strstr(text, ": not a listening socket"));
	assert_int_equal(listen(socket_fd, 1), 0);
	assert_int_equal(run(text, "--config", "/dev/null", "--private", "--listen-fd", number,
			     "--lifeline-fd", lifeline, NULL),
			 0);
	const char *said = strstr(text, "is gone: stopping");
	assert_non_null(said);
	assert_null(strstr(said + 1, "is gone: stopping"));
	close(socket_fd);
	close(life[0]);
}

/* A private daemon serves, and exits when its lifeline is closed. */
TEST(private_daemon)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX], error[FEED_ERROR_MAX] = "";
	struct feed_daemon *daemon;
	strcpy(path, fixture_dataset(fixture, "private", 100, FIXTURE_JPEG, 0));
	if (feed_daemon_start(getenv("LOADERD"), 2, &daemon, error) < 0)
		fail_msg("feed_daemon_start: %s", error);
	struct feed_options options = fixture_options(fixture, path, pipeline);
	options.socket = feed_daemon_socket(daemon);
	struct feed *feed = fixture_open(&options);
	fixture_hash(feed, 5);
	feed_close(feed);
	feed_daemon_stop(daemon);

	/* If the client is killed, its private daemon exits. */
	int output[2];
	long pid = 0;
	assert_int_equal(pipe(output), 0);
	pid_t client = fork();
	if (client == 0) {
		if (feed_daemon_start(getenv("LOADERD"), 2, &daemon, NULL) < 0)
			_exit(1);
		pid = feed_daemon_pid(daemon);
		if (write(output[1], &pid, sizeof(pid)) != sizeof(pid))
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(output[0], &pid, sizeof(pid)), sizeof(pid));
	close(output[0]);
	close(output[1]);
	assert_int_equal(kill((pid_t)pid, 0), 0);
	int status;
	kill(client, SIGKILL);
	assert_int_equal(waitpid(client, &status, 0), client);
	char stat_path[64], state_letter = 'R';
	snprintf(stat_path, sizeof(stat_path), "/proc/%ld/stat", pid);
	for (unsigned i = 0; i < 6000 && state_letter != 'Z' && state_letter != 0; i++) {
		FILE *file = fopen(stat_path, "r");
		state_letter = 0;
		if (file) {
			if (fscanf(file, "%*d %*s %c", &state_letter) != 1)
				state_letter = 0;
			fclose(file);
		}
		usleep(10000);
	}
	/* The process is gone, or a zombie that another process has to reap. */
	assert_true(state_letter == 0 || state_letter == 'Z');
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return test_run(fixture_setup, fixture_teardown);
}
