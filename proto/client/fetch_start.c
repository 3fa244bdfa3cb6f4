#include "format/base/system/child.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/client/daemon.h"
#include "proto/client/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHILD_READY_FD = 3,
	REAP_MS = 2000,       /* the started process ends as soon as the fetcher runs */
	PAUSE_FIRST_MS = 10,  /* doubled with each start */
	PAUSE_MAX_MS = 500,   /* between two starts of which another process is faster */
	SENTENCE_SIZE = 700,  /* buffer size of the sentence of a fetcher that cannot start */
	VARIABLES_MAX = 1024, /* that decide what a store answers */
};

/* ---- the socket's path ---- */

/* Variables that decide what a store answers, and where it is kept. */
static bool decides(const char *entry)
{
	static const char *const exact[] = {
		"LOADERD_S3_ADDRESSING=", "LOADERD_CACHE=",  "LOADERD_CACHE_SIZE=", "HOME=",
		"XDG_CACHE_HOME=",        "CURL_CA_BUNDLE=", "SSL_CERT_FILE="};
	static const char *const either_case[] = {
		"http_proxy=", "https_proxy=", "no_proxy=", "all_proxy="};
	for (size_t i = 0; i < sizeof(exact) / sizeof(*exact); i++)
		if (strncmp(entry, exact[i], strlen(exact[i])) == 0)
			return true;
	for (size_t i = 0; i < sizeof(either_case) / sizeof(*either_case); i++)
		if (strncasecmp(entry, either_case[i], strlen(either_case[i])) == 0)
			return true;
	return strncmp(entry, "AWS_", 4) == 0 || strncmp(entry, "LOADERD_FETCH_", 14) == 0;
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* FNV-1a, 64 bits (draft-eastlake-fnv), of the lines NAME=VALUE, sorted. */
static uint64_t hash_environment(void)
{
	const char *lines[VARIABLES_MAX];
	size_t count = 0;
	for (char **entry = environ; entry && *entry && count < VARIABLES_MAX; entry++)
		if (decides(*entry))
			lines[count++] = *entry;
	qsort(lines, count, sizeof(*lines), compare_texts);
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < count; i++) {
		for (const char *c = lines[i]; *c; c++)
			hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
		hash = (hash ^ '\n') * 0x100000001b3;
	}
	return hash;
}

static int find_socket(char ret_path[SOCKET_PATH_MAX], char *error)
{
	char folder[SOCKET_PATH_MAX];
	int r = socket_make_fetch_folder(folder);
	if (r == -EPERM)
		return error_set(error, r,
				 "%s, the folder of the fetcher's socket, is a link, belongs to "
				 "another user or is writable for others: remove it.",
				 folder);
	if (r < 0)
		return error_set(error, r,
				 "Cannot make %s, the folder of the fetcher's socket: %s.", folder,
				 strerror(-r));
	/* The folder leaves room for the name. */
	size_t length = strlen(folder);
	memcpy(ret_path, folder, length);
	snprintf(ret_path + length, SOCKET_PATH_MAX - length, "/fetch-%016" PRIx64,
		 hash_environment());
	return 0;
}

/* ---- starting the program ---- */

static int spawn_fetcher(const char *program, const char *socket, int ready, pid_t *ret_pid)
{
	const char *const arguments[] = {program, "--socket", socket, "--ready-fd", "3", NULL};
	_Static_assert(CHILD_READY_FD == 3, "as the arguments say");
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	posix_spawn_file_actions_adddup2(&actions, ready, CHILD_READY_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_READY_FD + 1);
	int r = child_spawn(program, &actions, arguments, environ, ret_pid);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/*
 * Reads one line, without its end. Returns 0, -ECONNRESET if the program has closed the pipe before
 * it, or -ETIMEDOUT.
 */
static int read_line(int fd, int64_t deadline_ms, char line[SENTENCE_SIZE])
{
	size_t size = 0;
	while (size + 1 < SENTENCE_SIZE) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, clock_left_ms(deadline_ms)) == 0)
			return -ETIMEDOUT;
		ssize_t n = read(fd, line + size, SENTENCE_SIZE - 1 - size);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		size += n > 0 ? (size_t)n : 0;
		char *end = memchr(line, '\n', size);
		if (end) {
			*end = '\0';
			return 0;
		}
	}
	line[size] = '\0';
	return 0;
}

