#include "loaderd/listen.h"

#include "proto/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/*
 * Removes the socket file of a dead daemon. Returns -EADDRINUSE if a daemon answers, -EEXIST if the
 * file is not a socket.
 */
static int clear_stale(const char *path, const struct sockaddr_un *address, socklen_t size)
{
	struct stat status;
	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int r = connect(fd, (const struct sockaddr *)address, size) < 0 ? -errno : 0;
	close(fd);
	if (r == -ECONNREFUSED)
		return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
	return -EADDRINUSE; /* connected, or its queue is full: alive in both cases */
}

/* A socket to create. */
struct socket_files {
	char name[CONFIG_TEXT_MAX];
	char unfinished[CONFIG_TEXT_MAX]; /* name until it is ready for clients */
	/* lock file, held while a process creates or removes the socket */
	char lock[CONFIG_TEXT_MAX];
	mode_t mode;
	const char *group; /* "" for none */
};

/*
 * Builds the names of a socket. The client and admin sockets share the temporary name, because one
 * is finished before the other is begun. Its suffix is no longer than the admin socket's, so all
 * names fit.
 */
static struct socket_files socket_files_of(const struct config *config, bool admin)
{
	struct socket_files files = {.mode = admin ? 0600 : (mode_t)config->socket_mode,
				     .group = admin ? "" : config->socket_group};
	snprintf(files.name, sizeof(files.name), "%.900s%s", config->socket,
		 admin ? LISTEN_ADMIN_SUFFIX : "");
	snprintf(files.unfinished, sizeof(files.unfinished), "%.900s.bound", config->socket);
	snprintf(files.lock, sizeof(files.lock), "%.900s.lock", config->socket);
	return files;
}

static int set_owner(const struct socket_files *files, struct config_error *error)
{
	if (chmod(files->unfinished, files->mode) < 0)
		return -errno;
	if (files->group[0] == '\0')
		return 0;
	struct group *group = getgrnam(files->group);
	if (!group) {
		return config_fail(error, -EINVAL,
				   "[daemon] socket_group = %.64s: there is no such group",
				   files->group);
	}
	return chown(files->unfinished, (uid_t)-1, group->gr_gid) < 0 ? -errno : 0;
}

/* Returns whether path still refers to the open file fd. */
static bool is_there(const char *path, int fd)
{
	struct stat ours, there;
	return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
	       ours.st_ino == there.st_ino;
}

/*
 * Locks a file that only this user can open. Another file, such as the directory, could be locked
 * and held by any user who may read it.
 */
