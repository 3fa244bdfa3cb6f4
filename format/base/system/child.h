/*
 * Starts long-running child processes with posix_spawn() instead of fork(): it neither copies a
 * large address space nor runs fork handlers of other libraries in the child. Any thread.
 */
#pragma once

#include <spawn.h>
#include <sys/types.h>

/*
 * Starts a program; negative errno on failure. A name without a slash is searched in PATH. The
 * child has no blocked or ignored signals and gets its own process group, so an interrupt from the
 * terminal does not reach it.
 */
int child_spawn(const char *program, const posix_spawn_file_actions_t *actions,
		const char *const *arguments, char *const *environment, pid_t *ret_pid);
