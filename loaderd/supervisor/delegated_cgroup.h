/*
 * The control group that the service itself has been delegated, found by /proc/self/cgroup and
 * /sys/fs/cgroup. Without state; before there are workers.
 */
#pragma once

#include "loaderd/config.h"

#include <limits.h>

/*
 * Puts the path of a group of version 2 there in which groups for users may be made. As no process
 * may be in such a group itself, this one moves into a subgroup "supervisor", unless it is in one
 * of that name already (systemd's DelegateSubgroup=). Negative errno with the reason in error:
 * there is no such group. root "" is this machine; a test names a folder.
 */
int delegated_cgroup_find(const char *root, char path[PATH_MAX], struct config_error *error);
