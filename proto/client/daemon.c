#include "proto/client/daemon.h"
#include "format/base/system/child.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/client/connection.h"
#include "proto/client/forks.h"

#include <argz.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum {
	START_TIMEOUT_MS = 30000,
	STOP_GRACE_MS = 5000,      /* to drain, after its lifeline is closed */
	TERMINATE_GRACE_MS = 2000, /* between SIGTERM and SIGKILL */
	LOG_SIZE = 256 << 10,
	CHILD_LISTEN_FD = 3,
	CHILD_LIFELINE_FD = 4,
	FD_ABOVE_CHILD =
		/* our fds are at least this high, so they cannot collide with the child's 0..4 */
	10,
};

#define PRIVATE_PREFIX "@loaderd-"

/* Concatenated strings, each with its terminator (argz). */
struct texts {
	char *text;
	size_t size;
};

/*
 * This process keeps the listening socket open too. So the name stays reserved when the daemon
 * dies, and clients that connect meanwhile queue for the next daemon, which starts with the same
 * arguments.
 */
struct feed_daemon {
	struct feed_daemon *next;
	struct fork_guard guard; /* guards lifeline */
	struct fork_guard listen_guard;
	pid_t pid, owner;
	int pidfd;
	int lifeline;
	int listen_fd;
	int log; /* memfd; -1 if standard error is inherited */
	char socket[64];
	char path[PATH_MAX];
	struct texts arguments, environment;
	cpu_set_t cpus;
	bool cpus_known;
};

/*
 * Daemons of this process. Feeds of several threads may find at once that their daemon has ended.
 * The lock is recursive because a restart requests the daemon's status, which locks again.
 */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct feed_daemon *daemons;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A forked child has no daemons, and the thread that held the lock may not exist there. */
static void forget_in_child(void)
{
	daemons = NULL;
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget_in_child);
}

static void list_daemon(struct feed_daemon *daemon)
{
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	daemon->next = daemons;
	daemons = daemon;
	pthread_mutex_unlock(&lock);
}

