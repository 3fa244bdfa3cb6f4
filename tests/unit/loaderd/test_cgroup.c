/* cgroup limits on machines and in containers. Directories stand in for /proc and the mounts. */
#include "format/base/system/cgroup.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_root.h"

#include <limits.h>
#include <sys/stat.h>

/* Sets up a machine with these mounts and cgroups. */
static void begin(const char *mountinfo, const char *groups)
{
	fake_root_clear();
	fake_root_write("/proc/self/mountinfo", mountinfo);
	fake_root_write("/proc/self/cgroup", groups);
}

static void expect(uint64_t memory, unsigned cpus)
{
	struct cgroup_limits limits = {1, 1};
	cgroup_read(fake_root, &limits);
	assert_int_equal(limits.memory, memory);
	assert_int_equal(limits.cpus, cpus);
}

#define MOUNTS_1                                                                                   \
	"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"                      \
	"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n"     \
	"34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"               \
	"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"

#define NO_LIMIT "9223372036854771712\n"

TEST(version_1)
{
	begin(MOUNTS_1, "5:cpuset:/c\n4:memory:/a/b\n1:cpu,cpuacct:/x\n");
	expect(UINT64_MAX, UINT_MAX);
	fake_root_write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "3000\n");
	expect(3000, UINT_MAX);
	/* the minimum of the limits on the path to the fake_root; sibling cgroups do not count */
	fake_root_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000\n");
	fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT);
	fake_root_write("/sys/fs/cgroup/memory/a/c/memory.limit_in_bytes", "1000\n");
	fake_root_write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n");
	fake_root_write("/sys/fs/cgroup/cpuset/a/b/memory.limit_in_bytes", "1000\n");
	expect(2000, UINT_MAX);
	fake_root_write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
	fake_root_write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
	expect(2000, UINT_MAX);
	fake_root_write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "150000\n");
	expect(2000, 2);
	fake_root_write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
	fake_root_write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
	expect(2000, 1);
	/* version 1 ignores files of version 2 */
	fake_root_write("/sys/fs/cgroup/memory/a/b/memory.max", "10\n");
	expect(2000, 1);
}

TEST(version_2)
{
	begin("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
	      "0::/s/u\n");
	fake_root_write("/sys/fs/cgroup/s/u/memory.max", "max\n");
	fake_root_write("/sys/fs/cgroup/s/u/cpu.max", "max 100000\n");
	expect(UINT64_MAX, UINT_MAX);
	fake_root_write("/sys/fs/cgroup/s/memory.max", "5000\n");
	fake_root_write("/sys/fs/cgroup/s/u/cpu.max", "250000 100000\n");
	expect(5000, 3);
	fake_root_write("/sys/fs/cgroup/s/cpu.max", "100000 100000\n");
	fake_root_write("/sys/fs/cgroup/memory.max", "4000\n");
	expect(4000, 1);
}

/* systemd's hybrid hierarchy: memory and CPU are in version 1, version 2 has no controllers. */
TEST(hybrid)
{
	begin(MOUNTS_1 "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
	      "4:memory:/m\n1:cpu,cpuacct:/\n0::/m\n");
	fake_root_write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "700\n");
	fake_root_write("/sys/fs/cgroup/unified/m/cgroup.procs", "");
	expect(700, UINT_MAX);
	fake_root_write("/sys/fs/cgroup/unified/m/memory.max", "600\n");
	expect(600, UINT_MAX);
}

/*
 * A container sees its cgroup at the mount point, but /proc/self/cgroup shows the path on the host,
 * or one outside the mount's root.
 */
TEST(containers)
{
	static const char mount_1[] =
		"35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

	begin(mount_1, "4:memory:/docker/abc\n");
	fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n");
	expect(900, UINT_MAX);
	begin(mount_1, "4:memory:/docker/abc/inner\n");
	fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n");
	fake_root_write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "800\n");
	expect(800, UINT_MAX);
	/*
	 * a cgroup with the same name prefix, one above the fake_root as seen in a namespace, and
	 * the fake_root
	 */
	for (int i = 0; i < 3; i++) {
		begin(mount_1, i == 0   ? "4:memory:/docker/abcdef\n"
			       : i == 1 ? "4:memory:/../../x\n"
					: "4:memory:/\n");
		fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n");
		expect(900, UINT_MAX);
	}
	/* mounted at another path with a space in its name, twice */
	begin("30 23 0:26 /pod /mnt/my\\040groups rw - cgroup2 none rw\n"
	      "31 23 0:26 / /other rw - cgroup2 none rw\n",
	      "0::/pod/one\n");
	fake_root_write("/mnt/my groups/one/memory.max", "70\n");
	fake_root_write("/other/memory.max", "80\n");
	fake_root_write("/other/pod/cpu.max", "10 10\n");
	expect(70, 1);
}

/* Malformed files are parsed within bounds. */
TEST(odd_files)
{
	begin("", "");
	expect(UINT64_MAX, UINT_MAX);
	begin("nonsense\n35 31 - \n35 31 0:32 / /x rw - cgroup\n35 - cgroup2 a b\n",
	      ":::\n::\n4:memory\n\n");
	expect(UINT64_MAX, UINT_MAX);
	begin(MOUNTS_1, "4:memory:/a/b");
	fake_root_write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "");
	fake_root_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "many\n");
	fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "77");
	expect(77, UINT_MAX);
	char *long_path = malloc(20000);
	memset(long_path, '/', 20000);
	memcpy(long_path, "4:memory:", 9);
	memcpy(long_path + 19998, "\n", 2);
	begin(MOUNTS_1, long_path);
	free(long_path);
	expect(UINT64_MAX, UINT_MAX);
	fake_root_clear();
	expect(UINT64_MAX, UINT_MAX);
}

TEST_MAIN(fake_root_setup, fake_root_teardown)
