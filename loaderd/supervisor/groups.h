/*
 * Control groups of version 2 for workers, one for each user, below one that the administrator
 * gives: the kernel divides CPUs by their weights before it looks at the nice values of what is in
 * them (Linux, Documentation/admin-guide/cgroup-v2.rst, "CPU"). The supervisor's thread alone uses
 * it.
 */
#pragma once

#include "loaderd/config.h"

#include <stdbool.h>
#include <sys/types.h>

struct groups {
	int fd; /* the folder; -1: none is given */
};

/* path "": none. -errno with a text that names the key. */
int groups_open(struct groups *groups, const char *path, struct config_error *error);
void groups_close(struct groups *groups);
bool groups_given(const struct groups *groups);
/*
 * Puts a user's new worker into the user's group, which is made if it is not there. nice: its
 * weight as for nice(2); NULL: the usual. -errno.
 */
int groups_enter(const struct groups *groups, uid_t uid, const int *nice, pid_t worker);
/* Removes a user's group, if nobody is in it. */
void groups_remove(const struct groups *groups, uid_t uid);
