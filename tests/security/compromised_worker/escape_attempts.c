/*
 * System calls that the sandbox must block, one by one. Without the sandbox nearly all of them
 * would succeed.
 */
#include "format/base/sandbox/syscall_filter.h"
#include "tests/security/compromised_worker/agent.h"

#include "loaderd/worker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The number of calls that this architecture lacks: AArch64 has only newer ones. */
enum { NO_CALL = -1 };
#ifndef SYS_open
#define SYS_open NO_CALL
#endif
#ifndef SYS_creat
#define SYS_creat NO_CALL
#endif
#ifndef SYS_stat
#define SYS_stat NO_CALL
#endif
#ifndef SYS_access
#define SYS_access NO_CALL
#endif
#ifndef SYS_readlink
#define SYS_readlink NO_CALL
#endif
#ifndef SYS_unlink
#define SYS_unlink NO_CALL
#endif
#ifndef SYS_rename
#define SYS_rename NO_CALL
#endif
#ifndef SYS_symlink
#define SYS_symlink NO_CALL
#endif
#ifndef SYS_mkdir
#define SYS_mkdir NO_CALL
#endif
#ifndef SYS_mknod
#define SYS_mknod NO_CALL
#endif
#ifndef SYS_dup2
#define SYS_dup2 NO_CALL
#endif
#ifndef SYS_fork
#define SYS_fork NO_CALL
#endif
#ifndef SYS_vfork
#define SYS_vfork NO_CALL
#endif
#ifndef SYS_arch_prctl
#define SYS_arch_prctl NO_CALL
#endif
#ifndef SYS_modify_ldt
#define SYS_modify_ldt NO_CALL
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_map_shadow_stack
#define SYS_map_shadow_stack 453
#endif

enum { RINGS_LOOKED_AT = 64, PAGE = 4096 };
#define P(pointer) ((long)(uintptr_t)(pointer))

struct call {
	const char *name;
	long number, arguments[6];
	int expected; /* expected errno; 0 means EPERM */
};

static void report(const struct agent *agent, const char *name, int code, int expected)
{
	if (expected == 0)
		expected = EPERM;
	agent_send(agent, "%s %s: %s", code == expected ? "ok" : "BAD", name,
		   code == 0 ? "SUCCEEDED" : strerrorname_np(code));
}

static void try_calls(const struct agent *agent, const struct call *calls, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const long *a = calls[i].arguments;
		if (calls[i].number == NO_CALL)
			continue;
		long r = syscall(calls[i].number, a[0], a[1], a[2], a[3], a[4], a[5]);
		report(agent, calls[i].name, r < 0 ? errno : 0, calls[i].expected);
	}
}

#define TRY(agent, calls) try_calls(agent, calls, sizeof(calls) / sizeof(*(calls)))

