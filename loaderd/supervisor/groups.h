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
struct groups_limits {
	uint64_t memory; /* bytes: anonymous memory, page cache, kernel memory */
	uint64_t threads;
};

struct groups {
	int fd;   /* the folder; -1: no groups */
	bool own; /* found by groups_own(): the service alone makes groups there */
	/* controllers that it has */
	bool weights, memory, threads;
	struct groups_limits limits;
	unsigned kept; /* groups of users who are gone, whose page cache still counts */
};

/*
 * path: a folder; "auto": the one that groups_own() finds, else no groups; "": no groups. 0 without
 * groups under "auto": error has the reason, for the log. -errno with a text that names the key.
 */
int groups_open(struct groups *groups, const char *path, const struct groups_limits *limits,
		struct config_error *error);
/* Removes what can be removed of users' groups. */
void groups_close(struct groups *groups);
bool groups_given(const struct groups *groups);
/*
 * Makes a user's group, unless it is there, and sets its weight and limits. nice: its weight as for
 * nice(2); NULL: the usual. Returns a descriptor of its cgroup.procs, by which the new worker
 * enters it (worker_join_group()), or -errno.
 */
int groups_make(struct groups *groups, uid_t uid, const int *nice);
/* Gives a user's group, if there is one, another weight. -errno. */
int groups_weigh(const struct groups *groups, uid_t uid, const int *nice);
/* The user is gone: removes the group, unless memory is still charged to it. */
void groups_remove(struct groups *groups, uid_t uid);
