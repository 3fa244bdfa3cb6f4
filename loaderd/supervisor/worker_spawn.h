/*
 * Spawns a worker with the descriptors of worker_ipc.h and a log pipe; the supervisor keeps the
 * other ends. Holds nothing but memory and descriptors. Used by the supervisor's thread alone.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Both ends of a channel. The worker's end is above the numbers that it will have in the child. -1:
 * none, or ownership has moved.
 */
struct fd_pair {
	int ours, theirs;
};

struct worker_fds {
	struct fd_pair socket, pipe, page, log;
};

/*
 * orders: how many the socket must hold unread. ret_page: the worker's status page, mapped
 * read-only; the caller unmaps it. Call worker_fds_deinit() after an error, too.
 */
int worker_fds_init(struct worker_fds *worker_fds, unsigned orders, struct status_page **ret_page);
/* Closes what is still owned here. */
void worker_fds_deinit(struct worker_fds *worker_fds);
/*
 * Writes the configuration, without its keys for single users, to a sealed memfd that workers read.
 * Returns the descriptor or -errno.
 */
int worker_config_fd(const struct config *config);
struct worker_spawn_options {
	uid_t uid;
	bool private_only; /* the daemon has no other user */
	const int *nice; /* that it gives itself before it does anything else; NULL: the caller's */
	int config_fd;
	int group_fd; /* cgroup.procs of the control group that it enters then; -1: none */
};

/* Spawns a worker by posix_spawn(): unlike fork(), exec gives it an address layout of its own.
 * Returns 0 or -errno. */
int worker_spawn(const struct worker_fds *worker_fds, const struct worker_spawn_options *options,
		 pid_t *ret_pid);
