#include "tests/unit/proto/fake_ring.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int own_memory_new(uint64_t bytes, int *ret_fd)
{
	struct ring_memory memory;
	int r = ring_memory_new(bytes, true, &memory);
	if (r < 0)
		return r;
	close(memory.client_fd);
	close(memory.watch_fd);
	*ret_fd = memory.fd;
	return 0;
}

int fake_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry)
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

int fake_ring_start(struct ring_producer *producer)
{
	memset(producer->header, 0, producer->size - RING_ACK_SIZE);
	memset(producer->ack, 0, RING_ACK_SIZE);
	return ring_producer_start(producer);
}

int own_consumer_init(struct ring_consumer *consumer, int ring_fd)
{
	int ack_fd;
	int r = own_memory_new(RING_ACK_SIZE, &ack_fd);
	if (r < 0)
		return r;
	r = ring_consumer_map(consumer, ring_fd, ack_fd, RING_MAP_READ_ONLY);
	close(ack_fd);
	if (r < 0)
		return r;
	r = ring_consumer_check(consumer);
	if (r < 0)
		ring_consumer_deinit(consumer);
	return r;
}
