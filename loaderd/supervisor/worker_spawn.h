/*
 * What a worker is started with: the four descriptors of link.h and a log, of each of which the
 * supervisor keeps the other end. Nothing but memory and descriptors; the supervisor's thread alone
 * uses it.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Both ends of something; those of the worker are out of the way of the numbers that it gets. -1:
 * none, or somebody has taken it.
 */
struct fd_pair {
	int ours, theirs;
};

struct worker_fds {
	struct fd_pair socket, pipe, page, log;
};

/*
 * orders: that the socket takes before any is read. ret_page: the worker's page, mapped to be read,
 * for the caller to unmap. After an error worker_fds_deinit() is due as well.
 */
int worker_fds_init(struct worker_fds *worker_fds, unsigned orders, struct status_page **ret_page);
/* Closes what nobody has taken. */
void worker_fds_deinit(struct worker_fds *worker_fds);
/*
 * The configuration as workers read it, without what it says of single users: a descriptor of
 * memory that nobody can change any more; -errno.
 */
int worker_config_fd(const struct config *config);
struct worker_spawn_options {
	uid_t uid;
	bool private_only; /* the daemon has no other user */
	const int *nice; /* that it gives itself before it does anything else; NULL: the caller's */
	int config_fd;
	int group_fd; /* cgroup.procs of the control group that it enters then; -1: none */
};

/*
 * Starts a worker: by posix_spawn and not fork, since a new program has an address layout of its
 * own. -errno.
 */
int worker_spawn(const struct worker_fds *worker_fds, const struct worker_spawn_options *options,
		 pid_t *ret_pid);
