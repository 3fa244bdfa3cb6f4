/*
 * What the system must let the daemon have before it can serve anybody: limits of its process,
 * calls and files that a container may take from it. Tried when it starts, so that the reason is
 * said then, and not by clients later. Without state.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * threads: that supervisor and one worker start with. ring_bytes: that a user's rings may have.
 * -errno with a sentence in error that names what is wrong, its value and the remedy. What merely
 * makes serving worse is logged.
 */
int startup_check(uint64_t threads, uint64_t ring_bytes, bool single_user,
		  struct config_error *error);
