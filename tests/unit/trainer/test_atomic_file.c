/*
 * Atomic replacement of files: if the process is killed at any of its system calls, or any of them
 * fails, either the old or the complete new file remains. The linker wraps the calls (link
 * arguments in meson.build).
 */
#include "format/base/system/atomic_file.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test_atomic_file.XXXXXX";
static char path[128];
static struct stat folder_status;

/* Letters of the calls so far; `when` is the number of the call to disturb, from 1. */
static char calls[32];
static unsigned when;
static int error; /* errno of the disturbed call; 0 kills the process instead */

ssize_t __real_write(int fd, const void *data, size_t size);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_write(int fd, const void *data, size_t size);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);

/* Records a call. Returns true if the call is to fail. */
static bool meet(char call)
{
	size_t count = strlen(calls);
	assert_true(count < sizeof(calls) - 1);
	calls[count] = call;
	if (count + 1 != when)
		return false;
	if (!error)
		raise(SIGKILL);
	errno = error;
	return true;
}

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
	/* write a few bytes at a time, as a disk that is nearly full */
	return meet('w') ? -1 : __real_write(fd, data, size > 4 ? 4 : size);
}

int __wrap_fsync(int fd)
{
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	if (S_ISDIR(status.st_mode)) /* only the file's folder may be synced */
		assert_true(status.st_ino == folder_status.st_ino &&
			    status.st_dev == folder_status.st_dev);
	return meet('s') ? -1 : __real_fsync(fd);
}

int __wrap_close(int fd)
{
	int r = __real_close(fd);
	return meet('c') ? -1 : r;
}

int __wrap_rename(const char *from, const char *to)
{
	return meet('r') ? -1 : __real_rename(from, to);
}

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	return stat(folder, &folder_status);
}

static int teardown(void **state)
{
	unlink(path);
	return rmdir(folder); /* fails if a temporary file is left */
}

static void put(unsigned at, int failure, const char *text, int expected)
{
	memset(calls, 0, sizeof(calls));
	when = at;
	error = failure;
	int r = atomic_file_put(path, text, strlen(text));
	when = 0;
	assert_int_equal(r, expected);
}

static void expect(const char *text)
{
	char read[64] = "";
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	size_t size = fread(read, 1, sizeof(read) - 1, file);
	assert_int_equal(size, strlen(text));
	assert_string_equal(read, text);
	fclose(file);
}

/* Syncs the data before the rename, and the folder before the function returns. */
TEST(in_order)
{
	put(0, 0, "older", 0);
	expect("older");
	assert_string_equal(calls, "wwscrsc");
}

/* A name without a directory refers to the current directory. */
TEST(name_alone)
{
	char whole[sizeof(path)];
	char *before = getcwd(NULL, 0);
	assert_non_null(before);
	assert_int_equal(chdir(folder), 0);
	strcpy(whole, path);
	strcpy(path, "file");
	put(0, 0, "here", 0);
	assert_string_equal(calls, "wscrsc");
	strcpy(path, whole);
	assert_int_equal(chdir(before), 0);
	free(before);
	expect("here");
}

TEST(killed)
{
	for (unsigned at = 1; at <= 7; at++) {
		int status;
		char leftover[160];
		put(0, 0, "older", 0);
		pid_t pid = fork();
		if (!pid) {
			put(at, 0, "newer!", 0);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		/* the fifth call is the rename */
		expect(at <= 5 ? "older" : "newer!");
		snprintf(leftover, sizeof(leftover), "%s.%d.tmp", path, (int)pid);
		assert_int_equal(atomic_file_leftover(leftover), strlen(path));
		assert_int_equal(unlink(leftover), at <= 5 ? 0 : -1);
	}
}

TEST(failed)
{
	for (unsigned at = 1; at <= 5; at++) {
		put(0, 0, "older", 0);
		put(at, ENOSPC, "newer!", -ENOSPC);
		expect("older");
	}
	/* syncing the folder fails: the file is complete, but may not survive a power failure */
	put(6, EIO, "newer!", -EIO);
	expect("newer!");
	put(6, EINVAL, "newest", 0);
	expect("newest");
	put(1, EINTR, "again", 0);
	expect("again");
	struct atomic_file file;
	assert_int_equal(atomic_file_create(&file, path), 0);
	assert_int_equal(atomic_file_write(&file, "half", 4), 0);
	assert_int_equal(atomic_file_close(&file, -ECANCELED), -ECANCELED);
	expect("again");
	assert_int_equal(atomic_file_put("/nonexistent/file", "", 0), -ENOENT);
}

/* atomic_file_check() finds errors that a later write would meet, and changes nothing. */
TEST(try)
{
	char below[sizeof(path) + 8];
	put(0, 0, "older", 0);
	assert_int_equal(atomic_file_check(path), 0);
	expect("older");
	assert_int_equal(atomic_file_check("/nonexistent/file"), -ENOENT);
	snprintf(below, sizeof(below), "%s/file", path);
	assert_int_equal(atomic_file_check(below), -ENOTDIR);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(atomic_file_check(path), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(symlink(folder, path), 0); /* writing replaces the symbolic link */
	assert_int_equal(atomic_file_check(path), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0777), 0);
	assert_int_equal(atomic_file_check(path), -EISDIR);
	assert_int_equal(rmdir(path), 0);
}

/* A sticky folder such as /tmp: everyone may create files there, but not replace another user's. */
TEST(try_in_a_shared_folder)
{
	enum { STRANGER = 4711 };
	int status;
	if (geteuid() != 0)
		skip();
	put(0, 0, "older", 0);
	assert_int_equal(chmod(folder, 01777), 0);
	pid_t pid = fork();
	if (!pid) {
		char own[sizeof(path) + 8];
		snprintf(own, sizeof(own), "%s.own", path);
		if (setuid(STRANGER))
			_exit(1);
		bool right = atomic_file_check(path) == -EPERM &&
			     atomic_file_put(path, "newer", 5) == -EPERM &&
			     atomic_file_put(own, "own", 3) == 0 && atomic_file_check(own) == 0;
		_exit(right && !unlink(own) ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(status, 0);
	expect("older");
	assert_int_equal(atomic_file_check(path), 0);
}

TEST(leftovers)
{
	assert_int_equal(atomic_file_leftover("summary.json.123.tmp"), strlen("summary.json"));
	assert_int_equal(atomic_file_leftover("a.1.2.tmp"), 3);
	static const char *const others[] = {"",       ".tmp",    "a.tmp",   "a.12",    "a.12.tmpx",
					     "12.tmp", ".12.tmp", "a12.tmp", "a.1x.tmp"};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (atomic_file_leftover(others[i]))
			fail_msg("%s", others[i]);
}

TEST_MAIN(setup, teardown)
