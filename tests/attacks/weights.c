/*
 * Users' weights: each worker has the nice value that the configuration gives its user, in all of
 * its threads, and where two of them want one CPU the less nice gets more of it. What the system
 * does not let the service have is said when it starts.
 */
#include "tests/attacks/attack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	WARM_BATCHES = 4,      /* of both, before it counts */
	COUNTED_BATCHES = 120, /* of the user who gets more */
	AT_LEAST = 3,          /* times as many; by the kernel's weights it would be seven */
	PATIENCE_MS = 120000,
	PATIENCE_S = 20,
	CHORES_NICER = 3, /* than the worker's other threads */
	NICE_MAX = 19,
};

/* Batches that each has taken. */
struct taken {
	_Atomic unsigned alice, bob;
};

static struct taken *new_taken(void)
{
	void *taken = mmap(NULL, sizeof(struct taken), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(taken != MAP_FAILED);
	return taken;
}

static pid_t consume(const struct feed_options *options, uid_t uid, _Atomic unsigned *taken)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	/* Neither worker is to wait for its client, on a machine that others use. */
	(void)setpriority(PRIO_PROCESS, 0, -20);
	fixture_become(uid);
	struct feed *feed = fixture_open(options);
	for (;;) {
		struct feed_batch batch = {.size = sizeof(batch)};
		if (feed_next(feed, PATIENCE_MS, &batch) != 0 || feed_release(feed, &batch) != 0)
			_exit(1);
		atomic_fetch_add(taken, 1);
	}
}

static void wait_for(const struct taken *taken, unsigned alice, unsigned bob)
{
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	while (atomic_load(&taken->alice) < alice || atomic_load(&taken->bob) < bob) {
		if (attack_now_ms() > until_ms)
			fail_msg("no batches come: %u and %u", atomic_load(&taken->alice),
				 atomic_load(&taken->bob));
		usleep(1000);
	}
}

/* Chores give way to what decodes. */
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
	return strcmp(name, "chores\n") == 0;
}

/* Every thread of the user's worker. */
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
		/* One that waited for storage may have ended meanwhile. */
		if (value == -1 && errno == ESRCH)
			continue;
		int wanted = expected + (is_nicer(stage, uid, entry->d_name) ? CHORES_NICER : 0);
		wanted = wanted > NICE_MAX ? NICE_MAX : wanted;
		if (value != wanted)
			fail_msg("user %u: thread %s has nice value %d, not %d", (unsigned)uid,
				 entry->d_name, value, wanted);
		threads++;
	}
	closedir(folder);
	assert_true(threads > 1);
}

/* One that may be used. */
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

/* Runs the service so; both want the one CPU, and `more` of the two is to get more of it. */
static void compare(struct stage *stage, const char *nice, int alices, int bobs, uid_t more)
{
	struct taken *taken = new_taken();
	fixture_start(&stage->fixture, NULL, "--threads", "1", "--cpus", a_cpu(), "--set", nice,
		      NULL);
	pid_t pids[2] = {consume(&stage->alice, ALICE, &taken->alice),
			 consume(&stage->bob, BOB, &taken->bob)};
	wait_for(taken, WARM_BATCHES, WARM_BATCHES);
	has_nice(stage, ALICE, alices);
	has_nice(stage, BOB, bobs);
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)stage->fixture.daemon),
			 getpriority(PRIO_PROCESS, 0));
	unsigned alice = atomic_load(&taken->alice), bob = atomic_load(&taken->bob);
	wait_for(taken, more == ALICE ? alice + COUNTED_BATCHES : 0,
		 more == BOB ? bob + COUNTED_BATCHES : 0);
	alice = atomic_load(&taken->alice) - alice;
	bob = atomic_load(&taken->bob) - bob;
	print_message("%-32s ALICE %4u batches, BOB %4u\n", nice, alice, bob);
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	munmap(taken, sizeof(*taken));
	assert_int_equal(fixture_stop(&stage->fixture, SIGTERM), 0);
	if (more == ALICE)
		assert_true(alice >= AT_LEAST * bob);
	if (more == BOB)
		assert_true(bob >= AT_LEAST * alice);
}

