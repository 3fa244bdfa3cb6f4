/*
 * sampler: what can be seen of a daemon from outside: its status, CPU time and memory.
 *
 * A snapshot is taken in one go and is a plain value. The connection belongs to one thread.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "bench/measure/point.h"
#include "proto/client/connection.h"
#include "proto/limit.h"

struct snapshot {
	uint64_t taken_ns; /* CLOCK_MONOTONIC */
	unsigned threads;
	long pid;
	char isa[16];
	/* Sums over the feeds of the clients watched. */
	unsigned feeds;
	uint64_t images;
	struct limit_times times;
	uint64_t idle_ns;                  /* of the daemon's worker threads */
	uint64_t cpu_ns;                   /* of the daemon; 0 where the system does not tell */
	uint64_t shared_bytes;             /* rings of the daemon */
	uint64_t pss_bytes, private_bytes; /* of the daemon; 0 where the system does not tell */
};

/* Feeds of other processes than the clients listed are left out of the sums. */
int sampler_take(struct connection *connection, const pid_t *clients, unsigned client_count,
		 struct snapshot *ret_snapshot, char *error);
