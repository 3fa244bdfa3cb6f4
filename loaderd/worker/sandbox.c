#include "loaderd/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#if SANITIZED
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#endif

/* Allowed with any arguments: the kernel then decides by a bitmap of system calls, at no cost. */
static const int allowed[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(preadv2),
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
	SCMP_SYS(io_uring_enter), /* only rings that were restricted to reads before the sandbox */
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

struct condition {
	int call;
	unsigned count; /* entries of `arguments` */
	struct scmp_arg_cmp arguments[2];
};

/* Calls that always fail with ENOSYS, so that glibc falls back to others. */
static const struct condition absent[] = {
	{SCMP_SYS(clone3), 0, {{0}}}, /* its flags are in memory, which the filter cannot read */
	/* For threads other than the caller: pthread_getattr_np() copes without. */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_NE, 0, 0}}},
};

enum { PASS_RIGHTS = 83 /* SO_PASSRIGHTS, Linux 6.16 */ };

/* Thread creation: the flags that glibc uses, and no new namespace. */
#define THREAD_FLAGS                                                                               \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |        \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

/*
 * Flags that distinguish mappings that RLIMIT_DATA does not count: shared anonymous memory,
 * hugetlbfs pages and mappings that grow like stacks. mremap() is not allowed at all: a page that
 * it moves from the first thread's stack counts as stack, not data, wherever it ends up.
 */
#define MAP_KINDS (MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_GROWSDOWN)
/* A non-executable mapping of one of these kinds. */
#define MAP_OF(kind)                                                                               \
	{                                                                                          \
		SCMP_SYS(mmap), 2,                                                                 \
		{                                                                                  \
			{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0},                                     \
				{3, SCMP_CMP_MASKED_EQ, MAP_KINDS, kind},                          \
		}                                                                                  \
	}

static const struct condition conditions[] = {
	MAP_OF(0), /* private file mapping */
	MAP_OF(MAP_SHARED),
	MAP_OF(MAP_ANONYMOUS), /* private anonymous mapping */
#if SANITIZED
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
#else
	/*
	 * RLIMIT_DATA would not count written pages that become read-only. Heaps and stacks only
	 * ever become writable, so only that is allowed.
	 */
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_WRITE}}},
#endif
	{SCMP_SYS(clone), 1, {{0, SCMP_CMP_EQ, THREAD_FLAGS, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GETFD, 0}}},
	/* not F_SETFL, which would change the client's open file description */
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GETFL, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_ADD_SEALS, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GET_SEALS, 0}}},
	{SCMP_SYS(setsockopt),
	 2,
	 {{1, SCMP_CMP_EQ, SOL_SOCKET, 0}, {2, SCMP_CMP_EQ, PASS_RIGHTS, 0}}},
	/* Without an address only: a client may have passed an unconnected socket. */
	{SCMP_SYS(sendto), 1, {{4, SCMP_CMP_EQ, 0, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, PR_SET_NAME, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, 0x53564d41 /* PR_SET_VMA: names of mappings */, 0}}},
	/*
	 * Of the calling thread only: all workers and the supervisor have the same uid, which gives
	 * access to each other's threads.
	 */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_EQ, 0, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 7 /* SIGBUS */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 11 /* SIGSEGV */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 6 /* SIGABRT */, 0}}},
};

enum { END = -1 /* end of the list */ };

#if SANITIZED
/*
 * Further calls of the sanitizer runtimes, found by trial: a runtime that is refused one ends the
 * worker.
 */
static const int sanitizers[] = {
#ifndef __SANITIZE_THREAD__
	SCMP_SYS(sigaltstack), /* at each thread start and before each exit */
#endif
	END,
};

static bool behind_walls;

/*
 * Disables LeakSanitizer in the sandbox, since it traces this process from another one. Called by
 * the runtime, which is a separate library.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	return behind_walls;
}

/*
 * Makes the runtime load the program's symbols now, by one symbolisation, so that it opens no file
 * later. clang's runtime runs another program for this, which the sandbox forbids: its reports
 * contain module offsets for llvm-symbolizer.
 */
static void prepare_reports(void)
{
#ifndef __clang__
	char place[256];
	__sanitizer_symbolize_pc(__builtin_return_address(0), "%p %F %L", place, sizeof(place));
#endif
	behind_walls = true;
}
#else
static const int sanitizers[] = {END};

static void prepare_reports(void)
{
}
#endif

const char *sandbox_exceptions(void)
{
	static char text[1024];
	size_t length = 0;
	if (SANITIZED)
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

static int add_rules(scmp_filter_ctx filter)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(*allowed); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; r == 0 && i < sizeof(absent) / sizeof(*absent); i++)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(ENOSYS), absent[i].call,
					   absent[i].count, absent[i].arguments);
	for (size_t i = 0; r == 0 && i < sizeof(conditions) / sizeof(*conditions); i++)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, conditions[i].call,
					   conditions[i].count, conditions[i].arguments);
	/* abort() sends a signal to the calling process. */
	const struct scmp_arg_cmp self = {0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0};
	if (r == 0)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, &self);
	for (size_t i = 0; r == 0 && sanitizers[i] != END; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, sanitizers[i], 0);
	return r;
}

