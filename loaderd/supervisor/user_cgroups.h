/*
 * cgroups (v2) for workers, one per user, in a directory that the administrator names or that was
 * delegated to the service. Each has the user's CPU weight and limits of memory and threads, as far
 * as the directory has the controllers. Weights matter because the kernel divides CPU time by
 * cgroup weight before it looks at nice values (Linux, Documentation/admin-guide/cgroup-v2.rst,
 * "CPU"). Supervisor thread only.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>
#include <sys/types.h>

/* Limits of each user's cgroup. */
struct user_cgroup_limits {
	uint64_t memory; /* bytes: anonymous memory, page cache, kernel memory */
	uint64_t threads;
};

struct user_cgroups {
	int fd;   /* the parent directory; -1 if cgroups are not used */
	bool own; /* found by delegated_cgroup_find(): only the service creates cgroups in it */
	/* available controllers: cpu, memory, pids */
	bool weights, memory, threads;
	struct user_cgroup_limits limits;
	unsigned
		kept; /* cgroups kept after their users left: page cache is still charged to them */
};

/*
 * Opens the parent directory. path: a directory; "auto" for the one that delegated_cgroup_find()
 * finds, or no cgroups if it finds none; "" for no cgroups. Returns 0, with the reason in error if
 * "auto" found none, or -errno with a sentence that names the key.
 */
int user_cgroups_open(struct user_cgroups *cgroups, const char *path,
		      const struct user_cgroup_limits *limits, struct config_error *error);
/* Removes the users' cgroups as far as possible. */
void user_cgroups_close(struct user_cgroups *cgroups);
bool user_cgroups_enabled(const struct user_cgroups *cgroups);
/*
 * Creates a user's cgroup if needed and sets its weight and limits. nice: weight in nice(2) units;
 * NULL for the default. Returns an fd of its cgroup.procs, through which the new worker enters it
 * (worker_join_group()), or -errno.
 */
int user_cgroups_create(struct user_cgroups *cgroups, uid_t uid, const int *nice);
/* Changes the weight of a user's cgroup, if it exists. Returns 0 or -errno. */
int user_cgroups_set_weight(const struct user_cgroups *cgroups, uid_t uid, const int *nice);
/* Removes the cgroup of a user that is gone, unless memory is still charged to it. */
void user_cgroups_remove(struct user_cgroups *cgroups, uid_t uid);
