/*
 * Waits for the sockets of a store's requests: libcurl's "multi socket" interface, by epoll. Asking
 * for all sockets each time costs more than the requests themselves when there are hundreds. Of
 * many replies that arrive at once, those of urgent requests are read first, then the oldest.
 *
 * One thread, but loop_wake().
 */
#pragma once

#include <curl/curl.h>
#include <poll.h>
#include <stdint.h>

struct loop {
	CURLM *multi;          /* not owned */
	const uint64_t *bytes; /* the owner's counter of what is read; not owned */
	int epoll_fd, wake_fd;
	int64_t timer_ms; /* when libcurl wants to be called; INT64_MAX: it does not */
	uint64_t queues;  /* how often replies have waited until others were read */
};

/* Both are kept. -errno. */
int loop_init(struct loop *loop, CURLM *multi, const uint64_t *bytes);
/* After curl_multi_cleanup(), which still reports sockets. */
void loop_deinit(struct loop *loop);
/* Lets libcurl begin what is due. */
void loop_start(struct loop *loop);
/*
 * Waits at most timeout_ms for the sockets, for the descriptors, at most STORE_POLL_MAX, whose
 * revents it sets, and for loop_wake(); then lets libcurl proceed.
 */
void loop_wait(struct loop *loop, struct pollfd *fds, unsigned count, int timeout_ms);
/* Makes loop_wait() of another thread return. Any thread. */
void loop_wake(const struct loop *loop);
