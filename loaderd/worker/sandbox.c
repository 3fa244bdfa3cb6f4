#include "loaderd/worker/sandbox.h"
#include "format/base/sandbox/landlock.h"
#include "format/base/sandbox/syscall_filter.h"

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

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#endif

/* Of a worker alone; see syscall_filter.c for the others. */
static const int calls[] = {
	SCMP_SYS(preadv2),
	SCMP_SYS(io_uring_enter), /* only rings that were restricted to reads before the sandbox */
};

enum { PASS_RIGHTS = 83 /* SO_PASSRIGHTS, Linux 6.16 */ };

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

static const struct syscall_condition conditions[] = {
	MAP_OF(0), /* private file mapping */
	MAP_OF(MAP_SHARED),
	MAP_OF(MAP_ANONYMOUS), /* private anonymous mapping */
#if SYSCALL_FILTER_SANITIZED
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
#else
	/*
	 * RLIMIT_DATA would not count written pages that become read-only. Heaps and stacks only
	 * ever become writable, so only that is allowed.
	 */
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_WRITE}}},
#endif
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
};

/*
 * Installs the seccomp filter. Killing workers for a call would be one more way to harm their user.
 */
static int filter_calls(void)
{
	const struct syscall_filter filter = {calls, sizeof(calls) / sizeof(*calls), conditions,
					      sizeof(conditions) / sizeof(*conditions)};
	return syscall_filter_load(&filter);
}

/* true if RLIMIT_NPROC counts only this process's threads */
static bool counted_alone;

/*
 * Enters new namespaces if the system lets this process create them; the service's unit does not
 * (RestrictNamespaces=). The user namespace is useful in addition to the seccomp filter: all
 * workers share a uid, and from Linux 5.14 on, RLIMIT_NPROC counts the threads of a worker
 * separately only in a new user namespace. Without one, a worker could use up the threads that
 * others need, so the limit is left to its user's cgroup or to the service (TasksMax=).
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

/* Calls capset() only if there is something to drop: the service's unit does not allow it. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {{0}};
	struct __user_cap_data_struct now[2];
	drop_bounding_set();
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &header, now) == 0 && memcmp(now, none, sizeof(none)) == 0)
		return 0;
	return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

int sandbox_prepare(struct config_error *error)
{
	const struct rlimit none = {0, 0};
	int r = 0;
	syscall_filter_prepare();
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
	if ((!SYSCALL_FILTER_SANITIZED &&
	     (lower_limit(RLIMIT_DATA, &memory) < 0 || lower_limit(RLIMIT_STACK, &stack) < 0)) ||
	    (counted_alone && lower_limit(RLIMIT_NPROC, &threads) < 0))
		return -errno;
	return 0;
}

int sandbox_enter(const struct sandbox_limits *limits, struct config_error *error)
{
	(void)landlock_restrict(NULL, 0, false); /* the filter covers all that it denies */
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