/* Waits for the end of the started process, which has left a child behind. */
static int reap(pid_t pid, bool stuck, int *ret_status)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	if (stuck)
		kill(pid, SIGKILL);
	while (pidfd >= 0 && poll(&p, 1, REAP_MS) < 0 && errno == EINTR)
		;
	io_close(pidfd);
	return waitpid(pid, ret_status, WNOHANG) == pid ? 0 : -ECHILD;
}

static int start_error(const char *program, const char *url, int code, char *error)
{
	if (code == -ENOENT)
		return error_set(error, code,
				 "%.300s: the program that fetches datasets from stores, %s, was "
				 "not found: install it (Debian has it in the package packimg; the "
				 "wheel lacks it), name it in $LOADERD_FETCH, or fetch the dataset "
				 "first: packimg fetch %.300s -o FILE.",
				 url, program, url);
	return error_set(error, code, "%.300s: cannot start the program %s: %s.", url, program,
			 strerror(-code));
}

static int await_ready(const char *program, const char *url, pid_t pid, int ready,
		       int64_t deadline_ms, char *error)
{
	char line[SENTENCE_SIZE] = "";
	int status = 0;
	int r = read_line(ready, deadline_ms, line);
	bool reaped = reap(pid, r == -ETIMEDOUT, &status) == 0;
	if (r == -ETIMEDOUT)
		return error_set(error, -EIO, "%.300s: %s did not start in time.", url, program);
	if (r < 0 && reaped && WIFEXITED(status))
		return error_set(error, -EIO, "%.300s: %s ended with status %d while starting.",
				 url, program, WEXITSTATUS(status));
	if (r < 0)
		return error_set(error, -EIO, "%.300s: %s ended while starting.", url, program);
	text_make_printable(line);
	return line[0] == '\0'
		       ? 0
		       : error_set(error, -EIO, "%.300s: %s cannot start: %s", url, program, line);
}

static int start_fetcher(const char *socket, const char *url, int64_t deadline_ms, char *error)
{
	char program[PATH_MAX];
	int ready[2];
	pid_t pid;
	program_find(NULL, "LOADERD_FETCH", "loaderd-fetch", program, sizeof(program));
	if (pipe2(ready, O_CLOEXEC) < 0)
		return error_set(error, -errno, "Cannot make a pipe: %s.", strerror(errno));
	ready[1] = fd_above_child(ready[1]);
	int r = ready[1] < 0 ? -EMFILE : spawn_fetcher(program, socket, ready[1], &pid);
	io_close(ready[1]);
	r = r < 0 ? start_error(program, url, r, error)
		  : await_ready(program, url, pid, ready[0], deadline_ms, error);
	io_close(ready[0]);
	return r;
}

/* ---- connecting ---- */

/* The folder lets nobody else listen there, other than root. */
static int check_peer(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	return peer.uid == geteuid() ? 0 : -EPERM;
}

static int connect_once(const char *socket)
{
	int fd = socket_connect(socket, clock_ms() + CONNECTION_TIMEOUT_MS);
	int r = fd < 0 ? fd : check_peer(fd);
	if (r < 0 && fd >= 0)
		io_close(fd);
	return r < 0 ? r : fd;
}

/*
 * A started fetcher does not get the lock, and ends, while another one begins to listen or is about
 * to end: then another start is needed, a little later.
 */
int fetcher_connect(const char *url, int64_t deadline_ms, char *error)
{
	char socket[SOCKET_PATH_MAX];
	int r = find_socket(socket, error);
	if (r < 0)
		return r;
	for (int pause_ms = 0;;) {
		int fd = connect_once(socket);
		if (fd != -ENOENT && fd != -ECONNREFUSED)
			return fd >= 0 ? fd
				       : error_set(error, fd,
						   "%.300s: cannot connect to the fetcher on "
						   "%s: %s.",
						   url, socket, strerror(-fd));
		if (clock_left_ms(deadline_ms) == 0)
			return error_set(error, -EIO,
					 "%.300s: no fetcher listens on %s, though one was "
					 "started.",
					 url, socket);
		poll(NULL, 0, pause_ms);
		pause_ms = pause_ms == 0                 ? PAUSE_FIRST_MS
			   : pause_ms < PAUSE_MAX_MS / 2 ? 2 * pause_ms
							 : PAUSE_MAX_MS;
		r = start_fetcher(socket, url, deadline_ms, error);
		if (r < 0)
			return r;
	}
}
