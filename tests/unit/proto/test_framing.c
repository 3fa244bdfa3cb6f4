/* Frames on a socket: whole and fragmented, fds, limits, closing. proto/SPEC.md, "Frames". */
#include "tests/unit/proto/testing.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct link {
	int sockets[2];
	struct frame_reader reader; /* reads from sockets[1] */
	unsigned fds;
};

static void link_init(struct link *link)
{
	link->fds = count_open_fds();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link->sockets), 0);
	frame_reader_init(&link->reader);
}

static void link_deinit(struct link *link)
{
	frame_reader_deinit(&link->reader);
	close(link->sockets[0]);
	close(link->sockets[1]);
	assert_int_equal(count_open_fds(), link->fds);
}

static int receive(struct link *link, const uint8_t **data, size_t *size)
{
	return frame_receive(&link->reader, link->sockets[1], data, size);
}

static void write_bytes(const struct link *link, const void *bytes, size_t size)
{
	assert_int_equal(write(link->sockets[0], bytes, size), (ssize_t)size);
}

TEST(frames_arrive_whole)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	link_init(&link);
	assert_int_equal(receive(&link, &data, &size), 0);
	for (uint8_t i = 0; i < 5; i++)
		assert_int_equal(frame_send(link.sockets[0], (uint8_t[]){i, 7}, 2, NULL, 0, 0), 0);
	for (uint8_t i = 0; i < 5; i++) {
		assert_int_equal(receive(&link, &data, &size), 1);
		assert_int_equal(size, 2);
		assert_int_equal(data[0], i);
		assert_int_equal(frame_take_fd(&link.reader, 0), -1);
	}
	assert_int_equal(receive(&link, &data, &size), 0);
	link_deinit(&link);
}

TEST(frames_arrive_byte_by_byte)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	static const uint8_t bytes[] = {3, 0, 0, 0, 'a', 'b', 'c', 1, 0, 0, 0, 'd'};
	link_init(&link);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		assert_int_equal(receive(&link, &data, &size), 0);
		write_bytes(&link, bytes + i, 1);
		if (i == 6) {
			assert_int_equal(receive(&link, &data, &size), 1);
			assert_int_equal(size, 3);
			assert_memory_equal(data, "abc", 3);
		}
	}
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(size, 1);
	assert_memory_equal(data, "d", 1);
	link_deinit(&link);
}

TEST(the_largest_frame_passes)
{
	struct link link;
	const uint8_t *data;
	size_t size, sent = 0;
	link_init(&link);
	uint8_t *bytes = malloc(FRAME_SIZE_MAX + 5);
	bytes[0] = bytes[1] = bytes[3] = 0;
	bytes[2] = FRAME_SIZE_MAX >> 16;
	for (size_t i = 0; i < FRAME_SIZE_MAX; i++)
		bytes[4 + i] = (uint8_t)(i * 131 >> 3);
	int r = 0;
	while (sent < FRAME_SIZE_MAX + 4) {
		ssize_t n = send(link.sockets[0], bytes + sent, FRAME_SIZE_MAX + 4 - sent,
				 MSG_DONTWAIT);
		assert_true(n > 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		assert_int_equal(r, 0);
		r = receive(&link, &data, &size);
	}
	assert_int_equal(r, 1);
	assert_int_equal(size, FRAME_SIZE_MAX);
	assert_memory_equal(data, bytes + 4, FRAME_SIZE_MAX);
	assert_true(link.reader.capacity <= FRAME_SIZE_MAX + 4);
	/* frame_send() refuses an invalid frame before it sends any byte */
	assert_int_equal(frame_send(link.sockets[0], bytes, FRAME_SIZE_MAX + 1, NULL, 0, 0),
			 -EMSGSIZE);
	assert_int_equal(frame_send(link.sockets[0], bytes, 0, NULL, 0, 0), -EINVAL);
	static const int many[FRAME_FDS_MAX + 1];
	assert_int_equal(frame_send(link.sockets[0], bytes, 1, many, FRAME_FDS_MAX + 1, 0),
			 -EINVAL);
	assert_int_equal(receive(&link, &data, &size), 0);
	free(bytes);
	link_deinit(&link);
}

TEST(bad_lengths_are_refused)
{
	static const uint8_t bad[][4] = {
		{0, 0, 0, 0}, {1, 0, 16, 0}, {255, 255, 255, 255}, {0, 0, 0, 128}};
	for (size_t i = 0; i < 4; i++) {
		struct link link;
		const uint8_t *data;
		size_t size;
		link_init(&link);
		write_bytes(&link, bad[i], 4);
		assert_int_equal(receive(&link, &data, &size), -EPROTO);
		link_deinit(&link);
	}
}

/* A length prefix must not make the receiver allocate memory before the bytes arrive. */
TEST(memory_follows_bytes)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	link_init(&link);
	write_bytes(&link, (uint8_t[]){0, 0, 16, 0, 1, 2, 3}, 7);
	assert_int_equal(receive(&link, &data, &size), 0);
	assert_true(link.reader.capacity <= 1024);
	link_deinit(&link);
}

