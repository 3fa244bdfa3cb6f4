/*
 * The connections of one worker. The supervisor keeps an fd of each for two reasons. First, it
 * sends the ring's fds to the client itself: the kernel limits fds in flight per user, and all
 * workers share one uid, so a worker that could send fds could exhaust the limit for all. Second,
 * replies that the client leaves unread must be counted for as long as they exist
 * (unread_replies.h). Supervisor thread only.
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
	struct client *dead;           /* freed by clients_reap() */
};

/* The clients of one worker. */
struct clients {
	struct client_table *table;
	struct client *first; /* newest first */
	unsigned count, without_ring;
	uid_t uid;
};

/* Takes over fd and keeps it until either side hangs up. id must be unique. */
void clients_add(struct clients *clients, uint64_t id, int fd);
/*
 * Sends a client the fds of its feed's ring, which stay the caller's. Returns 0 or a positive
 * errno: ENOTCONN if the client is gone or already has a ring, EAGAIN if its socket is full.
 */
int clients_send_ring(struct clients *clients, uint64_t id, uint64_t feed,
		      const int fds[IPC_FDS_MAX]);
/* Marks the feed's client as having no ring, because the feed has ended. */
void clients_ring_done(struct clients *clients, uint64_t feed);
/* Closes a client's connection. */
void clients_disconnect(struct clients *clients, uint64_t id);
/* Sends this message to all clients without blocking, and closes their connections. */
void clients_refuse_all(struct clients *clients, const uint8_t *message, size_t size);
/* Closes the oldest connection that has no ring. */
void clients_evict_oldest(struct clients *clients);
/* Closes all connections of a worker that has exited. */
void clients_deinit(struct clients *clients);
/* Frees removed clients. Call it when no pending event points to them. */
void clients_reap(struct client_table *table);
