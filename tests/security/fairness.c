/*
 * The cost of ALICE's use of the daemon for BOB. Measures how long BOB waits for batches at a
 * steady pace while ALICE floods her worker and the supervisor. In a control run, ALICE's processes
 * burn the CPU time that the attack used, without the daemon. The difference is the daemon's work
 * for ALICE.
 *
 * The test counts late batches and the CPU time of the supervisor, which is charged to no user.
 * --bench prints percentiles of both runs and of two more control runs:
 * - ALICE also has a feed with a heavy pipeline, which every user may have;
 * - ALICE attacks a server of her own that only reads, which shows what the same system calls cost
 * BOB without the daemon.
 * LOADERD_TEST_ATTACK selects rows by part of their name, LOADERD_TEST_ATTACK_MS sets the duration
 * of each run, LOADERD_TEST_ROUNDS the number of rounds per row.
 */
#include "format/packimg.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/control_client.h"
#include "tests/security/attack.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum {
	PROCESSES = 16, /* number of ALICE's processes */
	PERIOD_US = 5000,
	LATE_US = 50000,
	LATE_MORE = 2, /* late batches beyond those of the control run that a test tolerates */
	SUPERVISOR_MAX = 50, /* percent of one CPU, for all of the supervisor's threads together */
	SAMPLES_MAX = 1 << 16,
	SHARDS = 500,
	SHARD_SIZE_MIN = 64 << 10,
	ROUNDS_MAX = 64,
	ATTEMPTS = 3,
	SETTLE_MS = 300,
	PATIENCE_MS = 60000,
};

enum run { CONTROL, FEED, SINK, ATTACK, RUNS };

/* State and measurements of BOB's process. */
struct client_state {
	_Atomic bool counts;
	_Atomic unsigned count;
	uint32_t wait_us[SAMPLES_MAX];
};

struct result {
	unsigned batches, late;
	double p50_ms, p99_ms, max_ms;
	double supervisor, worker; /* CPU time of the supervisor and of ALICE's worker, in percent
				      of one CPU */
};

struct row {
	const char *name;
	void (*run)(const struct stage *stage);
	unsigned processes; /* number of processes that run it */
	/*
	 * number of processes that are busy at the same time if run() starts others; 0 means
	 * `processes`
	 */
	unsigned busy;
	void (*without_daemon)(const struct stage *stage); /* see struct attack */
};

static uint64_t now_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t cpu_us_of(pid_t pid)
{
	clockid_t clock;
	return pid > 0 && clock_getcpuclockid(pid, &clock) == 0 ? now_us(clock) : 0;
}

static void *shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	return memory;
}

/*
 * Holds one of two slots, so that the daemon begins a batch only when the previous one is released
 * and no finished batch hides the daemon's latency.
 */
static void pace(const struct stage *stage, struct client_state *paced)
{
	struct feed_batch kept = {.size = sizeof(kept)}, batch = {.size = sizeof(batch)};
	struct feed_options options = stage->bob;
	options.slots = 2;
	options.batch_size = 8;
	struct feed *feed = fixture_open(&options);
	assert_int_equal(feed_next(feed, PATIENCE_MS, &kept), 0);
	assert_int_equal(feed_next(feed, PATIENCE_MS, &batch), 0);
	for (uint64_t due_us = now_us(CLOCK_MONOTONIC);; due_us += PERIOD_US) {
		uint64_t begin_us = now_us(CLOCK_MONOTONIC);
		if (begin_us < due_us)
			usleep((unsigned)(due_us - begin_us));
		else
			due_us = begin_us;
		begin_us = now_us(CLOCK_MONOTONIC);
		assert_int_equal(feed_release(feed, &batch), 0);
		assert_int_equal(feed_next(feed, PATIENCE_MS, &batch), 0);
		unsigned at = atomic_load(&paced->count);
		if (!atomic_load(&paced->counts) || at == SAMPLES_MAX)
			continue;
		paced->wait_us[at] = (uint32_t)(now_us(CLOCK_MONOTONIC) - begin_us);
		atomic_store(&paced->count, at + 1);
	}
}

