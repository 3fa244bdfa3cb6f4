#include "tools/store/loop.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "tools/store/store.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 64 };

/* CURLMOPT_SOCKETFUNCTION */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_context)
{
	const struct loop *loop = context;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	(void)socket_context;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	event.events =
		(what != CURL_POLL_OUT ? EPOLLIN : 0) | (what != CURL_POLL_IN ? EPOLLOUT : 0);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event) && errno == ENOENT &&
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return -1;
	return 0;
}

/* CURLMOPT_TIMERFUNCTION */
static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
	struct loop *loop = context;

	(void)multi;
	loop->timer_ms = timeout_ms < 0 ? INT64_MAX : clock_ms() + timeout_ms;
	return 0;
}

int loop_init(struct loop *loop, CURLM *multi)
{
	*loop = (struct loop){multi, epoll_create1(EPOLL_CLOEXEC),
			      eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), INT64_MAX};
	if (loop->epoll_fd < 0 || loop->wake_fd < 0) {
		int r = -errno;

		loop_deinit(loop);
		return r;
	}
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(multi, CURLMOPT_TIMERDATA, loop);
	return 0;
}

void loop_deinit(struct loop *loop)
{
	io_close(loop->epoll_fd);
	io_close(loop->wake_fd);
}

void loop_start(struct loop *loop)
{
	int running;

	if (loop->timer_ms > clock_ms())
		return;
	loop->timer_ms = INT64_MAX; /* libcurl sets the next one */
	curl_multi_socket_action(loop->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static void take_events(const struct loop *loop)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int count, running;

	do {
		count = epoll_wait(loop->epoll_fd, events, EVENTS_AT_ONCE, 0);
		for (int i = 0; i < count; i++) {
			uint32_t what = events[i].events;

			curl_multi_socket_action(
				loop->multi, events[i].data.fd,
				(what & EPOLLIN ? CURL_CSELECT_IN : 0) |
					(what & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
					(what & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
				&running);
		}
	} while (count == EVENTS_AT_ONCE);
}

void loop_wait(struct loop *loop, struct pollfd *fds, unsigned count, int timeout_ms)
{
	struct pollfd all[STORE_POLL_MAX + 2];
	uint64_t wakes;
	int timer_ms = clock_left_ms(loop->timer_ms);

	for (unsigned i = 0; i < count; i++)
		all[i] = (struct pollfd){.fd = fds[i].fd, .events = POLLIN};
	all[count] = (struct pollfd){.fd = loop->epoll_fd, .events = POLLIN};
	all[count + 1] = (struct pollfd){.fd = loop->wake_fd, .events = POLLIN};
	int ready = poll(all, count + 2, timer_ms < timeout_ms ? timer_ms : timeout_ms);
	for (unsigned i = 0; i < count; i++)
		fds[i].revents = ready > 0 && all[i].revents ? POLLIN : 0;
	if (ready > 0 && all[count].revents)
		take_events(loop);
	if (ready > 0 && all[count + 1].revents && read(loop->wake_fd, &wakes, sizeof(wakes)) < 0)
		return; /* nothing to read: no harm */
	loop_start(loop);
}

void loop_wake(const struct loop *loop)
{
	const uint64_t one = 1;

	if (write(loop->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is awake already */
}
