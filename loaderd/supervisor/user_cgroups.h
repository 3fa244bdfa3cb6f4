/*
 * Control groups of version 2 for workers, one for each user, below a folder that the administrator
 * names or that the service has been delegated. Each has the user's weight (the kernel divides CPUs
 * by the weights of groups before it looks at nice values: Linux,
 * Documentation/admin-guide/cgroup-v2.rst, "CPU") and limits of memory and threads, as far as the
 * folder has these controllers. The supervisor's thread alone uses it.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>
#include <sys/types.h>

/* What each user's group may have. */
struct user_cgroup_limits {
	uint64_t memory; /* bytes: anonymous memory, page cache, kernel memory */
	uint64_t threads;
};

struct user_cgroups {
	int fd;   /* the folder; -1: no groups */
	bool own; /* found by delegated_cgroup_find(): the service alone makes groups there */
	/* controllers that it has */
	bool weights, memory, threads;
	struct user_cgroup_limits limits;
	unsigned kept; /* groups of users who are gone, whose page cache still counts */
};

/*
 * path: a folder; "auto": the one that delegated_cgroup_find() finds, else no cgroups; "": no
 * cgroups. 0 without groups under "auto": error has the reason, for the log. -errno with a text
 * that names the key.
 */
int user_cgroups_open(struct user_cgroups *cgroups, const char *path,
		      const struct user_cgroup_limits *limits, struct config_error *error);
/* Removes what can be removed of users' cgroups. */
void user_cgroups_close(struct user_cgroups *cgroups);
bool user_cgroups_enabled(const struct user_cgroups *cgroups);
/*
 * Makes a user's group, unless it is there, and sets its weight and limits. nice: its weight as for
 * nice(2); NULL: the usual. Returns a descriptor of its cgroup.procs, by which the new worker
 * enters it (worker_join_group()), or -errno.
 */
int user_cgroups_create(struct user_cgroups *cgroups, uid_t uid, const int *nice);
/* Gives a user's group, if there is one, another weight. -errno. */
int user_cgroups_set_weight(const struct user_cgroups *cgroups, uid_t uid, const int *nice);
/* The user is gone: removes the group, unless memory is still charged to it. */
void user_cgroups_remove(struct user_cgroups *cgroups, uid_t uid);
