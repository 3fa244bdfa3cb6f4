#include "loaderd/supervisor/worker_spawn.h"

#include "format/base/system/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fds of this number and above cannot collide with the child's 0 to 7. */
enum { FD_ABOVE_CHILD = 16 };
/* Socket buffer that an unread order takes, halved because the kernel doubles SO_SNDBUF. */
enum { ORDER_ROOM = 768 / 2 };

static void fd_pair_close(struct fd_pair *ends)
{
	if (ends->ours >= 0)
		close(ends->ours);
	if (ends->theirs >= 0)
		close(ends->theirs);
}

static int fd_pair_set(struct fd_pair *ends, int ours, int theirs)
{
	ends->ours = ours;
	ends->theirs = fcntl(theirs, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	close(theirs);
	return ends->theirs < 0 ? -errno : 0;
}

static int new_socket(struct fd_pair *ends, unsigned orders)
{
	int fds[2];
	const int room = (int)(orders * ORDER_ROOM);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	/* Shut down the other direction: no data, and in particular no fds, may come back. */
	shutdown(fds[0], SHUT_RD);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return fd_pair_set(ends, fds[0], fds[1]);
}

static int new_pipe(struct fd_pair *ends)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	return fd_pair_set(ends, fds[0], fds[1]);
}

static int new_page(struct fd_pair *ends, struct status_page **ret_page)
{
	int fd = memfd_create("loaderd-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Sealed before the worker gets it, so that reading the page never faults. */
	void *page = MAP_FAILED;
	if (ftruncate(fd, STATUS_PAGE_SIZE) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		page = mmap(NULL, STATUS_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		int r = -errno;
		close(fd);
		return r;
	}
	*ret_page = page;
	return fd_pair_set(ends, -1, fd);
}

int worker_fds_init(struct worker_fds *worker_fds, unsigned orders, struct status_page **ret_page)
{
	*worker_fds = (struct worker_fds){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
	int r = new_socket(&worker_fds->socket, orders);
	if (r < 0)
		return r;
	r = new_pipe(&worker_fds->pipe);
	if (r < 0)
		return r;
	r = new_pipe(&worker_fds->log);
	return r < 0 ? r : new_page(&worker_fds->page, ret_page);
}

void worker_fds_deinit(struct worker_fds *worker_fds)
{
	fd_pair_close(&worker_fds->socket);
	fd_pair_close(&worker_fds->pipe);
	fd_pair_close(&worker_fds->page);
	fd_pair_close(&worker_fds->log);
}

int worker_config_fd(const struct config *config)
{
	int fd = memfd_create("loaderd-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	FILE *file = fd < 0 ? NULL : fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), "w");
	if (!file) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* A worker must not learn who the other users are. */
	struct config theirs = *config;
	theirs.nice = (struct config_nice){0};
	config_print(&theirs, file);
	int r = fclose(file) == 0 ? 0 : -errno;
	/* All workers share it: none may change what the next one reads. */
	if (r == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		r = -errno;
	int moved = r < 0 ? r : fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE_CHILD);
	close(fd);
	return moved;
}

int worker_spawn(const struct worker_fds *worker_fds, const struct worker_spawn_options *options,
		 pid_t *ret_pid)
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
	posix_spawn_file_actions_adddup2(&actions, worker_fds->log.theirs, 1);
	posix_spawn_file_actions_adddup2(&actions, worker_fds->log.theirs, 2);
	posix_spawn_file_actions_adddup2(&actions, worker_fds->socket.theirs, IPC_SOCKET_FD);
	posix_spawn_file_actions_adddup2(&actions, worker_fds->pipe.theirs, IPC_PIPE_FD);
	posix_spawn_file_actions_adddup2(&actions, worker_fds->page.theirs, IPC_PAGE_FD);
	posix_spawn_file_actions_adddup2(&actions, options->config_fd, IPC_CONFIG_FD);
	if (options->group_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, options->group_fd, IPC_GROUP_FD);
	posix_spawn_file_actions_addclosefrom_np(
		&actions, options->group_fd >= 0 ? IPC_GROUP_FD + 1 : IPC_CONFIG_FD + 1);
	/* /proc/self/exe is the running program even while a newer one is being installed. */
	lseek(options->config_fd, 0, SEEK_SET);
	int r = child_spawn("/proc/self/exe", &actions, arguments, environ, ret_pid);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}