static void files(const struct agent *t)
{
	static char room[256];
	uint64_t how[3] = {O_RDONLY};
	/* clang-format off */
	const struct call calls[] = {
		{"open", SYS_open, {P("/etc/passwd"), O_RDONLY}, 0},
		{"openat", SYS_openat, {AT_FDCWD, P("/etc/passwd"), O_RDONLY}, 0},
		{"openat, below a folder that was passed", SYS_openat,
		 {t->root_folder, P("etc/passwd"), O_RDONLY}, 0},
		{"openat /proc/self/mem", SYS_openat, {AT_FDCWD, P("/proc/self/mem"), O_RDWR}, 0},
		{"openat /proc/1/environ", SYS_openat,
		 {AT_FDCWD, P("/proc/1/environ"), O_RDONLY}, 0},
		{"openat, to make a file", SYS_openat,
		 {AT_FDCWD, P("/tmp/escaped"), O_CREAT | O_WRONLY, 0600}, 0},
		{"openat O_TMPFILE", SYS_openat,
		 {AT_FDCWD, P("/tmp"), O_TMPFILE | O_RDWR, 0600}, 0},
		{"openat2", SYS_openat2, {AT_FDCWD, P("/etc/passwd"), P(how), sizeof(how)}, 0},
		{"creat", SYS_creat, {P("/tmp/escaped"), 0600}, 0},
		{"name_to_handle_at", SYS_name_to_handle_at,
		 {AT_FDCWD, P("/etc/passwd"), P(room), P(room), 0}, 0},
		{"open_by_handle_at", SYS_open_by_handle_at,
		 {t->root_folder, P(room), O_RDONLY}, 0},
		{"stat", SYS_stat, {P("/etc/passwd"), P(room)}, 0},
		{"newfstatat", SYS_newfstatat, {AT_FDCWD, P("/etc/passwd"), P(room), 0}, 0},
		{"statx", SYS_statx, {AT_FDCWD, P("/etc/passwd"), 0, STATX_SIZE, P(room)}, 0},
		{"access", SYS_access, {P("/etc/passwd"), R_OK}, 0},
		{"readlink", SYS_readlink, {P("/proc/self/exe"), P(room), sizeof(room)}, 0},
		{"getdents64", SYS_getdents64, {t->root_folder, P(room), sizeof(room)}, 0},
		{"unlink", SYS_unlink, {P("/tmp/escaped")}, 0},
		{"rename", SYS_rename, {P("/tmp/escaped"), P("/tmp/escaped.too")}, 0},
		{"linkat of a descriptor", SYS_linkat,
		 {t->memory, P(""), AT_FDCWD, P("/tmp/escaped"), AT_EMPTY_PATH}, 0},
		{"symlink", SYS_symlink, {P("/etc/passwd"), P("/tmp/escaped")}, 0},
		{"mkdir", SYS_mkdir, {P("/tmp/escaped.d"), 0700}, 0},
		{"mknod", SYS_mknod, {P("/tmp/escaped"), S_IFIFO | 0600, 0}, 0},
		{"fchmod", SYS_fchmod, {t->memory, 0777}, 0},
		{"fchown", SYS_fchown, {t->memory, -1, -1}, 0},
		{"fsetxattr", SYS_fsetxattr, {t->memory, P("user.x"), P("x"), 1, 0}, 0},
		{"ftruncate", SYS_ftruncate, {t->memory, PAGE}, 0},
		{"fallocate", SYS_fallocate, {t->memory, 0, 0, PAGE}, 0},
		{"chdir", SYS_chdir, {P("/")}, 0},
		{"fchdir", SYS_fchdir, {t->root_folder}, 0},
		{"chroot", SYS_chroot, {P("/")}, 0},
		{"inotify_init1", SYS_inotify_init1, {0}, 0},
		{"fanotify_init", SYS_fanotify_init, {0, 0}, 0},
		{"flock", SYS_flock, {IPC_PAGE_FD, 2}, 0},
		{"dup2", SYS_dup2, {t->memory, 200}, 0},
		{"dup3", SYS_dup3, {t->memory, 200, 0}, 0},
		{"splice", SYS_splice, {IPC_PIPE_FD, 0, IPC_PIPE_FD, 0, 1, 0}, 0},
		{"vmsplice", SYS_vmsplice, {IPC_PIPE_FD, P(room), 0, 0}, 0},
		{"sendfile", SYS_sendfile, {IPC_PIPE_FD, t->memory, 0, 1}, 0},
		{"copy_file_range", SYS_copy_file_range, {t->memory, 0, t->memory, 0, 1, 0}, 0},
	};
	/* clang-format on */
	TRY(t, calls);
}

