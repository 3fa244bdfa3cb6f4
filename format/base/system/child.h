/*
 * Programs that are started to stay: by posix_spawn() and not fork(), which neither copies a large
 * process nor runs handlers of other libraries in the child. Any thread.
 */
#pragma once

#include <spawn.h>
#include <sys/types.h>

/*
 * Negative errno. A program without a slash is looked for in PATH. The child has no signal blocked
 * or ignored, and a process group of its own: an interrupt from the terminal is not for it.
 */
int child_spawn(const char *program, const posix_spawn_file_actions_t *actions,
		const char *const *arguments, char *const *environment, pid_t *ret_pid);