static int new_file(char mark)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(write(fd, &mark, 1), 1);
	return fd;
}

static char mark_of(int fd)
{
	char mark;
	assert_int_equal(pread(fd, &mark, 1, 0), 1);
	return mark;
}

TEST(descriptors_stay_with_their_frame)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	link_init(&link);
	int a = new_file('a'), b = new_file('b'), c = new_file('c');
	/* all are in the socket before the first is read */
	frame_send(link.sockets[0], (uint8_t[]){1}, 1, NULL, 0, 0);
	frame_send(link.sockets[0], (uint8_t[]){2}, 1, (int[]){a, b}, 2, 0);
	frame_send(link.sockets[0], (uint8_t[]){3}, 1, NULL, 0, 0);
	frame_send(link.sockets[0], (uint8_t[]){4}, 1, &c, 1, 0);
	close(a);
	close(b);
	close(c);

	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(link.reader.fd_count, 0);
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(data[0], 2);
	int taken = frame_take_fd(&link.reader, 1);
	assert_int_equal(mark_of(taken), 'b');
	assert_true(fcntl(taken, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(frame_take_fd(&link.reader, 1), -1); /* an fd can be taken only once */
	close(taken);
	assert_int_equal(receive(&link, &data, &size), 1); /* closes the fd that was not taken */
	assert_int_equal(link.reader.fd_count, 0);
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(data[0], 4);
	assert_int_equal(mark_of(link.reader.fds[0]), 'c');
	link_deinit(&link); /* checks that no fd leaked */
}

static void send_raw(int socket, const void *bytes, size_t size, const int *fds, unsigned count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)bytes, size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	message.msg_control = &control;
	message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)size);
}

/*
 * One message cannot carry more fds than a frame may have, but several messages with parts of one
 * frame can.
 */
TEST(too_many_descriptors_are_refused)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	int fds[FRAME_FDS_MAX];

	for (int i = 0; i < FRAME_FDS_MAX; i++)
		fds[i] = STDERR_FILENO;
	link_init(&link);
	send_raw(link.sockets[0], "\1\0\0\0x", 5, fds, FRAME_FDS_MAX);
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(frame_fd_count(&link.reader), FRAME_FDS_MAX);
	link_deinit(&link);

	link_init(&link);
	write_bytes(&link, "\10\0\0\0", 4);
	send_raw(link.sockets[0], "x", 1, fds, FRAME_FDS_MAX);
	send_raw(link.sockets[0], "x", 1, fds, 1);
	assert_int_equal(receive(&link, &data, &size), -EPROTO);
	link_deinit(&link);
}

static void count_discarded(void *user, int fd)
{
	++*(unsigned *)user;
	close(fd);
}

/* reader.discard replaces close() for callers that must not block in close(). */
TEST(discard_replaces_close)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	unsigned discarded = 0;
	const int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
	link_init(&link);
	link.reader.discard = count_discarded;
	link.reader.user = &discarded;
	frame_send(link.sockets[0], (uint8_t[]){1}, 1, fds, 3, 0);
	frame_send(link.sockets[0], (uint8_t[]){2}, 1, fds, 1, 0);
	assert_int_equal(receive(&link, &data, &size), 1);
	close(frame_take_fd(&link.reader, 1));
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(discarded, 2);
	link_deinit(&link);
	assert_int_equal(discarded, 3);
}

