/*
 * The sending half of a connection. Frames leave at once when the socket takes them; what it does
 * not take is kept, in order, until send_queue_flush(). Nothing here ever waits for a client.
 * Doorbells may come from any worker, the rest is the control thread's. The socket belongs to the
 * session, which keeps it open as long as any worker may ring.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEND_QUEUE_BYTES_MAX = 4 << 20 };

struct send_queue {
	pthread_mutex_t mutex;
	int socket;
	uint8_t *data;
	size_t size, capacity;
	bool broken; /* the peer has gone or the queue would exceed its limit */
};

void send_queue_init(struct send_queue *queue, int socket);
void send_queue_deinit(struct send_queue *queue);
/*
 * Rings the client; dropped when the socket is full, since the client then has something to read
 * anyway.
 */
void send_queue_ring_doorbell(struct send_queue *queue);
/*
 * Sends a reply, or keeps what the socket does not take. -EPIPE: the connection is of no use any
 * more.
 */
int send_queue_send(struct send_queue *queue, const uint8_t *message, size_t size);
/* 1: all is sent; 0: something is left; -EPIPE. */
int send_queue_flush(struct send_queue *queue);
bool send_queue_pending(struct send_queue *queue);
