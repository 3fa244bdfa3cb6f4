/*
 * A worker's sessions in one thread: what they hand to job threads and to the pool waits until
 * the caller has it done, so that the same calls do the same whenever they come again. No process,
 * no walls, no supervisor; rings are the module's own and small. Everything else is the worker's:
 * sessions, openings, registry, subscriptions and batchers, but for their read-ahead. Linked with
 * -Wl,--wrap for the functions that stand in (meson.build). One worker, of the calling thread; it
 * stays from input to input, empty.
 */
#pragma once

#include "loaderd/batch/batch.h"

#include <stdbool.h>

/* Once. Negative errno of what could not be had. */
int worker_alone_start(void);
/* A client's end of a connection; the caller closes it. -1: there is none to be had. */
int worker_alone_connect(void);
/* One round of events and the job that waits longest; false: there was nothing to do. */
bool worker_alone_turn(void);
/* Has so many claims made, in turn for all feeds that could go on, by two pool workers in turn. */
void worker_alone_work(unsigned claims);
/* All clients have gone: everything they had must have gone with them, or the process aborts. */
void worker_alone_expect_empty(void);
/* Called wherever something of a dataset has just been checked or looked up. */
void worker_alone_hook(void (*hook)(void));