static void processes(const struct agent *t, pid_t other)
{
	static char room[256];
	static siginfo_t info = {.si_code = SI_QUEUE};
	static struct sched_param parameter;
	static uint64_t attributes[7] = {48};
	const long supervisor = t->supervisor;
	/* Sets all CPUs, so that these calls would change nothing without the sandbox. */
	static cpu_set_t cpus;
	memset(&cpus, 0xff, sizeof(cpus));
	struct {
		void *base;
		size_t size;
	} mine = {room, 8}, theirs = {(void *)0x400000, 8};
	/* clang-format off */
	const struct call calls[] = {
		{"kill the supervisor", SYS_kill, {supervisor, 0}, 0},
		{"kill another user's worker", SYS_kill, {other, 0}, 0},
		{"kill all", SYS_kill, {-1, 0}, 0},
		{"tkill", SYS_tkill, {other, 0}, 0},
		{"tgkill the supervisor", SYS_tgkill, {supervisor, supervisor, 0}, 0},
		{"tgkill another user's worker", SYS_tgkill, {other, other, 0}, 0},
		{"rt_sigqueueinfo", SYS_rt_sigqueueinfo, {other, SIGTERM, P(&info)}, 0},
		{"rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, {other, other, SIGTERM, P(&info)}, 0},
		{"pidfd_open", SYS_pidfd_open, {other, 0}, 0},
		{"pidfd_send_signal, pidfd passed", SYS_pidfd_send_signal,
		 {t->supervisor_pidfd, 0, 0, 0}, 0},
		{"pidfd_getfd, pidfd passed", SYS_pidfd_getfd, {t->supervisor_pidfd, 0, 0}, 0},
		{"process_madvise", SYS_process_madvise,
		 {t->supervisor_pidfd, P(&mine), 1, MADV_COLD, 0}, 0},
		{"process_mrelease", SYS_process_mrelease, {t->supervisor_pidfd, 0}, 0},
		{"setns by pidfd", SYS_setns, {t->supervisor_pidfd, CLONE_NEWNET}, 0},
		{"ptrace the supervisor", SYS_ptrace, {0x4206 /* SEIZE */, supervisor, 0, 0}, 0},
		{"ptrace another user's worker", SYS_ptrace, {0x4206, other, 0, 0}, 0},
		{"process_vm_readv", SYS_process_vm_readv,
		 {other, P(&mine), 1, P(&theirs), 1, 0}, 0},
		{"process_vm_writev", SYS_process_vm_writev,
		 {other, P(&mine), 1, P(&theirs), 1, 0}, 0},
		{"kcmp", SYS_kcmp, {other, supervisor, 0, 0, 0}, 0},
		{"sched_setaffinity of the supervisor", SYS_sched_setaffinity,
		 {supervisor, sizeof(cpus), P(&cpus)}, 0},
		{"sched_setaffinity of another user's worker", SYS_sched_setaffinity,
		 {other, sizeof(cpus), P(&cpus)}, 0},
		{"sched_getaffinity of another user's worker", SYS_sched_getaffinity,
		 {other, sizeof(cpus), P(&cpus)}, ENOSYS},
		{"sched_setscheduler", SYS_sched_setscheduler,
		 {other, SCHED_IDLE, P(&parameter)}, 0},
		{"sched_setattr", SYS_sched_setattr, {other, P(attributes), 0}, 0},
		{"setpriority", SYS_setpriority, {PRIO_PROCESS, other, 19}, 0},
		{"setpriority of itself", SYS_setpriority, {PRIO_PROCESS, 0, -20}, 0},
		{"setpriority of all of this uid", SYS_setpriority, {PRIO_USER, 0, 19}, 0},
		{"ioprio_set", SYS_ioprio_set, {1, other, 3 << 13}, 0},
		{"prlimit64 of the supervisor", SYS_prlimit64,
		 {supervisor, RLIMIT_NOFILE, 0, P(room)}, 0},
		{"prlimit64 of another user's worker", SYS_prlimit64,
		 {other, RLIMIT_NOFILE, 0, P(room)}, 0},
		{"setrlimit", SYS_setrlimit, {RLIMIT_DATA, P(room)}, 0},
		{"migrate_pages", SYS_migrate_pages, {other, 0, 0, 0}, 0},
		{"move_pages", SYS_move_pages, {other, 0, 0, 0, 0, 0}, 0},
		{"get_robust_list", SYS_get_robust_list, {other, P(room), P(room)}, 0},
		{"setpgid", SYS_setpgid, {0, 0}, 0},
		{"setsid", SYS_setsid, {0}, 0},
		{"wait4", SYS_wait4, {-1, 0, 1, 0}, 0},
		{"execve", SYS_execve, {P("/bin/true"), 0, 0}, 0},
		{"execveat", SYS_execveat, {t->root_folder, P("bin/true"), 0, 0, 0}, 0},
		{"fork", SYS_fork, {0}, 0},
		{"vfork", SYS_vfork, {0}, 0},
		{"clone without CLONE_THREAD", SYS_clone, {SIGCHLD, 0, 0, 0, 0}, 0},
		{"clone of a namespace", SYS_clone, {CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0}, 0},
		{"clone3", SYS_clone3, {P(room), 88}, ENOSYS},
		{"unshare", SYS_unshare, {CLONE_NEWUSER}, 0},
	};
	/* clang-format on */
	TRY(t, calls);
}

static void memory(const struct agent *t)
{
	enum { RW = PROT_READ | PROT_WRITE, RWX = PROT_READ | PROT_WRITE | PROT_EXEC };
	void *page = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t room[2 * PAGE]; /* contains a whole page, which the calls may drop */
	void *const stack_page = room + (PAGE - (uintptr_t)room % PAGE) % PAGE;
	/* clang-format off */
	const struct call calls[] = {
		{"mmap PROT_EXEC", SYS_mmap, {0, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}, 0},
		{"mmap PROT_EXEC of a file", SYS_mmap,
		 {0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, IPC_PAGE_FD, 0}, 0},
		/* kind of memory that RLIMIT_DATA does not limit */
		{"mmap shared without a file", SYS_mmap,
		 {0, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0}, 0},
		{"mmap MAP_GROWSDOWN", SYS_mmap,
		 {0, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0}, 0},
		{"mmap MAP_HUGETLB", SYS_mmap,
		 {0, 2 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0}, 0},
		{"mremap of a page of the stack", SYS_mremap,
		 {P(stack_page), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP}, 0},
		{"mremap that grows a page", SYS_mremap,
		 {P(page), PAGE, 2 * PAGE, MREMAP_MAYMOVE}, 0},
		{"mprotect PROT_EXEC", SYS_mprotect, {P(page), PAGE, PROT_READ | PROT_EXEC}, 0},
		{"pkey_mprotect PROT_EXEC", SYS_pkey_mprotect, {P(page), PAGE, PROT_EXEC, -1}, 0},
		{"personality READ_IMPLIES_EXEC", SYS_personality, {0x0400000}, 0},
		{"remap_file_pages", SYS_remap_file_pages, {P(page), PAGE, 0, 0, 0}, 0},
		{"memfd_create", SYS_memfd_create, {P("x"), 0}, 0},
		{"memfd_secret", SYS_memfd_secret, {0}, 0},
		{"map_shadow_stack", SYS_map_shadow_stack, {0, PAGE, 0}, 0},
		{"userfaultfd", SYS_userfaultfd, {1}, 0},
		{"mlock", SYS_mlock, {P(page), PAGE}, 0},
		{"mlockall", SYS_mlockall, {1}, 0},
		{"mbind", SYS_mbind, {P(page), PAGE, 0, 0, 0, 0}, 0},
		{"shmget", SYS_shmget, {1, PAGE, 01600}, 0},
		{"shmat", SYS_shmat, {0, 0, 0}, 0},
		{"semget", SYS_semget, {1, 1, 01600}, 0},
		{"msgget", SYS_msgget, {1, 01600}, 0},
		{"mq_open", SYS_mq_open, {P("/x"), O_CREAT, 0600, 0}, 0},
		{"arch_prctl", SYS_arch_prctl, {0x1011, 0}, 0},
		{"modify_ldt", SYS_modify_ldt, {0, 0, 0}, 0},
	};
	/* clang-format on */
	TRY(t, calls);
	const struct call written = {"mprotect PROT_READ of what was written",
				     SYS_mprotect,
				     {P(page), PAGE, PROT_READ},
				     0};
	/* Skipped in builds with a sanitizer, whose runtime makes these calls itself. */
	if (syscall_filter_exceptions()[0] == '\0')
		try_calls(t, &written, 1);
	munmap(page, PAGE);
}

static void sockets(const struct agent *t, const char *path)
{
	static int pair[2];
	static struct sockaddr_un place = {.sun_family = AF_UNIX}, hidden = {.sun_family = AF_UNIX};
	static char filter[16];
	snprintf(place.sun_path, sizeof(place.sun_path), "%.100s", path);
	memcpy(hidden.sun_path, "\0loaderd", 8);
	/* clang-format off */
	const struct call calls[] = {
		{"socket AF_UNIX", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}, 0},
		{"socket AF_INET", SYS_socket, {AF_INET, SOCK_STREAM, 0}, 0},
		{"socket AF_INET6 datagram", SYS_socket, {AF_INET6, SOCK_DGRAM, 0}, 0},
		{"socket AF_NETLINK", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}, 0},
		{"socket AF_VSOCK", SYS_socket, {40, SOCK_STREAM, 0}, 0},
		{"socket AF_ALG", SYS_socket, {38, SOCK_SEQPACKET, 0}, 0},
		{"socketpair", SYS_socketpair, {AF_UNIX, SOCK_STREAM, 0, P(pair)}, 0},
		{"connect to the administrator's socket, socket passed", SYS_connect,
		 {t->stream, P(&place), sizeof(place)}, 0},
		{"connect to an abstract name, socket passed", SYS_connect,
		 {t->stream, P(&hidden), sizeof(sa_family_t) + 8}, 0},
		{"bind, socket passed", SYS_bind,
		 {t->stream, P(&hidden), sizeof(sa_family_t) + 8}, 0},
		{"listen, socket passed", SYS_listen, {t->listener, 1}, 0},
		{"accept, socket passed", SYS_accept, {t->listener, 0, 0}, 0},
		{"accept4, socket passed", SYS_accept4, {t->listener, 0, 0, 0}, 0},
		{"sendto an address, datagram socket passed", SYS_sendto,
		 {t->datagram, P("x"), 1, MSG_DONTWAIT, P(&place), sizeof(place)}, 0},
		{"sendto MSG_FASTOPEN, socket passed", SYS_sendto,
		 {t->listener, P("x"), 1, MSG_FASTOPEN, P(&place), sizeof(place)}, 0},
		{"sendmmsg", SYS_sendmmsg, {t->client, 0, 0, 0}, 0},
		{"recvmmsg", SYS_recvmmsg, {t->client, 0, 0, 0, 0}, 0},
		{"getsockopt SO_PEERCRED", SYS_getsockopt,
		 {t->client, SOL_SOCKET, SO_PEERCRED, P(filter), P(pair)}, 0},
		{"getpeername", SYS_getpeername, {t->client, P(&hidden), P(pair)}, 0},
		{"setsockopt SO_ATTACH_FILTER", SYS_setsockopt,
		 {t->client, SOL_SOCKET, SO_ATTACH_FILTER, P(filter), sizeof(filter)}, 0},
		{"setsockopt SO_SNDBUF", SYS_setsockopt,
		 {t->client, SOL_SOCKET, SO_SNDBUF, P(filter), 4}, 0},
		{"setsockopt SO_LINGER", SYS_setsockopt,
		 {t->client, SOL_SOCKET, SO_LINGER, P(filter), 8}, 0},
		{"setsockopt SO_PRIORITY", SYS_setsockopt,
		 {t->client, SOL_SOCKET, SO_PRIORITY, P(filter), 4}, 0},
		{"setsockopt IPPROTO_IP", SYS_setsockopt, {t->listener, 0, 1, P(filter), 4}, 0},
	};
	/* clang-format on */
	TRY(t, calls);
}

