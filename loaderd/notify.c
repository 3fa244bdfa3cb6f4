#include "notify.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

void notify_ready(void)
{
	sd_notify(0, "READY=1");
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}

void notify_watchdog(void)
{
	sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_ns(void)
{
	uint64_t us;
	return sd_watchdog_enabled(0, &us) > 0 ? us * 1000 : 0;
}

int notify_listen_fds(int *ret_first)
{
	*ret_first = SD_LISTEN_FDS_START;
	return sd_listen_fds(1);
}
#else
void notify_ready(void)
{
}

void notify_stopping(void)
{
}

void notify_watchdog(void)
{
}

uint64_t notify_watchdog_ns(void)
{
	return 0;
}

int notify_listen_fds(int *ret_first)
{
	return 0;
}
#endif
