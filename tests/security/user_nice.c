/*
 * CPU weights of users. All threads of a worker have the nice value configured for its user. If two
 * workers compete for one CPU, the one with the lower nice value gets more of it. At the start the
 * daemon reports permissions that it lacks for this.
 */
#include "tests/security/attack.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	WARM_BATCHES = 4,      /* batches of both users before counting begins */
	COUNTED_BATCHES = 120, /* batches of the favoured user to count */
	RATIO_MIN = 3,         /* minimum ratio of the batches; the kernel's weights give seven */
	PATIENCE_MS = 120000,
	PATIENCE_S = 20,
	ASYNC_JOBS_NICER = 3, /* difference to the nice value of the worker's other threads */
	NICE_MAX = 19,
};

/* Number of batches that each user has taken. */
struct batch_counts {
	_Atomic unsigned alice, bob;
};

static struct batch_counts *new_batch_counts(void)
{
	void *batch_counts = mmap(NULL, sizeof(struct batch_counts), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(batch_counts != MAP_FAILED);
	return batch_counts;
}

static pid_t consume(const struct feed_options *options, uid_t uid, _Atomic unsigned *batch_counts)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	/* Neither worker should have to wait for its client on a loaded machine. */
	(void)setpriority(PRIO_PROCESS, 0, -20);
	fixture_become(uid);
	struct feed *feed = fixture_open(options);
	for (;;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		if (feed_next(feed, PATIENCE_MS, &batch) != 0 || feed_release(feed, &batch) != 0)
			_exit(1);
		atomic_fetch_add(batch_counts, 1);
	}
}

static void wait_for(const struct batch_counts *batch_counts, unsigned alice, unsigned bob)
{
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	while (atomic_load(&batch_counts->alice) < alice || atomic_load(&batch_counts->bob) < bob) {
		if (attack_now_ms() > until_ms)
			fail_msg("no batches come: %u and %u", atomic_load(&batch_counts->alice),
				 atomic_load(&batch_counts->bob));
		usleep(1000);
	}
}

/* Returns true for threads of asynchronous jobs, which have lower priority than decoding. */
static bool is_nicer(const struct stage *stage, uid_t uid, const char *thread)
{
	char path[64], name[32] = "";
	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/comm",
		 (int)fixture_worker_of(&stage->fixture, uid), thread);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	(void)!fgets(name, sizeof(name), file);
	fclose(file);
	return strcmp(name, "jobs\n") == 0;
}

/* Asserts the nice value of every thread of the user's worker. */
static void has_nice(const struct stage *stage, uid_t uid, int expected)
{
	char path[64];
	unsigned threads = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)fixture_worker_of(&stage->fixture, uid));
	DIR *folder = opendir(path);
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (entry->d_name[0] == '.')
			continue;
		errno = 0;
		int value = getpriority(PRIO_PROCESS, (id_t)atoi(entry->d_name));
		/* A thread that waited for storage may meanwhile have ended. */
		if (value == -1 && errno == ESRCH)
			continue;
		int wanted =
			expected + (is_nicer(stage, uid, entry->d_name) ? ASYNC_JOBS_NICER : 0);
		wanted = wanted > NICE_MAX ? NICE_MAX : wanted;
		if (value != wanted)
			fail_msg("user %u: thread %s has nice value %d, not %d", (unsigned)uid,
				 entry->d_name, value, wanted);
		threads++;
	}
	closedir(folder);
	assert_true(threads > 1);
}

/* Returns a CPU that this process may use. */
static const char *a_cpu(void)
{
	static char text[16];
	cpu_set_t cpus;
	unsigned cpu = 0;
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (!CPU_ISSET(cpu, &cpus))
		cpu++;
	snprintf(text, sizeof(text), "%u", cpu);
	return text;
}

/* Runs the service with two users who compete for one CPU; the user `more` must get more of it. */
static void compare(struct stage *stage, const char *nice, int alice_folder, int bob_folder,
		    uid_t more)
{
	struct batch_counts *batch_counts = new_batch_counts();
	fixture_start(&stage->fixture, NULL, "--threads", "1", "--cpus", a_cpu(), "--set", nice,
		      NULL);
	pid_t pids[2] = {consume(&stage->alice, ALICE, &batch_counts->alice),
			 consume(&stage->bob, BOB, &batch_counts->bob)};
	wait_for(batch_counts, WARM_BATCHES, WARM_BATCHES);
	has_nice(stage, ALICE, alice_folder);
	has_nice(stage, BOB, bob_folder);
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)stage->fixture.daemon),
			 getpriority(PRIO_PROCESS, 0));
	unsigned alice = atomic_load(&batch_counts->alice), bob = atomic_load(&batch_counts->bob);
	wait_for(batch_counts, more == ALICE ? alice + COUNTED_BATCHES : 0,
		 more == BOB ? bob + COUNTED_BATCHES : 0);
	alice = atomic_load(&batch_counts->alice) - alice;
	bob = atomic_load(&batch_counts->bob) - bob;
	print_message("%-32s ALICE %4u batches, BOB %4u\n", nice, alice, bob);
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	munmap(batch_counts, sizeof(*batch_counts));
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	if (more == ALICE)
		assert_true(alice >= RATIO_MIN * bob);
	if (more == BOB)
		assert_true(bob >= RATIO_MIN * alice);
}

