/*
 * Authorisation and quotas: the administrator's socket, single shards, one feed per connection,
 * feeds per user. Refused requests use no resources.
 */
#include "tests/security/attack.h"

#include "proto/framing.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { FEEDS = 3, HUNG_UP = 253, ANSWERED = 0 };

static struct stage stage;

static int set_up(void **state)
{
	attack_stage(&stage);
	return 0;
}

static int tear_down(void **state)
{
	fixture_deinit(&stage.fixture);
	return 0;
}

/* Starts a new daemon for each test, since closed feeds still count for a moment. */
static int start(void **state)
{
	fixture_start(&stage.fixture, NULL, "--threads", "2", "--log-level", "error", "--limit",
		      "feeds_per_user=3", "--limit", "batch_size=64", "--limit",
		      "shared_memory=16M", NULL);
	return 0;
}

static int stop(void **state)
{
	return stage.fixture.daemon == 0 ? 0 : fixture_stop(&stage.fixture, SIGTERM);
}

/*
 * Sends a request of this kind, as this user, to the socket with this suffix; returns the error
 * code of the reply.
 */
static int ask_as(uid_t uid, const char *suffix, Loaderd__Request__KindCase kind)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct stage there = stage;
		uint8_t message[64];
		Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
		Loaderd__Shutdown shutdown = LOADERD__SHUTDOWN__INIT;
		Loaderd__Request request = LOADERD__REQUEST__INIT;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid != 0)
			fixture_become(uid);
		strcat(there.fixture.socket, suffix);
		int socket = attack_connect(&there);
		if (socket < 0)
			_exit(errno);
		request.kind_case = kind;
		if (kind == LOADERD__REQUEST__KIND_GET_STATUS)
			request.get_status = &get;
		else
			request.shutdown = &shutdown;
		/* A refused client still gets a reply. */
		(void)frame_send(socket, message, loaderd__request__pack(&request, message), NULL,
				 0, 5000);
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		_exit(!reply                                           ? HUNG_UP
		      : reply->kind_case == LOADERD__REPLY__KIND_ERROR ? (int)reply->error->code
								       : ANSWERED);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/*
 * Only root and the daemon's user may see the status of all users and stop the daemon, whatever the
 * socket's mode.
 */
TEST_WITH(the_administrator, start, stop)
{
	const Loaderd__Request__KindCase status = LOADERD__REQUEST__KIND_GET_STATUS;
	const Loaderd__Request__KindCase stop = LOADERD__REQUEST__KIND_SHUTDOWN;
	char socket[PATH_MAX + 16];
	struct stat there;
	snprintf(socket, sizeof(socket), "%s.admin", stage.fixture.socket);
	assert_int_equal(stat(socket, &there), 0);
	assert_int_equal(there.st_mode & 07777, 0600);
	assert_int_equal(there.st_uid, SERVICE);
	assert_int_equal(ask_as(ALICE, ".admin", status), EACCES);
	assert_int_equal(chmod(socket, 0666), 0);
	assert_int_equal(ask_as(ALICE, ".admin", status), EPERM);
	assert_int_equal(ask_as(ALICE, ".admin", stop), EPERM);
	assert_int_equal(ask_as(ALICE, "", stop), EPERM);
	assert_int_equal(ask_as(SERVICE, "", stop), EPERM);
	assert_int_equal(ask_as(0, "", stop), EPERM);
	assert_int_equal(ask_as(ALICE, "", status), ANSWERED);
	assert_int_equal(ask_as(SERVICE, ".admin", status), ANSWERED);
	assert_int_equal(ask_as(0, ".admin", status), ANSWERED);
	/* The daemon still serves. */
	assert_int_equal(kill(stage.fixture.daemon, 0), 0);
	struct feed *feed = fixture_open(&stage.alice);
	assert_true(fixture_hash(feed, 1) != 0);
	feed_close(feed);
}

TEST_WITH(the_administrator_stops, start, stop)
{
	int status;
	assert_int_equal(ask_as(SERVICE, ".admin", LOADERD__REQUEST__KIND_SHUTDOWN), ANSWERED);
	assert_int_equal(waitpid(stage.fixture.daemon, &status, 0), stage.fixture.daemon);
	stage.fixture.daemon = 0;
	assert_int_equal(status, 0);
}