static pid_t start(const struct stage *stage, uid_t uid, struct client_state *paced,
		   void (*run)(const struct stage *stage))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fixture_become(uid);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (paced)
		pace(stage, paced);
	else
		run(stage);
	_exit(0);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void together(const struct stage *stage, unsigned count,
		     void (*run)(const struct stage *stage))
{
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(stage);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
}

/* ALICE's attacks, each in one of her processes. */

static void connect_and_leave(const struct stage *stage)
{
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		int fd = attack_connect_now(stage);
		if (fd >= 0)
			close(fd);
	}
}

static void cycle_rings(const struct stage *stage)
{
	int file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		int fds[2], socket;
		if (attack_open(stage, file, "random_resized_crop(256)", &socket, fds) != 0)
			continue;
		close(fds[0]);
		close(fds[1]);
		close(socket);
	}
}

static void open_shards(const struct stage *stage)
{
	struct feed_options options = stage->alice;
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/many.pimg", stage->alice_folder);
	options.dataset = path;
	options.slots = 2;
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;) {
		struct feed *feed;
		if (feed_open(&options, &feed, NULL) == 0)
			feed_close(feed);
	}
}

static void ask_for_status(const struct stage *stage)
{
	int socket = attack_connect(stage);
	for (uint64_t until_ms = attack_deadline(); socket >= 0 && attack_now_ms() < until_ms;) {
		if (send(socket, "\2\0\0\0\x12\0", 6, MSG_NOSIGNAL) != 6)
			break;
		loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
	}
}

static void ask_for_facts(const struct stage *stage)
{
	int socket = attack_connect(stage), file = open(stage->images, O_RDONLY | O_CLOEXEC);
	for (uint64_t until_ms = attack_deadline(); socket >= 0 && attack_now_ms() < until_ms;) {
		if (!attack_ask(socket, stage->images, NULL, 0))
			break;
		loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
		if (!attack_files(socket, 0, 1, false, &file, 1))
			break;
		loaderd__reply__free_unpacked(attack_reply(socket, NULL), NULL);
	}
}

/*
 * Repeats shutdown() on connections that the service has closed and whose replies are unread. Each
 * call causes an epoll event.
 */
static void shut_down_again(const struct stage *stage)
{
	enum { CONNECTIONS = 32 };
	int sockets[CONNECTIONS];
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		sockets[i] = attack_connect(stage);
		if (sockets[i] < 0)
			continue;
		(void)send(sockets[i], "\2\0\0\0\x12\0", 6, MSG_NOSIGNAL);
		shutdown(sockets[i], SHUT_WR);
	}
	for (uint64_t until_ms = attack_deadline(); attack_now_ms() < until_ms;)
		for (unsigned i = 0; i < CONNECTIONS; i++)
			if (sockets[i] >= 0)
				shutdown(sockets[i], SHUT_WR);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (sockets[i] >= 0)
			close(sockets[i]);
}

static const struct row rows[] = {
	{"connections at full speed, by 16 processes", connect_and_leave, PROCESSES, 0,
	 connect_and_leave},
	{"rings: open, map, close, by 16 processes", cycle_rings, PROCESSES},
	{"feeds over a set of 500 shards, by 16 processes", open_shards, PROCESSES},
	{"GetStatus at full speed, by 16 processes", ask_for_status, PROCESSES},
	{"GetDataset at full speed, by 16 processes", ask_for_facts, PROCESSES},
	{"shutdown() of connections with replies", shut_down_again, 1},
	{0},
};

/* ALICE's control runs. */

/* CPU time that the attack's processes used, and the number of times they slept. */
static struct attack_cost {
	uint64_t cpu_us, sleeps;
} used;
static unsigned burners;

