/*
 * The sandbox of a worker. A worker decodes untrusted files: neither its user nor any other user
 * need trust their authors. A decoder that such a file compromises is left with the fds that it
 * holds: no path, no other process, no new socket, no program. loaderd(1), ISOLATION.
 *
 * Call sandbox_prepare() first, and sandbox_enter() once everything that needs more privileges is
 * done. sandbox_enter() also restricts threads that already run, except by Landlock before ABI 8.
 */
#pragma once

#include "loaderd/config.h"

#include <stdint.h>

struct sandbox_limits {
	/*
	 * private writable bytes, reserved thread stacks included; rings and mapped files do not
	 * count
	 */
	uint64_t memory;
	uint64_t threads; /* enforced only if this process is counted separately */
};

/*
 * Enters the sandbox. Returns -errno with a sentence in error if the seccomp filter or a resource
 * limit cannot be set. Landlock is used if the kernel has it.
 */
int sandbox_enter(const struct sandbox_limits *limits, struct config_error *error);
/*
 * Drops privileges: no_new_privs, no capabilities, no core dumps, no tracing by processes of the
 * same user, and new namespaces if the system allows them. Call it before any thread starts.
 * Returns 0, or -errno with a sentence in error.
 */
int sandbox_prepare(struct config_error *error);
