/*
 * Per-user cgroups with a real kernel. Needs root and a version 2 hierarchy with the controllers
 * memory and pids; skipped elsewhere. tests/release/service/kernel boots a kernel with these.
 */
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ROOT          "/sys/fs/cgroup"
#define SERVICE_GROUP ROOT "/loaderd-test"

enum {
	MIB = 1 << 20,
	MEMORY_MIB = 96,   /* memory limit per user */
	DATASET_MIB = 192, /* more than the limit */
	SIDE = 512,
	PATIENCE_MS = 120000,
};

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return written;
}

/* Reads the first line of a file below the service's cgroup. */
static bool read_line(const char *name, char text[256])
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", SERVICE_GROUP, name);
	FILE *file = fopen(path, "re");
	bool read = file && fgets(text, 256, file);
	if (file)
		fclose(file);
	return read;
}

static long long number_of(const char *name)
{
	char text[256];
	if (!read_line(name, text))
		fail_msg("%s: %s", name, strerror(errno));
	return atoll(text);
}

/* Delegates a cgroup like systemd does for a service that runs as SERVICE. */
static bool delegate_group(void)
{
	static const char *const files[] = {"", "/cgroup.procs", "/cgroup.subtree_control",
					    "/cgroup.threads"};
	char path[128];
	(void)write_file(ROOT "/cgroup.subtree_control", "+cpu");
	if (!write_file(ROOT "/cgroup.subtree_control", "+memory +pids") ||
	    (mkdir(SERVICE_GROUP, 0755) < 0 && errno != EEXIST))
		return false;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), SERVICE_GROUP "%s", files[i]);
		if (chown(path, SERVICE, SERVICE) < 0)
			return false;
	}
	return true;
}

static void start(struct stage *stage)
{
	attack_stage(stage);
	stage->fixture.group = SERVICE_GROUP "/cgroup.procs";
	fixture_start(&stage->fixture, NULL, "--threads", "1", "--io", "mmap", "--set",
		      "users.memory=96M", "--set", "users.threads=150", NULL);
}

static void stop(struct stage *stage)
{
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	fixture_deinit(&stage->fixture);
}

/*
 * Runs a function as a user in a separate process; returns once it has written a byte to `ready`.
 */
static pid_t run_as(uid_t uid, void (*run)(const struct stage *, int ready),
		    const struct stage *stage)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
		/* many processes together could lock as much */
		(void)setrlimit(RLIMIT_MEMLOCK, &all);
		fixture_become(uid);
		run(stage, ready[1]);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void alice_is_served(const struct stage *stage, int ready)
{
	struct feed *feed = fixture_open(&stage->alice);
	if (fixture_hash(feed, 1) != 0 && write(ready, "", 1) == 1)
		pause();
}

static void assert_group_of(pid_t pid, const char *expected)
{
	char path[64], line[256] = "";
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && strncmp(line, "0::", 3) != 0)
		;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(line + 3, expected);
}

TEST(each_user_has_a_cgroup)
{
	struct stage stage;
	char text[256];
	start(&stage);
	pid_t pid = run_as(ALICE, alice_is_served, &stage);
	assert_group_of(stage.fixture.daemon, "/loaderd-test/supervisor");
	assert_group_of(fixture_worker_of(&stage.fixture, ALICE), "/loaderd-test/user-64201");
	assert_int_equal(number_of("user-64201/memory.max"), MEMORY_MIB * MIB);
	assert_int_equal(number_of("user-64201/pids.max"), 150);
	if (read_line("user-64201/memory.swap.max", text))
		assert_string_equal(text, "0\n");
	/* The worker's memory is charged to the user's cgroup. */
	assert_true(number_of("user-64201/memory.current") > MIB);
	end(pid);
	stop(&stage);
	/* Only the subgroup remains, and the next service can start in the cgroup. */
	assert_int_equal(access(SERVICE_GROUP "/user-64201", F_OK), -1);
	assert_true(read_line("cgroup.subtree_control", text) == false || text[0] == '\n');
}

