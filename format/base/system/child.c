#include "format/base/system/child.h"

#include <signal.h>

int child_spawn(const char *program, const posix_spawn_file_actions_t *actions,
		const char *const *arguments, char *const *environment, pid_t *ret_pid)
{
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	int r = posix_spawnp(ret_pid, program, actions, &attributes, (char *const *)arguments,
			     environment);
	posix_spawnattr_destroy(&attributes);
	return -r;
}