/* The same work for both, and so much of it that neither waits for its client. */
static void set_stage(struct stage *stage)
{
	static const char pipeline[] = "random_resized_crop(224) gaussian_blur(23)";
	attack_stage(stage);
	strcpy(stage->images, attack_dataset(stage->alices, "same", DATASET_JPEG, ALICE));
	strcpy(stage->bobs_images, attack_dataset(stage->bobs, "same", DATASET_JPEG, BOB));
	stage->alice = fixture_options(&stage->fixture, stage->images, pipeline);
	stage->bob = fixture_options(&stage->fixture, stage->bobs_images, pipeline);
	stage->alice.batch_size = stage->bob.batch_size = 4;
	stage->alice.slots = stage->bob.slots = 16;
}

/* Two values of which each step is a quarter more or less. */
static void test_the_less_nice_gets_more(void **state)
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

/* A file of what looks like a control group. */
static void put_file(const char *group, const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.200s/%s", group, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chown(path, SERVICE, SERVICE), 0);
}

/* That is there, or will be: the daemon writes once the worker has its arguments. */
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

/* In a folder that has the files of one: what they do is the kernel's business. */
static void test_a_control_group_has_the_weight(void **state)
{
	struct stage stage;
	char root[PATH_MAX], group[PATH_MAX], trial[PATH_MAX], weight[PATH_MAX],
		processes[PATH_MAX], unused[PATH_MAX], setting[PATH_MAX], nice[64];
	set_stage(&stage);
	snprintf(root, sizeof(root), "%.150s/group", stage.fixture.folder);
	snprintf(group, sizeof(group), "%.180s/user-%d", root, ALICE);
	snprintf(trial, sizeof(trial), "%.180s/trial", root);
	snprintf(setting, sizeof(setting), "users.control_group=%.180s", root);
	snprintf(nice, sizeof(nice), "users.nice=3 %d:-7", ALICE);
	new_folder(root);
	new_folder(group);
	new_folder(trial);
	put_file(trial, "cpu.weight.nice", unused);
	put_file(group, "cpu.weight.nice", weight);
	put_file(group, "cgroup.procs", processes);
	fixture_start(&stage.fixture, NULL, "--threads", "1", "--set", nice, "--set", setting,
		      NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		struct feed *feed = fixture_open(&stage.alice);
		_exit(fixture_hash(feed, 1) == 0 || pause());
	}
	uint64_t until_ms = attack_now_ms() + PATIENCE_MS;
	pid_t worker = 0;
	while (worker == 0 && attack_now_ms() < until_ms) {
		usleep(1000);
		worker = fixture_worker_of(&stage.fixture, ALICE);
	}
	assert_int_not_equal(worker, 0);
	assert_int_equal(number_in(weight), -7);
	assert_int_equal(number_in(processes), worker);
	/* It counts once. */
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)number_in(processes)),
			 getpriority(PRIO_PROCESS, 0));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
}

/* What the daemon says when it does not start with this value, as the service's user. */
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
		alarm(PATIENCE_S); /* one that starts */
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

static void test_what_is_refused_is_said(void **state)
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
	status = start_in_vain(&stage, "users.nice=15 64200:14 64201:-20", text, sizeof(text));
	snprintf(expected, sizeof(expected),
		 "[users] nice = 64201:-20: this is below the daemon's own nice value, %d, and the "
		 "system refuses it: Permission denied; allow it with LimitNICE=-20",
		 own);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(text, expected))
		fail_msg("status %#x: %s", (unsigned)status, text);
	/* Root may, unless it is a container's. */
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
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_less_nice_gets_more),
		cmocka_unit_test(test_a_control_group_has_the_weight),
		cmocka_unit_test(test_what_is_refused_is_said),
	};
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return 77; /* skipped */
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
