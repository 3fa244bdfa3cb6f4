/*
 * A descriptor in an epoll set and its callback; event.data.ptr points here. The supervisor and
 * each worker have one set, used by one thread. Functions return 0 or -errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct event_source {
	int fd;
	void (*ready)(struct event_source *source, uint32_t events);
};

/* The structure that contains this member. */
#define CONTAINER_OF(type, member, pointer)                                                        \
	((struct type *)((char *)(pointer)-offsetof(struct type, member)))

/* events: an epoll mask. With 0 the kernel still reports EPOLLHUP and EPOLLERR. */
int event_source_add(int epoll_fd, struct event_source *source, uint32_t events);
/* Removes the descriptor from the set: a mask of 0 would not stop EPOLLHUP. */
void event_source_remove(int epoll_fd, const struct event_source *source);
/*
 * Waits for events, at most until due_ns of CLOCK_MONOTONIC (UINT64_MAX: without a limit), and
 * calls ready() of each source that has one.
 */
int event_loop_run_once(int epoll_fd, uint64_t due_ns);
