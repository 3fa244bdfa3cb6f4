/*
 * Frames on the control socket: a little-endian uint32 length, then one protobuf message of that
 * many bytes, at most FRAME_SIZE_MAX. Descriptors travel with the frame's first byte (SPEC.md,
 * "Frames"). A reader buffers the incomplete next frame, so neither side ever has to block; it
 * belongs to one connection and one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
	PROTO_VERSION = 4,
	PROTO_VERSION_OLDEST = 3, /* that the daemon serves */
	FRAME_SIZE_MAX = 1 << 20, /* bytes of a message */
	FRAME_FDS_MAX = 253,      /* Linux's limit for one message, SCM_MAX_FD */
};

struct frame_reader {
	uint8_t *buffer; /* at most FRAME_SIZE_MAX + 4 bytes, grown on demand */
	size_t size, capacity;
	int fds[FRAME_FDS_MAX];
	unsigned fd_count;
	/*
	 * Closes an fd that was not taken; NULL means close(). Closing an fd from a peer may block.
	 */
	void (*discard)(void *user, int fd);
	void *user;
};

/*
 * Non-blocking sendmsg() of `count` parts with at most FRAME_FDS_MAX descriptors, and non-blocking
 * recvmsg(). Both retry on EINTR and return bytes or a negative errno. Frames and
 * loaderd/worker_ipc.c use them.
 */
ssize_t message_send(int socket, struct iovec *parts, size_t count, const int *fds,
		     unsigned fd_count);
ssize_t message_receive(int socket, struct msghdr *message);

void frame_reader_init(struct frame_reader *reader);
/* Closes descriptors that were not taken. */
void frame_reader_deinit(struct frame_reader *reader);

/*
 * Receives without blocking. Returns 1 if a frame is complete: ret_data and ret_size point into the
 * reader until the next call. Returns 0 if it is incomplete; -ECONNRESET if the peer has closed the
 * connection; -EPROTO if the length is zero or above the limit, or there are too many descriptors.
 */
int frame_receive(struct frame_reader *reader, int socket, const uint8_t **ret_data,
		  size_t *ret_size);
/* Number of descriptors of the current frame, including those taken. */
unsigned frame_fd_count(const struct frame_reader *reader);
/*
 * Transfers ownership of descriptor i of the current frame, which the caller closes; -1 if there is
 * none.
 */
int frame_take_fd(struct frame_reader *reader, unsigned i);

/*
 * Sends one frame; never raises SIGPIPE. With timeout_ms 0 it does not block and returns -EAGAIN if
 * it could send no byte. A partly sent frame gets at least 100 ms from its first byte, also past
 * the timeout; if it is not complete then, the function returns -EPIPE and the connection is
 * unusable. Further progress does not extend that time: a peer that reads slowly cannot hold the
 * caller.
 */
int frame_send(int socket, const uint8_t *data, size_t size, const int *fds, unsigned fd_count,
	       int timeout_ms);
