/*
 * Arbitrary bytes as a ring header, as a broken daemon could send it: the client must refuse it, or
 * every section of every slot must be readable.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/proto/fake_ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ring_producer
	producer; /* a producer that provides a valid ack page and a valid header to start from */
static volatile uint8_t sink;

static void touch(const char *slot, uint64_t offset, uint64_t size)
{
	if (size > 0)
		sink = (uint8_t)(slot[offset] + slot[offset + size - 1]);
}

static void use_ring(const struct ring_consumer *consumer)
{
	const struct ring_geometry *layout = &consumer->layout;
	for (uint32_t i = 0; i < consumer->layout.slots; i++) {
		const char *slot = (const char *)consumer->header + RING_HEADER_SIZE +
				   i * consumer->layout.slot_size;
		touch(slot, 0, RING_SLOT_HEADER_SIZE);
		for (uint32_t s = 0; s < layout->section_count; s++)
			touch(slot, layout->sections[s].offset, layout->sections[s].room);
	}
}

/* XORs the input onto a valid header, so that changing one bit is as likely as changing many. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, 3, 4, 1000);
	ring_geometry_field(&geometry, 1, 0);
	ring_geometry_field(&geometry, 3, 16);
	if (!producer.header &&
	    (fake_ring_init(&producer, &geometry) < 0 || fake_ring_start(&producer) < 0))
		return 0;
	uint8_t header[RING_HEADER_SIZE];
	memcpy(header, producer.header, sizeof(header));
	for (size_t i = 0; i < size && i < sizeof(header); i++)
		header[i] ^= data[i];
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return 0;
	off_t file_size = (off_t)(producer.size - RING_ACK_SIZE);
	struct ring_consumer consumer;
	if (ftruncate(fd, file_size) == 0 &&
	    pwrite(fd, header, sizeof(header), 0) == sizeof(header) &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
		int r = own_consumer_init(&consumer, fd);
		assert(r == 0 || r == -EPROTO);
		if (r == 0) {
			use_ring(&consumer);
			for (int i = 0; i < 10 && ring_take(&consumer); i++)
				ring_ack(&consumer, consumer.taken);
			ring_consumer_deinit(&consumer);
		}
	}
	close(fd);
	return 0;
}
