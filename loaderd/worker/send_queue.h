/*
 * The sending half of a connection. Sends frames at once while the socket takes them, and queues
 * the rest in order until send_queue_flush(). Never blocks. Any thread may ring the doorbell;
 * everything else is for the control thread. The session owns the socket and keeps it open while
 * any thread may ring.
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
	bool broken; /* the peer is gone, or the queue exceeded its limit */
};

void send_queue_init(struct send_queue *queue, int socket);
void send_queue_deinit(struct send_queue *queue);
/*
 * Sends a Doorbell, unless data is queued or the socket is full: the client then has something to
 * read anyway.
 */
void send_queue_doorbell(struct send_queue *queue);
/*
 * Sends a reply and queues the part that the socket does not take. Returns 0, or -EPIPE: close the
 * connection.
 */
int send_queue_send(struct send_queue *queue, const uint8_t *message, size_t size);
/*
 * Sends queued data. Returns 1 if the queue is empty, 0 if data is left, -EPIPE if the connection
 * is broken.
 */
int send_queue_flush(struct send_queue *queue);
bool send_queue_pending(struct send_queue *queue);
