#include "proto/socket_path.h"

#include "proto/overflow_uid.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME          "loaderd.sock"
#define SYSTEM_FOLDER "/run/loaderd"

/*
 * Leaves room for the sockets next to it, whose names are longer: loaderd.sock.admin is the
 * longest.
 */
enum { FOLDER_MAX = SOCKET_PATH_MAX - sizeof("/" NAME ".admin") };

#define FETCH_FOLDER "/loaderd"
/* Leaves room for the name of a fetcher's socket. */
enum { FETCH_FOLDER_MAX = SOCKET_PATH_MAX - sizeof(FETCH_FOLDER "/fetch-0123456789abcdef") };

socklen_t socket_address(const char *name, struct sockaddr_un *ret_address)
{
	size_t length = strlen(name);
	if (length == 0 || length >= sizeof(ret_address->sun_path))
		return 0;
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret_address->sun_path, name, length);
	bool abstract = name[0] == '@';
	if (abstract)
		ret_address->sun_path[0] = '\0';
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + !abstract);
}

/* The overflow uid owns nothing: the kernel reports it for the files of every unmapped user. */
static bool is_ours(const struct stat *status)
{
	return S_ISDIR(status->st_mode) && status->st_uid == geteuid() &&
	       status->st_uid != overflow_uid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* $XDG_RUNTIME_DIR, unless it is inherited from another user. */
static bool session_folder(char ret_folder[SOCKET_PATH_MAX])
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	struct stat status;
	if (!folder || folder[0] != '/' || strlen(folder) > FOLDER_MAX)
		return false;
	/* lstat: the owner of a symbolic link can change it */
	if (lstat(folder, &status) < 0 || !is_ours(&status))
		return false;
	strcpy(ret_folder, folder);
	return true;
}

static void lasting_folder(char ret_folder[SOCKET_PATH_MAX])
{
	snprintf(ret_folder, SOCKET_PATH_MAX, "/tmp/loaderd-%u", (unsigned)geteuid());
}

static void append_socket_name(char path[SOCKET_PATH_MAX])
{
	strncat(path, "/" NAME, SOCKET_PATH_MAX - strlen(path) - 1);
}

void socket_to_listen(char ret_path[SOCKET_PATH_MAX])
{
	if (geteuid() == 0) {
		strcpy(ret_path, SYSTEM_FOLDER "/" NAME);
		return;
	}
	if (!session_folder(ret_path))
		lasting_folder(ret_path);
	append_socket_name(ret_path);
}

static int make_folder(const char *folder, mode_t mode)
{
	return mkdir(folder, mode) < 0 && errno != EEXIST ? -errno : 0;
}

/* Any user may have created a folder in /tmp, also as a symbolic link. */
static int make_own_folder(const char *folder)
{
	struct stat status;
	int r = make_folder(folder, 0700);
	if (r == 0 && lstat(folder, &status) < 0)
		r = -errno;
	if (r < 0)
		return r;
	return is_ours(&status) ? 0 : -EPERM;
}

int socket_make_folder(void)
{
	char folder[SOCKET_PATH_MAX];
	if (geteuid() == 0)
		return make_folder(SYSTEM_FOLDER, 0755);
	if (session_folder(folder))
		return 0;
	lasting_folder(folder);
	return make_own_folder(folder);
}

int socket_make_fetch_folder(char ret_folder[SOCKET_PATH_MAX])
{
	if (session_folder(ret_folder) && strlen(ret_folder) <= FETCH_FOLDER_MAX)
		strcat(ret_folder, FETCH_FOLDER);
	else
		lasting_folder(ret_folder);
	return make_own_folder(ret_folder);
}

/* Appends the socket's name to a directory; returns true if this user owns a socket there. */
static bool find_own(char path[SOCKET_PATH_MAX])
{
	struct stat status;
	append_socket_name(path);
	return stat(path, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_uid == geteuid();
}

const char *socket_journal(const char *socket)
{
	char path[SOCKET_PATH_MAX];
	if (strcmp(socket, SYSTEM_FOLDER "/" NAME) == 0)
		return "journalctl -u loaderd";
	if (!session_folder(path))
		return NULL;
	append_socket_name(path);
	return strcmp(socket, path) == 0 ? "journalctl --user -u loaderd" : NULL;
}

void socket_to_connect(char ret_path[SOCKET_PATH_MAX])
{
	struct stat status;
	if (session_folder(ret_path) && find_own(ret_path))
		return;
	lasting_folder(ret_path);
	if (lstat(ret_path, &status) < 0 || !is_ours(&status) || !find_own(ret_path))
		strcpy(ret_path, SYSTEM_FOLDER "/" NAME);
}
