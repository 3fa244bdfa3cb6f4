#include "tests/integration/loaderd/feed_witness.h"

#include "format/base/system/clock.h"
#include "proto/client/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t queued_ns(const struct witness *witness)
{
	return fixture_queued_ns(witness->daemon) + fixture_queued_ns(getpid());
}

static void note(struct witness *witness, uint64_t hash, uint64_t wait_ns)
{
	uint64_t n = atomic_load(&witness->batches);
	unsigned phase = atomic_load(&witness->phase);
	assert_true(hash != 0);
	if (n < WITNESS_HASHES)
		witness->hashes[n] = hash;
	if (wait_ns > atomic_load(&witness->wait_ns_max[phase]))
		atomic_store(&witness->wait_ns_max[phase], wait_ns);
	if (witness->period_ns != 0 && wait_ns > WITNESS_LATE_MS * UINT64_C(1000000))
		atomic_fetch_add(&witness->late[phase], 1);
	atomic_fetch_add(&witness->phase_batches[phase], 1);
	atomic_fetch_add(&witness->batches, 1);
}

/* How long a batch takes when nothing else is done. */
static void find_pace(struct witness *witness, struct feed *feed)
{
	enum { BEFORE = 20, BATCHES = 100 };
	uint64_t start_ns = 0;
	for (unsigned i = 0; i < BEFORE + BATCHES; i++) {
		if (i == BEFORE)
			start_ns = now_ns();
		note(witness, fixture_hash_next(feed), 0);
	}
	witness->period_ns = (now_ns() - start_ns) / BATCHES * witness->share;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void watch(struct witness *witness)
{
	struct feed *feed = fixture_open(&witness->options);
	if (witness->uid != 0)
		witness->daemon = fixture_worker_of(witness->fixture, witness->uid);
	if (witness->share != 0)
		find_pace(witness, feed);
	uint64_t before_ns = now_ns(), queued_before_ns = queued_ns(witness);
	while (!atomic_load(&witness->stop)) {
		uint64_t due_ns = before_ns + witness->period_ns;
		if (witness->period_ns != 0)
			sleep_until(due_ns);
		uint64_t hash = fixture_hash_next(feed);
		uint64_t now = now_ns(), queued = queued_ns(witness);
		uint64_t wait_ns = now - due_ns, others_ns = queued - queued_before_ns;
		note(witness, hash, wait_ns > others_ns ? wait_ns - others_ns : 0);
		before_ns =
			now > due_ns + witness->period_ns || witness->period_ns == 0 ? now : due_ns;
		queued_before_ns = queued;
	}
	feed_close(feed);
}

struct witness *witness_start(const struct fixture *fixture, const struct feed_options *options)
{
	return witness_start_as(fixture, options, 0, 0);
}

struct witness *witness_start_as(const struct fixture *fixture, const struct feed_options *options,
				 uid_t uid, unsigned share)
{
	struct witness *witness = mmap(NULL, sizeof(*witness), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(witness != MAP_FAILED);
	witness->options = *options;
	witness->fixture = fixture;
	witness->uid = uid;
	witness->share = share;
	if (uid == 0)
		witness->daemon = fixture_worker(fixture);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid != 0)
			fixture_become(uid);
		/* a failed assertion ends this process too, with a status that is not 0 */
		watch(witness);
		_exit(0);
	}
	witness->pid = pid; /* by the parent alone: the child shares this memory */
	witness_wait(witness, share == 0 ? 10 : 150);
	return witness;
}

unsigned witness_phase(struct witness *witness)
{
	unsigned phase = atomic_fetch_add(&witness->phase, 1) + 1;
	assert_true(phase < WITNESS_PHASES);
	return phase;
}

double witness_longest_ms(struct witness *witness)
{
	witness_wait(witness, 1);
	return (double)atomic_load(&witness->wait_ns_max[atomic_load(&witness->phase)]) / 1e6;
}

void witness_wait(struct witness *witness, uint64_t batches)
{
	uint64_t goal = atomic_load(&witness->batches) + batches;
	uint64_t deadline_ns = now_ns() + UINT64_C(120000000000);
	while (atomic_load(&witness->batches) < goal) {
		int status;
		if (waitpid(witness->pid, &status, WNOHANG) == witness->pid)
			fail_msg("the witness ended with status %#x", (unsigned)status);
		if (now_ns() > deadline_ns)
			fail_msg("the witness gets no batches any more");
		usleep(1000);
	}
}

void witness_finish(struct witness *witness)
{
	int status = -1;
	atomic_store(&witness->stop, true);
	assert_int_equal(waitpid(witness->pid, &status, 0), witness->pid);
	assert_int_equal(status, 0);
	struct feed *feed = fixture_open(&witness->options);
	uint64_t count = atomic_load(&witness->batches);
	if (count > WITNESS_HASHES)
		count = WITNESS_HASHES;
	for (uint64_t n = 0; n < count; n++)
		if (fixture_hash_next(feed) != witness->hashes[n])
			fail_msg("batch %llu of the witness was not what it should be",
				 (unsigned long long)n);
	feed_close(feed);
	munmap(witness, sizeof(*witness));
}

static uint64_t anonymous_kib(pid_t pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

struct holdings holdings_of(const struct fixture *fixture)
{
	struct connection connection = {.fd = -1};
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	Loaderd__Reply *reply = NULL;
	char error[FEED_ERROR_MAX];
	int64_t deadline_ms = clock_ms() + 60000;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	/* those whose ends a busy daemon has not seen yet count as long */
	while (connection_open(&connection, fixture->socket, deadline_ms, error) < 0 ||
	       connection_request(&connection, &request, NULL, deadline_ms, &reply, error) < 0) {
		connection_close(&connection);
		if (clock_ms() > deadline_ms)
			fail_msg("status: %s", error);
		usleep(1000);
	}
	assert_int_equal(reply->kind_case, LOADERD__REPLY__KIND_STATUS);
	pid_t worker = (pid_t)reply->status->pid;
	struct holdings holdings = {
		.feeds = (unsigned)reply->status->n_feeds,
		.shared_bytes = reply->status->shared_bytes,
		.descriptors = fixture_descriptors(worker), /* with this connection's, each time */
		.ring_mappings = fixture_ring_mappings(worker),
		.anonymous_kib = anonymous_kib(worker),
	};
	loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return holdings;
}

void holdings_return_to(const struct fixture *fixture, const struct holdings *before)
{
	struct holdings now;
	for (int i = 0; i < 6000; i++) {
		now = holdings_of(fixture);
		if (now.descriptors <= before->descriptors &&
		    now.ring_mappings == before->ring_mappings && now.feeds == before->feeds &&
		    now.shared_bytes == before->shared_bytes)
			return;
		usleep(10000);
	}
	fail_msg("the daemon held %u descriptors, %u mappings, %u feeds, %llu bytes, and now %u, "
		 "%u, %u, %llu",
		 before->descriptors, before->ring_mappings, before->feeds,
		 (unsigned long long)before->shared_bytes, now.descriptors, now.ring_mappings,
		 now.feeds, (unsigned long long)now.shared_bytes);
}

bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#elif defined(__has_feature)
	return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
	return false;
#endif
}
