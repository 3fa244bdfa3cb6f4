/*
 * Something that an epoll reports on: event.data.ptr names it. Of supervisor and worker, each in
 * its own thread. Functions return 0 or -errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct event_source {
	int fd;
	void (*ready)(struct event_source *source, uint32_t events);
};

/* The structure of which this is a member. */
#define CONTAINER_OF(type, member, pointer)                                                        \
	((struct type *)((char *)(pointer)-offsetof(struct type, member)))

/* events: none are those that are always told, hang-up and error. */
int event_source_add(int epoll_fd, struct event_source *source, uint32_t events);
/* Out of the set altogether: hang-up is told of all that is in it, whatever was asked for. */
void event_source_remove(int epoll_fd, const struct event_source *source);
/*
 * Waits until something has happened, or due_ns of CLOCK_MONOTONIC has come (UINT64_MAX: never),
 * and has all see to it that something has happened to.
 */
int event_loop_run_once(int epoll_fd, uint64_t due_ns);
