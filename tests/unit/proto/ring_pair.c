#include "tests/unit/proto/ring_pair.h"
#include "tests/unit/proto/fake_ring.h"

#include <fcntl.h>

struct ring_geometry small_geometry(uint32_t slots)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, slots, 5, 5 * 7 * 3 * 3);
	assert_int_equal(ring_geometry_field(&geometry, 1, 0), 0);
	assert_int_equal(ring_geometry_field(&geometry, 3, 10), 0);
	return geometry;
}

void pair_connect(struct pair *pair, enum ring_mapping mapping)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pair->producer.ring_fd);
	int fd = open(path, (mapping == RING_MAP_WRITABLE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	assert_int_equal(ring_consumer_map(&pair->consumer, fd, pair->producer.ack_fd, mapping), 0);
	close(fd);
	assert_int_equal(ring_producer_start(&pair->producer), 0);
	assert_int_equal(ring_consumer_check(&pair->consumer), 0);
}

void pair_init(struct pair *pair, uint32_t slots)
{
	struct ring_geometry geometry = small_geometry(slots);
	assert_int_equal(fake_ring_init(&pair->producer, &geometry), 0);
	pair_connect(pair, RING_MAP_READ_ONLY);
}

void pair_deinit(struct pair *pair)
{
	ring_consumer_deinit(&pair->consumer);
	ring_producer_deinit(&pair->producer);
}

void publish(struct ring_producer *producer)
{
	struct ring_slot *slot = ring_begin(producer);
	assert_non_null(slot);
	slot->count = 1;
	ring_publish(producer);
}

uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}
