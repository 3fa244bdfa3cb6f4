/*
 * The private daemon that libfeed starts: it starts or fails to start, stops, and never outlives
 * its client.
 */
#include "tests/unit/proto/client/feed_test.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

TEST(failed_start_reports_reason)
{
	unsigned fds = count_open_fds();
	struct feed_daemon *daemon = (struct feed_daemon *)&fds;
	setenv("FAKE_START", "die", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), -ECHILD);
	assert_non_null(strstr(
		error, "ended with status 1 while starting: loaderd: threads: 9999 are more"));
	setenv("FAKE_START", "kill", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), -ECHILD);
	assert_non_null(strstr(error, "ended by signal 9 while starting."));
	unsetenv("FAKE_START");
	assert_int_equal(feed_daemon_start("/nonexistent/loaderd", 0, &daemon, error), -ENOENT);
	assert_non_null(strstr(error, "/nonexistent/loaderd"));
	setenv("LOADERD", "/nonexistent/other", 1);
	assert_int_equal(feed_daemon_start(NULL, 0, &daemon, error), -ENOENT);
	assert_non_null(strstr(error, "/nonexistent/other"));
	unsetenv("LOADERD");
	assert_int_equal(feed_daemon_start("/etc/passwd", 0, &daemon, NULL), -EACCES);
	assert_ptr_equal(daemon, &fds);
	assert_int_equal(count_open_fds(), fds);
}

