/*
 * An fd in an epoll set with its callback; event.data.ptr points to the struct. The supervisor and
 * each worker have one epoll set, used by one thread. The owner keeps the struct valid until all
 * events of the current turn are handled. Functions return 0 or -errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct event_source {
	int fd;
	void (*ready)(struct event_source *source, uint32_t events);
};

/* Returns the struct that contains this member. */
#define CONTAINER_OF(type, member, pointer)                                                        \
	((struct type *)((char *)(pointer)-offsetof(struct type, member)))

/* events: an epoll mask. EPOLLHUP and EPOLLERR are reported even if it is 0. */
int event_source_add(int epoll_fd, struct event_source *source, uint32_t events);
/*
 * Removes the fd from the set. Clearing its mask is not enough: EPOLLHUP would still be reported.
 */
void event_source_remove(int epoll_fd, const struct event_source *source);
/*
 * Waits for events until due_ns of CLOCK_MONOTONIC (UINT64_MAX: no timeout), then calls ready() of
 * each source that has one.
 */
int event_loop_run_once(int epoll_fd, uint64_t due_ns);
