#include "loaderd/notify.h"

#ifdef HAVE_SYSTEMD
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#ifdef SYSTEMD_AT_RUN_TIME
/* Returns NULL if no service manager started this process, or without the library. */
static void *find_function(const char *name)
{
	static void *library;
	if (!library && (getenv("NOTIFY_SOCKET") || getenv("LISTEN_PID")))
		library = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, name) : NULL;
}
#define SYSTEMD(function) ((__typeof__(&(function)))find_function(#function))
#else
#define SYSTEMD(function) (&(function))
#endif

void notify_say(const char *state)
{
	__typeof__(&sd_notify) say = SYSTEMD(sd_notify);
	if (say)
		say(0, state);
}

uint64_t notify_watchdog_ns(void)
{
	__typeof__(&sd_watchdog_enabled) ask = SYSTEMD(sd_watchdog_enabled);
	uint64_t us;
	return ask && ask(0, &us) > 0 ? us * 1000 : 0;
}

/* Separates the admin socket from the others. names: FileDescriptorName of each socket, or NULL. */
static int sort_sockets(char *const *names, int count, int *ret_fds, int max, int *ret_admin_fd)
{
	int kept = 0;
	for (int i = 0; i < count; i++) {
		const bool is_admin = names && strcmp(names[i], "admin") == 0;
		int fd = SD_LISTEN_FDS_START + i;
		fcntl(fd, F_SETFL, O_NONBLOCK);
		if (is_admin && *ret_admin_fd >= 0)
			return -EEXIST;
		if (!is_admin && kept == max)
			return -E2BIG;
		if (is_admin)
			*ret_admin_fd = fd;
		else
			ret_fds[kept++] = fd;
	}
	return kept;
}

int notify_listen_fds(int *ret_fds, int max, int *ret_admin_fd)
{
	__typeof__(&sd_listen_fds_with_names) take = SYSTEMD(sd_listen_fds_with_names);
	char **names = NULL;
	*ret_admin_fd = -1;
	int r = take ? take(1, &names) : 0;
	if (r > 0)
		r = sort_sockets(names, r, ret_fds, max, ret_admin_fd);
	for (int i = 0; names && names[i]; i++)
		free(names[i]);
	free(names);
	return r;
}
#else
void notify_say(const char *state)
{
}

uint64_t notify_watchdog_ns(void)
{
	return 0;
}

int notify_listen_fds(int *ret_fds, int max, int *ret_admin_fd)
{
	*ret_admin_fd = -1;
	return 0;
}
#endif
