/*
 * Spawns a worker with the channels of worker_ipc.h and a log pipe; the supervisor keeps the other
 * ends. Supervisor thread only.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Both ends of a channel. The worker's end is numbered above the fds that the child uses. -1 if
 * there is none or its ownership has moved.
 */
struct fd_pair {
	int ours, theirs;
};

struct worker_fds {
	struct fd_pair socket, pipe, page, log;
};

/*
 * Opens the channels. orders: number of unread orders that the socket must hold. ret_page: the
 * worker's status page, mapped read-only; the caller unmaps it. Call worker_fds_deinit() even after
 * an error.
 */
int worker_fds_init(struct worker_fds *worker_fds, unsigned orders, struct status_page **ret_page);
/* Closes the fds still owned by worker_fds. */
void worker_fds_deinit(struct worker_fds *worker_fds);
/*
 * Writes the configuration to a sealed memfd that workers read, without the nice values of users.
 * Returns the fd or -errno.
 */
int worker_config_fd(const struct config *config);
struct worker_spawn_options {
	uid_t uid;
	bool private_only; /* a private daemon: it has no other user */
	const int *nice;   /* nice value that the worker sets first; NULL to inherit */
	int config_fd;
	int group_fd; /* cgroup.procs of the cgroup to enter; -1 if none */
};

/*
 * Spawns a worker with posix_spawn(): exec, unlike fork(), gives it a new address-space layout.
 * Returns 0 or -errno.
 */
int worker_spawn(const struct worker_fds *worker_fds, const struct worker_spawn_options *options,
		 pid_t *ret_pid);
