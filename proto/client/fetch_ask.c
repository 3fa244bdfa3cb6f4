#include "format/base/system/clock.h"
#include "proto/client/fetch.h"
#include "proto/fetch.pb-c.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 30000 };

static int receive(int fd, struct frame_reader *reader, int64_t deadline_ms,
		   Loaderd__FetchReply **ret_reply)
{
	const uint8_t *bytes;
	size_t size;
	int r;
	while ((r = frame_receive(reader, fd, &bytes, &size)) == 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int left_ms = clock_left_ms(deadline_ms);
		if (left_ms == 0)
			return -ETIMEDOUT;
		poll(&p, 1, left_ms);
	}
	if (r < 0)
		return r;
	*ret_reply = loaderd__fetch_reply__unpack(NULL, size, bytes);
	return *ret_reply ? 0 : -EPROTO;
}

int fetcher_ask(const char *program, const Loaderd__FetchRequest *request,
		Loaderd__FetchReply **ret_reply, char *error)
{
	int64_t deadline_ms = clock_ms() + ANSWER_MS;
	size_t size = loaderd__fetch_request__get_packed_size(request);
	uint8_t *bytes = malloc(size);
	struct frame_reader reader;
	int fd = bytes ? fetcher_connect(program, deadline_ms, error)
		       : error_set(error, -ENOMEM, "Out of memory.");
	if (fd < 0) {
		free(bytes);
		return fd;
	}
	loaderd__fetch_request__pack(request, bytes);
	frame_reader_init(&reader);
	int r = frame_send(fd, bytes, size, NULL, 0, ANSWER_MS);
	free(bytes);
	if (r == 0)
		r = receive(fd, &reader, deadline_ms, ret_reply);
	frame_reader_deinit(&reader);
	close(fd);
	return r < 0 ? error_set(error, r, "loaderd-fetch does not answer: %s.", strerror(-r)) : 0;
}
