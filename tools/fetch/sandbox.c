#include "tools/fetch/sandbox.h"
#include "format/base/sandbox/landlock.h"
#include "format/base/sandbox/syscall_filter.h"

#include <asm/ioctls.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Calls of libcurl, OpenSSL, the resolver and the cache. */
static const int calls[] = {
	/* files, which Landlock limits */
	SCMP_SYS(openat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(mkdirat),
	SCMP_SYS(unlinkat),
	SCMP_SYS(linkat),
	SCMP_SYS(renameat),
	SCMP_SYS(renameat2),
	SCMP_SYS(statfs),
	SCMP_SYS(utimensat),
	SCMP_SYS(umask),
#ifdef __NR_open /* older architectures have these, too */
	SCMP_SYS(open),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(access),
	SCMP_SYS(readlink),
	SCMP_SYS(mkdir),
	SCMP_SYS(rmdir),
	SCMP_SYS(unlink),
	SCMP_SYS(rename),
#endif
	/* descriptors */
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	SCMP_SYS(pwrite64),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fadvise64),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fchmod),
	SCMP_SYS(flock),
	SCMP_SYS(fcntl),
	SCMP_SYS(dup),
	SCMP_SYS(memfd_create),
	SCMP_SYS(eventfd2),
	SCMP_SYS(pipe2),
	SCMP_SYS(epoll_create1),
	SCMP_SYS(pselect6),
#ifdef __NR_select
	SCMP_SYS(select),
	SCMP_SYS(pipe),
#endif
	/* connections */
	SCMP_SYS(connect),
	SCMP_SYS(bind), /* of netlink sockets */
	SCMP_SYS(accept4),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmsg),
	SCMP_SYS(sendmmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmmsg),
	/* memory, threads, time and itself */
	SCMP_SYS(mremap),
	SCMP_SYS(nanosleep),
	SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(sched_yield),
	SCMP_SYS(membarrier),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(uname),
};

#define SOCKETS(family)                                                                            \
	{                                                                                          \
		SCMP_SYS(socket), 1,                                                               \
		{                                                                                  \
			{                                                                          \
				0, SCMP_CMP_EQ, family, 0                                          \
			}                                                                          \
		}                                                                                  \
	}

static const struct syscall_condition conditions[] = {
	/*
	 * Not AF_UNIX: the user's other services would start programs for whoever connects. Names
	 * are resolved by the resolver's own requests instead of nscd's or systemd-resolved's.
	 */
	SOCKETS(AF_INET),
	SOCKETS(AF_INET6),
	SOCKETS(AF_NETLINK), /* getaddrinfo() asks for this machine's addresses */
	/* libcurl wakes its threads; a datagram socket could still be connected elsewhere */
	{SCMP_SYS(socketpair),
	 2,
	 {{0, SCMP_CMP_EQ, AF_UNIX, 0},
	  {1, SCMP_CMP_MASKED_EQ, (scmp_datum_t) ~(SOCK_CLOEXEC | SOCK_NONBLOCK) & 0xffffffff,
	   SOCK_STREAM}}},
	{SCMP_SYS(ioctl), 1, {{1, SCMP_CMP_EQ, FIONREAD, 0}}},
	{SCMP_SYS(ioctl), 1, {{1, SCMP_CMP_EQ, FIONBIO, 0}}},
	{SCMP_SYS(mmap), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
	/* the resolver's modules */
	{SCMP_SYS(mmap),
	 2,
	 {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_EXEC},
	  {3, SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, 0}}},
	{SCMP_SYS(mprotect), 1, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}}},
	/* an action for SIGTERM or SIGINT is set before */
	{SCMP_SYS(rt_sigaction), 1, {{0, SCMP_CMP_EQ, 13 /* SIGPIPE, by libcurl */, 0}}},
};

