#include "bench/measure/point.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure/client.h"
#include "bench/measure/sampler.h"
#include "format/base/system/clock.h"
#include "format/base/text/text.h"

enum {
	POLL_NS = 2000000,
	START_TIMEOUT_S = 120, /* until every client has its first batch */
	MIND_NS = 50000000,
	CONNECT_AGAIN_NS = 100000000, /* between attempts to connect to a restarting daemon */
	CONNECT_ATTEMPTS = 600,
};

unsigned point_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned)CPU_COUNT(&set);
}

void point_feed_options(const struct settings *settings, const struct point *point,
			const char *socket, unsigned client, struct feed_options *ret_options)
{
	static const char *const deferred[] = {FEED_DEFERRED};

	feed_options_init(ret_options);
	ret_options->socket = socket;
	ret_options->dataset = point->order ? NULL : point->dataset;
	ret_options->order = point->order;
	ret_options->pipeline = point->pipeline;
	ret_options->name = "loaderbench";
	ret_options->batch_size = point->batch_size;
	ret_options->shuffle = !settings->stored_order && !settings->wanted;
	ret_options->wanted = settings->wanted ? 1 : 0;
	ret_options->seed = settings->seed + client;
	ret_options->slots = settings->slots;
	ret_options->values = settings->values;
	ret_options->value_count = settings->value_count;
	ret_options->fields = deferred;
	ret_options->field_count = settings->defers ? 1 : 0;
	ret_options->reconnect = settings->no_reconnect ? FEED_RECONNECT_NEVER : FEED_RECONNECT;
}

int point_daemon_start(const struct settings *settings, const struct point *point,
		       struct feed_daemon **ret_daemon, char *error)
{
	char *kept = NULL;

	if (point->isa) {
		const char *before = getenv("LOADERD_ISA");

		kept = before ? strdup(before) : NULL;
		setenv("LOADERD_ISA", point->isa, 1);
	}
	int r = feed_daemon_start(settings->daemon, point->threads, ret_daemon, error);
	if (point->isa) {
		if (kept)
			setenv("LOADERD_ISA", kept, 1);
		else
			unsetenv("LOADERD_ISA");
		free(kept);
	}
	return r;
}

/* A measurement in progress. */
struct run {
	const struct settings *settings;
	const struct point *point;
	const char *socket;
	struct feed_daemon *daemon; /* private daemon, or NULL */
	struct shared_state *shared;
	pid_t clients[POINT_CLIENTS_MAX];
	unsigned started;
	struct connection connection;
	struct snapshot before, after;
	struct fetch_sample fetch_before, fetch_after;
	char *error;
};

static void sleep_ns(uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
				.tv_nsec = (long)(ns % 1000000000u)};

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* Restarts an ended private daemon. The clients are forks, which wait for their parent to do so. */
static void check_daemon(const struct run *run)
{
	char error[FEED_ERROR_MAX];

	if (run->daemon && !run->settings->no_reconnect)
		feed_daemon_restart(run->daemon, error);
}

static void sleep_until(const struct run *run, uint64_t deadline_ns)
{
	for (uint64_t now; (now = clock_ns(CLOCK_MONOTONIC)) < deadline_ns; check_daemon(run))
		sleep_ns(deadline_ns - now < MIND_NS ? deadline_ns - now : MIND_NS);
}

/* Takes a snapshot of the current daemon, which may have been restarted. */
static int run_sample(struct run *run, struct snapshot *snapshot)
{
	int r = sampler_take(&run->connection, run->clients, run->started, snapshot, run->error);

	for (int i = 0; r && !run->settings->no_reconnect && i < CONNECT_ATTEMPTS; i++) {
		if (i)
			sleep_ns(CONNECT_AGAIN_NS);
		check_daemon(run);
		connection_close(&run->connection);
		r = connection_open(&run->connection, run->socket,
				    clock_ms() + CONNECTION_TIMEOUT_MS, run->error);
		if (r)
			continue;
		r = sampler_take(&run->connection, run->clients, run->started, snapshot,
				 run->error);
	}
	return r;
}

