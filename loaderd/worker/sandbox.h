/*
 * The walls round a worker. What it decodes was written by somebody whom neither its user nor
 * anybody else need trust, so that nothing is left to a decoder that was taken over but the
 * descriptors that it holds: no path, no other process, no new socket, no program. loaderd(1),
 * ISOLATION.
 *
 * sandbox_enter() once, when everything that needs more is done: threads started before are inside,
 * too.
 */
#pragma once

#include "loaderd/config.h"

#include <stdint.h>

struct sandbox_limits {
	/*
	 * bytes of its own, thread stacks as they are reserved among them; rings and files do not
	 * count
	 */
	uint64_t memory;
	uint64_t threads; /* heeded where a namespace lets them be counted by process */
};

/*
 * -errno with a sentence in error: without the filter of system calls there is no serving. Landlock
 * and namespaces come on top, where the system has them.
 */
int sandbox_enter(const struct sandbox_limits *limits, struct config_error *error);
/*
 * First of all, before there are threads: no new privileges, no capabilities, no core, no tracing
 * by processes of the same user.
 */
int sandbox_prepare(struct config_error *error);
/*
 * What a build with a sanitizer is allowed besides, calls by their names, for the log; "" in
 * others. The string is static.
 */
const char *sandbox_exceptions(void);
