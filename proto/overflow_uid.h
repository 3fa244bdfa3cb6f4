/*
 * Nobody's number: the kernel shows it in place of every user who has none of their own in this
 * process's user namespace.
 */
#pragma once

#include <sys/types.h>

/* 65534 where the system does not say. */
uid_t overflow_uid(void);
