#include "connection.h"
#include "forks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
	START_TIMEOUT_MS = 30000,
	STOP_GRACE_MS = 5000,	   /* to drain, after its lifeline is cut */
	TERMINATE_GRACE_MS = 2000, /* after SIGTERM; SIGKILL follows */
	LOG_SIZE = 256 << 10,
	CHILD_LISTEN_FD = 3,
	CHILD_LIFELINE_FD = 4,
	FD_ABOVE_CHILD =
		10, /* descriptors of ours from here on cannot collide with the child's 0..4 */
};

struct feed_daemon {
	struct fork_guard guard; /* of lifeline */
	pid_t pid, owner;
	int pidfd;
	int lifeline;
	int log; /* memfd, -1 when standard error is inherited */
	char socket[64];
};

/* The program to run: a path, or a bare name for PATH. */
static void find_binary(const char *binary, char *ret_path, size_t size)
{
	if (binary == NULL || binary[0] == '\0')
		binary = getenv("LOADERD");
	if (binary != NULL && binary[0] != '\0') {
		snprintf(ret_path, size, "%s", binary);
		return;
	}
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	if (length > 0) {
		self[length] = '\0';
		char *slash = strrchr(self, '/');
		int directory = slash == NULL ? 0 : (int)(slash - self);
		if (snprintf(ret_path, size, "%.*s/loaderd", directory, self) < (int)size &&
		    access(ret_path, X_OK) == 0)
			return;
	}
	snprintf(ret_path, size, "loaderd");
}

static int move_up(int fd)
{
	if (fd < 0 || fd >= FD_ABOVE_CHILD)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	int saved = errno;
	close(fd);
	errno = saved;
	return moved;
}

