/*
 * Which of the service's cgroups becomes the parent of per-user cgroups. Directories stand in for
 * /proc and /sys.
 */
#include "loaderd/supervisor/delegated_cgroup.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_root.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#define GROUPS "/sys/fs/cgroup"

/* Creates a cgroup with these processes. */
static void put_group(const char *group, const char *processes)
{
	char name[PATH_MAX];
	static const char *const files[] = {"cgroup.controllers", "cgroup.subtree_control",
					    "cgroup.procs"};
	const char *const texts[] = {"cpuset cpu io memory pids\n", "", processes};
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), GROUPS "%s/%s", group, files[i]);
		fake_root_write(name, texts[i]);
	}
}

static const char *own_pid(void)
{
	static char text[24];
	snprintf(text, sizeof(text), "%d\n", (int)getpid());
	return text;
}

/* Sets up a version 2 hierarchy with this process in `group`. */
static void begin(const char *group)
{
	char line[PATH_MAX];
	fake_root_clear();
	fake_root_write(GROUPS "/cgroup.controllers", "cpuset cpu io memory pids\n");
	snprintf(line, sizeof(line), "0::%s\n", group);
	fake_root_write("/proc/self/cgroup", line);
}

static void expect(const char *group)
{
	char path[PATH_MAX], wanted[PATH_MAX];
	struct config_error error = {{0}};
	if (delegated_cgroup_find(fake_root, path, &error) < 0)
		fail_msg("%s", error.text);
	snprintf(wanted, sizeof(wanted), "%s" GROUPS "%s", fake_root, group);
	assert_string_equal(path, wanted);
}

static void expect_no_cgroups(int code, const char *reason)
{
	char path[PATH_MAX];
	struct config_error error = {{0}};
	assert_int_equal(delegated_cgroup_find(fake_root, path, &error), code);
	if (!strstr(error.text, reason))
		fail_msg("\"%s\" is not in: %s", reason, error.text);
}

static void assert_moved(const char *file)
{
	char path[PATH_MAX], text[64] = "";
	snprintf(path, sizeof(path), "%s" GROUPS "%s", fake_root, file);
	FILE *opened = fopen(path, "r");
	assert_non_null(opened);
	assert_non_null(fgets(text, sizeof(text), opened));
	fclose(opened);
	assert_string_equal(text, own_pid());
}

/*
 * Marks a cgroup as delegated, like systemd; skips the test if the file system does not support
 * extended attributes.
 */
static void delegate(const char *group)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s" GROUPS "%s", fake_root, group);
	if (setxattr(path, "user.delegate", "1", 1, 0) < 0 &&
	    setxattr(path, "trusted.delegate", "1", 1, 0) < 0)
		skip();
}

TEST(container_root_cgroup_is_used)
{
	begin("/");
	put_group("", own_pid());
	put_group("/supervisor", "");
	expect("/");
	assert_moved("/supervisor/cgroup.procs");
}

TEST(delegated_cgroup_is_used)
{
	begin("/system.slice/loaderd.service");
	put_group("/system.slice/loaderd.service", own_pid());
	put_group("/system.slice/loaderd.service/supervisor", "");
	delegate("/system.slice/loaderd.service");
	expect("/system.slice/loaderd.service");
	assert_moved("/system.slice/loaderd.service/supervisor/cgroup.procs");
}

/* The service manager has moved the service there (DelegateSubgroup=supervisor). */
TEST(parent_of_delegated_subgroup_is_used)
{
	begin("/system.slice/loaderd.service/supervisor");
	put_group("/system.slice/loaderd.service", "");
	put_group("/system.slice/loaderd.service/supervisor", own_pid());
	delegate("/system.slice/loaderd.service");
	expect("/system.slice/loaderd.service");
}

TEST(cgroups_not_delegated_are_refused)
{
	fake_root_clear();
	fake_root_write("/proc/self/cgroup", "4:memory:/a\n0::/\n");
	fake_root_write(GROUPS "/unified/cgroup.controllers", "");
	expect_no_cgroups(-ENOENT, "no cgroup v2 hierarchy");
	begin("/user.slice/session-1.scope");
	put_group("/user.slice/session-1.scope", own_pid());
	expect_no_cgroups(-EPERM, "not delegated to it (Delegate=cpu memory pids");
	begin("/");
	put_group("", "1\n2\n3\n");
	expect_no_cgroups(-EBUSY, "contains other processes");
	begin("/");
	put_group("", own_pid());
	fake_root_write(GROUPS "/cgroup.controllers", "io rdma\n");
	expect_no_cgroups(-ENOENT, "none of the controllers");
	begin("/../outside");
	expect_no_cgroups(-ENOENT, "no cgroup v2 hierarchy");
	/* A refused cgroup stays unchanged: no subgroup is created. */
	begin("/a");
	put_group("/a", own_pid());
	expect_no_cgroups(-EPERM, "not delegated");
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s" GROUPS "/a/supervisor", fake_root);
	assert_int_equal(access(path, F_OK), -1);
}

TEST_MAIN(fake_root_setup, fake_root_teardown)
