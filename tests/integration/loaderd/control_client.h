/*
 * A well-behaved client in a process of its own, which watches while others misbehave: how long it
 * ever waited, by phase, and a hash of every batch, to be compared with an undisturbed feed
 * afterwards. And the daemon's own figures, from status and /proc.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CONTROL_PHASES = 256,
	CONTROL_HASHES = 1 << 16,
	CONTROL_STALL_MAX_MS = 100, /* what nobody may do to a neighbour */
	CONTROL_LATE_MS = 5,        /* a batch is late that is not there so long after it was due */
};

struct control_client {
	pid_t pid, daemon;
	struct feed_options options;
	const struct fixture *fixture;
	uid_t uid;          /* 0: the test's own */
	unsigned share;     /* takes one of so many batches that it could have had; 0: all */
	uint64_t period_ns; /* from batch to batch, if share is not 0 */
	_Atomic bool stop;
	_Atomic unsigned phase;
	_Atomic uint64_t batches; /* in all */
	_Atomic uint64_t phase_batches[CONTROL_PHASES];
	/*
	 * From one batch to the next, where it ended, less the time that daemon and control client
	 * waited for a CPU.
	 */
	_Atomic uint64_t wait_ns_max[CONTROL_PHASES];
	/* batches for which it was longer than CONTROL_LATE_MS, if share is not 0 */
	_Atomic unsigned late[CONTROL_PHASES];
	uint64_t hashes[CONTROL_HASHES];
};

/*
 * Opens the feed in a new process and waits for its first ten batches. Options' strings must stay.
 */
struct control_client *control_client_start(const struct fixture *fixture,
					    const struct feed_options *options);
/* The same as another user, and at a pace of its own, which it finds out beforehand. */
struct control_client *control_client_start_as(const struct fixture *fixture,
					       const struct feed_options *options, uid_t uid,
					       unsigned share);
/* Begins a new phase; returns its number. */
unsigned control_client_phase(struct control_client *control);
/* Waits until it has got so many more batches: that it is served at all. */
void control_client_wait(struct control_client *control, uint64_t batches);
/*
 * Longest wait of the current phase, as in wait_ns_max; waits until the one that is going on has
 * ended.
 */
double control_client_longest_ms(struct control_client *control);
/*
 * Stops it, asserts that nothing failed there, and compares every batch with a fresh feed of the
 * same options. Frees it.
 */
void control_client_finish(struct control_client *control);

/* What the daemon holds. */
struct holdings {
	unsigned descriptors, ring_mappings;
	unsigned feeds;        /* by its status */
	uint64_t shared_bytes; /* by its status */
	uint64_t anonymous_kib;
};
struct holdings holdings_of(const struct fixture *fixture);
/*
 * Waits up to a minute for descriptors, mappings, feeds and bytes to be what they were; fails with
 * the difference.
 */
void holdings_return_to(const struct fixture *fixture, const struct holdings *before);
/* True where timing and memory are the sanitizer's rather than ours. */
bool sanitized(void);