static void call_others(const struct agent *t)
{
	static char room[256];
	static int number;
	const struct call calls[] = {
		{"ioctl TIOCSTI on the log", SYS_ioctl, {2, 0x5412, P("x")}, 0},
		{"ioctl FIONBIO on the log", SYS_ioctl, {2, 0x5421, P(&number)}, 0},
		{"ioctl FIOASYNC on the link", SYS_ioctl, {IPC_SOCKET_FD, 0x5452, P(&number)}, 0},
		{"fcntl F_SETFL", SYS_fcntl, {IPC_PIPE_FD, F_SETFL, 0}, 0},
		{"fcntl F_SETOWN the supervisor",
		 SYS_fcntl,
		 {IPC_SOCKET_FD, F_SETOWN, t->supervisor},
		 0},
		{"fcntl F_SETSIG", SYS_fcntl, {IPC_SOCKET_FD, F_SETSIG, SIGKILL}, 0},
		{"fcntl F_SETLEASE", SYS_fcntl, {IPC_PAGE_FD, F_SETLEASE, F_WRLCK}, 0},
		{"fcntl F_NOTIFY", SYS_fcntl, {t->root_folder, F_NOTIFY, 1}, 0},
		{"fcntl F_SETPIPE_SZ", SYS_fcntl, {IPC_PIPE_FD, F_SETPIPE_SZ, 1 << 20}, 0},
		{"fcntl F_DUPFD", SYS_fcntl, {IPC_PIPE_FD, F_DUPFD, 0}, 0},
		{"fcntl F_SETLK", SYS_fcntl, {IPC_PAGE_FD, F_SETLK, P(room)}, 0},
		{"prctl PR_SET_DUMPABLE", SYS_prctl, {PR_SET_DUMPABLE, 1}, 0},
		{"prctl PR_SET_PDEATHSIG", SYS_prctl, {PR_SET_PDEATHSIG, 0}, 0},
		{"prctl PR_SET_PTRACER", SYS_prctl, {0x59616d61, -1}, 0},
		{"prctl PR_SET_CHILD_SUBREAPER", SYS_prctl, {PR_SET_CHILD_SUBREAPER, 1}, 0},
		{"prctl PR_SET_MM", SYS_prctl, {PR_SET_MM, 1, 0, 0, 0}, 0},
		{"prctl PR_SET_SECCOMP", SYS_prctl, {PR_SET_SECCOMP, 1, 0}, 0},
		{"prctl PR_SET_SYSCALL_USER_DISPATCH", SYS_prctl, {59, 1, 0, -1L, 0}, 0},
		{"seccomp", SYS_seccomp, {2, 0, P(&number)}, 0},
		{"mount", SYS_mount, {P("none"), P("/mnt"), P("tmpfs"), 0, 0}, 0},
		{"umount2", SYS_umount2, {P("/proc"), 2}, 0},
		{"fsopen", SYS_fsopen, {P("tmpfs"), 0}, 0},
		{"open_tree", SYS_open_tree, {AT_FDCWD, P("/"), 0}, 0},
		{"pivot_root", SYS_pivot_root, {P("/"), P("/")}, 0},
		{"setuid", SYS_setuid, {0}, 0},
		{"setresuid", SYS_setresuid, {0, 0, 0}, 0},
		{"capset", SYS_capset, {P(room), P(room)}, 0},
		{"io_uring_setup", SYS_io_uring_setup, {4, P(room)}, 0},
		{"io_uring_register", SYS_io_uring_register, {t->memory, 0, 0, 0}, 0},
		{"io_setup", SYS_io_setup, {1, P(room)}, 0},
		{"bpf", SYS_bpf, {0, P(room), 72}, 0},
		{"perf_event_open", SYS_perf_event_open, {P(room), 0, -1, -1, 0}, 0},
		{"add_key", SYS_add_key, {P("user"), P("x"), P("x"), 1, -5}, 0},
		{"request_key", SYS_request_key, {P("user"), P("x"), 0, -5}, 0},
		{"keyctl", SYS_keyctl, {0, -4, 1}, 0},
		{"landlock_create_ruleset", SYS_landlock_create_ruleset, {0, 0, 1}, 0},
		{"timer_create", SYS_timer_create, {CLOCK_MONOTONIC, 0, P(&number)}, 0},
		{"timerfd_create", SYS_timerfd_create, {CLOCK_MONOTONIC, 0}, 0},
		{"signalfd4", SYS_signalfd4, {-1, P(room), 8, 0}, 0},
		{"rt_sigaction of SIGSYS", SYS_rt_sigaction, {SIGSYS, 0, P(room), 8}, 0},
		{"setitimer", SYS_setitimer, {0, 0, P(room)}, 0},
		{"clock_settime", SYS_clock_settime, {CLOCK_REALTIME, P(room)}, 0},
		{"sethostname", SYS_sethostname, {P("x"), 1}, 0},
		{"reboot", SYS_reboot, {0, 0, 0, 0}, 0},
		{"init_module", SYS_init_module, {P(room), 1, P("")}, 0},
		{"kexec_load", SYS_kexec_load, {0, 0, 0, 0}, 0},
		{"syslog", SYS_syslog, {10, 0, 0}, 0},
		{"sync", SYS_sync, {0}, 0},
		{"membarrier", SYS_membarrier, {0, 0, 0}, 0},
		{"uname", SYS_uname, {P(room)}, 0},
		{"quotactl", SYS_quotactl, {0, 0, 0, 0}, 0},
		{"vhangup", SYS_vhangup, {0}, 0},
	};
	TRY(t, calls);
}