static int take_lock(const struct socket_files *files)
{
	for (;;) {
		int lock = open(files->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (lock < 0)
			return -errno;
		if (flock(lock, LOCK_EX) < 0) {
			int r = -errno;
			close(lock);
			return r;
		}
		if (is_there(files->lock, lock))
			return lock;
		close(lock); /* the previous holder has removed it */
	}
}

static void release_lock(const struct socket_files *files, int lock)
{
	unlink(files->lock);
	close(lock);
}

/* Removes a temporary socket that a killed daemon has left. */
static int clear_unfinished(const struct socket_files *files)
{
	struct stat status;
	if (lstat(files->unfinished, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	return unlink(files->unfinished) < 0 ? -errno : 0;
}

static int bind_unfinished(const struct socket_files *files, int fd)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(files->unfinished, &address);
	int r = clear_unfinished(files);
	/* Bind without any permissions, so that no client can connect before the mode is set. */
	mode_t mask = umask(0777);
	if (r == 0 && bind(fd, (struct sockaddr *)&address, size) < 0)
		r = -errno;
	umask(mask);
	return r;
}

/*
 * Listens, sets mode and group, then renames to the final name. Clients that have lost their daemon
 * keep trying to connect, and one that gets EACCES gives up: the socket must not appear before it
 * is ready.
 */
static int listen_finish(const struct socket_files *files, int fd, struct config_error *error)
{
	int r = listen(fd, BACKLOG) < 0 ? -errno : set_owner(files, error);
	if (r == 0 && rename(files->unfinished, files->name) < 0)
		r = -errno;
	if (r < 0)
		unlink(files->unfinished);
	return r;
}

static int bind_locked(const struct socket_files *files, int fd, struct config_error *error)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(files->name, &address);
	int r = clear_stale(files->name, &address, size);
	if (r < 0)
		return r;
	r = bind_unfinished(files, fd);
	return r < 0 ? r : listen_finish(files, fd, error);
}

static int bind_path(const struct socket_files *files, int fd, struct config_error *error)
{
	int lock = take_lock(files);
	if (lock < 0)
		return lock;
	int r = bind_locked(files, fd, error);
	release_lock(files, lock);
	return r;
}

static int bind_abstract(const struct socket_files *files, int fd)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(files->name, &address);
	if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

static void explain_failure(const struct socket_files *files, int code, struct config_error *error)
{
	if (error->text[0] != '\0')
		return;
	if (code == -EADDRINUSE)
		config_say(
			error,
			"%.200s: another loaderd answers there; stop it, or choose another socket",
			files->name);
	else if (code == -EEXIST)
		config_say(error,
			   "%.200s: exists and is not a socket; remove it, or choose another path",
			   files->name);
	else if (code == -ENOENT)
		config_say(error,
			   "%.200s: the socket's folder does not exist; create it, or choose "
			   "another socket with --socket",
			   files->name);
	else if (code == -EACCES || code == -EROFS)
		config_say(error,
			   "%.200s: user %u may not create a socket in that folder (%s); change "
			   "the folder's owner, or choose another socket with --socket",
			   files->name, (unsigned)geteuid(), strerror(-code));
	else
		config_say(error, "%.200s: cannot listen there: %s", files->name, strerror(-code));
}

static int open_socket(const struct socket_files *files, int *ret_fd, struct config_error *error)
{
	error->text[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int r = files->name[0] == '@' ? bind_abstract(files, fd) : bind_path(files, fd, error);
	if (r == 0) {
		*ret_fd = fd;
		return 0;
	}
	close(fd);
	explain_failure(files, r, error);
	return r;
}

/* Removes a socket file. Our socket is closed, so only a successor's still answers. */
static void remove_socket(const struct socket_files *files)
{
	struct sockaddr_un address;
	if (files->name[0] == '@')
		return;
	socklen_t size = socket_address(files->name, &address);
	int lock = take_lock(files);
	clear_stale(files->name, &address, size);
	if (lock >= 0)
		release_lock(files, lock);
}

/*
 * Creates the directory of the default socket. The directory of a configured socket is the
 * administrator's responsibility.
 */
static int prepare_default(const struct config *config, struct config_error *error)
{
	char path[SOCKET_PATH_MAX];
	socket_to_listen(path);
	if (strcmp(path, config->socket) != 0)
		return 0;
	int r = socket_make_folder();
	if (r < 0)
		config_say(error,
			   "%s: its folder %s; choose another socket with --socket, and set "
			   "$LOADERD_SOCKET for clients",
			   path,
			   r == -EPERM ? "does not belong to this user alone"
				       : "cannot be created");
	return r;
}

int listen_open(const struct config *config, int *ret_fd, int *ret_admin_fd,
		struct config_error *error)
{
	const struct socket_files clients = socket_files_of(config, false),
				  admin = socket_files_of(config, true);
	int r = prepare_default(config, error);
	if (r == 0)
		r = open_socket(&clients, ret_fd, error);
	if (r < 0 || !ret_admin_fd)
		return r;
	r = open_socket(&admin, ret_admin_fd, error);
	if (r < 0) {
		close(*ret_fd);
		remove_socket(&clients);
	}
	return r;
}

void listen_remove(const struct config *config)
{
	const struct socket_files clients = socket_files_of(config, false),
				  admin = socket_files_of(config, true);
	remove_socket(&clients);
	remove_socket(&admin);
}