/* Burns an equal part of that CPU time, in pieces as long as the attack's. */
static void burn(const struct stage *stage)
{
	const uint64_t begin_us = now_us(CLOCK_MONOTONIC), all_us = attack_ms() * UINT64_C(1000);
	const uint64_t mine_us = used.cpu_us / burners;
	const uint64_t piece_us = used.cpu_us / (used.sleeps + 1) + 1;
	for (uint64_t passed_us; (passed_us = now_us(CLOCK_MONOTONIC) - begin_us) < all_us;) {
		const uint64_t burnt_us = now_us(CLOCK_THREAD_CPUTIME_ID);
		const uint64_t due_us = burnt_us * all_us / (mine_us + 1);
		if (due_us > passed_us)
			usleep((unsigned)(due_us - passed_us < 10000 ? due_us - passed_us : 10000));
		else
			while (now_us(CLOCK_THREAD_CPUTIME_ID) < burnt_us + piece_us)
				;
	}
}

static void consume(const struct stage *stage)
{
	struct feed_options options = stage->alice;
	options.pipeline = "random_resized_crop(96) aug_mix()";
	struct feed *feed = fixture_open(&options);
	for (;;)
		(void)fixture_hash_next(feed);
}

/*
 * One thread that accepts, reads and discards: the least that any server does under such an attack.
 */
static void sink(const struct stage *stage)
{
	enum { EVENTS = 64 };
	static uint8_t buffer[64 << 10];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", stage->fixture.socket);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, SOMAXCONN), 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), 0);
	for (;;) {
		struct epoll_event events[EVENTS];
		int count = epoll_wait(epoll, events, EVENTS, -1);
		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				event.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
				if (event.data.fd >= 0)
					epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
			} else if (read(fd, buffer, sizeof(buffer)) <= 0) {
				close(fd);
			}
		}
	}
}

static int compare(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static struct result result_of(struct client_state *paced)
{
	struct result result = {.batches = atomic_load(&paced->count)};
	if (result.batches == 0)
		return (struct result){.late = UINT32_MAX};
	qsort(paced->wait_us, result.batches, sizeof(*paced->wait_us), compare);
	for (unsigned i = 0; i < result.batches; i++)
		result.late += paced->wait_us[i] > LATE_US;
	result.p50_ms = paced->wait_us[result.batches / 2] / 1e3;
	result.p99_ms = paced->wait_us[result.batches * 99 / 100] / 1e3;
	result.max_ms = paced->wait_us[result.batches - 1] / 1e3;
	return result;
}

static unsigned only_processes;
static void (*only_run)(const struct stage *stage);

static void run_all(const struct stage *stage)
{
	together(stage, only_processes, only_run);
}

/* ret_used receives the resource use of ALICE's processes and may be NULL. */
static struct result measure(const struct stage *stage, struct client_state *paced,
			     unsigned processes, void (*run)(const struct stage *stage),
			     struct attack_cost *ret_used)
{
	struct rusage usage;
	int status;
	only_processes = burners = processes;
	only_run = run;
	usleep(SETTLE_MS * 1000);
	const pid_t worker = fixture_worker_of(&stage->fixture, ALICE);
	const uint64_t supervisor_us = cpu_us_of(stage->fixture.daemon);
	const uint64_t worker_us = cpu_us_of(worker), start_us = now_us(CLOCK_MONOTONIC);
	atomic_store(&paced->count, 0);
	atomic_store(&paced->counts, true);
	pid_t pid = start(stage, ALICE, NULL, run_all);
	usleep(attack_ms() * 1000);
	atomic_store(&paced->counts, false);
	const double percent = 100.0 / (double)(now_us(CLOCK_MONOTONIC) - start_us);
	const double supervisor = (double)(cpu_us_of(stage->fixture.daemon) - supervisor_us);
	const double workers = (double)(cpu_us_of(worker) - worker_us);
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	assert_int_equal(status, 0);
	if (ret_used)
		*ret_used = (struct attack_cost){
			.cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) *
					  1000000 +
				  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
			.sleeps = (uint64_t)usage.ru_nvcsw,
		};
	struct result result = result_of(paced);
	result.supervisor = supervisor * percent;
	result.worker = workers * percent;
	return result;
}

