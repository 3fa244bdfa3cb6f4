/*
 * Which files a worker maps, copies or refuses, depending on their file system. The test mounts
 * file systems that any user can mount in user namespaces; tests that need them are skipped if
 * these cannot be created.
 */
#include "loaderd/worker/storage.h"
#include "tests/test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { NO_NAMESPACE = 100 };

static char folder[] = "/tmp/loaderd-storage-XXXXXX";
static struct packimg_error error;

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

static bool leave_namespaces(void)
{
	char uids[32], gids[32];
	snprintf(uids, sizeof(uids), "0 %u 1", (unsigned)geteuid());
	snprintf(gids, sizeof(gids), "0 %u 1", (unsigned)getegid());
	return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && put("/proc/self/setgroups", "deny") &&
	       put("/proc/self/uid_map", uids) && put("/proc/self/gid_map", gids);
}

static bool mount_overlay(void)
{
	char options[512], path[256];
	static const char *const parts[] = {"lower", "upper", "work"};
	if (mount("tmpfs", folder, "tmpfs", 0, NULL) < 0)
		return false;
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, parts[i]);
		if (mkdir(path, 0700) < 0)
			return false;
	}
	snprintf(options, sizeof(options), "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work",
		 folder, folder, folder);
	return mount("overlay", folder, "overlay", 0, options) == 0;
}

static bool mount_ramfs(void)
{
	return mount("ramfs", folder, "ramfs", 0, NULL) == 0;
}

static int new_file(void)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/file", folder);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/*
 * Returns a file on a file system that another process has mounted in other namespaces; -1 if that
 * is not permitted.
 */
static int foreign_file(bool (*mount_it)(void))
{
	int status;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		int fd = leave_namespaces() && mount_it() ? new_file() : 0;
		_exit(fd < 0 ? 0 : fd);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == 0)
		return -1;
	return WEXITSTATUS(status);
}

static int choose(int fd, bool *ret_mapped)
{
	int r = storage_choose("NAME", &fd, 1, ret_mapped, &error);
	close(fd);
	return r;
}

/*
 * Checks the choice in a container, before and after storage_init(). Returns the number of the
 * failed step, 0 if none.
 */
static int in_a_container(void)
{
	bool mapped = true;
	if (!leave_namespaces() || !mount_overlay())
		return NO_NAMESPACE;
	storage_init(true);
	if (choose(new_file(), &mapped) != 0 || mapped)
		return 1;
	int foreign = foreign_file(mount_overlay);
	return foreign >= 0 && choose(foreign, &mapped) != -EINVAL ? 2 : 0;
}

/*
 * The root of the daemon's container is often an overlay. This test must run before storage_init()
 * has opened this process's mounts.
 */
TEST(own_overlay_is_copied)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(in_a_container());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACE)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(memory_is_copied)
{
	bool mapped;
	for (unsigned i = 0; i < 2; i++) {
		mapped = true;
		assert_int_equal(choose(memfd_create("memory", MFD_CLOEXEC), &mapped), 0);
		assert_false(mapped);
		storage_init(true);
	}
	assert_int_equal(choose(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), &mapped), 0);
	int both[] = {open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd_create("memory", 0)};
	assert_int_equal(storage_choose("NAME", both, 2, &mapped, &error), 0);
	assert_false(mapped);
	close(both[0]);
	close(both[1]);
	assert_int_equal(storage_choose("NAME", &(int){12345}, 1, &mapped, &error), -EBADF);
	assert_non_null(strstr(error.text, "NAME: the daemon may not access its file system"));
}

TEST(user_mounted_file_systems_are_refused)
{
	bool mapped = true;
	storage_init(true);
	int ramfs = foreign_file(mount_ramfs), overlay = foreign_file(mount_overlay);
	if (ramfs < 0 || overlay < 0)
		skip();
	assert_int_equal(choose(ramfs, &mapped), -EINVAL);
	assert_non_null(strstr(error.text, "NAME: is on ramfs"));
	assert_int_equal(choose(overlay, &mapped), -EINVAL);
	assert_non_null(strstr(error.text, "NAME: is on an overlay file system"));
	assert_true(mapped);
}

TEST(private_daemon_maps_every_file)
{
	bool mapped = false;
	storage_init(false);
	assert_int_equal(choose(memfd_create("memory", MFD_CLOEXEC), &mapped), 0);
	assert_true(mapped);
	int overlay = foreign_file(mount_overlay);
	if (overlay >= 0) {
		mapped = false;
		assert_int_equal(choose(overlay, &mapped), 0);
		assert_true(mapped);
	}
}

static int set_up(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	return rmdir(folder);
}

TEST_MAIN(set_up, tear_down)
