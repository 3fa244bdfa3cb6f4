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

/* Without conditions on their arguments: the kernel then decides by a table, at no cost. */
static const int allowed[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(preadv2),
	SCMP_SYS(write),
	SCMP_SYS(lseek),
	SCMP_SYS(close),
	SCMP_SYS(fstat), /* of a descriptor alone, as newfstatat and statx are not */
	SCMP_SYS(fstatfs),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(recvmsg),
	SCMP_SYS(shutdown),
	SCMP_SYS(io_uring_enter), /* on rings that were restricted to reading before */
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
	SCMP_SYS(sysinfo), /* the C library's qsort() does not bear a refusal */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

struct condition {
	int call;
	unsigned count; /* of arguments */
	struct scmp_arg_cmp arguments[2];
};

/* What only ever tells that it is not there, so that the C library falls back on what is. */
static const struct condition absent[] = {
	{SCMP_SYS(clone3), 0, {{0}}}, /* its arguments lie in memory, out of the filter's sight */
	/* Of single threads: pthread_getattr_np() does without. */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_NE, 0, 0}}},
};

enum { PASS_RIGHTS = 83 /* SO_PASSRIGHTS, Linux 6.16 */ };

/* Thread creation: what glibc asks for, and no namespace. */
#define THREAD_FLAGS                                                                               \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |        \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

/*
 * Memory that RLIMIT_DATA would not count: shared memory without a file, huge pages of the
 * machine's reserve, and mappings that grow as stacks do. mremap() is refused altogether: what it
 * makes of a page of the first thread's stack counts as stack, not as data, wherever it lies.
 */
#define MAP_KINDS (MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_GROWSDOWN)
/* A mapping that cannot be executed, of one of these kinds. */
#define MAP_OF(kind)                                                                               \
	{                                                                                          \
		SCMP_SYS(mmap), 2,                                                                 \
		{                                                                                  \
			{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0},                                     \
				{3, SCMP_CMP_MASKED_EQ, MAP_KINDS, kind},                          \
		}                                                                                  \
	}

static const struct condition conditions[] = {
	MAP_OF(0), /* of a file, private */
	MAP_OF(MAP_SHARED),
	MAP_OF(MAP_ANONYMOUS), /* private */
#if SANITIZED
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
#else
	/*
	 * What has been written and may not be written any more would not count, either: memory of
	 * heaps and stacks only ever becomes writable.
	 */
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_WRITE}}},
#endif
	{SCMP_SYS(clone), 1, {{0, SCMP_CMP_EQ, THREAD_FLAGS, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GETFD, 0}}},
	/* F_SETFL would change the client's description */
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GETFL, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_ADD_SEALS, 0}}},
	{SCMP_SYS(fcntl), 1, {{1, SCMP_CMP_EQ, F_GET_SEALS, 0}}},
	{SCMP_SYS(setsockopt),
	 2,
	 {{1, SCMP_CMP_EQ, SOL_SOCKET, 0}, {2, SCMP_CMP_EQ, PASS_RIGHTS, 0}}},
	/* No address: a client may have passed a socket that is not connected. */
	{SCMP_SYS(sendto), 1, {{4, SCMP_CMP_EQ, 0, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, PR_SET_NAME, 0}}},
	{SCMP_SYS(prctl), 1, {{0, SCMP_CMP_EQ, 0x53564d41 /* PR_SET_VMA: names of memory */, 0}}},
	/* Of itself: all workers and the supervisor are of one user, who may bind any of them. */
	{SCMP_SYS(sched_getaffinity), 1, {{0, SCMP_CMP_EQ, 0, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 7 /* SIGBUS */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 11 /* SIGSEGV */, 0}}},
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 6 /* SIGABRT */, 0}}},
};

enum { END = -1 /* no call */ };

#if SANITIZED
/*
 * What a sanitizer's runtime calls besides. Found by trial: where one of them is refused, it ends
 * the worker.
 */
static const int sanitizers[] = {
#ifndef __SANITIZE_THREAD__
	SCMP_SYS(sigaltstack), /* with each thread that starts, and before each exit */
#endif
	END,
};

static bool behind_walls;

