/*
 * Arbitrary bytes on the control socket: reads them as frames, in pieces whose size the first byte
 * gives, and unpacks each frame as a request and as a reply. A message that can be unpacked must
 * also pack.
 */
#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void use_frame(const uint8_t *data, size_t size)
{
	Loaderd__Request *request = loaderd__request__unpack(NULL, size, data);
	if (request) {
		uint8_t *packed = malloc(loaderd__request__get_packed_size(request) + 1);
		loaderd__request__pack(request, packed);
		free(packed);
		loaderd__request__free_unpacked(request, NULL);
	}
	Loaderd__Reply *reply = loaderd__reply__unpack(NULL, size, data);
	if (reply) {
		uint8_t *packed = malloc(loaderd__reply__get_packed_size(reply) + 1);
		loaderd__reply__pack(reply, packed);
		free(packed);
		loaderd__reply__free_unpacked(reply, NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int sockets[2];
	if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return 0;
	struct frame_reader reader;
	frame_reader_init(&reader);
	size_t piece = data[0] == 0 ? size : data[0];
	int r = 0;
	for (size_t sent = 1; sent < size && r >= 0;) {
		size_t n = size - sent < piece ? size - sent : piece;
		ssize_t written = send(sockets[0], data + sent, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += written > 0 ? (size_t)written : 0;
		const uint8_t *frame;
		size_t frame_size;
		while ((r = frame_receive(&reader, sockets[1], &frame, &frame_size)) > 0) {
			assert(frame_size > 0 && frame_size <= FRAME_SIZE_MAX);
			use_frame(frame, frame_size);
		}
		assert(r == 0 || r == -EPROTO);
		assert(reader.capacity <= FRAME_SIZE_MAX + 4);
	}
	frame_reader_deinit(&reader);
	close(sockets[0]);
	close(sockets[1]);
	return 0;
}
