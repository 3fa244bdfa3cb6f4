/*
 * Runs a worker's sessions in a single thread, without a process, sandbox or supervisor. Work for
 * job threads and the pool is queued until the caller runs it, so that equal sequences of calls
 * give equal results. This module allocates small rings itself. Everything else is the worker's own
 * code: sessions, openings, registry, subscriptions and batchers, but without read-ahead. Link with
 * -Wl,--wrap for the replaced functions (meson.build). There is one worker, used by one thread; it
 * persists between inputs, but its clients do not.
 */
#pragma once

#include "loaderd/batch/batch.h"

#include <stdbool.h>

/* Call once. Returns a negative errno on failure. */
int worker_alone_start(void);
/* Returns the client's end of a new connection, which the caller closes, or -1 on failure. */
int worker_alone_connect(void);
/* Runs one round of events and the oldest queued job. Returns false if there was nothing to do. */
bool worker_alone_turn(void);
/*
 * Makes up to `claims` claims, round-robin over the feeds that can continue, alternating between
 * two pool workers.
 */
void worker_alone_work(unsigned claims);
/* Call when all clients have disconnected. Aborts if any resource of theirs remains. */
void worker_alone_expect_empty(void);
/* Sets a function that is called after every check or lookup in a dataset. */
void worker_alone_hook(void (*hook)(void));
