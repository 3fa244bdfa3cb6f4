#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

static socklen_t make_address(const char *name, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	size_t length = strlen(name); /* the configuration's limit: it fits */
	memcpy(ret_address->sun_path, name, length);
	if (name[0] == '@') {
		ret_address->sun_path[0] = '\0';
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	}
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

/* Removes what a dead daemon has left. -EADDRINUSE: somebody answers; -EEXIST: it is no socket. */
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
	return -EADDRINUSE; /* connected, or its queue is full: alive either way */
}

static int set_owner(const struct config *config, struct config_error *error)
{
	if (chmod(config->socket, (mode_t)config->socket_mode) < 0)
		return -errno;
	if (config->socket_group[0] == '\0')
		return 0;
	struct group *group = getgrnam(config->socket_group);
	if (group == NULL) {
		snprintf(error->text, sizeof error->text,
			 "[daemon] socket_group = %.64s: there is no such group",
			 config->socket_group);
		return -EINVAL;
	}
	return chown(config->socket, (uid_t)-1, group->gr_gid) < 0 ? -errno : 0;
}

static int bind_path(const struct config *config, int fd, struct config_error *error)
{
	struct sockaddr_un address;
	socklen_t size = make_address(config->socket, &address);
	char directory[CONFIG_TEXT_MAX];
	snprintf(directory, sizeof directory, "%s", config->socket);
	int lock = open(dirname(directory), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0)
		return -errno;
	int r = flock(lock, LOCK_EX) < 0 ? -errno : clear_stale(config->socket, &address, size);
	/* Nobody may connect before the mode is set: bound without any permission, opened up afterwards. */
	mode_t mask = umask(0777);
	if (r == 0 && bind(fd, (struct sockaddr *)&address, size) < 0)
		r = -errno;
	umask(mask);
	if (r == 0 && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r == 0) {
		r = set_owner(config, error);
		if (r < 0)
			unlink(config->socket);
	}
	close(lock);
	return r;
}

static int bind_abstract(const struct config *config, int fd)
{
	struct sockaddr_un address;
	socklen_t size = make_address(config->socket, &address);
	if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

int listen_open(const struct config *config, int *ret_fd, struct config_error *error)
{
	error->text[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int r = config->socket[0] == '@' ? bind_abstract(config, fd) : bind_path(config, fd, error);
	if (r == 0) {
		*ret_fd = fd;
		return 0;
	}
	close(fd);
	if (error->text[0] != '\0')
		return r;
	if (r == -EADDRINUSE)
		snprintf(error->text, sizeof error->text,
			 "%.200s: another loaderd answers there; stop it, or choose another socket",
			 config->socket);
	else if (r == -EEXIST)
		snprintf(error->text, sizeof error->text,
			 "%.200s: exists and is not a socket; remove it, or choose another path",
			 config->socket);
	else if (r == -ENOENT)
		snprintf(error->text, sizeof error->text,
			 "%.200s: the folder for the socket does not exist; make it, or choose another "
			 "socket with --socket",
			 config->socket);
	else
		snprintf(error->text, sizeof error->text, "%.200s: cannot listen there: %s",
			 config->socket, strerror(-r));
	return r;
}

void listen_remove(const struct config *config, int fd)
{
	struct sockaddr_un address;
	if (config->socket[0] == '@')
		return;
	socklen_t size = make_address(config->socket, &address);
	char directory[CONFIG_TEXT_MAX];
	snprintf(directory, sizeof directory, "%s", config->socket);
	int lock = open(dirname(directory), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock >= 0)
		flock(lock, LOCK_EX);
	/* With our own end closed only a successor's socket still answers. */
	close(fd);
	clear_stale(config->socket, &address, size);
	if (lock >= 0)
		close(lock);
}