/* A listening socket in the abstract namespace whose name nobody can guess, so that nobody can take it before us. */
static int listen_unguessable(char *ret_name, size_t size)
{
	uint8_t random[16];
	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -errno;
	int length = snprintf(ret_name, size, "@loaderd-%ld-", (long)getpid());
	for (size_t i = 0; i < sizeof random; i++)
		length += snprintf(ret_name + length, size - (size_t)length, "%02x", random[i]);

	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path + 1, ret_name + 1, (size_t)length - 1);
	int fd = move_up(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	socklen_t address_size =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length);
	if (bind(fd, (struct sockaddr *)&address, address_size) < 0 || listen(fd, SOMAXCONN) < 0) {
		int r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

/*
 * Where the child's standard error goes: a file in memory that cannot grow, so that nobody need read it and it neither blocks the daemon nor
 * eats memory. -1 without an error: inherit ours.
 */
static int log_new(void)
{
	const char *wish = getenv("LOADERD_STDERR");
	if (wish != NULL && strcmp(wish, "inherit") == 0)
		return -1;
	int fd = move_up(memfd_create("loaderd-log", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LOG_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		int r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

/* Our environment less what a service manager meant for us alone. */
static char **child_environment(void)
{
	static const char *const kept_from_it[] = {"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_"};
	size_t count = 0, kept = 0;
	while (environ[count] != NULL)
		count++;
	char **copy = calloc(count + 1, sizeof *copy);
	if (copy == NULL)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		bool ours = false;
		for (size_t j = 0; j < sizeof kept_from_it / sizeof *kept_from_it; j++)
			ours |= strncmp(environ[i], kept_from_it[j], strlen(kept_from_it[j])) == 0;
		if (!ours)
			copy[kept++] = environ[i];
	}
	return copy;
}

/* posix_spawn and not fork: it neither copies a large process nor runs handlers of other libraries in the child. */
static int spawn(struct feed_daemon *daemon, const char *path, unsigned threads, int listen_fd,
		 int lifeline_child)
{
	char count[16];
	snprintf(count, sizeof count, "%u", threads);
	const char *arguments[] = {
		path,  "--listen-fd", "3", "--lifeline-fd", "4", threads > 0 ? "--threads" : NULL,
		count, NULL,
	};
	char **environment = child_environment();
	if (environment == NULL)
		return -ENOMEM;

	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (daemon->log >= 0)
		posix_spawn_file_actions_adddup2(&actions, daemon->log, 2);
	posix_spawn_file_actions_adddup2(&actions, 2, 1);
	posix_spawn_file_actions_adddup2(&actions, listen_fd, CHILD_LISTEN_FD);
	posix_spawn_file_actions_adddup2(&actions, lifeline_child, CHILD_LIFELINE_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_LIFELINE_FD + 1);

	/* A process group of its own: an interrupt from the terminal is for the client, which may still want batches to finish cleanly. */
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);

	int r = posix_spawnp(&daemon->pid, path, &actions, &attributes, (char **)arguments,
			     environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	free(environment);
	return -r;
}

static bool has_ended(const struct feed_daemon *daemon, int timeout_ms)
{
	int64_t deadline_ms = clock_ms() + timeout_ms;
	struct pollfd p = {.fd = daemon->pidfd, .events = POLLIN};
	for (;;) {
		int r = poll(&p, 1, clock_left_ms(deadline_ms));
		if (r > 0)
			return true;
		if (r == 0 || errno != EINTR)
			return false;
	}
}

/* Last line that says something, for an error text. */
static void last_line(const struct feed_daemon *daemon, char *line, size_t size)
{
	char tail[2048];
	int room = (int)size - 1;
	size_t length = feed_daemon_log(daemon, tail, sizeof tail);
	while (length > 0 && (tail[length - 1] == '\n' || tail[length - 1] == ' '))
		tail[--length] = '\0';
	const char *start = strrchr(tail, '\n');
	snprintf(line, size, "%.*s", room, start == NULL ? tail : start + 1);
}

static int ended_while_starting(const struct feed_daemon *daemon, const char *path, char *error)
{
	char line[512], how[64] = "";
	int status;
	if (waitpid(daemon->pid, &status, 0) == daemon->pid) {
		if (WIFSIGNALED(status))
			snprintf(how, sizeof how, " by signal %d", WTERMSIG(status));
		else
			snprintf(how, sizeof how, " with status %d", WEXITSTATUS(status));
	}
	last_line(daemon, line, sizeof line);
	return error_set(error, -ECHILD, "%s ended%s while starting%s%s", path, how,
			 line[0] == '\0' ? "." : ": ", line);
}

/* Asks for the status until it answers: only a daemon whose server runs does. */
static int wait_until_it_serves(const struct feed_daemon *daemon, const char *path, char *error)
{
	struct connection connection = {.fd = -1};
	int64_t deadline_ms = clock_ms() + START_TIMEOUT_MS;
	int r = connection_open(&connection, daemon->socket, deadline_ms, error);
	if (r == 0) {
		Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
		Loaderd__Request request = LOADERD__REQUEST__INIT;
		Loaderd__Reply *reply = NULL;
		request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
		request.get_status = &get;
		r = connection_request(&connection, &request, NULL, deadline_ms, &reply, error);
		if (r == 0)
			loaderd__reply__free_unpacked(reply, NULL);
		connection_close(&connection);
	}
	/* A connection that broke off is the first sign of its end; the process may need a moment to be gone. */
	if ((r == -ECONNRESET || r == -ECONNREFUSED) && has_ended(daemon, TERMINATE_GRACE_MS))
		return ended_while_starting(daemon, path, error);
	return r;
}

static int start(struct feed_daemon *daemon, const char *path, unsigned threads, char *error)
{
	int lifeline[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lifeline) < 0)
		return error_set(error, -errno, "Cannot make the lifeline of a daemon: %s.",
				 strerror(errno));
	lifeline[1] = move_up(lifeline[1]);
	daemon->lifeline = lifeline[0];
	fork_guard_add(&daemon->guard, &daemon->lifeline);

	int listen_fd = listen_unguessable(daemon->socket, sizeof daemon->socket);
	int r = listen_fd < 0 || lifeline[1] < 0 ? -EMFILE : 0;
	if (r == 0) {
		daemon->log = log_new();
		r = daemon->log < -1 ? daemon->log
				     : spawn(daemon, path, threads, listen_fd, lifeline[1]);
	}
	if (listen_fd >= 0)
		close(listen_fd); /* the child's alone: when it dies, connecting fails at once */
	if (lifeline[1] >= 0)
		close(lifeline[1]);
	if (r < 0)
		return error_set(error, r,
				 "Cannot start the program %s: %s. Install loaderd, or name it in "
				 "$LOADERD.",
				 path, strerror(-r));

	daemon->pidfd = (int)syscall(SYS_pidfd_open, daemon->pid, 0);
	if (daemon->pidfd < 0)
		return error_set(error, -errno,
				 "Cannot watch the daemon: %s (Linux 5.3 or newer is needed).",
				 strerror(errno));
	return wait_until_it_serves(daemon, path, error);
}

int feed_daemon_start(const char *binary, unsigned threads, struct feed_daemon **ret_daemon,
		      char *error)
{
	char path[PATH_MAX];
	if (error != NULL)
		error[0] = '\0';
	find_binary(binary, path, sizeof path);
	struct feed_daemon *daemon = calloc(1, sizeof *daemon);
	if (daemon == NULL)
		return error_set(error, -ENOMEM, "Out of memory.");
	*daemon = (struct feed_daemon){.owner = getpid(), .pidfd = -1, .lifeline = -1, .log = -1};
	int r = start(daemon, path, threads, error);
	if (r < 0) {
		feed_daemon_stop(daemon);
		return r;
	}
	*ret_daemon = daemon;
	return 0;
}

const char *feed_daemon_socket(const struct feed_daemon *daemon)
{
	return daemon->socket;
}

long feed_daemon_pid(const struct feed_daemon *daemon)
{
	return daemon->pid;
}

int feed_daemon_alive(const struct feed_daemon *daemon)
{
	return !has_ended(daemon, 0);
}

size_t feed_daemon_log(const struct feed_daemon *daemon, char *buffer, size_t size)
{
	if (size == 0)
		return 0;
	buffer[0] = '\0';
	off_t end =
		daemon->log < 0 ? 0 : lseek(daemon->log, 0, SEEK_CUR); /* shared with the child */
	if (end <= 0 || size == 1)
		return 0;
	off_t start = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
	ssize_t length = pread(daemon->log, buffer, (size_t)(end - start), start);
	if (length < 0)
		length = 0;
	buffer[length] = '\0';
	char *line = start > 0 ? memchr(buffer, '\n', (size_t)length) : NULL;
	if (line == NULL)
		return (size_t)length;
	length -= line + 1 - buffer;
	memmove(buffer, line + 1, (size_t)length + 1);
	return (size_t)length;
}

static void signal_it(const struct feed_daemon *daemon, int number)
{
	syscall(SYS_pidfd_send_signal, daemon->pidfd, number, NULL, 0);
}

void feed_daemon_stop(struct feed_daemon *daemon)
{
	if (daemon == NULL)
		return;
	fork_guard_remove(&daemon->guard);
	if (daemon->lifeline >= 0)
		close(daemon->lifeline);
	if (daemon->pid > 0 && daemon->owner == getpid()) {
		if (daemon->pidfd < 0) {
			kill(daemon->pid, SIGKILL);
		} else if (!has_ended(daemon, STOP_GRACE_MS)) {
			signal_it(daemon, SIGTERM);
			if (!has_ended(daemon, TERMINATE_GRACE_MS))
				signal_it(daemon, SIGKILL);
		}
		waitpid(daemon->pid, NULL, 0);
	}
	if (daemon->pidfd >= 0)
		close(daemon->pidfd);
	if (daemon->log >= 0)
		close(daemon->log);
	free(daemon);
}