/* Of every system that has them: the resolver's files and modules, and certificates. */
static const char *const system_paths[] = {
	"/etc/resolv.conf",
	"/etc/hosts",
	"/etc/host.conf",
	"/etc/nsswitch.conf",
	"/etc/gai.conf",
	"/etc/services",
	"/etc/ld.so.cache",
	"/run/systemd/resolve",
	"/lib",
	"/lib64",
	"/usr/lib",
	"/usr/lib64",
	"/etc/ssl/certs",
	"/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted",
	"/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
	"/dev/urandom",
};
_Static_assert(sizeof(system_paths) / sizeof(*system_paths) + STORE_PATHS_MAX + 2 <=
		       FETCH_SANDBOX_PATHS_MAX,
	       "all paths have room");

static void look(const char *path, dev_t *ret_device, ino_t *ret_inode)
{
	struct stat status;
	bool there = stat(path, &status) == 0;

	*ret_device = there ? status.st_dev : 0;
	*ret_inode = there ? status.st_ino : 0;
}

static int lock_land(const struct fetch_sandbox *sandbox, const char *cache)
{
	struct landlock_path rules[FETCH_SANDBOX_PATHS_MAX];

	for (unsigned i = 0; i < sandbox->count; i++) {
		const char *path = sandbox->paths[i];

		rules[i].path = path;
		rules[i].access = path == cache                    ? LANDLOCK_WRITE
				  : path == sandbox->socket_folder ? LANDLOCK_REMOVE
								   : LANDLOCK_READ;
	}
	return landlock_restrict(rules, sandbox->count, true);
}

static void list_paths(struct fetch_sandbox *sandbox, const struct cache *cache,
		       const struct store *store)
{
	sandbox->paths[sandbox->count++] = cache->folder;
	sandbox->paths[sandbox->count++] = sandbox->socket_folder;
	sandbox->count += store_paths(store, sandbox->paths + sandbox->count);
	for (size_t i = 0; i < sizeof(system_paths) / sizeof(*system_paths); i++)
		sandbox->paths[sandbox->count++] = system_paths[i];
	for (unsigned i = 0; i < sandbox->count; i++)
		look(sandbox->paths[i], &sandbox->devices[i], &sandbox->inodes[i]);
}

int fetch_sandbox_enter(const struct cache *cache, const struct store *store, const char *socket,
			struct fetch_sandbox *ret_sandbox, struct packimg_error *error)
{
	struct fetch_sandbox *sandbox = ret_sandbox;
	const struct syscall_filter filter = {calls, sizeof(calls) / sizeof(*calls), conditions,
					      sizeof(conditions) / sizeof(*conditions)};
	const char *name = strrchr(socket, '/');

	sandbox->count = 0;
	snprintf(sandbox->socket_folder, sizeof(sandbox->socket_folder), "%.*s",
		 name ? (int)(name - socket) : 1, name ? socket : ".");
	list_paths(sandbox, cache, store);
	syscall_filter_prepare();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return packimg_fail(error, -errno, "no_new_privs: %s", strerror(errno));
	int abi = lock_land(sandbox, cache->folder);
	int r = syscall_filter_load(&filter);
	if (r)
		return packimg_fail(error, r,
				    "the kernel rejects the system call filter: %s; this needs "
				    "CONFIG_SECCOMP_FILTER, and a container that allows seccomp",
				    strerror(-r));
	if (abi > 0)
		snprintf(sandbox->text, sizeof(sandbox->text), "seccomp, Landlock %d", abi);
	else
		snprintf(sandbox->text, sizeof(sandbox->text),
			 "seccomp; no Landlock (%s): all files of the user are readable",
			 abi ? strerror(-abi) : "the kernel has none");
	return 0;
}

bool fetch_sandbox_outdated(const struct fetch_sandbox *sandbox)
{
	for (unsigned i = 0; i < sandbox->count; i++) {
		dev_t device;
		ino_t inode;

		look(sandbox->paths[i], &device, &inode);
		if (device != sandbox->devices[i] || inode != sandbox->inodes[i])
			return true;
	}
	return false;
}
