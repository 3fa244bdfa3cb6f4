/*
 * Samples a daemon from outside: its status, CPU time and memory.
 *
 * A snapshot is a plain value. The connection belongs to one thread.
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
	/* sums over the feeds of the watched clients */
	unsigned feeds;
	uint64_t images;
	struct limit_times times;
	uint64_t idle_ns;                  /* idle time of the daemon's pool threads */
	uint64_t cpu_ns;                   /* of the daemon; 0 if unavailable */
	uint64_t shared_bytes;             /* memory of the daemon's rings */
	uint64_t pss_bytes, private_bytes; /* of the daemon; 0 if unavailable */
};

/* Takes a snapshot. The sums cover only feeds of the processes in `clients`. */
int sampler_take(struct connection *connection, const pid_t *clients, unsigned client_count,
		 struct snapshot *ret_snapshot, char *error);
