#include "trainer/device/comm/tcp/key.h"

#include "format/base/system/io.h"
#include "format/base/text/sentence.h"
#include "trainer/device/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define fail(error, code, ...) sentence_fail((error), COMM_ERROR_MAX, (code), __VA_ARGS__)

#define REMEDY "or set " KEY_VARIABLE " to the same secret text for all ranks"

static int key_fail(char *error, int code, const char *path, const char *what)
{
	return fail(error, code, "%s: cannot %s: %s; make the folder writable, " REMEDY, path, what,
		    strerror(-code));
}

/* The folder that is loaderd's, and the one above it. */
static int key_folders(char above[PATH_MAX], char folder[PATH_MAX], char *error)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const struct passwd *user = home && *home ? NULL : getpwuid(getuid());
	int length;

	if (user)
		home = user->pw_dir;
	if (state && *state == '/')
		length = snprintf(above, PATH_MAX, "%s", state);
	else if (home && *home)
		length = snprintf(above, PATH_MAX, "%s/.local/state", home);
	else
		return fail(error, -ENOENT,
			    "there is no home folder for the key of the ranks: set HOME, " REMEDY);
	if (length < PATH_MAX - 32)
		length = snprintf(folder, PATH_MAX, "%.*s/loaderd", PATH_MAX - 32, above);
	return length < PATH_MAX - 16 ? 0 : fail(error, -ENAMETOOLONG, "%s is too long", above);
}

/* Makes a folder and those above it. */
static int key_make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		int r = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
		if (!slash)
			return r;
		*slash = '/';
		if (r < 0 && r != -EACCES && r != -EROFS)
			return r;
	}
}

/* -ENOENT, without a sentence, if there is no file. */
static int key_read(const char *path, uint8_t ret_key[SHA256_SIZE], char *error)
{
	uint8_t bytes[SHA256_SIZE + 1];
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : key_fail(error, -errno, path, "open it");
	int64_t size = fstat(fd, &status) < 0 ? -errno : io_read_at(fd, bytes, sizeof(bytes), 0);
	close(fd);
	if (size < 0)
		return key_fail(error, (int)size, path, "read it");
	if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_mode & 077)
		return fail(error, -EPERM,
			    "%s: the key of the ranks is another user's, or others may read it: "
			    "remove it, and the next run makes another",
			    path);
	if (size != SHA256_SIZE)
		return fail(error, -EBADMSG,
			    "%s: %lld bytes are no key of the ranks: remove it, and the next run "
			    "makes another",
			    path, (long long)size);
	memcpy(ret_key, bytes, SHA256_SIZE);
	return 0;
}

/* Makes the file, complete under its name. Another rank may be first: then nothing happens. */
static int key_make(const char *folder, const char *path, char *error)
{
	char temporary[PATH_MAX + 32];
	uint8_t key[SHA256_SIZE];

	snprintf(temporary, sizeof(temporary), "%s/ranks.key.XXXXXX", folder);
	if (getrandom(key, sizeof(key), 0) != sizeof(key))
		return fail(error, -EIO, "the kernel has no random numbers");
	int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return key_fail(error, -errno, path, "make it");
	int r = io_finish(fd, io_write(fd, key, sizeof(key)));
	if (r == 0 && link(temporary, path) < 0 && errno != EEXIST)
		r = -errno;
	unlink(temporary);
	return r < 0 ? key_fail(error, r, path, "make it") : 0;
}

static int key_of_file(uint8_t ret_key[SHA256_SIZE], char *error)
{
	char above[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + 16];
	int r = key_folders(above, folder, error);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/ranks.key", folder);
	r = key_read(path, ret_key, error);
	if (r != -ENOENT)
		return r;
	r = key_make_folders(folder);
	if (r < 0)
		return key_fail(error, r, folder, "make the folder");
	r = key_make(folder, path, error);
	if (r < 0)
		return r;
	r = key_read(path, ret_key, error);
	return r == -ENOENT ? key_fail(error, r, path, "read it") : r;
}

int key_get(uint8_t ret_key[SHA256_SIZE], char *error)
{
	const char *text = getenv(KEY_VARIABLE);

	if (!text || !*text)
		return key_of_file(ret_key, error);
	if (strlen(text) < KEY_TEXT_MIN)
		return fail(error, -EINVAL,
			    KEY_VARIABLE " has %zu bytes, but a key that cannot be guessed has at "
					 "least %d: take the output of openssl rand -hex 16",
			    strlen(text), KEY_TEXT_MIN);
	sha256(text, strlen(text), ret_key);
	return 0;
}