TEST(a_daemon_starts_and_stops)
{
	unsigned fds = count_open_fds();
	struct feed_daemon *daemon;
	int leak =
		dup(0); /* inheritable, but the daemon must not inherit it: fake_loaderd checks */
	setenv("LOADERD", binary, 1);
	assert_int_equal(feed_daemon_start(NULL, 3, &daemon, error), 0);
	unsetenv("LOADERD");
	close(leak);
	assert_int_equal(feed_daemon_alive(daemon), 1);
	assert_int_equal(feed_daemon_socket(daemon)[0], '@');
	char log[200];
	assert_int_equal(feed_daemon_log(daemon, log, sizeof(log)),
			 strlen("threads 3\nloaderd: ready\n"));
	assert_string_equal(log, "threads 3\nloaderd: ready\n");
	assert_int_equal(feed_daemon_log(daemon, log, 19), strlen("loaderd: ready\n"));
	assert_string_equal(log, "loaderd: ready\n");
	pid_t pid = (pid_t)feed_daemon_pid(daemon);
	int64_t start = now_ms();
	feed_daemon_stop(daemon);
	assert_true(now_ms() - start <
		    6900); /* too early for SIGKILL: the daemon exited by itself */
	assert_int_equal(kill(pid, 0), -1);
	feed_daemon_stop(NULL);

	setenv("FAKE_START", "chatty", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
	unsetenv("FAKE_START");
	assert_true(feed_daemon_log(daemon, log, sizeof(log)) > 100);
	assert_memory_equal(log, "loaderd: line ", 14);
	feed_daemon_stop(daemon);
	assert_int_equal(count_open_fds(), fds);
}

TEST(a_stubborn_daemon_is_killed)
{
	struct feed_daemon *daemon;
	setenv("FAKE_START", "stubborn", 1);
	assert_int_equal(feed_daemon_start(binary, 0, &daemon, error), 0);
	unsetenv("FAKE_START");
	pid_t pid = (pid_t)feed_daemon_pid(daemon);
	int64_t start = now_ms();
	feed_daemon_stop(daemon);
	assert_in_range(now_ms() - start, 6900, SOON_MS);
	assert_int_equal(kill(pid, 0), -1);
}

/*
 * The client gets SIGKILL while a process that it forked keeps all inherited fds open. The daemon
 * must exit nevertheless. This process is the subreaper, so that it can observe this.
 */
TEST(no_private_daemon_outlives_its_client)
{
	int pids[2];
	assert_int_equal(pipe2(pids, O_CLOEXEC), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid_t client = fork();
	if (client == 0) {
		struct feed_daemon *daemon;
		pid_t mine[2] = {-1, -1};
		if (feed_daemon_start(binary, 0, &daemon, NULL) == 0)
			mine[0] = (pid_t)feed_daemon_pid(daemon);
		mine[1] = fork();
		if (mine[1] == 0) {
			sleep(600);
			_exit(0);
		}
		ssize_t n = write(pids[1], mine, sizeof(mine));
		(void)n;
		raise(SIGKILL);
	}
	pid_t theirs[2] = {-1, -1};
	int status = 0;
	assert_int_equal(read(pids[0], theirs, sizeof(theirs)), sizeof(theirs));
	assert_int_equal(waitpid(client, &status, 0), client);
	assert_true(theirs[0] > 0);
	assert_int_equal(waitpid(theirs[0], &status, 0), theirs[0]);
	assert_int_equal(waitpid(theirs[1], &status, WNOHANG),
			 0); /* the forked process still lives */
	kill(theirs[1], SIGKILL);
	waitpid(theirs[1], &status, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	close(pids[0]);
	close(pids[1]);
}

/* Copies fake_loaderd under the name of the real program. */
static void install_fake(const char *folder)
{
	char command[2 * PATH_MAX];
	snprintf(command, sizeof(command), "cp '%.2000s' '%.2000s/loaderd'", binary, folder);
	assert_int_equal(system(command), 0);
}

/* Checks that the daemon runs the program in this folder. */
static void expect_program(const struct feed_daemon *daemon, const char *folder)
{
	char link_path[64], path[PATH_MAX], expected[PATH_MAX + 16];
	snprintf(link_path, sizeof(link_path), "/proc/%ld/exe", feed_daemon_pid(daemon));
	ssize_t length = readlink(link_path, path, sizeof(path) - 1);
	assert_true(length > 0);
	path[length] = '\0';
	snprintf(expected, sizeof(expected), "%s/loaderd", folder);
	assert_string_equal(path, expected);
}

/*
 * If the location of loaderd is not configured, libfeed looks in the program's own folder, then in
 * PATH. The test runs a copy of its own program in folders with and without loaderd.
 */
TEST(as_installed)
{
	char folder[] = "/tmp/feed-installed-XXXXXX", beside[PATH_MAX], on_path[PATH_MAX];
	char command[3 * PATH_MAX];
	assert_non_null(mkdtemp(folder));
	snprintf(beside, sizeof(beside), "%s/programs", folder);
	snprintf(on_path, sizeof(on_path), "%s/others", folder);
	assert_int_equal(mkdir(beside, 0755) | mkdir(on_path, 0755), 0);
	install_fake(on_path);
	snprintf(command, sizeof(command), "cp /proc/%d/exe '%.1000s/client'", (int)getpid(),
		 beside);
	assert_int_equal(system(command), 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(command, sizeof(command),
			 "PATH='%.1000s':\"$PATH\" '%.1000s/client' started '%.1000s'", on_path,
			 beside, i == 0 ? on_path : beside);
		assert_int_equal(system(command), 0);
		install_fake(beside); /* from now on the folder's loaderd is preferred */
	}
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	assert_int_equal(system(command), 0);
}

/* Runs in the copy of the program. */
static void test_finds_loaderd_there(void **state)
{
	struct feed_daemon *daemon;
	unsetenv("LOADERD");
	if (feed_daemon_start(NULL, 0, &daemon, error) < 0)
		fail_msg("%s", error);
	expect_program(daemon, *state);
	feed_daemon_stop(daemon);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "started") == 0) {
		const struct CMUnitTest copy[] = {
			cmocka_unit_test_prestate(test_finds_loaderd_there, argv[2]),
		};
		return cmocka_run_group_tests_name("client", copy, NULL, NULL);
	}
	int r = find_fake();
	return r ? r : test_run(start_fake, stop_fake);
}
