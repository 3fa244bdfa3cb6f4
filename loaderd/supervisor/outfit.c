#include "loaderd/supervisor/outfit.h"

#include "format/base/system/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors of ours from here on cannot collide with the child's 0 to 7. */
enum { FD_ABOVE_CHILD = 16 };
/*
 * What an order that nobody has read takes of a socket's buffer, of which the kernel gives twice
 * what it is asked for.
 */
enum { ORDER_ROOM = 768 / 2 };

static void close_ends(struct ends *ends)
{
	if (ends->ours >= 0)
		close(ends->ours);
	if (ends->theirs >= 0)
		close(ends->theirs);
}

static int keep_ends(struct ends *ends, int ours, int theirs)
{
	ends->ours = ours;
	ends->theirs = fcntl(theirs, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	close(theirs);
	return ends->theirs < 0 ? -errno : 0;
}

static int new_socket(struct ends *ends, unsigned orders)
{
	int fds[2];
	const int room = (int)(orders * ORDER_ROOM);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	/* One way: nothing, and no descriptor above all, comes back. */
	shutdown(fds[0], SHUT_RD);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return keep_ends(ends, fds[0], fds[1]);
}

static int new_pipe(struct ends *ends)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	return keep_ends(ends, fds[0], fds[1]);
}

static int new_page(struct ends *ends, struct link_page **ret_page)
{
	int fd = memfd_create("loaderd-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Sealed before the worker has it: reading the page can then never fault. */
	void *page = MAP_FAILED;
	if (ftruncate(fd, LINK_PAGE_SIZE) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		page = mmap(NULL, LINK_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		int r = -errno;
		close(fd);
		return r;
	}
	*ret_page = page;
	return keep_ends(ends, -1, fd);
}

int outfit_init(struct outfit *outfit, unsigned orders, struct link_page **ret_page)
{
	*outfit = (struct outfit){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	int r = new_socket(&outfit->socket, orders);
	if (r == 0)
		r = new_pipe(&outfit->pipe);
	if (r == 0)
		r = new_pipe(&outfit->log);
	if (r == 0)
		r = new_page(&outfit->page, ret_page);
	return r;
}

void outfit_deinit(struct outfit *outfit)
{
	close_ends(&outfit->socket);
	close_ends(&outfit->pipe);
	close_ends(&outfit->page);
	close_ends(&outfit->log);
}

int outfit_config(const struct config *config)
{
	int fd = memfd_create("loaderd-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	FILE *file = fd < 0 ? NULL : fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), "w");
	if (!file) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* Who the other users are is none of a worker's business. */
	struct config theirs = *config;
	theirs.nice = (struct config_nice){0};
	config_print(&theirs, file);
	int r = fclose(file) == 0 ? 0 : -errno;
	/* Every worker gets it: none may change what the next one reads. */
	if (r == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		r = -errno;
	int moved = r < 0 ? r : fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	close(fd);
	return moved;
}

int outfit_spawn(const struct outfit *outfit, const struct outfit_options *options, pid_t *ret_pid)
{
	char user[16], number[16];
	unsigned count = 3;
	snprintf(user, sizeof(user), "%u", (unsigned)options->uid);
	const char *arguments[8] = {"loaderd", "--worker", user};
	if (options->private_only)
		arguments[count++] = "--private";
	if (options->nice) {
		snprintf(number, sizeof(number), "%d", *options->nice);
		arguments[count++] = "--nice";
		arguments[count++] = number;
	}
	if (options->group_fd >= 0)
		arguments[count++] = "--group";
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, outfit->log.theirs, 1);
	posix_spawn_file_actions_adddup2(&actions, outfit->log.theirs, 2);
	posix_spawn_file_actions_adddup2(&actions, outfit->socket.theirs, LINK_SOCKET_FD);
	posix_spawn_file_actions_adddup2(&actions, outfit->pipe.theirs, LINK_PIPE_FD);
	posix_spawn_file_actions_adddup2(&actions, outfit->page.theirs, LINK_PAGE_FD);
	posix_spawn_file_actions_adddup2(&actions, options->config_fd, LINK_CONFIG_FD);
	if (options->group_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, options->group_fd, LINK_GROUP_FD);
	posix_spawn_file_actions_addclosefrom_np(
		&actions, options->group_fd >= 0 ? LINK_GROUP_FD + 1 : LINK_CONFIG_FD + 1);
	/* The very program that runs, also while a newer one is being installed. */
	lseek(options->config_fd, 0, SEEK_SET);
	int r = child_spawn("/proc/self/exe", &actions, arguments, environ, ret_pid);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}
