#include "loaderd/worker/outbox.h"

#include "loaderd/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LENGTH_SIZE = 4 };

void outbox_init(struct outbox *outbox, int socket)
{
	*outbox = (struct outbox){.socket = socket};
	pthread_mutex_init(&outbox->mutex, NULL);
}

void outbox_deinit(struct outbox *outbox)
{
	pthread_mutex_destroy(&outbox->mutex);
	free(outbox->data);
}

static void put_length(uint8_t *p, size_t size)
{
	p[0] = (uint8_t)size;
	p[1] = (uint8_t)(size >> 8);
	p[2] = (uint8_t)(size >> 16);
	p[3] = (uint8_t)(size >> 24);
}

/* Under the mutex. Bytes sent, 0 when the socket is full, -EPIPE. */
static ssize_t send_now(struct outbox *outbox, const uint8_t *data, size_t size)
{
	ssize_t n;
	do {
		n = send(outbox->socket, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
		return 0;
	outbox->broken = true;
	return -EPIPE;
}

static int outbox_keep(struct outbox *outbox, const uint8_t *data, size_t size)
{
	size_t needed = outbox->size + size;
	if (needed > OUTBOX_BYTES_MAX) {
		outbox->broken = true;
		return -EPIPE;
	}
	if (needed > outbox->capacity) {
		uint8_t *grown = realloc(outbox->data, needed);
		if (!grown) {
			outbox->broken = true;
			return -EPIPE;
		}
		outbox->data = grown;
		outbox->capacity = needed;
	}
	memcpy(outbox->data + outbox->size, data, size);
	outbox->size = needed;
	return 0;
}

/* Under the mutex: one piece of a frame, sent or kept behind what is kept. */
static int outbox_put(struct outbox *outbox, const uint8_t *data, size_t size)
{
	ssize_t n = 0;
	if (outbox->broken)
		return -EPIPE;
	if (outbox->size == 0)
		n = send_now(outbox, data, size);
	if (n < 0)
		return (int)n;
	return (size_t)n == size ? 0 : outbox_keep(outbox, data + n, size - (size_t)n);
}

void outbox_ring(struct outbox *outbox)
{
	static const Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	const Loaderd__Reply reply = REPLY(DOORBELL, doorbell, (Loaderd__Doorbell *)&doorbell);
	uint8_t frame[32];
	size_t size = loaderd__reply__pack(&reply, frame + LENGTH_SIZE);
	put_length(frame, size);
	pthread_mutex_lock(&outbox->mutex);
	/* So few bytes are one buffer of the socket's: they go whole or not at all. Behind
	 * something kept a bell is not needed, because its reader will wake anyhow; the look after
	 * that wake-up finds the batch. */
	if (outbox->size == 0 && !outbox->broken)
		send_now(outbox, frame, LENGTH_SIZE + size);
	pthread_mutex_unlock(&outbox->mutex);
}

int outbox_send(struct outbox *outbox, const uint8_t *message, size_t size)
{
	uint8_t length[LENGTH_SIZE];
	put_length(length, size);
	pthread_mutex_lock(&outbox->mutex);
	int r = outbox_put(outbox, length, sizeof(length));
	if (r == 0)
		r = outbox_put(outbox, message, size);
	pthread_mutex_unlock(&outbox->mutex);
	return r;
}

int outbox_flush(struct outbox *outbox)
{
	int r = 1;
	pthread_mutex_lock(&outbox->mutex);
	if (outbox->broken) {
		r = -EPIPE;
	} else if (outbox->size > 0) {
		ssize_t n = send_now(outbox, outbox->data, outbox->size);
		if (n > 0) {
			outbox->size -= (size_t)n;
			memmove(outbox->data, outbox->data + n, outbox->size);
		}
		r = n < 0 ? -EPIPE : outbox->size == 0;
	}
	pthread_mutex_unlock(&outbox->mutex);
	return r;
}

bool outbox_pending(struct outbox *outbox)
{
	pthread_mutex_lock(&outbox->mutex);
	bool pending = outbox->size > 0 || outbox->broken;
	pthread_mutex_unlock(&outbox->mutex);
	return pending;
}
