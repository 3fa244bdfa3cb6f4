#include "loaderd/supervisor/startup_checks.h"

#include "loaderd/log.h"
#include "loaderd/supervisor/blocking_pool.h"
#include "loaderd/worker_ipc.h"
#include "proto/ring_leases.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_MAX (UINT64_C(16) << 30)

static uint64_t limit_of(__rlimit_resource_t resource)
{
	struct rlimit limit;
	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

/*
 * The supervisor spawns workers from /proc/self/exe, and workers open their configuration by
 * /proc/self/fd.
 */
static int check_proc(struct config_error *error)
{
	if (access("/proc/self/exe", X_OK) == 0)
		return 0;
	return config_fail(error, -errno,
			   "/proc/self/exe: %s: the daemon starts workers from there; mount /proc, "
			   "also in a chroot or container",
			   strerror(errno));
}

static int check_memory_files(struct config_error *error)
{
	int fd = memfd_create("loaderd-trial", MFD_CLOEXEC | MFD_ALLOW_SEALING), r = 0;
	if (fd < 0)
		return config_fail(error, -errno,
				   "memfd_create: %s: the daemon needs it to create rings; a "
				   "container's system call filter must allow it",
				   strerror(errno));
	if (ftruncate(fd, STATUS_PAGE_SIZE) < 0)
		r = config_fail(error, -errno,
				"RLIMIT_FSIZE is %llu bytes (ulimit -f, LimitFSIZE=): %s: it also "
				"applies to rings, which are files in memory; make it unlimited",
				(unsigned long long)limit_of(RLIMIT_FSIZE), strerror(errno));
	close(fd);
	return r;
}

static int check_processes(struct config_error *error)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (fd < 0)
		return config_fail(
			error, -errno,
			"pidfd_open: %s: the daemon needs it to watch workers; this takes Linux "
			"5.3 and a container's system call filter that allows it",
			strerror(errno));
	close(fd);
	return 0;
}

/* Each thread reserves RLIMIT_STACK bytes of address space. */
static int check_stack(struct config_error *error)
{
	const uint64_t stack = limit_of(RLIMIT_STACK);
	if (stack == UINT64_MAX || stack <= STACK_MAX)
		return 0;
	return config_fail(error, -EINVAL,
			   "RLIMIT_STACK is %llu bytes (ulimit -s, LimitSTACK=): each thread "
			   "reserves that much address space; lower it, ideally to 8 MiB",
			   (unsigned long long)stack);
}

/* RLIMIT_NPROC counts all threads of the user; root is exempt. */
static int check_threads(uint64_t threads, struct config_error *error)
{
	const uint64_t most = limit_of(RLIMIT_NPROC);
	if (geteuid() == 0 || most >= threads)
		return 0;
	return config_fail(
		error, -EAGAIN,
		"RLIMIT_NPROC is %llu (ulimit -u, LimitNPROC=): to serve one user the daemon needs "
		"at least %llu processes and threads; raise it, or lower [pool] threads",
		(unsigned long long)most, (unsigned long long)threads);
}

static int check_leases(bool single_user, struct config_error *error)
{
	int r = ring_leases_work();
	/*
	 * A private daemon has one user and needs no leases: a ring is free when its worker closes
	 * it.
	 */
	if (r > 0 || single_user)
		return 0;
	return config_fail(
		error, r < 0 ? r : -EINVAL,
		"the kernel grants no leases (F_SETLEASE: %s), which tell the daemon when a ring's "
		"memory is free: set sysctl fs.leases-enable=1, and allow them in a container's "
		"system call filter; without leases only private daemons can serve",
		r < 0 ? strerror(-r) : "refused");
}

static void warn_of_limits(uint64_t ring_bytes)
{
	const uint64_t file = limit_of(RLIMIT_FSIZE), space = limit_of(RLIMIT_AS),
		       signals = limit_of(RLIMIT_SIGPENDING);
	if (file < ring_bytes)
		log_warning("RLIMIT_FSIZE is %llu bytes (ulimit -f, LimitFSIZE=): feeds with "
			    "larger rings will be refused; make it unlimited",
			    (unsigned long long)file);
	if (space != UINT64_MAX)
		log_warning("RLIMIT_AS is %llu bytes (ulimit -v, LimitAS=): workers map datasets "
			    "and rings, and feeds that do not fit will be refused; make it "
			    "unlimited, and limit memory by control groups",
			    (unsigned long long)space);
	if (signals < BLOCKING_POOL_THREADS_MAX)
		log_warning("RLIMIT_SIGPENDING is %llu (ulimit -i, LimitSIGPENDING=): a client "
			    "that sets SO_LINGER may delay closing the connections of others; "
			    "raise it to %d",
			    (unsigned long long)signals, BLOCKING_POOL_THREADS_MAX);
}

int startup_check(uint64_t threads, uint64_t ring_bytes, bool single_user,
		  struct config_error *error)
{
	int r = check_proc(error);
	if (r < 0)
		return r;
	r = check_memory_files(error);
	if (r < 0)
		return r;
	r = check_processes(error);
	if (r < 0)
		return r;
	r = check_stack(error);
	if (r < 0)
		return r;
	r = check_threads(threads, error);
	if (r < 0)
		return r;
	r = check_leases(single_user, error);
	if (r < 0)
		return r;
	warn_of_limits(ring_bytes);
	return 0;
}
