#include "loaderd/event_source.h"

#include "format/base/system/clock.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/param.h>

enum { EVENTS_PER_TURN = 64 };

int event_source_add(int epoll_fd, struct event_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

void event_source_remove(int epoll_fd, const struct event_source *source)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
}

int event_loop_run_once(int epoll_fd, uint64_t due_ns)
{
	struct epoll_event events[EVENTS_PER_TURN];
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	/*
	 * INT_MAX ms is 24 days: the caller then wakes early, finds nothing to do and waits again.
	 */
	const int wait_ms = due_ns == UINT64_MAX ? -1
			    : due_ns <= now_ns   ? 0
					       : (int)MIN((due_ns - now_ns) / 1000000 + 1, INT_MAX);
	int count = epoll_wait(epoll_fd, events, EVENTS_PER_TURN, wait_ms);
	if (count < 0 && errno != EINTR)
		return -errno;
	for (int i = 0; i < count; i++) {
		struct event_source *source = events[i].data.ptr;
		source->ready(source, events[i].events);
	}
	return 0;
}
