/*
 * A client process that consumes one feed as fast as it can and reports through shared memory.
 *
 * The parent owns the shared state, an anonymous shared mapping with one slot per client. Only the
 * parent writes the commands; each client writes its slot. Clients are forked from a
 * single-threaded parent, which always waits for them.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/measure/histogram.h"
#include "bench/measure/point.h"
#include "proto/client/feed.h"

enum client_state { CLIENT_STARTS, CLIENT_RUNS, CLIENT_DONE, CLIENT_FAILED };

struct client_slot {
	_Atomic uint32_t
		state; /* enum client_state; the results are valid in DONE, error in FAILED */
	uint64_t images, batches, bytes, bad;
	uint64_t patches;                      /* of images that patch_resize has made */
	uint64_t part_images[POINT_PARTS_MAX]; /* of a mixture */
	uint64_t reconnects;
	uint64_t window_ns; /* from the batch that opened the window to the last one in it */
	uint64_t wait_ns;   /* the part of window_ns spent in feed_next */
	uint64_t cpu_ns;
	struct histogram waits; /* duration of each feed_next in nanoseconds */
	char error[FEED_ERROR_MAX];
};

struct shared_state {
	_Atomic uint64_t start_ns,
		stop_ns; /* window in CLOCK_MONOTONIC time; valid once start_ns is not 0 */
	_Atomic uint32_t leave;
	struct client_slot slots[];
};

int shared_state_new(unsigned clients, struct shared_state **ret_shared);
void shared_state_free(struct shared_state *shared, unsigned clients);

/* Forks client number `client`. Returns its pid or a negative errno. */
pid_t client_start(struct shared_state *shared, const struct settings *settings,
		   const struct point *point, const char *socket, unsigned client);