/* Every user sees only the user's own feeds. */
TEST_WITH(status_shows_only_own_feeds, start, stop)
{
	struct feed *feed = fixture_open(&stage.alice); /* as root */
	int status;
	assert_true(fixture_hash(feed, 1) != 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(BOB);
		Loaderd__Reply *reply = fixture_status(&stage.fixture);
		_exit((int)reply->status->n_feeds);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	feed_close(feed);
}

/* Opens a feed on this dataset as ALICE; returns the result. */
static int open_as_alice(const char *path)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct feed_options options = stage.alice;
		struct feed *feed;
		options.dataset = path;
		fixture_become(ALICE);
		_exit(-feed_open(&options, &feed, NULL));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST_WITH(every_shard_counts, start, stop)
{
	char set[PATH_MAX], shard[PATH_MAX];
	strcpy(set, attack_dataset(stage.alice_folder, "sharded", DATASET_SET, ALICE));
	assert_int_equal(open_as_alice(set), 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(shard, sizeof(shard), "%.200s/sharded-%05u-of-00002.pimg",
			 stage.alice_folder, i);
		assert_int_equal(chown(shard, BOB, BOB), 0);
		assert_int_equal(open_as_alice(set), EACCES);
		assert_int_equal(chmod(shard, 0604), 0);
		assert_int_equal(open_as_alice(set), 0);
		assert_int_equal(chmod(shard, 0600), 0);
		assert_int_equal(chown(shard, ALICE, ALICE), 0);
	}
}

static size_t feeds_listed(void)
{
	Loaderd__Reply *reply = fixture_status(&stage.fixture);
	size_t feeds = reply->status->n_feeds;
	loaderd__reply__free_unpacked(reply, NULL);
	return feeds;
}

/* Waits: a feed is listed once another thread has started it. */
static void wait_for_one_feed(void)
{
	for (unsigned i = 0; i < 2000 && feeds_listed() != 1; i++)
		usleep(10000);
	assert_int_equal(feeds_listed(), 1);
}

/* A connection can have one feed; an attempt to open a second one does not affect the first. */
TEST_WITH(one_feed_per_connection, start, stop)
{
	int fds[2];
	int socket =
		fixture_open_bare(&stage.fixture, stage.images, "random_resized_crop(32)", fds);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(attack_ask(socket, "by hand", "random_resized_crop(32)", 16));
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		assert_non_null(reply);
		assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
		assert_int_equal(reply->error->code, EBUSY);
		assert_non_null(strstr(reply->error->text, "open another connection"));
		loaderd__reply__free_unpacked(reply, NULL);
	}
	wait_for_one_feed();
	for (unsigned i = 0; i < 2; i++)
		close(fds[i]);
	close(socket);
}

TEST_WITH(feeds_are_counted_by_user, start, stop)
{
	struct feed *feeds[FEEDS], *another;
	char error[FEED_ERROR_MAX];
	for (unsigned i = 0; i < FEEDS; i++)
		feeds[i] = fixture_open(&stage.alice); /* as root */
	assert_int_equal(feed_open(&stage.alice, &another, error), -EDQUOT);
	assert_non_null(strstr(error, "feeds_per_user"));
	assert_int_equal(open_as_alice(stage.images), 0);
	for (unsigned i = 0; i < FEEDS; i++)
		feed_close(feeds[i]);
}

/*
 * Requests feeds on this connection with the raw protocol. The daemon must refuse each, at a
 * different stage of opening.
 */
static void be_refused(int socket, const char *path, const char *pipeline, unsigned batch_size,
		       int code)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(file >= 0);
	assert_true(attack_ask(socket, "by hand", pipeline, batch_size));
	Loaderd__Reply *reply = attack_reply(socket, NULL);
	while (reply && reply->kind_case == LOADERD__REPLY__KIND_NEED_FILES) {
		bool direct = reply->need_files->direct;
		loaderd__reply__free_unpacked(reply, NULL);
		assert_true(attack_files(socket, 0, 1, direct, &file, 1));
		reply = attack_reply(socket, NULL);
	}
	assert_non_null(reply);
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_ERROR);
	if ((int)reply->error->code != code)
		fail_msg("%s, %s: %s", path, pipeline, reply->error->text);
	loaderd__reply__free_unpacked(reply, NULL);
	close(file);
}

/*
 * Requests more feeds than a user may have; all are refused. A refused feed leaves nothing behind,
 * even while its connection stays open.
 */
TEST_WITH(refused_feeds_use_no_resources, start, stop)
{
	enum { TIMES = 4 * FEEDS };
	struct feed *feeds[FEEDS];
	int socket = attack_connect(&stage);
	pid_t worker = fixture_worker(&stage.fixture);
	be_refused(socket, stage.images, "hflop", 16, EINVAL);
	unsigned descriptors = fixture_descriptors(worker);
	for (unsigned i = 0; i < TIMES; i++) {
		be_refused(socket, stage.images, "hflop", 16, EINVAL);
		be_refused(socket, stage.images, "random_resized_crop(32)", 65, EDQUOT);
		/* The ring is too large, which the daemon detects after opening the dataset. */
		be_refused(socket, stage.images, "random_resized_crop(512)", 48, EDQUOT);
		be_refused(socket, "/dev/null", "random_resized_crop(32)", 16, EINVAL);
	}
	/* Waits for another thread to close the fds and mappings. */
	for (unsigned i = 0; i < 2000 && (fixture_descriptors(worker) > descriptors ||
					  fixture_mappings(worker, "images.pimg") > 0);
	     i++)
		usleep(10000);
	assert_in_range(fixture_descriptors(worker), 0, descriptors);
	assert_int_equal(fixture_mappings(worker, "images.pimg"), 0);
	for (unsigned i = 0; i < FEEDS; i++)
		feeds[i] = fixture_open(&stage.alice);
	/* Feeds of the same file share its mapping, which is removed with the last of them. */
	assert_int_equal(fixture_mappings(worker, "images.pimg"), 1);
	for (unsigned i = 0; i < FEEDS; i++) {
		assert_true(fixture_hash(feeds[i], 2) != 0);
		feed_close(feeds[i]);
	}
	for (unsigned i = 0; i < 2000 && fixture_mappings(worker, "images.pimg") > 0; i++)
		usleep(10000);
	assert_int_equal(fixture_mappings(worker, "images.pimg"), 0);
	close(socket);
}

int main(void)
{
	return test_run_as_root(set_up, tear_down);
}
