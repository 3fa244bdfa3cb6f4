/*
 * The sending half of a connection. Frames leave at once when the socket takes them; what it does
 * not take is kept, in order, until outbox_flush(). Nothing here ever waits for a client. Doorbells
 * may come from any worker, the rest is the control thread's. The socket belongs to the session,
 * which keeps it open as long as any worker may ring.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OUTBOX_BYTES_MAX = 4 << 20 };

struct outbox {
	pthread_mutex_t mutex;
	int socket;
	uint8_t *data;
	size_t size, capacity;
	bool broken; /* the peer has gone or the queue would exceed its limit */
};

void outbox_init(struct outbox *outbox, int socket);
void outbox_deinit(struct outbox *outbox);
/*
 * Rings the client; dropped when the socket is full, since the client then has something to read
 * anyway.
 */
void outbox_ring(struct outbox *outbox);
/*
 * Sends a reply, or keeps what the socket does not take. -EPIPE: the connection is of no use any
 * more.
 */
int outbox_send(struct outbox *outbox, const uint8_t *message, size_t size);
/* 1: all is sent; 0: something is left; -EPIPE. */
int outbox_flush(struct outbox *outbox);
bool outbox_pending(struct outbox *outbox);
