#include "tests/unit/proto/own_ring.h"

#include <errno.h>
#include <unistd.h>

int own_memory_new(uint64_t bytes, int *ret_fd)
{
	int watch_fd;
	int r = ring_memory_new(bytes, ret_fd, &watch_fd);
	if (r == 0)
		close(watch_fd);
	return r;
}

int own_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry)
{
	int ring_fd, ack_fd;
	uint64_t bytes = ring_size(geometry);
	if (bytes == 0)
		return -EINVAL;
	int r = own_memory_new(bytes - RING_ACK_SIZE, &ring_fd);
	if (r < 0)
		return r;
	r = own_memory_new(RING_ACK_SIZE, &ack_fd);
	if (r == 0) {
		r = ring_producer_init(producer, geometry, ring_fd, ack_fd);
		if (r < 0)
			close(ack_fd);
	}
	if (r < 0)
		close(ring_fd);
	return r;
}
