#include "loaderd/worker/send_queue.h"

#include "loaderd/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LENGTH_SIZE = 4 };

void send_queue_init(struct send_queue *queue, int socket)
{
	*queue = (struct send_queue){.socket = socket};
	pthread_mutex_init(&queue->mutex, NULL);
}

void send_queue_deinit(struct send_queue *queue)
{
	pthread_mutex_destroy(&queue->mutex);
	free(queue->data);
}

static void put_length(uint8_t *p, size_t size)
{
	p[0] = (uint8_t)size;
	p[1] = (uint8_t)(size >> 8);
	p[2] = (uint8_t)(size >> 16);
	p[3] = (uint8_t)(size >> 24);
}

/*
 * Sends without blocking. Returns the number of bytes sent, 0 if the socket is full, or -EPIPE.
 * Call with the mutex held.
 */
static ssize_t send_now(struct send_queue *queue, const uint8_t *data, size_t size)
{
	ssize_t n;
	do {
		n = send(queue->socket, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
		return 0;
	queue->broken = true;
	return -EPIPE;
}

static int send_queue_keep(struct send_queue *queue, const uint8_t *data, size_t size)
{
	size_t needed = queue->size + size;
	if (needed > SEND_QUEUE_BYTES_MAX) {
		queue->broken = true;
		return -EPIPE;
	}
	if (needed > queue->capacity) {
		uint8_t *grown = realloc(queue->data, needed);
		if (!grown) {
			queue->broken = true;
			return -EPIPE;
		}
		queue->data = grown;
		queue->capacity = needed;
	}
	memcpy(queue->data + queue->size, data, size);
	queue->size = needed;
	return 0;
}

/* Sends one part of a frame, or queues it behind earlier data. Call with the mutex held. */
static int send_queue_put(struct send_queue *queue, const uint8_t *data, size_t size)
{
	ssize_t n = 0;
	if (queue->broken)
		return -EPIPE;
	if (queue->size == 0)
		n = send_now(queue, data, size);
	if (n < 0)
		return (int)n;
	return (size_t)n == size ? 0 : send_queue_keep(queue, data + n, size - (size_t)n);
}

void send_queue_doorbell(struct send_queue *queue)
{
	static const Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	const Loaderd__Reply reply = REPLY(DOORBELL, doorbell, (Loaderd__Doorbell *)&doorbell);
	uint8_t frame[32];
	size_t size = loaderd__reply__pack(&reply, frame + LENGTH_SIZE);
	put_length(frame, size);
	pthread_mutex_lock(&queue->mutex);
	/*
	 * A doorbell fits into one socket buffer, so it is sent whole or not at all. While data is
	 * queued, the client needs no doorbell: it wakes up to read the data and then finds the
	 * batch.
	 */
	if (queue->size == 0 && !queue->broken)
		send_now(queue, frame, LENGTH_SIZE + size);
	pthread_mutex_unlock(&queue->mutex);
}

int send_queue_send(struct send_queue *queue, const uint8_t *message, size_t size)
{
	uint8_t length[LENGTH_SIZE];
	put_length(length, size);
	pthread_mutex_lock(&queue->mutex);
	int r = send_queue_put(queue, length, sizeof(length));
	if (r == 0)
		r = send_queue_put(queue, message, size);
	pthread_mutex_unlock(&queue->mutex);
	return r;
}

int send_queue_flush(struct send_queue *queue)
{
	int r = 1;
	pthread_mutex_lock(&queue->mutex);
	if (queue->broken) {
		r = -EPIPE;
	} else if (queue->size > 0) {
		ssize_t n = send_now(queue, queue->data, queue->size);
		if (n > 0) {
			queue->size -= (size_t)n;
			memmove(queue->data, queue->data + n, queue->size);
		}
		r = n < 0 ? -EPIPE : queue->size == 0;
	}
	pthread_mutex_unlock(&queue->mutex);
	return r;
}

bool send_queue_pending(struct send_queue *queue)
{
	pthread_mutex_lock(&queue->mutex);
	bool pending = queue->size > 0 || queue->broken;
	pthread_mutex_unlock(&queue->mutex);
	return pending;
}
