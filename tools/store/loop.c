#include "tools/store/loop.h"
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "tools/store/store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	READS_AT_ONCE = 2, /* sockets that are read in turn: their buffers stay in the caches */
	READ_MIN = 4096,   /* bytes; after less the next sockets are read, too: it took no time */
	ROUNDS = 8,        /* of such turns, before the requests that follow are sent */
};

/* Set in the rank of requests that are not urgent. */
#define RANK_LATER ((uint64_t)1 << 63)

/*
 * The rank of a request and its socket, in one word by which events are sorted: urgent requests
 * first, then the oldest.
 */
static uint64_t rank_socket(CURL *easy, curl_socket_t fd)
{
	const struct attempt *attempt = NULL;

	/* libcurl closes idle connections by handles of its own */
	if (curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&attempt) || !attempt)
		return (uint32_t)fd;
	uint64_t number = attempt->transfer->number & INT32_MAX;

	return (attempt->transfer->request.urgent ? 0 : RANK_LATER) | number << 32 | (uint32_t)fd;
}

static int socket_of(const struct epoll_event *event)
{
	return (int)(uint32_t)event->data.u64;
}

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR &&
		       EPOLLHUP == POLLHUP,
	       "events of both kinds are passed on");

/* CURLMOPT_SOCKETFUNCTION */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_context)
{
	const struct loop *loop = context;
	struct epoll_event event = {.data.u64 = rank_socket(easy, fd)};

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

int loop_init(struct loop *loop, CURLM *multi, const uint64_t *bytes)
{
	*loop = (struct loop){multi,
			      bytes,
			      epoll_create1(EPOLL_CLOEXEC),
			      eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			      INT64_MAX,
			      0};
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

static int compare_ranks(const void *left, const void *right)
{
	uint64_t a = ((const struct epoll_event *)left)->data.u64;
	uint64_t b = ((const struct epoll_event *)right)->data.u64;

	return a < b ? -1 : a > b;
}

/* Tells libcurl what is the matter with a socket: POLLIN, POLLOUT and so on, or those of epoll. */
static void act(const struct loop *loop, int fd, unsigned events)
{
	int running;

	curl_multi_socket_action(loop->multi, fd,
				 (events & POLLIN ? CURL_CSELECT_IN : 0) |
					 (events & POLLOUT ? CURL_CSELECT_OUT : 0) |
					 (events & (POLLERR | POLLHUP) ? CURL_CSELECT_ERR : 0),
				 &running);
}

/* Reads the sockets in turn while they have something. TLS gives 16 KiB each time. */
static void read_in_turn(const struct loop *loop, struct pollfd *fds, unsigned count)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < count; i++)
			if (fds[i].revents)
				act(loop, fds[i].fd, (unsigned)fds[i].revents);
		if (poll(fds, count, 0) <= 0)
			return;
	}
}

/* Reads sockets, the first ones, until some have brought something. Returns how many. */
static unsigned read_first(const struct loop *loop, struct pollfd *fds, unsigned count)
{
	uint64_t brought = 0;
	unsigned taken = 0;

	while (taken < count && brought < READ_MIN) {
		const uint64_t before = *loop->bytes;
		unsigned reads = count - taken < READS_AT_ONCE ? count - taken : READS_AT_ONCE;

		read_in_turn(loop, fds + taken, reads);
		taken += reads;
		brought = *loop->bytes - before;
	}
	return taken;
}

/*
 * Lets libcurl send what can be sent, and read the sockets that rank first. If hundreds of replies
 * arrive at once and all are read in turn, all end at the same time: no batch is complete before,
 * and then as many requests are sent at once, whose replies arrive together again. A store whose
 * sockets always have a byte does not keep those of others waiting.
 */
static void take_events(struct loop *loop)
{
	struct epoll_event events[STORE_CONNECTIONS_MAX];
	struct pollfd fds[STORE_CONNECTIONS_MAX];
	int count = epoll_wait(loop->epoll_fd, events, STORE_CONNECTIONS_MAX, 0);
	unsigned readable = 0;

	if (count > READS_AT_ONCE)
		qsort(events, (size_t)count, sizeof(*events), compare_ranks);
	for (int i = 0; i < count; i++) {
		const uint32_t what = events[i].events;
		const int fd = socket_of(&events[i]);

		if (what & EPOLLOUT)
			act(loop, fd, what);
		else
			fds[readable++] = (struct pollfd){fd, POLLIN, (short)what};
	}
	loop->queues += read_first(loop, fds, readable) < readable;
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
