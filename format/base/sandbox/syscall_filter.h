/*
 * A seccomp filter: the process is left with the system calls that every program of ours needs, and
 * those that it lists. Threads may start, processes and programs may not. Other calls fail with
 * EPERM instead of ending the process: a library that tries a call is not an attack.
 */
#pragma once

#include <seccomp.h>
#include <stddef.h>

/* Builds with a sanitizer need more: their runtimes make calls that the program does not. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SYSCALL_FILTER_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SYSCALL_FILTER_SANITIZED 1
#endif
#endif
#ifndef SYSCALL_FILTER_SANITIZED
#define SYSCALL_FILTER_SANITIZED 0
#endif

/* A call with arguments for which the condition holds. */
struct syscall_condition {
	int call;
	unsigned count; /* entries of `arguments`; 0: any arguments */
	struct scmp_arg_cmp arguments[2];
};

/* Calls that are allowed further; those without conditions cost the kernel one look at a bitmap. */
struct syscall_filter {
	const int *calls;
	size_t call_count;
	const struct syscall_condition *conditions;
	size_t condition_count;
};

/* Prepares a sanitizer's runtime for the filter. Call it before anything is given up. */
void syscall_filter_prepare(void);
/* Loads the filter in all threads; sets no_new_privs. Negative errno. */
int syscall_filter_load(const struct syscall_filter *filter);
/*
 * Describes what a sanitizer build is allowed in addition, with system calls by name, for the log;
 * "" in other builds. The string is static.
 */
const char *syscall_filter_exceptions(void);
