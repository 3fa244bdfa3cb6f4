/*
 * Starts long-running child processes with posix_spawn(). Unlike fork(), it neither copies a large
 * address space nor runs other libraries' fork handlers. Any thread.
 */
#pragma once

#include <spawn.h>
#include <sys/types.h>

/*
 * Starts a program; negative errno on failure. Searches PATH for a name without a slash. The child
 * has no blocked or ignored signals and gets its own process group, so Ctrl-C on the terminal does
 * not reach it.
 */
int child_spawn(const char *program, const posix_spawn_file_actions_t *actions,
		const char *const *arguments, char *const *environment, pid_t *ret_pid);
