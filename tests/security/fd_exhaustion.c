/*
 * A service that runs out of fds because many users arrive at once refuses some of them, keeps
 * serving existing clients, does not fill its log, and recovers when the users have gone. A worker
 * that runs out of fds leaves no client waiting without an answer.
 */
#include "proto/framing.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	DESCRIPTORS = 86, /* fd limit of the supervisor, which needs about six per user */
	USERS = 30,
	EACH = 10,      /* number of connections per user */
	AGAIN_MS = 100, /* delay before refused clients connect again */
	BACK_WITHIN_MS = 10000,
	UNREAD_DESCRIPTORS = 512,
	UNREAD_USERS = 4,
	UNREAD = 256,    /* number of connections per user */
	LINES_MAX = 150, /* log output allowed in the few seconds of the test */
};

/* Starts the service with its standard error in a file. */
static void start(struct stage *stage, unsigned descriptors, char log[PATH_MAX])
{
	snprintf(log, PATH_MAX, "%.200s/log", stage->fixture.folder);
	int ours = dup(STDERR_FILENO),
	    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(ours >= 0 && fd >= 0);
	dup2(fd, STDERR_FILENO);
	stage->fixture.descriptors = descriptors;
	fixture_start(&stage->fixture, NULL, "--threads", "1", "--set", "daemon.idle_ms=200", NULL);
	dup2(ours, STDERR_FILENO);
	close(ours);
	close(fd);
}

static unsigned lines(const char *path)
{
	unsigned count = 0;
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	for (int c; (c = getc(file)) != EOF;)
		count += c == '\n';
	fclose(file);
	return count;
}

/* Opens EACH connections, and reopens those that are closed. */
static pid_t come(const struct stage *stage, uid_t uid)
{
	struct pollfd all[EACH];
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	fixture_become(uid);
	for (unsigned i = 0; i < EACH; i++)
		all[i] = (struct pollfd){.fd = attack_connect(stage)};
	for (;;) {
		(void)poll(all, EACH, AGAIN_MS);
		for (unsigned i = 0; i < EACH; i++) {
			if (all[i].fd >= 0 && all[i].revents == 0)
				continue;
			if (all[i].fd >= 0)
				close(all[i].fd);
			all[i].fd = attack_connect(stage);
		}
		usleep(AGAIN_MS * 1000);
	}
}

