/*
 * Connections that a worker has. The supervisor keeps a descriptor of each, for two reasons. It
 * sends the client the ring's memory itself: the kernel counts descriptors on their way by user and
 * refuses more, and all workers are one user's, so that one who may send any could keep the others
 * from serving. And what the client leaves unread must be counted for as long as it is there
 * (unread.h). The supervisor's thread alone uses it.
 */
#pragma once

#include "loaderd/supervisor/unread_replies.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client;

/* What all workers' have in common. */
struct client_table {
	int epoll_fd;
	struct unread_replies *unread; /* where those go that leave */
	unsigned without_ring;         /* those that have no ring */
	struct client *dead;           /* have left, for clients_reap() */
};

/* Those of one worker. */
struct clients {
	struct client_table *table;
	struct client *first; /* newest first */
	unsigned count, without_ring;
	uid_t uid;
};

/* Takes fd over, for as long as neither side has hung up. id: none of the others'. */
void clients_add(struct clients *clients, uint64_t id, int fd);
/*
 * Sends a client the memory of a feed's ring. 0 or a positive errno: ENOTCONN when it has left or
 * has one, EAGAIN when it does not read. Descriptors stay the caller's.
 */
int clients_send_ring(struct clients *clients, uint64_t id, uint64_t feed,
		      const int fds[IPC_FDS_MAX]);
/* The feed is over: a client that had its ring has none. */
void clients_ring_done(struct clients *clients, uint64_t feed);
/* A client leaves, and is hung up on. */
void clients_disconnect(struct clients *clients, uint64_t id);
/* Sends this message to all clients, without waiting, and hangs up on them. */
void clients_refuse_all(struct clients *clients, const uint8_t *message, size_t size);
/* The one without a ring that has been there longest leaves, and is hung up on. */
void clients_evict_oldest(struct clients *clients);
/* All leave, and are hung up on: the worker has ended. */
void clients_deinit(struct clients *clients);
/* Frees those that have left, when no event can name them any more. */
void clients_reap(struct client_table *table);
