/*
 * Arbitrary bytes as a ring header, as a broken daemon could send it: the client must refuse it, or
 * every section of every slot must be readable, and so must the extents in a slot's header.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/proto/fake_ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Producers that provide a valid ack page and a valid header to start from, by version - 1. The
 * last one is of version 2, with patches.
 */
static struct ring_producer producers[3];
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
		touch(slot, 0,
		      layout->version == RING_VERSION_2 ? RING_SLOT_HEADER_2_SIZE
							: RING_SLOT_HEADER_SIZE);
		for (uint32_t s = 0; s < layout->section_count; s++)
			touch(slot, layout->sections[s].offset, layout->sections[s].room);
	}
}

/*
 * Reads the extents of a taken slot, whose header is arbitrary too: an accepted extent lies within
 * the slot.
 */
static void use_extents(struct ring_consumer *consumer, const struct ring_slot *slot)
{
	struct ring_slot copy;
	ring_copy_slot(slot, &copy);
	const struct ring_extent *extents = consumer->layout.version == RING_VERSION_2
						    ? ring_check_extents(consumer, slot, copy.count)
						    : NULL;
	for (uint32_t s = 0; extents && s < consumer->layout.section_count; s++)
		touch((const char *)slot, consumer->layout.sections[s].offset, extents[s].bytes);
}

static bool start(struct ring_producer *producer, uint32_t version, bool patches)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, 3, 4, 1000);
	if (version == RING_VERSION_2) {
		ring_geometry_upgrade(&geometry, RING_U8);
		if (patches)
			ring_geometry_patches(&geometry, 48, 20);
		ring_geometry_ragged(&geometry, RING_F32, 1, 16, 5);
		ring_geometry_dense(&geometry, RING_I16, 1, 3);
	} else {
		ring_geometry_field(&geometry, 1, 0);
		ring_geometry_field(&geometry, 3, 16);
	}
	return fake_ring_init(producer, &geometry) == 0 && fake_ring_start(producer) == 0;
}

/*
 * XORs the input onto a valid header, so that changing one bit is as likely as changing many. The
 * first byte chooses the ring's version, whether images are patches, and whether the rest changes
 * its header or the header of a slot.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	const uint32_t version = data[0] & 1 ? RING_VERSION_2 : RING_VERSION_1;
	const bool changes_slot = data[0] & 2;
	const bool patches = version == RING_VERSION_2 && data[0] & 4;
	struct ring_producer *producer = &producers[patches ? 2 : version - 1];
	data++, size--;
	if (!producer->header && !start(producer, version, patches))
		return 0;
	uint8_t header[RING_HEADER_SIZE];
	uint8_t slot[RING_SLOT_HEADER_2_SIZE] = {0};
	memcpy(header, producer->header, sizeof(header));
	/* Three batches are published, in slots 0, 1 and 2. */
	for (uint32_t n = 0; n < 3; n++)
		header[version == RING_VERSION_2 ? 640 + 4 * n : 960 + 4 * n] = (uint8_t)n;
	header[version == RING_VERSION_2 ? 64 : 384] = 3;
	for (size_t i = 0; i < size && i < sizeof(header); i++)
		(changes_slot ? slot : header)[i] ^= data[i];
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return 0;
	off_t file_size = (off_t)(producer->size - RING_ACK_SIZE);
	struct ring_consumer consumer;
	if (ftruncate(fd, file_size) == 0 &&
	    pwrite(fd, header, sizeof(header), 0) == sizeof(header) &&
	    pwrite(fd, slot, sizeof(slot), RING_HEADER_SIZE) == sizeof(slot) &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
		int r = own_consumer_init(&consumer, fd);
		assert(r == 0 || r == -EPROTO);
		if (r == 0) {
			use_ring(&consumer);
			const struct ring_slot *taken;
			for (int i = 0; i < 10 && (taken = ring_take(&consumer)); i++) {
				use_extents(&consumer, taken);
				ring_ack(&consumer, consumer.taken);
			}
			ring_consumer_deinit(&consumer);
		}
	}
	close(fd);
	return 0;
}
