#include "loaderd/notify.h"

#ifdef HAVE_SYSTEMD
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

void notify_say(const char *state)
{
	sd_notify(0, state);
}

uint64_t notify_watchdog_ns(void)
{
	uint64_t us;
	return sd_watchdog_enabled(0, &us) > 0 ? us * 1000 : 0;
}

int notify_listen_fds(int *ret_fds, int most, int *ret_admin_fd)
{
	char **names = NULL;
	int count = sd_listen_fds_with_names(1, &names), kept = 0;
	*ret_admin_fd = -1;
	for (int i = 0; i < count; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		fcntl(fd, F_SETFL, O_NONBLOCK);
		if (names && names[i] && strcmp(names[i], "admin") == 0)
			*ret_admin_fd = fd;
		else if (kept < most)
			ret_fds[kept++] = fd;
	}
	for (int i = 0; names && names[i]; i++)
		free(names[i]);
	free(names);
	return count < 0 ? count : kept;
}
#else
void notify_say(const char *state)
{
}

uint64_t notify_watchdog_ns(void)
{
	return 0;
}

int notify_listen_fds(int *ret_fds, int most, int *ret_admin_fd)
{
	*ret_admin_fd = -1;
	return 0;
}
#endif
