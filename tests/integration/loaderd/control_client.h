/*
 * A regular client in a separate process that runs while other clients misbehave. It records the
 * longest wait of each phase, and a hash of every batch, which is later compared with a feed that
 * nothing disturbed. Also reads the daemon's resource use from its status and /proc.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CONTROL_PHASES = 256,
	CONTROL_HASHES = 1 << 16,
	CONTROL_STALL_MAX_MS = 100, /* maximum delay that other clients may cause */
	CONTROL_LATE_MS = 5,        /* a batch is late if it arrives this long after its due time */
};

struct control_client {
	pid_t pid, daemon;
	struct feed_options options;
	const struct fixture *fixture;
	uid_t uid;          /* uid of the client; 0 means the test's */
	unsigned share;     /* takes one in `share` batches that it could have; 0 takes all */
	uint64_t period_ns; /* interval between batches, if share is not 0 */
	_Atomic bool stop;
	_Atomic unsigned phase;
	_Atomic uint64_t batches; /* total over all phases */
	_Atomic uint64_t phase_batches[CONTROL_PHASES];
	/*
	 * Longest time between two batches, recorded in the phase in which the second one arrives.
	 * Excludes the time that the daemon and the control client waited for a CPU.
	 */
	_Atomic uint64_t wait_ns_max[CONTROL_PHASES];
	/* number of batches later than CONTROL_LATE_MS, if share is not 0 */
	_Atomic unsigned late[CONTROL_PHASES];
	uint64_t hashes[CONTROL_HASHES];
};

/*
 * Opens the feed in a new process and waits for its first ten batches. The strings in options must
 * stay valid.
 */
struct control_client *control_client_start(const struct fixture *fixture,
					    const struct feed_options *options);
/* Same, but as another user and at a fixed pace, which it measures first. */
struct control_client *control_client_start_as(const struct fixture *fixture,
					       const struct feed_options *options, uid_t uid,
					       unsigned share);
/* Begins a new phase; returns its number. */
unsigned control_client_phase(struct control_client *control);
/* Waits for `batches` more batches, to ensure that the client is being served. */
void control_client_wait(struct control_client *control, uint64_t batches);
/*
 * Returns the longest wait of the current phase, as in wait_ns_max, after the current interval
 * between batches has ended.
 */
double control_client_longest_ms(struct control_client *control);
/*
 * Stops and frees the client. Asserts that it did not fail, and compares every batch with those of
 * a new feed with the same options.
 */
void control_client_finish(struct control_client *control);

/* Resources that the daemon holds. */
struct resource_counts {
	unsigned descriptors, ring_mappings;
	unsigned feeds;        /* from the daemon's status */
	uint64_t shared_bytes; /* from the daemon's status */
	uint64_t anonymous_kib;
};
struct resource_counts count_resources(const struct fixture *fixture);
/*
 * Waits up to a minute until fds, mappings, feeds and bytes have returned to the earlier values;
 * otherwise fails with the difference.
 */
void wait_resources_released(const struct fixture *fixture, const struct resource_counts *before);
/* Returns the anonymous memory of a process. */
uint64_t anonymous_kib(pid_t pid);
/*
 * Creates a socket with unsent data and SO_LINGER, so that close() blocks for this many seconds.
 */
int lingering_socket(int seconds);
