/*
 * Checks that the system lets the daemon serve: resource limits, and system calls and files that a
 * container may deny. Run at startup, so that the daemon reports the cause rather than its clients
 * later. Stateless.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * threads: needed at start by the supervisor and one worker. ring_bytes: limit of one user's rings.
 * Returns -errno with a sentence in error that names the limit, its value and the remedy. Logs a
 * warning for limits that only degrade service.
 */
int startup_check(uint64_t threads, uint64_t ring_bytes, bool single_user,
		  struct config_error *error);
