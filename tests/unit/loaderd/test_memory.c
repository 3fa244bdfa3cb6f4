/*
 * The amount of available memory can be read without a free fd, and where /proc has no files but
 * those of processes.
 */
#include "format/base/system/memory.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_root.h"

#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t all_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What memory_files_available() returns for a root. */
static uint64_t available_in(const char *root)
{
	struct memory_files files;
	memory_files_open(root, &files);
	uint64_t available = memory_files_available(&files);
	memory_files_close(&files);
	return available;
}

TEST(nothing_opens)
{
	struct rlimit some, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &some), 0);
	none = (struct rlimit){0, some.rlim_max};
	memory_init();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	/* less than all memory, because the kernel uses some */
	assert_in_range(memory_available(), 1, all_memory() - 1);
	/* restored, because a sanitizer opens files at exit */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &some), 0);
}

#define NODE(number, free, active, inactive, rest)                                                 \
	"Node " number " MemTotal:       9000000 kB\nNode " number " MemFree:  " free              \
	" kB\nNode " number " Active:  77777 kB\nNode " number " Active(anon):  88888 kB\n"        \
	"Node " number " Active(file):  " active " kB\nNode " number " Inactive(file):  " inactive \
	" kB\n" rest

TEST(nodes_are_added_up)
{
	fake_root_clear();
	assert_int_equal(available_in(fake_root), 0);
	fake_root_write("/sys/devices/system/node/node0/meminfo",
			NODE("0", "4000", "300", "20",
			     "Node 0 KReclaimable:  7 kB\nNode 0 SReclaimable:  5 kB\n"));
	fake_root_write("/sys/devices/system/node/node12/meminfo",
			NODE("12", "1", "0", "0", "Node 12 SReclaimable:  1000 kB\n"));
	fake_root_write("/sys/devices/system/node/nodes/meminfo", NODE("0", "1", "1", "1", ""));
	fake_root_write("/sys/devices/system/node/node3x/meminfo", NODE("0", "1", "1", "1", ""));
	fake_root_write("/sys/devices/system/node/possible", "0,12\n");
	assert_int_equal(available_in(fake_root), UINT64_C(5328) << 10);
	fake_root_write("/proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 4001 kB\n"
					 "MemAvailable:    4567 kB\nBuffers: 3 kB\n");
	assert_int_equal(available_in(fake_root), UINT64_C(4567) << 10);
}

TEST(nodes_agree_with_meminfo)
{
	char path[PATH_MAX];
	uint64_t known = available_in(""), quarter = all_memory() / 4;
	fake_root_clear();
	snprintf(path, sizeof(path), "%s/sys", fake_root);
	assert_int_equal(symlink("/sys", path), 0);
	uint64_t estimate = available_in(fake_root);
	if (!known || !estimate)
		skip(); /* no /proc, or no NUMA nodes */
	/* a quarter, because other processes take and release memory meanwhile */
	assert_in_range(estimate, known > quarter ? known - quarter : 1, known + quarter);
}

/* Returns the exit status of a process that sees only processes in /proc: 0 if all is right. */
static int among_processes(uint64_t known)
{
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", 0, "subset=pid") < 0)
		return 77;
	if (access("/proc/meminfo", F_OK) == 0 || access("/proc/self/stat", F_OK) < 0)
		return 1;
	uint64_t estimate = available_in(""), quarter = all_memory() / 4;
	return estimate && estimate < known + quarter && estimate + quarter > known ? 0 : 2;
}

TEST(proc_without_meminfo)
{
	int status;
	uint64_t known = available_in("");
	fake_root_clear();
	if (!known || access("/sys/devices/system/node/node0/meminfo", R_OK) < 0)
		skip();
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(among_processes(known));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* needs root, and Linux 5.8 */
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST_MAIN(fake_root_setup, fake_root_teardown)