TEST(closed_connection_is_reported)
{
	struct link link;
	const uint8_t *data;
	size_t size;
	link_init(&link);
	frame_send(link.sockets[0], (uint8_t[]){1}, 1, NULL, 0, 0);
	write_bytes(&link, "\7\0", 2); /* half of the length prefix */
	shutdown(link.sockets[0], SHUT_RDWR);
	assert_int_equal(receive(&link, &data, &size), 1);
	assert_int_equal(receive(&link, &data, &size), -ECONNRESET);
	assert_int_equal(frame_send(link.sockets[1], (uint8_t[]){1}, 1, NULL, 0, 0), -EPIPE);
	link_deinit(&link);
}

TEST(a_full_socket_does_not_block)
{
	struct link link;
	link_init(&link);
	uint8_t *big = calloc(1, FRAME_SIZE_MAX);
	int r;
	do {
		r = frame_send(link.sockets[0], (uint8_t[]){1}, 1, NULL, 0, 0);
	} while (r == 0);
	assert_int_equal(r, -EAGAIN);
	int64_t start = now_ms();
	assert_int_equal(frame_send(link.sockets[0], big, 1, NULL, 0, 30), -EAGAIN);
	assert_in_range(now_ms() - start, 29, SOON_MS);
	link_deinit(&link);

	/* the sender waits 100 ms for an incomplete frame, then the connection fails */
	link_init(&link);
	start = now_ms();
	assert_int_equal(frame_send(link.sockets[0], big, FRAME_SIZE_MAX, NULL, 0, 0), -EPIPE);
	assert_in_range(now_ms() - start, 99, SOON_MS);
	free(big);
	link_deinit(&link);
}

/* libfeed compares and sends these two bytes instead of packing a message for every wake-up. */
TEST(doorbells_are_two_bytes)
{
	uint8_t bytes[8];
	Loaderd__Doorbell doorbell = LOADERD__DOORBELL__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_DOORBELL;
	request.doorbell = &doorbell;
	assert_int_equal(loaderd__request__pack(&request, bytes), 2);
	assert_memory_equal(bytes, "\x22\x00", 2);
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_DOORBELL;
	reply.doorbell = &doorbell;
	assert_int_equal(loaderd__reply__pack(&reply, bytes), 2);
	assert_memory_equal(bytes, "\x2a\x00", 2);
}

/* Checks the hex dumps in SPEC.md, "Frames". */
TEST(examples_of_the_specification)
{
	uint8_t bytes[64];
	Loaderd__GetStatus status = LOADERD__GET_STATUS__INIT;
	Loaderd__OpenFeed open = LOADERD__OPEN_FEED__INIT;
	Loaderd__Files files = LOADERD__FILES__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	struct link link;
	link_init(&link);
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &status;
	assert_int_equal(frame_send(link.sockets[0], bytes, loaderd__request__pack(&request, bytes),
				    NULL, 0, 0),
			 0);
	assert_int_equal(recv(link.sockets[1], bytes, sizeof(bytes), 0), 6);
	assert_memory_equal(bytes, "\x02\0\0\0\x12\0", 6);

	open.version = 2;
	open.dataset = (char *)"/d.pimg";
	open.pipeline = (char *)"hflip(0.5)";
	open.batch_size = 4;
	request.kind_case = LOADERD__REQUEST__KIND_OPEN_FEED;
	request.open_feed = &open;
	assert_int_equal(frame_send(link.sockets[0], bytes, loaderd__request__pack(&request, bytes),
				    NULL, 0, 0),
			 0);
	assert_int_equal(recv(link.sockets[1], bytes, sizeof(bytes), 0), 31);
	assert_memory_equal(
		bytes,
		"\x1b\0\0\0\x0a\x19\x08\x02\x12\x07\x2f\x64\x2e\x70\x69\x6d\x67\x1a\x0a\x68\x66\x6c"
		"\x69\x70\x28\x30\x2e\x35\x29\x20\x04",
		31);

	files.total = 2;
	request.kind_case = LOADERD__REQUEST__KIND_FILES;
	request.files = &files;
	assert_int_equal(frame_send(link.sockets[0], bytes, loaderd__request__pack(&request, bytes),
				    NULL, 0, 0),
			 0);
	assert_int_equal(recv(link.sockets[1], bytes, sizeof(bytes), 0), 8);
	assert_memory_equal(bytes, "\x04\0\0\0\x3a\x02\x10\x02", 8);
	link_deinit(&link);
}
