/*
 * A well-behaved client in a separate process that runs while other clients misbehave. It records
 * the longest wait of each phase, and a hash of every batch, which is later compared with an
 * undisturbed feed. Also reads the daemon's resource use from its status and /proc.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CONTROL_PHASES = 256,
	CONTROL_HASHES = 1 << 16,
	CONTROL_STALL_MAX_MS = 100, /* the longest wait that other clients may cause */
	CONTROL_LATE_MS = 5,        /* a batch is late if it comes this long after it was due */
};

struct control_client {
	pid_t pid, daemon;
	struct feed_options options;
	const struct fixture *fixture;
	uid_t uid;          /* 0 means the test's own uid */
	unsigned share;     /* takes one of `share` batches that it could have had; 0 takes all */
	uint64_t period_ns; /* between batches, if share is not 0 */
	_Atomic bool stop;
	_Atomic unsigned phase;
	_Atomic uint64_t batches; /* over all phases */
	_Atomic uint64_t phase_batches[CONTROL_PHASES];
	/*
	 * Longest time from one batch to the next, attributed to the phase in which it ends, less
	 * the time that the daemon and the control client waited for a CPU.
	 */
	_Atomic uint64_t wait_ns_max[CONTROL_PHASES];
	/* number of batches later than CONTROL_LATE_MS, if share is not 0 */
	_Atomic unsigned late[CONTROL_PHASES];
	uint64_t hashes[CONTROL_HASHES];
};

/*
 * Opens the feed in a new process and waits for its first ten batches. The options' strings must
 * stay valid.
 */
struct control_client *control_client_start(const struct fixture *fixture,
					    const struct feed_options *options);
/* Same as another user, and at a fixed pace, which it measures first. */
struct control_client *control_client_start_as(const struct fixture *fixture,
					       const struct feed_options *options, uid_t uid,
					       unsigned share);
/* Begins a new phase; returns its number. */
unsigned control_client_phase(struct control_client *control);
/* Waits for `batches` more batches, which shows that the client is served at all. */
void control_client_wait(struct control_client *control, uint64_t batches);
/*
 * Longest wait of the current phase, as in wait_ns_max. Waits until the current interval between
 * batches has ended.
 */
double control_client_longest_ms(struct control_client *control);
/*
 * Stops the client, asserts that it did not fail, and compares every batch with a fresh feed with
 * the same options. Frees it.
 */
void control_client_finish(struct control_client *control);

/* Resources that the daemon holds. */
struct holdings {
	unsigned descriptors, ring_mappings;
	unsigned feeds;        /* from its status */
	uint64_t shared_bytes; /* from its status */
	uint64_t anonymous_kib;
};
struct holdings holdings_of(const struct fixture *fixture);
/*
 * Waits up to a minute for fds, mappings, feeds and bytes to return to the earlier values; fails
 * with the difference.
 */
void holdings_return_to(const struct fixture *fixture, const struct holdings *before);
/* Returns true if a sanitizer distorts timing and memory. */
bool sanitized(void);