/* Starts a user who connects before the others and continues; returns after the first batch. */
static pid_t stay(const struct stage *stage)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(BOB);
		struct feed *feed = fixture_open(&stage->bob);
		if (fixture_hash(feed, 1) == 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		while (fixture_hash(feed, 1) != 0)
			;
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static int serve_once(const struct stage *stage, uid_t uid)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct feed *feed;
		char error[FEED_ERROR_MAX];
		fixture_become(uid);
		if (feed_open(uid == ALICE ? &stage->alice : &stage->bob, &feed, error) < 0) {
			print_message("%s: %s\n", uid == ALICE ? "ALICE" : "BOB", error);
			fflush(stdout);
			_exit(1);
		}
		_exit(fixture_hash(feed, 2) == 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

TEST(without_descriptors)
{
	struct stage stage;
	pid_t pids[USERS];
	char log[PATH_MAX];
	attack_stage(&stage);
	start(&stage, DESCRIPTORS, log);
	pid_t bob = stay(&stage);
	for (unsigned i = 0; i < USERS; i++)
		pids[i] = come(&stage, CROWD + i);
	usleep(1000000);
	unsigned open = fixture_descriptors(stage.fixture.daemon);
	print_message("%u of %d descriptors in use\n", open, DESCRIPTORS);
	uint64_t start_ms = attack_now_ms();
	while (serve_once(&stage, ALICE) == 0) /* until the service refuses ALICE */
		assert_true(attack_now_ms() < start_ms + BACK_WITHIN_MS);
	/* Retry: a service short of CPU time may be late in closing other users' connections. */
	start_ms = attack_now_ms();
	while (serve_once(&stage, BOB) != 0)
		assert_true(attack_now_ms() < start_ms + BACK_WITHIN_MS);
	for (unsigned i = 0; i < USERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	start_ms = attack_now_ms();
	while (serve_once(&stage, ALICE) != 0)
		if (attack_now_ms() > start_ms + BACK_WITHIN_MS)
			fail_msg("no new user is served although all others have left");
	print_message("ALICE was served %llu ms after they had gone\n",
		      (unsigned long long)(attack_now_ms() - start_ms));
	int status;
	unsigned count = lines(log);
	print_message("%u lines of log\n", count);
	assert_in_range(count, 1, LINES_MAX);
	assert_int_equal(waitpid(bob, &status, WNOHANG), 0);
	kill(bob, SIGKILL);
	waitpid(bob, &status, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

/* Leaves connections with unread replies that the service has closed. */
static pid_t leave_unread(const struct stage *stage, uid_t uid)
{
	static const uint8_t get_status[] = {0x12, 0};
	struct pollfd all[UNREAD];
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(uid);
		for (unsigned i = 0; i < UNREAD; i++) {
			all[i] = (struct pollfd){.fd = attack_connect(stage), .events = POLLIN};
			assert_true(all[i].fd >= 0);
			(void)frame_send(all[i].fd, get_status, sizeof(get_status), NULL, 0, 0);
			(void)poll(&all[i], 1, BACK_WITHIN_MS);
		}
		for (unsigned i = 0; i < UNREAD; i++)
			shutdown(all[i].fd, SHUT_WR);
		for (unsigned i = 0; i < UNREAD; i++) {
			all[i].events = 0; /* report hang-ups only */
			(void)poll(&all[i], 1, BACK_WITHIN_MS);
		}
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	return pid;
}

/* Connections with unread replies count against their user, and leave enough fds for others. */
TEST(unread_replies_of_others)
{
	struct stage stage;
	pid_t pids[UNREAD_USERS];
	char log[PATH_MAX];
	attack_stage(&stage);
	start(&stage, UNREAD_DESCRIPTORS, log);
	for (unsigned i = 0; i < UNREAD_USERS; i++) {
		pids[i] = leave_unread(&stage, CROWD + i);
		assert_int_equal(serve_once(&stage, ALICE), 0);
	}
	unsigned open = fixture_descriptors(stage.fixture.daemon);
	print_message("%u of %d descriptors in use\n", open, UNREAD_DESCRIPTORS);
	/* The service must keep unread connections, or the test proves nothing. */
	assert_true(open > UNREAD_DESCRIPTORS / 6);
	assert_int_equal(serve_once(&stage, BOB), 0);
	for (unsigned i = 0; i < UNREAD_USERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

/*
 * Opens more connections than a worker can have, one after the other. Each must be answered or
 * closed.
 */
TEST(worker_without_descriptors)
{
	enum { WORKERS = 100, CONNECTIONS = 95, PATIENCE_MS = 5000 };
	struct stage stage;
	unsigned answered = 0;
	attack_stage(&stage);
	stage.fixture.descriptors = WORKERS;
	fixture_start(&stage.fixture, NULL, "--threads", "1", "--log-level", "error", NULL);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct pollfd p = {.fd = attack_connect(&stage), .events = POLLIN};
		char byte;
		(void)send(p.fd, "\2\0\0\0\x12\0", 6, MSG_NOSIGNAL); /* GetStatus */
		if (poll(&p, 1, PATIENCE_MS) != 1)
			fail_msg("connection %u is neither answered nor closed", i);
		answered += recv(p.fd, &byte, 1, MSG_PEEK) == 1;
	}
	print_message("%u of %d connections answered\n", answered, CONNECTIONS);
	assert_in_range(answered, 1, CONNECTIONS - 1);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

/*
 * Connects as ALICE. Returns true if she gets a feed or an error text, which is stored in `text`;
 * false if the daemon hangs up.
 */
static bool is_served_or_refused(const struct stage *stage, char text[FEED_ERROR_MAX])
{
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		int socket = attack_connect(stage);
		(void)attack_ask(socket, "by hand", NULL, 0);
		Loaderd__Reply *reply = attack_reply(socket, NULL);
		if (reply && reply->kind_case == LOADERD__REPLY__KIND_ERROR)
			dprintf(fds[1], "%s", reply->error->text);
		_exit(!reply);
	}
	close(fds[1]);
	ssize_t n = read(fds[0], text, FEED_ERROR_MAX - 1);
	text[n < 0 ? 0 : n] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status == 0;
}

/*
 * Clients get an error if the service's user reaches its thread limit at any point in the start of
 * a worker. Root's worker, started by the fixture, exists already.
 */
TEST(without_threads)
{
	/*
	 * limits: from the number of threads of the supervisor and one worker, up to the number
	 * with a second worker
	 */
	enum { LEAST = 15, MOST = LEAST + 6, ALONE = 64150 };
	struct stage stage;
	char text[FEED_ERROR_MAX];
	unsigned told = 0;
	if (sanitized()) {
		print_message("skipped: a sanitizer starts threads of its own\n");
		return;
	}
	attack_stage(&stage);
	/* The kernel counts all threads of a uid, so use a uid that no other test uses. */
	stage.fixture.uid = ALONE;
	assert_int_equal(chown(stage.fixture.folder, ALONE, ALONE), 0);
	for (unsigned processes = LEAST; processes <= MOST; processes++) {
		stage.fixture.processes = processes;
		fixture_start(&stage.fixture, NULL, "--threads", "1", "--log-level", "error", NULL);
		if (!is_served_or_refused(&stage, text))
			fail_msg("RLIMIT_NPROC %u: connection closed without an Error", processes);
		char expected[64];
		snprintf(expected, sizeof(expected), "RLIMIT_NPROC of the service's user, %u",
			 processes);
		told += strstr(text, expected) != NULL;
		assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	}
	print_message("told why under %u of %d limits\n", told, MOST - LEAST + 1);
	assert_in_range(told, 3, MOST - LEAST + 1);
	fixture_deinit(&stage.fixture);
}

/* The service refuses a ring larger than RLIMIT_FSIZE; the supervisor must not die of SIGXFSZ. */
TEST(without_large_files)
{
	struct stage stage;
	int status;
	attack_stage(&stage);
	stage.fixture.file_bytes = 64 << 10;
	fixture_start(&stage.fixture, NULL, "--threads", "1", "--log-level", "error", NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct feed *feed;
		char error[FEED_ERROR_MAX] = "";
		fixture_become(ALICE);
		int r = feed_open(&stage.alice, &feed, error);
		print_message("%s\n", error);
		fflush(stdout);
		_exit(r != -EFBIG);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(waitpid(stage.fixture.daemon, &status, WNOHANG), 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