/* Waits until every client has reached the state. The first failure ends the wait. */
static int run_await(struct run *run, enum client_state state, double timeout_s)
{
	uint64_t deadline = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(timeout_s * 1e9);

	for (unsigned i = 0; i < run->started;) {
		struct client_slot *slot = &run->shared->slots[i];
		uint32_t now = atomic_load(&slot->state);

		if (now == CLIENT_FAILED)
			return error_set(run->error, -EIO, "client %u: %s", i, slot->error);
		if (now >= state) {
			i++;
			continue;
		}
		if (waitpid(run->clients[i], NULL, WNOHANG) == run->clients[i]) {
			run->clients[i] = 0;
			if (atomic_load(&slot->state) < CLIENT_DONE)
				return error_set(run->error, -ECHILD, "client %u died", i);
		}
		if (clock_ns(CLOCK_MONOTONIC) > deadline)
			return error_set(run->error, -ETIMEDOUT, "client %u got no batch in %.0f s",
					 i, timeout_s);
		check_daemon(run);
		sleep_ns(POLL_NS);
	}
	return 0;
}

/* Whether the dataset, or one of a mixture, is in a store. */
static bool has_address(const struct point *point)
{
	if (!point->order)
		return text_is_address(point->dataset);
	for (uint32_t p = 0; p < point->order->part_count; p++)
		if (text_is_address(point->order->parts[p]->dataset))
			return true;
	return false;
}

static int run_window(struct run *run)
{
	const struct settings *settings = run->settings;
	int r = run_await(run, CLIENT_RUNS, START_TIMEOUT_S);

	if (r)
		return r;
	uint64_t start = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(settings->warmup_s * 1e9);
	uint64_t stop = start + (uint64_t)(settings->window_s * 1e9);
	atomic_store(&run->shared->stop_ns, stop);
	atomic_store(&run->shared->start_ns, start);
	sleep_until(run, start);
	r = run_sample(run, &run->before);
	if (r)
		return r;
	if (has_address(run->point))
		fetch_sample_take(&run->fetch_before);
	sleep_until(run, stop);
	r = run_sample(run, &run->after);
	if (r)
		return r;
	if (has_address(run->point))
		fetch_sample_take(&run->fetch_after);
	r = run_await(run, CLIENT_DONE, settings->window_s + START_TIMEOUT_S);
	if (r)
		return r;
	/*
	 * The daemon counts finished batches. If it finished none in its window, extend the window
	 * to the end of the clients' window, which is long enough.
	 */
	if (run->after.images == run->before.images) {
		r = run_sample(run, &run->after);
		if (r)
			return r;
	}
	/* The counters of a daemon started in between begin at zero. */
	if (run->after.pid != run->before.pid)
		run->before = (struct snapshot){.taken_ns = run->before.taken_ns};
	return 0;
}

static void run_stop_clients(struct run *run, int failed)
{
	atomic_store(&run->shared->leave, 1);
	for (unsigned i = 0; i < run->started; i++) {
		if (!run->clients[i])
			continue;
		if (failed)
			kill(run->clients[i], SIGKILL);
		waitpid(run->clients[i], NULL, 0);
	}
}

static int run_start_clients(struct run *run)
{
	for (unsigned i = 0; i < run->point->clients; i++) {
		pid_t pid = client_start(run->shared, run->settings, run->point, run->socket, i);

		if (pid < 0)
			return error_set(run->error, pid, "cannot start client %u: %s", i,
					 strerror(-pid));
		run->clients[run->started++] = pid;
	}
	return run_window(run);
}

static int run_clients(struct run *run)
{
	int r = run_start_clients(run);

	run_stop_clients(run, r);
	return r;
}

static void measure_clients(const struct run *run, struct measurement *measurement)
{
	struct histogram *waits = calloc(1, sizeof(*waits));
	uint64_t cpu_ns = 0, patches = 0;

	for (unsigned i = 0; i < run->started; i++) {
		const struct client_slot *slot = &run->shared->slots[i];
		double window_s = (double)slot->window_ns * 1e-9;

		measurement->images_per_s += (double)slot->images / window_s;
		measurement->bytes_per_s += (double)slot->bytes / window_s;
		measurement->stall_client +=
			(double)slot->wait_ns / (double)slot->window_ns / run->started;
		measurement->images += slot->images;
		measurement->batches += slot->batches;
		measurement->bad += slot->bad;
		measurement->reconnects += slot->reconnects;
		for (unsigned p = 0; p < POINT_PARTS_MAX; p++)
			measurement->part_images[p] += slot->part_images[p];
		cpu_ns += slot->cpu_ns;
		patches += slot->patches;
		if (waits)
			histogram_merge(waits, &slot->waits);
	}
	if (run->point->order && run->point->order->batch_tokens > 0)
		measurement->token_fill = (double)patches / (double)measurement->batches /
					  run->point->order->batch_tokens;
	measurement->client_cpu_us = (double)cpu_ns * 1e-3 / (double)measurement->images;
	if (waits) {
		measurement->wait_p50_ms = histogram_quantile(waits, 0.5) * 1e-6;
		measurement->wait_p99_ms = histogram_quantile(waits, 0.99) * 1e-6;
	}
	free(waits);
}