/* Gives both users the same work, and enough of it that neither worker waits for its client. */
static void set_stage(struct stage *stage)
{
	static const char pipeline[] = "random_resized_crop(224) gaussian_blur(23)";
	attack_stage(stage);
	strcpy(stage->images, attack_dataset(stage->alice_folder, "same", DATASET_JPEG, ALICE));
	strcpy(stage->bobs_images, attack_dataset(stage->bob_folder, "same", DATASET_JPEG, BOB));
	stage->alice = fixture_options(&stage->fixture, stage->images, pipeline);
	stage->bob = fixture_options(&stage->fixture, stage->bobs_images, pipeline);
	stage->alice.batch_size = stage->bob.batch_size = 4;
	stage->alice.slots = stage->bob.slots = 16;
}

/* Each nice step changes the weight by a quarter. */
TEST(lower_nice_value_gets_more_cpu)
{
	struct stage stage;
	char nice[64];
	const int less = getpriority(PRIO_PROCESS, 0), more = less + 9;
	if (more > 19)
		skip();
	set_stage(&stage);
	snprintf(nice, sizeof(nice), "users.nice=%d:%d %d", ALICE, more, less);
	compare(&stage, nice, more, less, BOB);
	snprintf(nice, sizeof(nice), "users.nice=%d %d:%d 4:%d", more, ALICE, less, more);
	compare(&stage, nice, less, more, ALICE);
	fixture_deinit(&stage.fixture);
}

/* Creates a file of a simulated cgroup. */
static void put_file(const char *group, const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.200s/%s", group, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chown(path, SERVICE, SERVICE), 0);
}

/*
 * Reads a number from a file. Waits until it is there: the daemon writes it after the worker has
 * received its arguments.
 */
static long number_in(const char *path)
{
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	long number = -100;
	int found = 0;
	while (found != 1 && attack_now_ms() < until_ms) {
		FILE *file = fopen(path, "re");
		assert_non_null(file);
		found = fscanf(file, "%ld", &number);
		fclose(file);
		usleep(1000);
	}
	assert_int_equal(found, 1);
	return number;
}

static void new_folder(const char *path)
{
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chown(path, SERVICE, SERVICE), 0);
}

/* Files of a cgroup with all three controllers. */
static const char *const group_files[] = {"cpu.weight.nice", "memory.max", "memory.swap.max",
					  "pids.max", "cgroup.procs"};
enum { GROUP_FILES = sizeof(group_files) / sizeof(group_files[0]) };

static void new_group(const char *root, const char *name, char group[PATH_MAX])
{
	char path[PATH_MAX];
	snprintf(group, PATH_MAX, "%.180s/%s", root, name);
	new_folder(group);
	for (unsigned i = 0; i < GROUP_FILES; i++)
		put_file(group, group_files[i], path);
}

static long group_number(const char *group, const char *file)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.250s/%s", group, file);
	return number_in(path);
}

/* Returns when ALICE is served; ret_worker is her worker. */
static pid_t serve_alice(const struct stage *stage, pid_t *ret_worker)
{
	int served[2];
	char byte;
	assert_int_equal(pipe2(served, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		struct feed *feed = fixture_open(&stage->alice);
		if (fixture_hash(feed, 1) == 0 || write(served[1], "", 1) != 1)
			_exit(1);
		_exit(pause());
	}
	close(served[1]);
	assert_int_equal(read(served[0], &byte, 1), 1);
	close(served[0]);
	*ret_worker = fixture_worker_of(&stage->fixture, ALICE);
	assert_int_not_equal(*ret_worker, 0);
	return pid;
}

/* Returns true if opening the feed fails with an error that contains `expected`. */
static bool is_refused(const struct feed_options *options, uid_t uid, const char *expected)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct feed *feed;
		char error[FEED_ERROR_MAX] = "";
		fixture_become(uid);
		int r = feed_open(options, &feed, error);
		_exit(r == 0 || !strstr(error, expected));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status == 0;
}

