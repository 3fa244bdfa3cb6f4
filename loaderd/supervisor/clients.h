/*
 * The connections of a worker. The supervisor keeps a descriptor of each, for two reasons. It sends
 * the ring's descriptors to the client itself: the kernel limits descriptors in flight for each
 * user, and as all workers have one uid, a worker that sent any could exhaust the limit for all.
 * And replies that the client leaves unread must be counted for as long as they exist
 * (unread_replies.h). Used by the supervisor's thread alone.
 */
#pragma once

#include "loaderd/supervisor/unread_replies.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client;

/* Shared by the clients of all workers. */
struct client_table {
	int epoll_fd;
	struct unread_replies *unread; /* takes over closed connections */
	unsigned without_ring;         /* clients without a ring */
	struct client *dead;           /* removed, for clients_reap() */
};

/* The clients of one worker. */
struct clients {
	struct client_table *table;
	struct client *first; /* newest first */
	unsigned count, without_ring;
	uid_t uid;
};

/* Takes over fd until either side hangs up. id: unique. */
void clients_add(struct clients *clients, uint64_t id, int fd);
/*
 * Sends a client the descriptors of its feed's ring, which stay the caller's. Returns 0 or a
 * positive errno: ENOTCONN if the client is gone or has a ring, EAGAIN if its socket is full.
 */
int clients_send_ring(struct clients *clients, uint64_t id, uint64_t feed,
		      const int fds[IPC_FDS_MAX]);
/* The feed has ended: its client no longer has a ring. */
void clients_ring_done(struct clients *clients, uint64_t feed);
/* Closes a client's connection. */
void clients_disconnect(struct clients *clients, uint64_t id);
/* Sends this message to all clients without blocking, and closes their connections. */
void clients_refuse_all(struct clients *clients, const uint8_t *message, size_t size);
/* Closes the oldest connection that has no ring. */
void clients_evict_oldest(struct clients *clients);
/* Closes all connections: the worker has ended. */
void clients_deinit(struct clients *clients);
/* Frees removed clients, once no pending event points to one. */
void clients_reap(struct client_table *table);
