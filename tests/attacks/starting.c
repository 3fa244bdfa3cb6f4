/*
 * Another user who locks what may be opened beside the socket: the service stops and starts all the
 * same. Another daemon that is opening its sockets there, or removing them, is waited for.
 */
#include "tests/attacks/attack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

/*
 * The folder itself, and every file in it that ALICE may open. Returns her process, which keeps
 * them.
 */
static pid_t lock_all(const struct stage *stage)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		DIR *folder = opendir(stage->fixture.folder);
		if (!folder || flock(dirfd(folder), LOCK_EX | LOCK_NB) < 0)
			_exit(1);
		for (struct dirent *entry; (entry = readdir(folder));) {
			int fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_NONBLOCK);
			if (fd >= 0)
				(void)flock(fd, LOCK_EX | LOCK_NB);
		}
		(void)!write(ready[1], "", 1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* What is left in the folder is the two users'. */
static void assert_clean(const struct stage *stage)
{
	DIR *folder = opendir(stage->fixture.folder);
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));)
		if (strstr(entry->d_name, "sock"))
			fail_msg("%s is left", entry->d_name);
	closedir(folder);
}

static void test_beside_locks(void **state)
{
	struct stage stage;
	attack_stage(&stage);
	alarm(PATIENCE_S); /* a service that waits would be waited for */
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	pid_t pid = lock_all(&stage);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	assert_clean(&stage);
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fixture_deinit(&stage.fixture);
}

/* Somebody is waiting for the lock on this file. */
static bool is_awaited(ino_t file)
{
	char line[256];
	unsigned long long number;
	bool found = false;
	FILE *locks = fopen("/proc/locks", "re");
	while (locks && !found && fgets(line, sizeof(line), locks))
		found = sscanf(line, "%*d: -> FLOCK ADVISORY WRITE %*d %*x:%*x:%llu", &number) ==
				1 &&
			number == file;
	if (locks)
		fclose(locks);
	return found;
}

/*
 * As a daemon that is just opening its sockets, or removing them, until the next one waits for it.
 */
static int be_another_daemon(const struct stage *stage, int ready)
{
	char path[PATH_MAX + 16];
	struct stat status;
	fixture_become(stage->fixture.uid);
	snprintf(path, sizeof(path), "%s.lock", stage->fixture.socket);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &status) < 0 || flock(fd, LOCK_EX) < 0)
		return 2;
	(void)!write(ready, "", 1);
	while (!is_awaited(status.st_ino)) {
		if (access(stage->fixture.socket, F_OK) == 0)
			return 1; /* it did not wait */
		usleep(1000);
	}
	return 0;
}

static void test_one_after_the_other(void **state)
{
	struct stage stage;
	int ready[2], status;
	char byte;
	attack_stage(&stage);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	alarm(PATIENCE_S);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(PATIENCE_S);
		_exit(be_another_daemon(&stage, ready[1]));
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	alarm(0);
	assert_clean(&stage);
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_locks),
		cmocka_unit_test(test_one_after_the_other),
	};
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return 77; /* skipped */
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