static void unlist_daemon(struct feed_daemon *daemon)
{
	pthread_mutex_lock(&lock);
	for (struct feed_daemon **link = &daemons; *link; link = &(*link)->next) {
		if (*link == daemon) {
			*link = daemon->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

/* Call with the lock held. */
static struct feed_daemon *find_daemon(const char *socket)
{
	struct feed_daemon *daemon = daemons;
	while (daemon && strcmp(daemon->socket, socket) != 0)
		daemon = daemon->next;
	return daemon;
}

void program_find(const char *binary, const char *variable, const char *name, char *ret_path,
		  size_t size)
{
	if (!binary || binary[0] == '\0')
		binary = getenv(variable);
	if (binary && binary[0] != '\0') {
		snprintf(ret_path, size, "%s", binary);
		return;
	}
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length > 0) {
		self[length] = '\0';
		char *slash = strrchr(self, '/');
		int directory = !slash ? 0 : (int)(slash - self);
		if (snprintf(ret_path, size, "%.*s/%s", directory, self, name) < (int)size &&
		    access(ret_path, X_OK) == 0)
			return;
	}
	snprintf(ret_path, size, "%s", name);
}

int fd_above_child(int fd)
{
	if (fd < 0 || fd >= FD_ABOVE_CHILD)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	io_close(fd);
	return moved;
}

/*
 * Creates a listening socket in the abstract namespace. Its name is random, so no process can bind
 * it first.
 */
static int listen_unguessable(char *ret_name, size_t size)
{
	uint8_t random[16];
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	int length = snprintf(ret_name, size, PRIVATE_PREFIX "%ld-", (long)getpid());
	for (size_t i = 0; i < sizeof(random); i++)
		length += snprintf(ret_name + length, size - (size_t)length, "%02x", random[i]);

	struct sockaddr_un address;
	socklen_t address_size = socket_address(ret_name, &address);
	int fd = fd_above_child(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, address_size) < 0 || listen(fd, SOMAXCONN) < 0) {
		io_close(fd);
		return -errno;
	}
	return fd;
}

/*
 * File for the child's standard error: a memfd that cannot grow, so it needs no reader, never
 * blocks the daemon and has bounded size. Returns -1 to inherit ours, another negative value on
 * error.
 */
static int log_new(void)
{
	const char *wish = getenv("LOADERD_STDERR");
	if (wish && strcmp(wish, "inherit") == 0)
		return -1;
	int fd = fd_above_child(memfd_create("loaderd-log", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LOG_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		io_close(fd);
		return -errno;
	}
	return fd;
}

static error_t add_setting(struct texts *to, const char *setting)
{
	return argz_add(&to->text, &to->size, "--set") ?: argz_add(&to->text, &to->size, setting);
}

/* Stores the daemon's arguments, also for a restart. */
static int keep_arguments(struct feed_daemon *daemon, const struct feed_daemon_options *options)
{
	struct texts *to = &daemon->arguments;
	char threads[32];
	error_t r = argz_add(&to->text, &to->size, daemon->path);
	r = r ?: argz_add_sep(&to->text, &to->size, "--listen-fd 3 --lifeline-fd 4", ' ');
	for (uint32_t i = 0; r == 0 && i < options->setting_count; i++)
		r = add_setting(to, options->settings[i]);
	snprintf(threads, sizeof(threads), "pool.threads=%u", options->threads);
	return -(r != 0 || options->threads == 0 ? r : add_setting(to, threads));
}

/* Copies our environment without the variables that a service manager set for this process only. */
static int keep_environment(struct texts *to)
{
	static const char *const kept_from_it[] = {"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_"};
	if (argz_create(environ, &to->text, &to->size) != 0)
		return -ENOMEM;
	for (char *text = to->text; text && text < to->text + to->size;) {
		bool ours = false;
		for (size_t i = 0; i < sizeof(kept_from_it) / sizeof(*kept_from_it); i++)
			ours |= strncmp(text, kept_from_it[i], strlen(kept_from_it[i])) == 0;
		if (ours)
			/* the rest moves down to this position */
			argz_delete(&to->text, &to->size, text);
		else
			text += strlen(text) + 1;
	}
	return 0;
}

/* Returns a NULL-terminated array of pointers to the strings; the caller frees the array. */
static char **extract_daemon(const struct texts *texts)
{
	char **all = calloc(argz_count(texts->text, texts->size) + 1, sizeof(*all));
	if (all)
		argz_extract(texts->text, texts->size, all);
	return all;
}

static int spawn_daemon(struct feed_daemon *daemon, int lifeline_child)
{
	char **arguments = extract_daemon(&daemon->arguments),
	     **environment = extract_daemon(&daemon->environment);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (daemon->log >= 0)
		posix_spawn_file_actions_adddup2(&actions, daemon->log, 2);
	posix_spawn_file_actions_adddup2(&actions, 2, 1);
	posix_spawn_file_actions_adddup2(&actions, daemon->listen_fd, CHILD_LISTEN_FD);
	posix_spawn_file_actions_adddup2(&actions, lifeline_child, CHILD_LIFELINE_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_LIFELINE_FD + 1);

	cpu_set_t own;
	bool moved = daemon->cpus_known && sched_getaffinity(0, sizeof(own), &own) == 0 &&
		     sched_setaffinity(0, sizeof(daemon->cpus), &daemon->cpus) == 0;
	/* An interrupt is meant for the client, which may still need batches to finish cleanly. */
	int r = !arguments || !environment
			? -ENOMEM
			: child_spawn(daemon->path, &actions, (const char **)arguments, environment,
				      &daemon->pid);
	if (moved)
		sched_setaffinity(0, sizeof(own), &own);
	posix_spawn_file_actions_destroy(&actions);
	free(arguments);
	free(environment);
	return r;
}

static bool has_ended(const struct feed_daemon *daemon, int timeout_ms)
{
	if (daemon->pidfd < 0) /* poll() would ignore it */
		return true;
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

/* Copies the last nonempty line of the log, for an error text. */
static void last_line(const struct feed_daemon *daemon, char *line, size_t size)
{
	char tail[2048];
	int room = (int)size - 1;
	size_t length = feed_daemon_log(daemon, tail, sizeof(tail));
	while (length > 0 && (tail[length - 1] == '\n' || tail[length - 1] == ' '))
		tail[--length] = '\0';
	const char *start = strrchr(tail, '\n');
	snprintf(line, size, "%.*s", room, !start ? tail : start + 1);
}

static int ended_while_starting(struct feed_daemon *daemon, char *error)
{
	char line[512], how[64] = "";
	int status = 0;
	bool reaped = waitpid(daemon->pid, &status, 0) == daemon->pid;
	daemon->pid = 0;
	if (reaped) {
		if (WIFSIGNALED(status))
			snprintf(how, sizeof(how), " by signal %d", WTERMSIG(status));
		else
			snprintf(how, sizeof(how), " with status %d", WEXITSTATUS(status));
	}
	last_line(daemon, line, sizeof(line));
	if (WIFEXITED(status) && WEXITSTATUS(status) == EX_CONFIG)
		return error_set(error, -EINVAL, "settings: %s does not take one: %s", daemon->path,
				 line);
	return error_set(error, -ECHILD, "%s ended%s while starting%s%s", daemon->path, how,
			 line[0] == '\0' ? "." : ": ", line);
}

/* Requests the status: the reply shows that the daemon serves clients. */
static int wait_until_it_serves(struct feed_daemon *daemon, char *error)
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
	/*
	 * A broken connection is the first sign that the daemon has ended; the process may exit a
	 * little later.
	 */
	if ((r == -ECONNRESET || r == -ECONNREFUSED) && has_ended(daemon, TERMINATE_GRACE_MS))
		return ended_while_starting(daemon, error);
	return r;
}

/* Starts the process on the existing socket. Call with the lock held. */
static int launch_daemon(struct feed_daemon *daemon, char *error)
{
	int lifeline[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lifeline) < 0)
		return error_set(error, -errno, "Cannot make the lifeline of a daemon: %s.",
				 strerror(errno));
	lifeline[1] = fd_above_child(lifeline[1]);
	daemon->lifeline = lifeline[0];
	int r = lifeline[1] < 0 ? -EMFILE : spawn_daemon(daemon, lifeline[1]);
	io_close(lifeline[1]);
	if (r < 0)
		return error_set(
			error, r,
			"Cannot start the program %s: %s. Install loaderd, or name it in $LOADERD.",
			daemon->path, strerror(-r));

	daemon->pidfd = (int)syscall(SYS_pidfd_open, daemon->pid, 0);
	if (daemon->pidfd < 0)
		return error_set(error, -errno,
				 "Cannot watch the daemon: %s (Linux 5.3 or newer is needed).",
				 strerror(errno));
	return wait_until_it_serves(daemon, error);
}

/* Sets up the state that a restart reuses. */
static int prepare_start(struct feed_daemon *daemon, const struct feed_daemon_options *options)
{
	daemon->listen_fd = listen_unguessable(daemon->socket, sizeof(daemon->socket));
	if (daemon->listen_fd < 0)
		return daemon->listen_fd;
	fork_guard_add(&daemon->listen_guard, &daemon->listen_fd);
	fork_guard_add(&daemon->guard, &daemon->lifeline);
	daemon->cpus_known = sched_getaffinity(0, sizeof(daemon->cpus), &daemon->cpus) == 0;
	if (keep_arguments(daemon, options) < 0 || keep_environment(&daemon->environment) < 0)
		return -ENOMEM;
	daemon->log = log_new();
	return daemon->log < -1 ? daemon->log : 0;
}

int feed_daemon_start(const char *binary, unsigned threads, struct feed_daemon **ret_daemon,
		      char *error)
{
	struct feed_daemon_options options = {
		.size = sizeof(options), .binary = binary, .threads = threads};
	return feed_daemon_start_with(&options, ret_daemon, error);
}

int feed_daemon_start_with(const struct feed_daemon_options *callers,
			   struct feed_daemon **ret_daemon, char *error)
{
	struct feed_daemon_options options = {0};
	memcpy(&options, callers,
	       callers->size < sizeof(options) ? callers->size : sizeof(options));
	if (error)
		error[0] = '\0';
	struct feed_daemon *daemon = calloc(1, sizeof(*daemon));
	if (!daemon)
		return error_set(error, -ENOMEM, "Out of memory.");
	daemon->owner = getpid();
	daemon->pidfd = daemon->lifeline = daemon->listen_fd = daemon->log = -1;
	program_find(options.binary, "LOADERD", "loaderd", daemon->path, sizeof(daemon->path));
	int r = prepare_start(daemon, &options);
	if (r < 0) {
		error_set(error, r, "Cannot prepare a private daemon: %s.", strerror(-r));
	} else {
		list_daemon(daemon);
		pthread_mutex_lock(&lock);
		r = launch_daemon(daemon, error);
		pthread_mutex_unlock(&lock);
	}
	if (r < 0) {
		feed_daemon_stop(daemon);
		return r;
	}
	*ret_daemon = daemon;
	return 0;
}

/* Reaps the ended process and starts the next one. Call with the lock held. */
static int relaunch_daemon(struct feed_daemon *daemon, char *error)
{
	if (daemon->pid > 0) /* with pid 0 waitpid() would reap any child */
		waitpid(daemon->pid, NULL, 0);
	io_close(daemon->pidfd);
	io_close(daemon->lifeline);
	daemon->pid = 0;
	daemon->pidfd = daemon->lifeline = -1;
	return launch_daemon(daemon, error);
}

int feed_daemon_restart(struct feed_daemon *daemon, char *error)
{
	if (error)
		error[0] = '\0';
	return daemon_revive(daemon->socket, error);
}

int daemon_revive(const char *socket, char *error)
{
	int r = 0;
	pthread_mutex_lock(&lock);
	struct feed_daemon *daemon = find_daemon(socket);
	if (daemon && has_ended(daemon, 0))
		r = relaunch_daemon(daemon, error);
	pthread_mutex_unlock(&lock);
	return r;
}

bool daemon_is_private(const char *socket)
{
	return strncmp(socket, PRIVATE_PREFIX, strlen(PRIVATE_PREFIX)) == 0;
}

bool daemon_has_ended(const char *socket)
{
	if (!daemon_is_private(socket))
		return false;
	pthread_mutex_lock(&lock);
	const struct feed_daemon *daemon = find_daemon(socket);
	bool ended = daemon && has_ended(daemon, 0);
	pthread_mutex_unlock(&lock);
	return ended;
}

int daemon_watch(const char *socket)
{
	if (!daemon_is_private(socket))
		return -1;
	pthread_mutex_lock(&lock);
	const struct feed_daemon *daemon = find_daemon(socket);
	int fd = !daemon ? -1 : fcntl(daemon->pidfd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&lock);
	return fd;
}

const char *feed_daemon_socket(const struct feed_daemon *daemon)
{
	return daemon->socket;
}

long feed_daemon_pid(const struct feed_daemon *daemon)
{
	pthread_mutex_lock(&lock);
	pid_t pid = daemon->pid;
	pthread_mutex_unlock(&lock);
	return pid;
}

int feed_daemon_alive(const struct feed_daemon *daemon)
{
	pthread_mutex_lock(&lock);
	bool ended = has_ended(daemon, 0);
	pthread_mutex_unlock(&lock);
	return !ended;
}

size_t feed_daemon_log(const struct feed_daemon *daemon, char *buffer, size_t size)
{
	if (size == 0)
		return 0;
	buffer[0] = '\0';
	off_t end =
		/* the offset is shared with the child */
		daemon->log < 0 ? 0 : lseek(daemon->log, 0, SEEK_CUR);
	if (end <= 0 || size == 1)
		return 0;
	off_t start = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
	ssize_t length = pread(daemon->log, buffer, (size_t)(end - start), start);
	if (length < 0)
		length = 0;
	buffer[length] = '\0';
	char *line = start > 0 ? memchr(buffer, '\n', (size_t)length) : NULL;
	if (!line)
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
	if (!daemon)
		return;
	unlist_daemon(daemon); /* after this no feed restarts it */
	fork_guard_remove(&daemon->guard);
	fork_guard_remove(&daemon->listen_guard);
	io_close(daemon->lifeline);
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
	io_close(daemon->pidfd);
	io_close(daemon->log);
	io_close(daemon->listen_fd);
	free(daemon->environment.text);
	free(daemon->arguments.text);
	free(daemon);
}