/*
 * Locks the pages of the file that the daemon has read into the page cache, so that they stay
 * there.
 */
static size_t pin(char *map, size_t size)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = size / page;
	unsigned char *there = malloc(pages);
	size_t pinned = 0;
	if (!there || mincore(map, size, there) < 0)
		_exit(2);
	for (size_t i = 0; i < pages; i++)
		if ((there[i] & 1) && mlock(map + i * page, page) == 0)
			pinned++;
	free(there);
	return pinned * page;
}

/*
 * Locks all pages that the daemon reads for ALICE, until it cannot read more or has read the whole
 * file.
 */
static void alice_pins(const struct stage *stage, int ready)
{
	struct feed *feed;
	char error[FEED_ERROR_MAX];
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	size_t size = (size_t)lseek(file, 0, SEEK_END), pinned = 0;
	char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
	if (map == MAP_FAILED || feed_open(&stage->alice, &feed, error) < 0)
		_exit(3);
	for (unsigned i = 0; i < 2 * DATASET_MIB; i++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		int r = feed_next(feed, 5000, &batch);
		pinned = pin(map, size);
		if (r != 0)
			break;
		feed_release(feed, &batch);
	}
	dprintf(STDOUT_FILENO, "ALICE has pinned %zu MiB\n", pinned / MIB);
	if (write(ready, "", 1) == 1)
		pause();
}

/* Writes the file as root, whose pages are charged to root until they are dropped. */
static void drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

static void bob_is_served(const struct stage *stage, int ready)
{
	struct feed *feed = fixture_open(&stage->bob);
	if (fixture_hash(feed, 8) != 0 && write(ready, "", 1) == 1)
		pause();
}

/*
 * Page cache that the daemon reads for a user and that the user locks is charged to the user's
 * cgroup, even after her worker has been replaced. Other users are served.
 */
TEST(pinned_page_cache_is_the_users)
{
	struct stage stage;
	char path[PATH_MAX];
	start(&stage);
	strcpy(path,
	       fixture_dataset(&stage.fixture, "large",
			       (uint64_t)DATASET_MIB * MIB / (SIDE * SIDE * 3), FIXTURE_RAW, SIDE));
	assert_int_equal(chmod(path, 0644), 0);
	drop_cache(path);
	strcpy(stage.images, path);
	stage.alice = fixture_options(&stage.fixture, stage.images, "center_crop(32)");
	stage.alice.batch_size = 1;
	pid_t pid = run_as(ALICE, alice_pins, &stage);
	long long hers = number_of("user-64201/memory.current");
	long long rest = number_of("memory.current") - hers;
	print_message("ALICE's group has %lld MiB, all others %lld\n", hers / MIB, rest / MIB);
	assert_in_range(hers, MEMORY_MIB * MIB / 2, MEMORY_MIB * MIB);
	assert_in_range(rest, 0, MEMORY_MIB / 2 * MIB);
	pid_t bob = run_as(BOB, bob_is_served, &stage);
	int status;
	assert_int_equal(waitpid(stage.fixture.daemon, &status, WNOHANG), 0);
	/* ALICE's worker ends: the locked pages remain charged to her cgroup. */
	pid_t worker = fixture_worker_of(&stage.fixture, ALICE);
	if (worker != 0)
		kill(worker, SIGKILL);
	while (fixture_worker_of(&stage.fixture, ALICE) == worker && worker != 0)
		usleep(1000);
	assert_true(number_of("user-64201/memory.current") >= hers / 2);
	end(bob);
	end(pid);
	stop(&stage);
}

int main(void)
{
	if (geteuid() != 0 || !delegate_group()) {
		print_message("needs root, and control groups of version 2 with memory and pids\n");
		return 77; /* skipped */
	}
	return test_run(NULL, NULL);
}
