/*
 * Something that an epoll reports on: event.data.ptr names it. Of supervisor and worker, each in
 * its own thread. Functions return 0 or -errno.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct watched {
	int fd;
	void (*ready)(struct watched *watched, uint32_t events);
};

/* The structure of which this is a member. */
#define OWNER_OF(type, member, pointer)                                                            \
	((struct type *)((char *)(pointer)-offsetof(struct type, member)))

/* events: none are those that are always told, hang-up and error. */
int watched_add(int epoll_fd, struct watched *watched, uint32_t events);
/* Out of the set altogether: hang-up is told of all that is in it, whatever was asked for. */
void watched_remove(int epoll_fd, const struct watched *watched);
/*
 * Waits until something has happened, or due_ns of CLOCK_MONOTONIC has come (UINT64_MAX: never),
 * and has all see to it that something has happened to.
 */
int watched_turn(int epoll_fd, uint64_t due_ns);