static double per_image_us(uint64_t ns, double images)
{
	return (double)ns * 1e-3 / images;
}

static void measure_threads(const struct run *run, double window_ns, double images, unsigned cores,
			    struct measurement *measurement)
{
	const struct snapshot *before = &run->before, *after = &run->after;
	struct limit_times t = limit_times_between(&before->times, &after->times);
	double all_ns = window_ns * (after->threads ? after->threads : 1);

	for (enum stage i = 0; i < STAGE_COUNT; i++)
		measurement->stage_us[i] = per_image_us(t.stage[i], images);
	measurement->stall_daemon =
		(double)t.stall_daemon / (window_ns * (after->feeds ? after->feeds : 1));
	measurement->busy = (double)stages_work(t.stage) / all_ns;
	measurement->waiting = (double)t.stage[STAGE_WAIT] / all_ns;
	measurement->queued = (double)t.stage[STAGE_QUEUED] / all_ns;
	measurement->idle = (double)(after->idle_ns - before->idle_ns) / all_ns;
	measurement->capacity_us = window_ns * cores * 1e-3 / images;
	/* Use the clients' own measurement: the daemon learns of a wait only when it is over. */
	t.stall_client = (uint64_t)(measurement->stall_client * window_ns * run->started);
	measurement->limit = limit_judge(&t, (uint64_t)window_ns, cores);
}

static void measure_daemon(const struct run *run, struct measurement *measurement)
{
	const struct snapshot *before = &run->before, *after = &run->after;
	double window_ns = (double)(after->taken_ns - before->taken_ns);
	/*
	 * Images delivered in the daemon's window; those of the clients' window if there were none,
	 * as with very large batches.
	 */
	double images = (double)(after->images - before->images);
	unsigned cores = point_cores();

	if (images < 1)
		images = measurement->images_per_s * window_ns * 1e-9;
	measurement->threads = after->threads;
	memcpy(measurement->isa, after->isa, sizeof(measurement->isa));
	if (after->threads < cores)
		cores = after->threads;
	measurement->images_per_s_core = measurement->images_per_s / (cores ? cores : 1);
	measurement->cpu_us = per_image_us(after->cpu_ns - before->cpu_ns, images);
	measure_threads(run, window_ns, images, cores ? cores : 1, measurement);
	measurement->private_mib = (double)after->private_bytes / 0x1p20;
	measurement->pss_mib = (double)after->pss_bytes / 0x1p20;
	measurement->shared_mib = (double)after->shared_bytes / 0x1p20;
}

static int run_shared(struct run *run, struct measurement *measurement)
{
	int r = shared_state_new(run->point->clients, &run->shared);
	if (r)
		return r;
	r = run_clients(run);
	if (!r) {
		measure_clients(run, measurement);
		measure_daemon(run, measurement);
		measurement->fetch = fetch_rates_between(&run->fetch_before, &run->fetch_after);
	}
	shared_state_free(run->shared, run->point->clients);
	return r;
}

static int run_connected(struct run *run, struct measurement *measurement)
{
	int r = connection_open(&run->connection, run->socket, clock_ms() + CONNECTION_TIMEOUT_MS,
				run->error);
	if (r)
		return r;
	r = run_shared(run, measurement);
	connection_close(&run->connection);
	return r;
}

int point_measure(const struct settings *settings, const struct point *point,
		  struct measurement *ret_measurement, char *error)
{
	struct run run = {
		.settings = settings, .point = point, .socket = settings->socket, .error = error};
	struct measurement measurement = {0};
	struct feed_daemon *daemon = NULL;
	int r;

	error[0] = '\0';
	if (!run.socket) {
		r = point_daemon_start(settings, point, &daemon, error);
		if (r)
			return r;
		run.socket = feed_daemon_socket(daemon);
		run.daemon = daemon;
	}
	r = run_connected(&run, &measurement);
	feed_daemon_stop(daemon);
	if (!r)
		*ret_measurement = measurement;
	else if (!error[0])
		error_set(error, r, "%s", strerror(-r));
	return r;
}