static int filter_fill_and_load(scmp_filter_ctx filter)
{
	int r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r < 0)
		return r;
	/*
	 * Do not disable speculative store bypass: kernels before 5.16 would, which slows down
	 * decoding.
	 */
	(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
	(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	/*
	 * Kill the process on a call of a foreign architecture. The default kills only the thread
	 * and would leave a worker that does not serve.
	 */
	r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r < 0)
		return r;
	r = add_rules(filter);
	return r < 0 ? r : seccomp_load(filter);
}

/*
 * Installs the seccomp filter. Other calls fail with EPERM instead of killing the process: a
 * library that tries a call is not an attack, and killing workers for it would be one more way to
 * harm their user.
 */
static int filter_calls(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return -ENOMEM;
	int r = filter_fill_and_load(filter);
	seccomp_release(filter);
	return r;
}

/*
 * Applies a Landlock ruleset that handles every right that the kernel knows and allows none (Linux,
 * Documentation/userspace-api/landlock.rst).
 */
static void lock_land(void)
{
	struct {
		uint64_t fs, net, scoped;
	} handled = {0};
	enum { VERSION = 1, RESTRICT_ALL_THREADS = 1 << 3 };
	const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION);
	if (abi < 1)
		return;
	handled.fs = abi == 1 ? 0x1fff : abi == 2 ? 0x3fff : abi < 5 ? 0x7fff : 0xffff;
	handled.net = abi < 4 ? 0 : 3;
	handled.scoped = abi < 6 ? 0 : 3;
	size_t size = abi < 4 ? 8 : abi < 6 ? 16 : 24;
	int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
	if (rules < 0)
		return;
	/*
	 * Before ABI 8, restricts only the calling thread and threads that it starts; the seccomp
	 * filter covers all.
	 */
	(void)syscall(SYS_landlock_restrict_self, rules, abi < 8 ? 0 : RESTRICT_ALL_THREADS);
	close(rules);
}

/* true if RLIMIT_NPROC counts only this process's threads */
static bool counted_alone;

/*
 * Enters new namespaces if unprivileged processes may create them. The user namespace is useful in
 * addition to the seccomp filter: all workers share a uid, and from Linux 5.14 on, RLIMIT_NPROC
 * counts the threads of a worker separately only in a new user namespace. Without one, a worker
 * could use up the threads that others need, so the limit is left to the service (TasksMax=).
 */
static void leave_namespaces(void)
{
	struct utsname system;
	unsigned major = 0, minor = 0;
	if (unshare(CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) < 0 &&
	    unshare(CLONE_NEWUSER) < 0)
		return;
	if (uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2)
		counted_alone = major > 5 || (major == 5 && minor >= 14);
}

/*
 * Empties the bounding set, which a new user namespace fills, too. Without CAP_SETPCAP there is no
 * such namespace, and the set stays the service's (CapabilityBoundingSet=).
 */
static void drop_bounding_set(void)
{
	for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		(void)prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};
	drop_bounding_set();
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

int sandbox_prepare(struct config_error *error)
{
	const struct rlimit none = {0, 0};
	int r = 0;
	prepare_reports();
	leave_namespaces();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0) < 0)
		r = -errno;
	if (r == 0)
		r = drop_capabilities();
	if (r < 0)
		config_say(error, "the worker cannot drop its privileges: %s", strerror(-r));
	return r;
}

/* Lowers a resource limit; a lower one stays. */
static int lower_limit(__rlimit_resource_t resource, const struct rlimit *most)
{
	struct rlimit now;
	if (getrlimit(resource, &now) < 0)
		return -1;
	now.rlim_max = most->rlim_max < now.rlim_max ? most->rlim_max : now.rlim_max;
	now.rlim_cur = now.rlim_max < now.rlim_cur ? now.rlim_max : now.rlim_cur;
	return setrlimit(resource, &now);
}

/*
 * Limits the resources of the worker. Sanitizer builds have no memory limit, since shadow memory
 * counts. RLIMIT_DATA counts private writable memory: heap, thread stacks, brk(). The first
 * thread's stack has its own limit. RLIMIT_DATA does not count kernel memory used for the worker:
 * page tables (4 KiB per 2 MiB of touched addresses, including files and read-only memory), socket
 * buffers of its connections, whose size it cannot change, and completed io_uring reads. Only a
 * cgroup limits those; the OOM killer also counts page tables.
 */
static int limit_resources(const struct sandbox_limits *limits)
{
	enum { STACK = 8 << 20 };
	const struct rlimit memory = {limits->memory, limits->memory}, stack = {STACK, STACK};
	const struct rlimit threads = {limits->threads, limits->threads};
	if ((!SANITIZED &&
	     (lower_limit(RLIMIT_DATA, &memory) < 0 || lower_limit(RLIMIT_STACK, &stack) < 0)) ||
	    (counted_alone && lower_limit(RLIMIT_NPROC, &threads) < 0))
		return -errno;
	return 0;
}

int sandbox_enter(const struct sandbox_limits *limits, struct config_error *error)
{
	lock_land();
	int r = limit_resources(limits);
	if (r < 0)
		return config_fail(error, r, "the worker cannot set its limits: %s", strerror(-r));
	r = filter_calls();
	if (r < 0)
		config_say(error,
			   "the kernel rejects the system call filter: %s; this needs "
			   "CONFIG_SECCOMP_FILTER, and a container that allows seccomp",
			   strerror(-r));
	return r;
}