static void make_shards(const struct stage *stage)
{
	enum { SIDE = 160 };
	static uint8_t pixels[SIDE * SIDE * 3];
	const struct packimg_item item = test_item(pixels, SIDE, SIDE);
	struct test_dataset data;
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%.200s/many.pimg", stage->alice_folder);
	test_dataset_begin(&data, path, SHARD_SIZE_MIN);
	for (unsigned i = 0; i < SHARDS; i++)
		test_dataset_add(&data, &item);
	test_dataset_finish(&data);
	for (unsigned i = 0; i < SHARDS; i++) {
		snprintf(path, sizeof(path), "%.200s/many-%05u-of-%05u.pimg", stage->alice_folder,
			 i, (unsigned)SHARDS);
		assert_int_equal(chown(path, ALICE, ALICE), 0);
	}
}

static void open_one(const struct stage *stage)
{
	feed_close(fixture_open(&stage->alice));
}

/* Starts ALICE's worker, so that its CPU time can be read. */
static void start_worker(const struct stage *stage)
{
	waitpid(start(stage, ALICE, NULL, open_one), NULL, 0);
	assert_true(fixture_worker_of(&stage->fixture, ALICE) > 0);
}

static pid_t set_stage(struct stage *stage, struct client_state **ret_paced)
{
	attack_stage(stage);
	make_shards(stage);
	fixture_start(&stage->fixture, NULL, "--threads", "2", "--log-level", "error", "--limit",
		      "feeds_per_user=16", "--limit", "connections_per_user=64", NULL);
	start_worker(stage);
	*ret_paced = shared(sizeof(**ret_paced));
	return start(stage, BOB, *ret_paced, NULL);
}

static bool is_chosen(const struct row *row)
{
	const char *only = getenv("LOADERD_TEST_ATTACK");
	return !only || strstr(row->name, only);
}

/*
 * Returns the number of processes of the attack; more if it started others, because each process
 * burns at most one CPU.
 */
static unsigned burners_of(const struct row *row)
{
	const uint64_t cpus = used.cpu_us / 1000 / attack_ms() + 1;
	return MAX(MAX(row->processes, row->busy), (unsigned)cpus);
}

/* Runs the attack against a server of ALICE that only reads. */
static struct result measure_sink(const struct stage *stage, struct client_state *paced,
				  const struct row *row)
{
	struct stage hers = *stage;
	snprintf(hers.fixture.socket, sizeof(hers.fixture.socket), "%.80s/sink",
		 stage->alice_folder);
	pid_t pid = start(&hers, ALICE, NULL, sink);
	while (access(hers.fixture.socket, F_OK) < 0)
		usleep(1000);
	struct result result = measure(&hers, paced, row->processes, row->without_daemon, NULL);
	end(pid);
	unlink(hers.fixture.socket);
	return result;
}

static bool is_disturbed(const struct stage *stage, struct client_state *paced,
			 const struct row *row)
{
	struct result attack = measure(stage, paced, row->processes, row->run, &used);
	struct result control = measure(stage, paced, burners_of(row), burn, NULL);
	print_message("%-40s %4u batches, %3u late, p99 %6.1f ms, max %6.1f (control %4u, %3u, "
		      "%6.1f, %6.1f), supervisor %3.0f %%\n",
		      row->name, attack.batches, attack.late, attack.p99_ms, attack.max_ms,
		      control.batches, control.late, control.p99_ms, control.max_ms,
		      attack.supervisor);
	return !sanitized() &&
	       (attack.late > control.late + LATE_MORE || attack.supervisor > SUPERVISOR_MAX);
}