/*
 * Leaks are looked for by a process that traces this one. (Asked by the runtime, in a library of
 * its own.)
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	return behind_walls;
}

/*
 * Reports name functions and lines by what the runtime has of the program once it was asked for any
 * of them, so that nothing is opened later. That of clang asks another program, which is not to be
 * there: its reports have addresses in modules, for llvm-symbolizer.
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
		length = (size_t)snprintf(
			text, sizeof(text),
			"a sanitizer's build: memory is not limited, leaks are not "
			"looked for; calls allowed besides: %s",
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
	/* abort() sends itself a signal. */
	const struct scmp_arg_cmp self = {0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0};
	if (r == 0)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, &self);
	for (size_t i = 0; r == 0 && sanitizers[i] != END; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, sanitizers[i], 0);
	return r;
}

/*
 * What is not listed answers EPERM and is not killed: a library that asks for something in vain is
 * no attack, and a worker that dies of it would be one more way to harm its user.
 */
static int filter_calls(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return -ENOMEM;
	int r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	/* Otherwise kernels before 5.16 would turn off a speculation that decoding lives on. */
	if (r == 0)
		(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
	if (r == 0)
		(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	/*
	 * A call of another architecture: by default it would end its thread, and leave a worker
	 * that does not serve.
	 */
	if (r == 0)
		r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = add_rules(filter);
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

/*
 * Landlock (Linux, Documentation/userspace-api/landlock.rst): rules for everything that it knows,
 * and none that allows any of it.
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
	 * Before version 8 of the calling thread and those that it starts alone; the filter holds
	 * for all.
	 */
	(void)syscall(SYS_landlock_restrict_self, rules, abi < 8 ? 0 : RESTRICT_ALL_THREADS);
	close(rules);
}

/* Threads of this process are counted apart from those of the service's others. */
static bool counted_alone;

/*
 * Namespaces of its own, where the system lets everybody make them. The first is why they are worth
 * it without the filter, too: all workers are one user's processes, and a limit on threads holds
 * for one of them alone only in a user namespace of its own, from Linux 5.14 on. Otherwise one
 * could use up what others need, so that there it is the service's alone (TasksMax=).
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

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};
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
		config_say(error, "a worker cannot give up its rights: %s", strerror(-r));
	return r;
}

/* A limit that is lower already stays. */
static int lower(__rlimit_resource_t resource, const struct rlimit *most)
{
	struct rlimit now;
	if (getrlimit(resource, &now) < 0)
		return -1;
	now.rlim_max = most->rlim_max < now.rlim_max ? most->rlim_max : now.rlim_max;
	now.rlim_cur = now.rlim_max < now.rlim_cur ? now.rlim_max : now.rlim_cur;
	return setrlimit(resource, &now);
}

/*
 * What a worker may take of the machine; the shadow of a sanitizer is memory, too. RLIMIT_DATA
 * counts what is private and writable: heaps, stacks of threads, and brk(). The stack of the first
 * thread has a limit of its own. Not counted is what the kernel keeps for the worker: page tables,
 * 4 KiB for each 2 MiB of addresses that were touched, also of files and of memory that is only
 * read; buffers of the connections that it has, of a size that it cannot change; finished reads of
 * its io_urings. Only a control group limits that, besides the kernel's choice of whom to end,
 * which counts page tables.
 */
static int limit_resources(const struct sandbox_limits *limits)
{
	enum { STACK = 8 << 20 };
	const struct rlimit memory = {limits->memory, limits->memory}, stack = {STACK, STACK};
	const struct rlimit threads = {limits->threads, limits->threads};
	if ((!SANITIZED && (lower(RLIMIT_DATA, &memory) < 0 || lower(RLIMIT_STACK, &stack) < 0)) ||
	    (counted_alone && lower(RLIMIT_NPROC, &threads) < 0))
		return -errno;
	return 0;
}

int sandbox_enter(const struct sandbox_limits *limits, struct config_error *error)
{
	lock_land();
	int r = limit_resources(limits);
	if (r < 0)
		return config_fail(error, r, "a worker cannot limit itself: %s", strerror(-r));
	r = filter_calls();
	if (r < 0)
		config_say(error,
			   "the kernel does not take the filter of system calls: %s; it needs "
			   "CONFIG_SECCOMP_FILTER, and a container that allows seccomp",
			   strerror(-r));
	return r;
}
