/*
 * The overflow uid: the kernel reports it for every uid that is not mapped in this process's user
 * namespace.
 */
#pragma once

#include <sys/types.h>

/* Reads /proc/sys/kernel/overflowuid; 65534 if it cannot be read. */
uid_t overflow_uid(void);
