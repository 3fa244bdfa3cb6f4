/*
 * Frames on the control socket: a little-endian uint32 length, then that many bytes of one protobuf
 * message, at most FRAME_SIZE_MAX; descriptors travel with the frame's first byte (SPEC.md,
 * "Frames"). A reader keeps what has arrived of the next frame, so that neither side ever has to
 * block; it belongs to one connection and one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
	PROTO_VERSION = 3,
	FRAME_SIZE_MAX = 1 << 20, /* bytes of a message */
	FRAME_FDS_MAX = 253,      /* of Linux, in one message: SCM_MAX_FD */
};

struct frame_reader {
	uint8_t *buffer; /* FRAME_SIZE_MAX + 4 bytes at most, grown on demand */
	size_t size, capacity;
	int fds[FRAME_FDS_MAX];
	unsigned fd_count;
	/*
	 * Closes a descriptor that nobody took; NULL: close(). What a peer passes may be such that
	 * closing it waits.
	 */
	void (*discard)(void *user, int fd);
	void *user;
};

/*
 * sendmsg() of some parts with at most FRAME_FDS_MAX descriptors, and recvmsg(), without waiting
 * and whatever interrupts them: bytes, or negative errno. What frames and loaderd's link are made
 * of.
 */
ssize_t message_send(int socket, struct iovec *parts, size_t count, const int *fds,
		     unsigned fd_count);
ssize_t message_receive(int socket, struct msghdr *message);

void frame_reader_init(struct frame_reader *reader);
/* Closes descriptors that nobody took. */
void frame_reader_deinit(struct frame_reader *reader);

/*
 * Receives what is there without blocking. 1: a whole frame is ready, ret_data/ret_size point into
 * the reader until the next call; 0: not yet; -ECONNRESET: the peer has closed; -EPROTO: length
 * zero or beyond the limit, or more descriptors than allowed.
 */
int frame_receive(struct frame_reader *reader, int socket, const uint8_t **ret_data,
		  size_t *ret_size);
/* Descriptors that came with the current frame, taken ones included. */
unsigned frame_fd_count(const struct frame_reader *reader);
/* Hands over descriptor i of the current frame; -1 when there is none. The caller closes it. */
int frame_take_fd(struct frame_reader *reader, unsigned i);

/*
 * Sends one frame. Never raises SIGPIPE. timeout_ms 0 does not block: -EAGAIN when not one byte
 * could be sent. A frame that is sent in part and not completed within the timeout (at least 100 ms
 * are granted then) leaves the connection unusable: -EPIPE.
 */
int frame_send(int socket, const uint8_t *data, size_t size, const int *fds, unsigned fd_count,
	       int timeout_ms);