/*
 * A worker cannot send fds, because fds in flight count per user and all workers run as the same
 * user. The link is also one-way: the worker cannot send a byte to the supervisor on it.
 */
static void send_away(const struct agent *agent)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov = {(char[]){"x"}, 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	memcpy(CMSG_DATA(&control.header), &agent->memory, sizeof(int));
	ssize_t n = sendmsg(IPC_SOCKET_FD, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	report(agent, "sendmsg of a descriptor to the supervisor", n < 0 ? errno : 0, EPERM);
	n = sendmsg(agent->client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	report(agent, "sendmsg of a descriptor to a client", n < 0 ? errno : 0, EPERM);
	message.msg_controllen = 0;
	n = sendmsg(agent->client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	report(agent, "sendmsg to a client", n < 0 ? errno : 0, EPERM);
	n = send(IPC_SOCKET_FD, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	report(agent, "send to the supervisor", n < 0 ? errno : 0, EPIPE);
	n = read(IPC_PIPE_FD, &iov, 1);
	report(agent, "read of the records", n < 0 ? errno : 0, EBADF);
}

/* Offsets in the memory of an io_uring instance; the same for all instances. */
static const struct io_uring_params *ring_facts;

/*
 * Submits one entry through an io_uring instance created before the sandbox. Returns its result, or
 * -errno if io_uring_enter() fails.
 */
static int through_ring(int fd, const struct io_uring_sqe *entry)
{
	const struct io_uring_params *facts = ring_facts;
	char *ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	if (ring == MAP_FAILED || entries == MAP_FAILED)
		return -EBADFD;
	_Atomic uint32_t *tail = (void *)(ring + facts->sq_off.tail);
	uint32_t mask = *(uint32_t *)(ring + facts->sq_off.ring_mask);
	uint32_t *array = (void *)(ring + facts->sq_off.array);
	_Atomic uint32_t *head = (void *)(ring + facts->cq_off.head);
	uint32_t cq_mask = *(uint32_t *)(ring + facts->cq_off.ring_mask);
	struct io_uring_cqe *results = (void *)(ring + facts->cq_off.cqes);
	uint32_t at = *tail & mask;
	entries[at] = *entry;
	(void)array; /* the index array was filled with 0, 1, ... when the instance was created */
	(*tail)++;
	long r = syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	int result = r < 0 ? -errno : results[*head & cq_mask].res;
	if (r >= 0)
		(*head)++;
	munmap(ring, PAGE);
	munmap(entries, PAGE);
	return result;
}

static void inherited_rings(const struct agent *agent)
{
	static const struct {
		const char *name;
		struct io_uring_sqe entry;
	} wishes[] = {
		{"io_uring OPENAT", {.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD}},
		{"io_uring SOCKET", {.opcode = 45, .fd = AF_UNIX, .off = SOCK_STREAM}},
		{"io_uring CONNECT", {.opcode = IORING_OP_CONNECT}},
		{"io_uring SENDMSG", {.opcode = IORING_OP_SENDMSG}},
		{"io_uring WRITE", {.opcode = IORING_OP_WRITE}},
		{"io_uring URING_CMD", {.opcode = 46}},
		{"io_uring MSG_RING", {.opcode = 40}},
		{"io_uring NOP", {.opcode = IORING_OP_NOP}},
		{"io_uring READ on another thread",
		 {.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC}},
	};
	int ring = -1;
	for (int fd = 0; fd < RINGS_LOOKED_AT && ring < 0; fd++) {
		void *there = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, IORING_OFF_SQES);
		if (there == MAP_FAILED)
			continue;
		munmap(there, PAGE);
		if (syscall(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0) >= 0)
			ring = fd;
	}
	if (ring < 0) {
		agent_send(agent, "ok io_uring: there is no ring");
		return;
	}
	for (size_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
		int r = through_ring(ring, &wishes[i].entry);
		report(agent, wishes[i].name, r < 0 ? -r : 0, EACCES);
	}
}

/* Records the memory layout of io_uring instances before the worker enters the sandbox. */
__attribute__((constructor)) static void learn_about_rings(void)
{
	static struct io_uring_params facts;
	int fd = (int)syscall(SYS_io_uring_setup, 4, &facts);
	if (fd >= 0)
		close(fd);
	ring_facts = &facts;
}

void escape_attempts_run(const struct agent *agent, const char *arguments)
{
	char *path;
	pid_t other = (pid_t)strtol(arguments, &path, 10);
	files(agent);
	processes(agent, other);
	memory(agent);
	sockets(agent, path + (*path == ' '));
	call_others(agent);
	send_away(agent);
	inherited_rings(agent);
}

/*
 * System calls of another ABI have other numbers. The filter does not interpret them but kills the
 * process.
 */
void escape_attempts_foreign_call(const struct agent *agent, const char *arguments)
{
	long r = -ENOSYS;
#if defined(__x86_64__)
	if (strcmp(arguments, "x32") == 0)
		r = syscall(0x40000000 + SYS_getpid);
	else
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory");
#endif
	agent_send(agent, "BAD a call as of %s: %ld", arguments, r);
}
