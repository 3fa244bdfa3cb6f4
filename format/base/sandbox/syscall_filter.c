#include "format/base/sandbox/syscall_filter.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#if SYSCALL_FILTER_SANITIZED
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

/* Allowed with any arguments: the kernel then decides by a bitmap of system calls, at no cost. */
static const int calls[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(write),
	SCMP_SYS(lseek),
	SCMP_SYS(close),
	SCMP_SYS(fstat), /* takes only an fd, unlike newfstatat and statx */
	SCMP_SYS(fstatfs),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(recvmsg),
	SCMP_SYS(shutdown),
	SCMP_SYS(munmap),
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(gettid),
	SCMP_SYS(getpid),
	SCMP_SYS(getrusage),
	SCMP_SYS(getrandom),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(sysinfo), /* glibc's qsort() does not tolerate a failure */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

/* Thread creation: the flags that glibc uses, and no new namespace. */
#define THREAD_FLAGS                                                                               \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |        \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static const struct syscall_condition conditions[] = {
	{SCMP_SYS(clone), 1, {{0, SCMP_CMP_EQ, THREAD_FLAGS, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, PR_SET_NAME, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, 0x53564d41 /* PR_SET_VMA: names of mappings */, 0}}},
	/*
	 * Of the calling thread only: processes of the same uid have access to each other's
	 * threads.
	 */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_EQ, 0, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 7 /* SIGBUS */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 11 /* SIGSEGV */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 6 /* SIGABRT */, 0}}},
};

/* Calls that always fail with ENOSYS, so that glibc falls back to others. */
static const struct syscall_condition absent[] = {
	{SCMP_SYS(clone3), 0, {{0}}}, /* its flags are in memory, which the filter cannot read */
	/* For threads other than the caller: pthread_getattr_np() copes without. */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_NE, 0, 0}}},
};

enum { END = -1 /* end of the list */ };

#if SYSCALL_FILTER_SANITIZED
/*
 * Further calls of the sanitizer runtimes, found by trial: a runtime that is refused one ends the
 * process.
 */
static const int sanitizers[] = {
#ifndef __SANITIZE_THREAD__
	SCMP_SYS(sigaltstack), /* at each thread start and before each exit */
#endif
	END,
};

static bool inside;

/*
 * Disables LeakSanitizer under the filter, since it traces this process from another one. Called by
 * the runtime, which is a separate library.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	return inside;
}

/*
 * Makes the runtime load the program's symbols now, by one symbolisation, so that it opens no file
 * later. clang's runtime runs another program for this, which the filter forbids: its reports
 * contain module offsets for llvm-symbolizer.
 */
void syscall_filter_prepare(void)
{
#ifndef __clang__
	char place[256];
	__sanitizer_symbolize_pc(__builtin_return_address(0), "%p %F %L", place, sizeof(place));
#endif
	inside = true;
}
#else
static const int sanitizers[] = {END};

void syscall_filter_prepare(void)
{
}
#endif

const char *syscall_filter_exceptions(void)
{
	static char text[1024];
	size_t length = 0;
	if (SYSCALL_FILTER_SANITIZED)
		length = (size_t)snprintf(text, sizeof(text),
					  "sanitizer build: memory is not limited, leaks are not "
					  "checked, and these calls are also allowed: %s",
					  sanitizers[0] == END ? "none" : "");
	for (size_t i = 0; sanitizers[i] != END && length < sizeof(text); i++) {
		char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, sanitizers[i]);
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s",
					   i == 0 ? "" : ", ", name ? name : "?");
		free(name);
	}
	return text;
}

static int allow_calls(scmp_filter_ctx context, const int *list, size_t count)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = seccomp_rule_add(context, SCMP_ACT_ALLOW, list[i], 0);
	return r;
}

static int add_conditions(scmp_filter_ctx context, uint32_t action,
			  const struct syscall_condition *list, size_t count)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = seccomp_rule_add_array(context, action, list[i].call, list[i].count,
					   list[i].arguments);
	return r;
}

static int add_rules(scmp_filter_ctx context, const struct syscall_filter *filter)
{
	int r = allow_calls(context, calls, sizeof(calls) / sizeof(*calls));
	if (r == 0)
		r = allow_calls(context, filter->calls, filter->call_count);
	if (r == 0)
		r = add_conditions(context, SCMP_ACT_ERRNO(ENOSYS), absent,
				   sizeof(absent) / sizeof(*absent));
	if (r == 0)
		r = add_conditions(context, SCMP_ACT_ALLOW, conditions,
				   sizeof(conditions) / sizeof(*conditions));
	if (r == 0)
		r = add_conditions(context, SCMP_ACT_ALLOW, filter->conditions,
				   filter->condition_count);
	/* abort() sends a signal to the calling process. */
	const struct scmp_arg_cmp self = {0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0};
	if (r == 0)
		r = seccomp_rule_add_array(context, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, &self);
	for (size_t i = 0; r == 0 && sanitizers[i] != END; i++)
		r = seccomp_rule_add(context, SCMP_ACT_ALLOW, sanitizers[i], 0);
	return r;
}

static int fill_and_load(scmp_filter_ctx context, const struct syscall_filter *filter)
{
	int r = seccomp_attr_set(context, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r < 0)
		return r;
	/*
	 * Do not disable speculative store bypass: kernels before 5.16 would, which slows down
	 * decoding.
	 */
	(void)seccomp_attr_set(context, SCMP_FLTATR_CTL_SSB, 1);
	(void)seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	/*
	 * Kill the process on a call of a foreign architecture. The default kills only the thread
	 * and would leave a process that does not serve.
	 */
	r = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r < 0)
		return r;
	r = add_rules(context, filter);
	return r < 0 ? r : seccomp_load(context);
}

int syscall_filter_load(const struct syscall_filter *filter)
{
	scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!context)
		return -ENOMEM;
	int r = fill_and_load(context, filter);
	seccomp_release(context);
	return r;
}
