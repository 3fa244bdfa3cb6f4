/*
 * Start-up under adverse conditions:
 * - another user locks the files next to the socket: the service must stop and start anyway;
 * - another daemon opens or removes its sockets there: the service must wait for it;
 * - the system denies a resource or system call: the service must report it at the start.
 */
#include "tests/security/attack.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PATIENCE_S = 20 };

/*
 * Locks the directory and every file in it that ALICE may open. Returns her process, which keeps
 * the locks.
 */
static pid_t lock_all(const struct stage *stage)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fixture_become(ALICE);
		DIR *folder = opendir(stage->fixture.folder);
		if (!folder || flock(dirfd(folder), LOCK_EX | LOCK_NB) < 0)
			_exit(1);
		for (struct dirent *entry; (entry = readdir(folder));) {
			int fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_NONBLOCK);
			if (fd >= 0)
				(void)flock(fd, LOCK_EX | LOCK_NB);
		}
		(void)!write(ready[1], "", 1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* Asserts that only the two users' files are left in the directory. */
static void assert_clean(const struct stage *stage)
{
	DIR *folder = opendir(stage->fixture.folder);
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));)
		if (strstr(entry->d_name, "sock"))
			fail_msg("%s is left", entry->d_name);
	closedir(folder);
}

TEST(beside_locks)
{
	struct stage stage;
	attack_stage(&stage);
	alarm(PATIENCE_S); /* fails the test if the service blocks */
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	pid_t pid = lock_all(&stage);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	assert_clean(&stage);
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fixture_deinit(&stage.fixture);
}

/* Returns true if a process is waiting for the lock on this file. */
static bool is_awaited(ino_t file)
{
	char line[256];
	unsigned long long number;
	bool found = false;
	FILE *locks = fopen("/proc/locks", "re");
	while (locks && !found && fgets(line, sizeof(line), locks))
		found = sscanf(line, "%*d: -> FLOCK ADVISORY WRITE %*d %*x:%*x:%llu", &number) ==
				1 &&
			number == file;
	if (locks)
		fclose(locks);
	return found;
}

/* Acts as a daemon that is opening or removing its sockets, until another daemon waits for it. */
static int be_another_daemon(const struct stage *stage, int ready)
{
	char path[PATH_MAX + 16];
	struct stat status;
	fixture_become(stage->fixture.uid);
	snprintf(path, sizeof(path), "%s.lock", stage->fixture.socket);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &status) < 0 || flock(fd, LOCK_EX) < 0)
		return 2;
	(void)!write(ready, "", 1);
	while (!is_awaited(status.st_ino)) {
		if (access(stage->fixture.socket, F_OK) == 0)
			return 1; /* the other daemon did not wait */
		usleep(1000);
	}
	return 0;
}