/* A directory with ordinary files stands in for the cgroup, so the limits have no effect. */
TEST(cgroup_files_get_weight_and_limits)
{
	struct stage stage;
	char root[PATH_MAX], group[PATH_MAX], other[PATH_MAX], setting[PATH_MAX], nice[64],
		name[32];
	set_stage(&stage);
	snprintf(root, sizeof(root), "%.150s/group", stage.fixture.folder);
	snprintf(setting, sizeof(setting), "users.control_group=%.180s", root);
	snprintf(nice, sizeof(nice), "users.nice=3 %d:-7", ALICE);
	snprintf(name, sizeof(name), "user-%d", ALICE);
	new_folder(root);
	new_group(root, "trial", other);
	new_group(root, "user-0", other); /* for the test's own user, which requests the status */
	new_group(root, name, group);
	fixture_start(&stage.fixture, NULL, "--threads", "1", "--set", nice, "--set", setting,
		      "--set", "users.memory=3G", "--set", "users.threads=700", NULL);
	pid_t worker, pid = serve_alice(&stage, &worker);
	assert_int_equal(group_number(group, "cpu.weight.nice"), -7);
	assert_int_equal(group_number(other, "cpu.weight.nice"), 3);
	assert_int_equal(group_number(group, "memory.max"), 3L << 30);
	assert_int_equal(group_number(group, "memory.swap.max"), 0);
	assert_int_equal(group_number(group, "pids.max"), 700);
	/* The worker has entered the cgroup itself, before it allocated memory. */
	assert_int_equal(group_number(group, "cgroup.procs"), worker);
	/* The weight applies only once: through the cgroup, and not also as a nice value. */
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)worker), getpriority(PRIO_PROCESS, 0));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	/* A user whose cgroup cannot be limited is refused, not served without limits. */
	assert_true(is_refused(&stage.bob, BOB, "it may not enter this user's control group"));
	assert_int_equal(fixture_worker_of(&stage.fixture, BOB), 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

static int oom_score_of(pid_t pid)
{
	char path[64];
	int score = 0;
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &score), 1);
	fclose(file);
	return score;
}

/* The OOM killer prefers workers to the supervisor. */
TEST(workers_end_before_the_supervisor)
{
	struct stage stage;
	set_stage(&stage);
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	pid_t worker, pid = serve_alice(&stage, &worker);
	int supervisors = oom_score_of(stage.fixture.daemon);
	print_message("oom_score_adj: supervisor %d, worker %d\n", supervisors,
		      oom_score_of(worker));
	assert_in_range(oom_score_of(worker), supervisors + 1, 1000);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

/*
 * Returns the wait status of a daemon that must not start with this value; `text` receives its
 * output.
 */
static int start_in_vain(const struct stage *stage, const char *nice, char *text, size_t size)
{
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit none = {0, 0};
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		setrlimit(RLIMIT_NICE, &none);
		alarm(PATIENCE_S); /* ends the daemon if it starts nevertheless */
		fixture_become(SERVICE);
		execl(getenv("LOADERD"), "loaderd", "--config", "/dev/null", "--socket",
		      stage->fixture.socket, "--set", nice, NULL);
		_exit(127);
	}
	close(fds[1]);
	size_t length = 0;
	for (ssize_t n = 1; n > 0 && length < size - 1;) {
		n = read(fds[0], text + length, size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	text[length] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

TEST(denied_priorities_are_reported)
{
	struct stage stage;
	char text[1024], expected[256];
	const int own = getpriority(PRIO_PROCESS, 0);
	set_stage(&stage);
	snprintf(expected, sizeof(expected), "users.control_group=%.150s", stage.fixture.folder);
	int status = start_in_vain(&stage, expected, text, sizeof(text));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 ||
	    !strstr(text, "have no cpu.weight.nice"))
		fail_msg("status %#x: %s", (unsigned)status, text);
	/* The daemon refuses to start with a limit that cannot be enforced. */
	status = start_in_vain(&stage, "users.threads=100", text, sizeof(text));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 ||
	    !strstr(text, "[users] threads: needs a cgroup v2"))
		fail_msg("status %#x: %s", (unsigned)status, text);
	status = start_in_vain(&stage, "users.nice=15 64200:14 64201:-20", text, sizeof(text));
	snprintf(expected, sizeof(expected),
		 "[users] nice = 64201:-20: this is below the daemon's own nice value, %d, but the "
		 "system refuses it: Permission denied; allow it with LimitNICE=-20",
		 own);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(text, expected))
		fail_msg("status %#x: %s", (unsigned)status, text);
	/* Root may lower nice values, except in some containers. */
	const int less = own - 9;
	if (setpriority(PRIO_PROCESS, 0, less) == 0 && setpriority(PRIO_PROCESS, 0, own) == 0) {
		stage.fixture.uid = 0;
		snprintf(expected, sizeof(expected), "users.nice=%d:%d", ALICE, less);
		compare(&stage, expected, less, own, ALICE);
	}
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