TEST(work_for_a_user_stays_within_its_share)
{
	struct stage stage;
	struct client_state *paced;
	unsigned harmful = 0;
	pid_t bob = set_stage(&stage, &paced);
	for (const struct row *row = rows; row->name; row++) {
		bool bad = is_chosen(row);
		for (unsigned i = 0; bad && i < ATTEMPTS; i++)
			bad = is_disturbed(&stage, paced, row);
		harmful += bad;
	}
	end(bob);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	fixture_deinit(&stage.fixture);
	assert_int_equal(harmful, 0);
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static unsigned rounds(void)
{
	const char *text = getenv("LOADERD_TEST_ROUNDS");
	const int count = text ? atoi(text) : 5;
	return count < 1 ? 1 : count > ROUNDS_MAX ? ROUNDS_MAX : (unsigned)count;
}

/* Returns the medians over the rounds, and the largest of their maxima. */
static struct result summary(const struct result *results, unsigned count)
{
	struct result all = {0};
	double p50[ROUNDS_MAX], p99[ROUNDS_MAX];
	for (unsigned i = 0; i < count; i++) {
		p50[i] = results[i].p50_ms;
		p99[i] = results[i].p99_ms;
		all.batches += results[i].batches;
		all.late += results[i].late;
		all.supervisor += results[i].supervisor / count;
		all.worker += results[i].worker / count;
		all.max_ms = results[i].max_ms > all.max_ms ? results[i].max_ms : all.max_ms;
	}
	all.p50_ms = median(p50, count);
	all.p99_ms = median(p99, count);
	return all;
}

static void bench_row(const struct stage *stage, struct client_state *paced, const struct row *row)
{
	static struct result results[RUNS][ROUNDS_MAX];
	double cpus = 0;
	for (unsigned i = 0; i < rounds(); i++) {
		results[ATTACK][i] = measure(stage, paced, row->processes, row->run, &used);
		cpus += (double)used.cpu_us / 1e3 / attack_ms() / rounds();
		results[CONTROL][i] = measure(stage, paced, burners_of(row), burn, NULL);
		pid_t feed = start(stage, ALICE, NULL, consume);
		results[FEED][i] = measure(stage, paced, burners_of(row), burn, NULL);
		end(feed);
		if (row->without_daemon)
			results[SINK][i] = measure_sink(stage, paced, row);
	}
	struct result medians[RUNS];
	printf("| %s | %.2f |", row->name, cpus);
	for (enum run run = 0; run < RUNS; run++) {
		medians[run] = summary(results[run], rounds());
		if (run == SINK && !row->without_daemon)
			printf(" |");
		else
			printf(" %.2f / %.2f / %.1f |", medians[run].p50_ms, medians[run].p99_ms,
			       medians[run].max_ms);
	}
	for (enum run run = 0; run < ATTACK; run++)
		if (run == SINK && !row->without_daemon)
			printf(" |");
		else
			printf(" %.2f |", medians[ATTACK].p99_ms / medians[run].p99_ms);
	printf(" %.0f | %.0f |\n", medians[ATTACK].supervisor, medians[ATTACK].worker);
	fflush(stdout);
}

static void bench(void)
{
	struct stage stage;
	struct client_state *paced;
	pid_t bob = set_stage(&stage, &paced);
	printf("%u rounds of %u ms; p50 / p99 / max of BOB's waits in ms\n\n", rounds(),
	       attack_ms());
	printf("| attack | CPUs of its clients | control | control with a feed | on a server that "
	       "only reads | attack | p99 to control | to control with a feed | to that server | "
	       "supervisor, %% of a CPU | ALICE's worker |\n"
	       "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
	for (const struct row *row = rows; row->name; row++)
		if (is_chosen(row))
			bench_row(&stage, paced, row);
	for (const struct attack *attack = attacks_by_numbers; attack->name; attack++) {
		const struct row row = {attack->name, attack->run, 1, attack->processes,
					attack->without_daemon};
		if (is_chosen(&row))
			bench_row(&stage, paced, &row);
	}
	end(bob);
	fixture_stop(&stage.fixture, SIGTERM);
	fixture_deinit(&stage.fixture);
}

int main(int argc, char **argv)
{
	if (geteuid() != 0) {
		print_message("needs root, to be several users in turn\n");
		return 77; /* skipped */
	}
	if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
		bench();
		return 0;
	}
	return test_run(NULL, NULL);
}
