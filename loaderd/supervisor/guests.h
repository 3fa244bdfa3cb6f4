/*
 * Connections that a worker has. The supervisor keeps a descriptor of each, for two reasons. It
 * sends the client the ring's memory itself: the kernel counts descriptors on their way by user and
 * refuses more, and all workers are one user's, so that one who may send any could keep the others
 * from serving. And what the client leaves unread must be counted for as long as it is there
 * (unread.h). The supervisor's thread alone uses it.
 */
#pragma once

#include "loaderd/link.h"
#include "loaderd/supervisor/unread.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct guest;

/* What all workers' have in common. */
struct guest_house {
	int epoll_fd;
	struct unread_set *unread; /* where those go that leave */
	unsigned ringless;         /* those that have no ring */
	struct guest *dead;        /* have left, for guests_bury() */
};

/* Those of one worker. */
struct guests {
	struct guest_house *house;
	struct guest *first; /* newest first */
	unsigned count, ringless;
	uid_t uid;
};

/* Takes fd over, for as long as neither side has hung up. id: none of the others'. */
void guests_add(struct guests *guests, uint64_t id, int fd);
/*
 * Sends a guest the memory of a feed's ring. 0 or a positive errno: ENOTCONN when it has left or
 * has one, EAGAIN when it does not read. Descriptors stay the caller's.
 */
int guests_send_ring(struct guests *guests, uint64_t id, uint64_t feed,
		     const int fds[LINK_FDS_MAX]);
/* The feed is over: a guest that had its ring has none. */
void guests_ring_done(struct guests *guests, uint64_t feed);
/* A guest leaves, and is hung up on. */
void guests_hang_up(struct guests *guests, uint64_t id);
/* Sends this message to all guests, without waiting, and hangs up on them. */
void guests_refuse(struct guests *guests, const uint8_t *message, size_t size);
/* The one without a ring that has been there longest leaves, and is hung up on. */
void guests_drop_oldest(struct guests *guests);
/* All leave, and are hung up on: the worker has ended. */
void guests_deinit(struct guests *guests);
/* Frees those that have left, when no event can name them any more. */
void guests_bury(struct guest_house *house);
