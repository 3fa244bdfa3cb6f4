/*
 * Finds the cgroup that was delegated to the service, from /proc/self/cgroup and /sys/fs/cgroup.
 * Stateless; call it before the first worker is spawned.
 */
#pragma once

#include "loaderd/config.h"

#include <limits.h>

/*
 * Stores the path of a cgroup v2 directory in which cgroups for users can be created. Such a cgroup
 * must hold no process itself, so the calling process moves to its child "supervisor", unless it is
 * in a cgroup of that name already (systemd's DelegateSubgroup=). Returns -errno if there is none,
 * with the reason in error. root: "" for this machine; tests pass a directory.
 */
int delegated_cgroup_find(const char *root, char path[PATH_MAX], struct config_error *error);
