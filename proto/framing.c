#include "proto/framing.h"

#include "format/base/system/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	LENGTH_SIZE = 4,
	BUFFER_FIRST = 256,     /* bytes; enough for every message except a long status */
	PARTIAL_GRACE_MS = 100, /* minimum time to complete a begun frame; see framing.h */
};

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
};

ssize_t message_send(int socket, struct iovec *parts, size_t count, const int *fds,
		     unsigned fd_count)
{
	union control control;
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
	if (fd_count > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	ssize_t n;
	do {
		n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t message_receive(int socket, struct msghdr *message)
{
	ssize_t n;
	do {
		n = recvmsg(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static uint32_t load_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void discard(struct frame_reader *reader, int fd)
{
	if (reader->discard)
		reader->discard(reader->user, fd);
	else
		close(fd);
}

static void discard_fds(struct frame_reader *reader)
{
	for (unsigned i = 0; i < reader->fd_count; i++)
		if (reader->fds[i] >= 0)
			discard(reader, reader->fds[i]);
	reader->fd_count = 0;
}

void frame_reader_init(struct frame_reader *reader)
{
	*reader = (struct frame_reader){0};
}

void frame_reader_deinit(struct frame_reader *reader)
{
	discard_fds(reader);
	free(reader->buffer);
	*reader = (struct frame_reader){0};
}

/*
 * Makes room for at least one more byte, at most `wanted` in all. Memory grows with the bytes
 * received, not with the announced length.
 */
static int grow_buffer(struct frame_reader *reader, size_t wanted)
{
	if (reader->size < reader->capacity)
		return 0;
	size_t capacity = reader->capacity == 0 ? BUFFER_FIRST : reader->capacity * 2;
	if (capacity > LENGTH_SIZE + FRAME_SIZE_MAX)
		capacity = LENGTH_SIZE + FRAME_SIZE_MAX;
	if (capacity > wanted && wanted > BUFFER_FIRST)
		capacity = wanted;
	uint8_t *buffer = realloc(reader->buffer, capacity);
	if (!buffer)
		return -ENOMEM;
	reader->buffer = buffer;
	reader->capacity = capacity;
	return 0;
}

/* Keeps every received fd, so that none leaks; returns false if there were too many. */
static bool keep_fds(struct frame_reader *reader, struct msghdr *message)
{
	bool fits = (message->msg_flags & MSG_CTRUNC) == 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (reader->fd_count < FRAME_FDS_MAX) {
				reader->fds[reader->fd_count++] = fd;
			} else {
				discard(reader, fd);
				fits = false;
			}
		}
	}
	return fits;
}

/*
 * Receives at most `want` bytes with one recvmsg() and appends them. Returns 1 if some came, 0 if
 * none.
 */
static int receive_some(struct frame_reader *reader, int socket, size_t want)
{
	union control control;
	struct iovec iov = {reader->buffer + reader->size, want};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = message_receive(socket, &message);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	if (n == 0)
		return -ECONNRESET;
	reader->size += (size_t)n;
	return keep_fds(reader, &message) ? 1 : -EPROTO;
}

/*
 * Never reads past the end of the current frame. One receive may merge bytes sent before a
 * descriptor with the bytes it was sent with, and then its frame would be ambiguous. This way a
 * descriptor belongs to the frame being read.
 */
int frame_receive(struct frame_reader *reader, int socket, const uint8_t **ret_data,
		  size_t *ret_size)
{
	if (reader->size >= LENGTH_SIZE &&
	    reader->size == LENGTH_SIZE + (size_t)load_le32(reader->buffer)) {
		discard_fds(reader); /* the frame returned last */
		reader->size = 0;
	}
	for (;;) {
		size_t whole = LENGTH_SIZE;
		if (reader->size >= LENGTH_SIZE) {
			uint32_t length = load_le32(reader->buffer);
			if (length == 0 || length > FRAME_SIZE_MAX)
				return -EPROTO;
			whole += length;
			if (reader->size == whole) {
				*ret_data = reader->buffer + LENGTH_SIZE;
				*ret_size = length;
				return 1;
			}
		}
		int r = grow_buffer(reader, whole);
		if (r < 0)
			return r;
		size_t room = reader->capacity - reader->size;
		size_t missing = whole - reader->size;
		r = receive_some(reader, socket, missing < room ? missing : room);
		if (r <= 0)
			return r;
	}
}

unsigned frame_fd_count(const struct frame_reader *reader)
{
	return reader->fd_count;
}

int frame_take_fd(struct frame_reader *reader, unsigned i)
{
	if (i >= reader->fd_count)
		return -1;
	int fd = reader->fds[i];
	reader->fds[i] = -1;
	return fd;
}

/* Waits until the socket is writable. Returns 0, or -EAGAIN at the deadline. */
static int wait_writable(int socket, int64_t deadline_ms)
{
	for (;;) {
		int64_t left = deadline_ms - clock_ms();
		if (left <= 0)
			return -EAGAIN;
		struct pollfd p = {.fd = socket, .events = POLLOUT};
		int r = poll(&p, 1, left > 1000 ? 1000 : (int)left);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

int frame_send(int socket, const uint8_t *data, size_t size, const int *fds, unsigned fd_count,
	       int timeout_ms)
{
	if (size == 0 || fd_count > FRAME_FDS_MAX)
		return -EINVAL;
	if (size > FRAME_SIZE_MAX)
		return -EMSGSIZE;
	uint8_t length[LENGTH_SIZE] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16),
				       (uint8_t)(size >> 24)};
	int64_t deadline_ms = clock_ms() + timeout_ms;
	size_t sent = 0, whole = LENGTH_SIZE + size;
	while (sent < whole) {
		struct iovec iov[2];
		size_t parts = 0, done = sent < LENGTH_SIZE ? 0 : sent - LENGTH_SIZE;
		if (sent < LENGTH_SIZE)
			iov[parts++] = (struct iovec){length + sent, LENGTH_SIZE - sent};
		iov[parts++] = (struct iovec){(void *)(data + done), size - done};
		ssize_t n = message_send(socket, iov, parts, fds, sent == 0 ? fd_count : 0);
		if (n >= 0) {
			if (sent == 0 && (size_t)n < whole)
				deadline_ms = MAX(deadline_ms, clock_ms() + PARTIAL_GRACE_MS);
			sent += (size_t)n;
			continue;
		}
		if (n != -EAGAIN)
			return sent > 0 ? -EPIPE : (int)n;
		int r = wait_writable(socket, deadline_ms);
		if (r < 0)
			return sent > 0 ? -EPIPE : r;
	}
	return 0;
}