TEST(one_after_the_other)
{
	struct stage stage;
	int ready[2], status;
	char byte;
	attack_stage(&stage);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	alarm(PATIENCE_S);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(PATIENCE_S);
		_exit(be_another_daemon(&stage, ready[1]));
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	fixture_start(&stage.fixture, NULL, "--threads", "1", NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(fixture_stop(&stage.fixture, SIGTERM), 0);
	alarm(0);
	assert_clean(&stage);
	fixture_deinit(&stage.fixture);
}

/* A resource limit that is too low for the daemon, or a system call that fails with `code`. */
struct denial {
	const char *name;
	int resource;
	rlim_t limit;
	long call; /* resource limit; 0 if none */
	int second_argument, code;
	const char *expected;
	bool private_goes_on;
};
enum { ANY = -1, NO_LIMIT = -1, NO_PROC = -2 };

static const struct denial lacks[] = {
	{"RLIMIT_NPROC", RLIMIT_NPROC, 10, 0, 0, 0,
	 "RLIMIT_NPROC is 10 (ulimit -u, LimitNPROC=): to serve one user the daemon needs at "
	 "least ",
	 false},
	{"RLIMIT_NOFILE", RLIMIT_NOFILE, 64, 0, 0, 0,
	 "RLIMIT_NOFILE is 64 (ulimit -n, LimitNOFILE=): to serve one user the daemon needs at "
	 "least ",
	 false},
	{"RLIMIT_FSIZE", RLIMIT_FSIZE, 1000, 0, 0, 0,
	 "RLIMIT_FSIZE is 1000 bytes (ulimit -f, LimitFSIZE=): File too large", false},
	{"RLIMIT_FSIZE of less than a ring", RLIMIT_FSIZE, 1 << 20, 0, 0, 0,
	 "RLIMIT_FSIZE is 1048576 bytes (ulimit -f, LimitFSIZE=): feeds with larger rings will be "
	 "refused",
	 true},
	{"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING, 0, 0, 0, 0,
	 "RLIMIT_SIGPENDING is 0 (ulimit -i, LimitSIGPENDING=)", true},
	{"RLIMIT_SIGPENDING of fewer than all closing threads", RLIMIT_SIGPENDING, 23, 0, 0, 0,
	 "RLIMIT_SIGPENDING is 23 (ulimit -i, LimitSIGPENDING=)", true},
	{"memfd_create", NO_LIMIT, 0, SYS_memfd_create, ANY, EPERM,
	 "memfd_create: Operation not permitted: the daemon needs it to create rings", false},
	{"pidfd_open", NO_LIMIT, 0, SYS_pidfd_open, ANY, ENOSYS,
	 "pidfd_open: Function not implemented: the daemon needs it to watch workers", false},
	{"/proc", NO_PROC, 0, 0, 0, 0,
	 "/proc/self/exe: No such file or directory: the daemon starts workers from there", false},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* Excluded with sanitizers, which reserve address space and threads' stacks of their own.
	 */
	{"RLIMIT_STACK", RLIMIT_STACK, (rlim_t)1 << 42, 0, 0, 0,
	 "RLIMIT_STACK is 4398046511104 bytes (ulimit -s, LimitSTACK=)", false},
	{"RLIMIT_AS", RLIMIT_AS, (rlim_t)1 << 36, 0, 0, 0,
	 "RLIMIT_AS is 68719476736 bytes (ulimit -v, LimitAS=)", true},
	{"RLIMIT_AS of less than stacks of threads", RLIMIT_AS, 50 << 20, 0, 0, 0,
	 "cannot start threads: Resource temporarily unavailable", false},
	{"RLIMIT_DATA", RLIMIT_DATA, 20 << 20, 0, 0, 0, "RLIMIT_AS or RLIMIT_DATA (ulimit -v, -d)",
	 false},
#endif
	/* Simulates sysctl fs.leases-enable=0, which cannot be set for the test alone. */
	{"leases", NO_LIMIT, 0, SYS_fcntl, F_SETLEASE, EINVAL, "sysctl fs.leases-enable=1", true},
};

/*
 * Makes the system call fail with this code from now on. Returns false if seccomp filters are not
 * supported.
 */
static bool forbid(const struct denial *lack)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)lack->call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)lack->second_argument, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)lack->code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	if (lack->second_argument == ANY) /* any value matches */
		code[3].jf = 0;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/*
 * Collects the daemon's output until it is ready or has exited. Kills a daemon that is ready and
 * returns 0; otherwise returns its wait status.
 */
static int start_with(const struct stage *stage, const struct denial *lack, bool private_one,
		      char *text, size_t size)
{
	int fds[2], status;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const char *program = getenv("LOADERD");
		const struct rlimit limit = {lack->limit, lack->limit};
		const int file = open(program, O_RDONLY | O_CLOEXEC);
		char *arguments[] = {(char[]){"loaderd"},
				     (char[]){"--config"},
				     (char[]){"/dev/null"},
				     (char[]){"--threads"},
				     (char[]){"1"},
				     (char[]){"--socket"},
				     (char *)stage->fixture.socket,
				     private_one ? (char[]){"--private"} : NULL,
				     NULL};
		dup2(fds[1], STDERR_FILENO);
		if (lack->resource == NO_PROC &&
		    (unshare(CLONE_NEWNS) < 0 ||
		     mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		     mount("none", "/proc", "tmpfs", 0, NULL) < 0))
			_exit(126);
		fixture_become(stage->fixture.uid);
		alarm(PATIENCE_S);
		if ((lack->resource >= 0 &&
		     setrlimit((__rlimit_resource_t)lack->resource, &limit) < 0) ||
		    (lack->call != 0 && !forbid(lack)))
			_exit(126);
		fexecve(file, arguments, environ);
		_exit(127);
	}
	close(fds[1]);
	size_t length = 0;
	bool ready = false;
	for (ssize_t n = 1; n > 0 && length < size - 1 && !ready;) {
		n = read(fds[0], text + length, size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
		text[length] = '\0';
		ready = strstr(text, "ready:");
	}
	close(fds[0]);
	if (ready)
		kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return ready ? 0 : status;
}

/*
 * At the start the daemon reports any resource that is insufficient even for one user: name, value
 * and remedy.
 */
TEST(insufficient_resources_are_reported)
{
	static char text[1 << 14];
	struct stage stage;
	attack_stage(&stage);
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
		const struct denial *lack = &lacks[i];
		int status = start_with(&stage, lack, false, text, sizeof(text));
		/* The daemon only warns if a limit is too low for some feeds but not for all. */
		const bool starts = lack->private_goes_on && lack->call == 0;
		if (!strstr(text, lack->expected) || (status == 0) != starts ||
		    (!starts && (!WIFEXITED(status) || WEXITSTATUS(status) != 1)))
			fail_msg("%s: status %#x: %s", lack->name, (unsigned)status, text);
		status = start_with(&stage, lack, true, text, sizeof(text));
		if ((status == 0) != lack->private_goes_on)
			fail_msg("%s, private: status %#x: %s", lack->name, (unsigned)status, text);
	}
	fixture_deinit(&stage.fixture);
}

int main(void)
{
	return test_run_as_root(NULL, NULL);
}
