/*
 * Another user who locks what may be opened beside the socket: the service stops and starts all the
 * same.
 */
#include "attack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

/* The folder itself, and every file in it that ALICE may open. Returns her process, which keeps them. */
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
		if (folder == NULL || flock(dirfd(folder), LOCK_EX | LOCK_NB) < 0)
			_exit(1);
		for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
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
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
		if (strstr(entry->d_name, "sock") != NULL)
			fail_msg("%s is left", entry->d_name);
	closedir(folder);
}

static void beside_locks(void **state)
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(beside_locks),
	};
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return 77; /* skipped */
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
