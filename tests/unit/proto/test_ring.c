/* The ring: layout, seals, ordering, untrusted input. proto/SPEC.md, "Ring". */
#include "tests/unit/proto/fake_ring.h"
#include "tests/unit/proto/ring_pair.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Prints the compiler's layout of ring.h, for comparison with the tables of SPEC.md. */
#define ROW(section, type, member)                                                                 \
	{                                                                                          \
		section, #member, offsetof(struct type, member),                                   \
			sizeof(((struct type *)0)->member)                                         \
	}
#define FIELD_ROW(member)                                                                          \
	{                                                                                          \
		"A record of `fields`:", #member,                                                  \
			offsetof(struct ring_header, fields[1].member) -                           \
				offsetof(struct ring_header, fields[1]),                           \
			sizeof(((struct ring_header *)0)->fields[0].member)                        \
	}
static const struct row {
	const char *section, *name;
	size_t offset, size;
} rows[] = {
	ROW("### Ring header\n", ring_header_2, magic),
	ROW("### Ring header\n", ring_header_2, version),
	ROW("### Ring header\n", ring_header_2, slots),
	ROW("### Ring header\n", ring_header_2, batch_size_max),
	ROW("### Ring header\n", ring_header_2, slot_size),
	ROW("### Ring header\n", ring_header_2, section_count),
	ROW("### Ring header\n", ring_header_2, slot_header_size),
	ROW("### Ring header\n", ring_header_2, reserved),
	ROW("### Ring header\n", ring_header_2, head),
	ROW("### Ring header\n", ring_header_2, state),
	ROW("### Ring header\n", ring_header_2, producer_waits),
	ROW("### Ring header\n", ring_header_2, reason),
	ROW("### Ring header\n", ring_header_2, order),
	ROW("### Ring header\n", ring_header_2, sections),
	ROW("A record of `sections`:", ring_section, offset),
	ROW("A record of `sections`:", ring_section, room),
	ROW("A record of `sections`:", ring_section, element),
	ROW("A record of `sections`:", ring_section, kind),
	ROW("A record of `sections`:", ring_section, dims),
	ROW("A record of `sections`:", ring_section, views),
	ROW("A record of `sections`:", ring_section, row),
	ROW("A record of `sections`:", ring_section, stride),
	ROW("### Slot header\n", ring_extent, shape),
	ROW("### Slot header\n", ring_extent, bytes),
	ROW("### Slot header\n", ring_extent, layout),
	ROW("### Slot header\n", ring_extent, reserved),
	ROW("### Ring header, version 1", ring_header, magic),
	ROW("### Ring header, version 1", ring_header, version),
	ROW("### Ring header, version 1", ring_header, slots),
	ROW("### Ring header, version 1", ring_header, batch_size_max),
	ROW("### Ring header, version 1", ring_header, slot_size),
	ROW("### Ring header, version 1", ring_header, image_offset),
	ROW("### Ring header, version 1", ring_header, image_size_max),
	ROW("### Ring header, version 1", ring_header, label_offset),
	ROW("### Ring header, version 1", ring_header, sample_offset),
	ROW("### Ring header, version 1", ring_header, flag_offset),
	ROW("### Ring header, version 1", ring_header, field_count),
	ROW("### Ring header, version 1", ring_header, field_bytes),
	ROW("### Ring header, version 1", ring_header, fields),
	ROW("### Ring header, version 1", ring_header, head),
	ROW("### Ring header, version 1", ring_header, state),
	ROW("### Ring header, version 1", ring_header, producer_waits),
	ROW("### Ring header, version 1", ring_header, reason),
	ROW("### Ring header, version 1", ring_header, order),
	FIELD_ROW(offset),
	FIELD_ROW(type),
	FIELD_ROW(stride),
	ROW("### Slot header, version 1", ring_slot, number),
	ROW("### Slot header, version 1", ring_slot, epoch),
	ROW("### Slot header, version 1", ring_slot, batch),
	ROW("### Slot header, version 1", ring_slot, count),
	ROW("### Slot header, version 1", ring_slot, height),
	ROW("### Slot header, version 1", ring_slot, width),
	ROW("### Slot header, version 1", ring_slot, channels),
	ROW("### Slot header, version 1", ring_slot, element),
	ROW("### Slot header, version 1", ring_slot, layout),
	ROW("### Slot header, version 1", ring_slot, bad),
	ROW("### Slot header, version 1", ring_slot, last),
	ROW("### Slot header, version 1", ring_slot, publish_ns),
	ROW("### Ack page", ring_ack, consumer_waits),
	ROW("### Ack page", ring_ack, stall_ns),
	ROW("### Ack page", ring_ack, taken),
	ROW("### Ack page", ring_ack, acks),
};
_Static_assert(offsetof(struct ring_header, head) == 384 &&
		       offsetof(struct ring_header, order) == 960 &&
		       sizeof(struct ring_header) == 1984 && sizeof(struct ring_slot) == 64 &&
		       offsetof(struct ring_ack, acks) == 64 && sizeof(struct ring_ack) == 2112,
	       "version 1 is as it was released");
_Static_assert(offsetof(struct ring_slot_2, extents) == 64, "SPEC.md, Slot header");

TEST(specification_has_these_offsets)
{
	static char text[1 << 17];
	const char *path = getenv("PROTO_SPEC");
	FILE *file = !path ? NULL : fopen(path, "re");
	if (!file)
		fail_msg("PROTO_SPEC names no file");
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char line[128];
		const char *section = strstr(text, rows[i].section);
		assert_non_null(section);
		const char *end = strstr(section + 4, "\n#");
		snprintf(line, sizeof(line), "\n| %zu | %zu | `%s` |", rows[i].offset, rows[i].size,
			 rows[i].name);
		const char *found = strstr(section, line);
		if (!found || (end && found > end))
			fail_msg("%s has no row%s", rows[i].section, line);
	}
}

TEST(geometry_is_limited)
{
	struct ring_geometry good = small_geometry(4), g;
	/* header and ack pages, and per slot a page of small sections and a page of images */
	assert_int_equal(ring_size(&good), 4096 + 4096 + 4 * (4096 + 4096));

	g = good, g.slots = 0;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.slots = RING_SLOTS_MAX + 1;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.batch_size_max = 0;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.batch_size_max = UINT32_MAX;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.sections[RING_IMAGES].room = 0;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.sections[RING_IMAGES].room = UINT64_MAX;
	assert_int_equal(ring_size(&g), 0);
	g = good, g.sections[RING_IMAGES].room = RING_IMAGE_SIZE_MAX + 1;
	assert_int_equal(ring_size(&g), 0);
	struct ring_producer producer;
	assert_int_equal(fake_ring_init(&producer, &g), -EINVAL);
	g = good, g.section_count = RING_SECTIONS_MAX + 1;
	assert_int_equal(ring_size(&g), 0);
	g = good;
	assert_int_equal(ring_geometry_field(&g, 9, 10), -EINVAL);
	assert_int_equal(ring_geometry_field(&g, 3, RING_FIELD_BYTES_MAX + 1), -EINVAL);
	assert_int_equal(ring_geometry_field(&g, 3, UINT32_MAX), -EINVAL);

	/* the largest geometry within the limits does not overflow */
	ring_geometry_init(&g, RING_SLOTS_MAX, RING_BATCH_SIZE_MAX, RING_IMAGE_SIZE_MAX);
	for (int i = 0; i < RING_FIELDS_MAX; i++)
		assert_int_equal(ring_geometry_field(&g, 4, RING_FIELD_BYTES_MAX), 0);
	assert_int_equal(ring_geometry_field(&g, 1, 0), -EINVAL);
	assert_true(ring_size(&g) > RING_SLOTS_MAX * (uint64_t)RING_IMAGE_SIZE_MAX);
	assert_true(ring_size(&g) < UINT64_C(1) << 50);
}

/* Opens a copy of the ring's memory in which one word of the header is changed. */
static int consumer_with(const struct ring_producer *producer, size_t offset, size_t size,
			 uint64_t value, int64_t file_size, int seals)
{
	int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char header[RING_HEADER_SIZE];
	memcpy(header, producer->header, sizeof(header));
	memcpy(header + offset, &value, size);
	assert_int_equal(ftruncate(fd, file_size), 0);
	size_t length = (size_t)file_size < sizeof(header) ? (size_t)file_size : sizeof(header);
	assert_int_equal(pwrite(fd, header, length, 0), (ssize_t)length);
	if (seals != 0)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	struct ring_consumer consumer;
	int r = own_consumer_init(&consumer, fd);
	if (r == 0)
		ring_consumer_deinit(&consumer);
	close(fd);
	return r;
}

/* A ring of version 2 with a text, boxes, and a value of fixed shape. */
static struct ring_geometry sections_geometry(void)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, 3, 5, 5 * 7 * 3 * 3);
	ring_geometry_upgrade(&geometry, RING_U8);
	assert_int_equal(ring_geometry_ragged(&geometry, RING_OPAQUE, 0, 1, 100), 0);
	assert_int_equal(ring_geometry_ragged(&geometry, RING_F32, 1, 16, 7), 0);
	assert_int_equal(ring_geometry_dense(&geometry, RING_I16, 2, 6), 0);
	return geometry;
}
enum { TEXT = RING_FIRST_FIELD, BOXES, GRID, SECTIONS };

TEST(sections_are_limited)
{
	struct ring_geometry g = sections_geometry();
	/*
	 * header and ack pages; per slot, a page for the slot header, one for small sections and
	 * one for images
	 */
	assert_int_equal(ring_size(&g), 4096 + 4096 + 3 * (4096 + 4096 + 4096));
	assert_int_equal(g.sections[BOXES].room, 64 + 5 * 7 * 16);
	assert_int_equal(ring_geometry_dense(&g, 11, 0, 1), -EINVAL);
	assert_int_equal(ring_geometry_dense(&g, RING_F64, 5, 1), -EINVAL);
	assert_int_equal(ring_geometry_dense(&g, RING_F64, 1, UINT64_MAX / 4), -EINVAL);
	assert_int_equal(ring_geometry_ragged(&g, RING_F32, 1, 0, 1), -EINVAL);
	assert_int_equal(ring_geometry_ragged(&g, RING_F32, 1, 6, 1), -EINVAL);
	assert_int_equal(ring_geometry_ragged(&g, RING_F32, 4, 4, 1), -EINVAL);
	/* `start` counts rows in 32 bits */
	assert_int_equal(ring_geometry_ragged(&g, RING_OPAQUE, 0, 1, UINT32_MAX / 5 + 1), -EINVAL);
	assert_int_equal(g.section_count, SECTIONS);
	while (g.section_count < RING_SECTIONS_MAX)
		assert_int_equal(ring_geometry_dense(&g, RING_F64, 0, 1), 0);
	assert_int_equal(ring_geometry_dense(&g, RING_F64, 0, 1), -EINVAL);
	assert_int_equal(ring_geometry_ragged(&g, RING_OPAQUE, 0, 1, 1), -EINVAL);
	assert_true(ring_size(&g) > 0);
	g.sections[BOXES].room = RING_IMAGE_SIZE_MAX + 1;
	assert_int_equal(ring_size(&g), 0);
}

static void sections_pair_init(struct pair *pair)
{
	struct ring_geometry geometry = sections_geometry();
	assert_int_equal(fake_ring_init(&pair->producer, &geometry), 0);
	pair_connect(pair, RING_MAP_READ_ONLY);
}

/* The consumer refuses any invalid offset, size or kind in a header of version 2. */
TEST(consumer_checks_the_sections)
{
	struct pair pair;
	sections_pair_init(&pair);
	int64_t size = (int64_t)pair.consumer.map_size;
	const struct ring_section *place = pair.producer.layout.sections;
	const size_t table = offsetof(struct ring_header_2, sections);
#define AT(section, member)                                                                        \
	table + (section) * sizeof(struct ring_section) + offsetof(struct ring_section, member),   \
		sizeof(((struct ring_section *)0)->member)
	const struct {
		size_t offset, size;
		uint64_t value;
	} forged[] = {
		{0, 4, 0x676e6973},
		{4, 4, 3},
		{8, 4, 0},
		{8, 4, 4},
		{12, 4, 0},
		{12, 4, 6},
		{12, 4, UINT32_MAX},
		{16, 8, 4096},
		{16, 8, UINT64_MAX},
		{24, 4, RING_FIRST_FIELD - 1},
		{24, 4, RING_SECTIONS_MAX + 1},
		{24, 4, UINT32_MAX},
		/* one section more than exists: its record is zero */
		{24, 4, SECTIONS + 1},
		{28, 4, 256},
		{AT(RING_IMAGES, offset), 64},
		{AT(RING_IMAGES, offset), place[RING_IMAGES].offset + 64},
		{AT(RING_IMAGES, offset), UINT64_MAX - 4095},
		{AT(RING_IMAGES, room), 4097},
		{AT(RING_IMAGES, room), 0},
		{AT(RING_IMAGES, room), UINT64_MAX},
		{AT(RING_IMAGES, element), RING_F64},
		{AT(RING_IMAGES, kind), RING_RAGGED},
		{AT(RING_IMAGES, dims), 2},
		{AT(RING_IMAGES, stride), 63},
		{AT(RING_LABELS, element), RING_F32},
		{AT(RING_LABELS, stride), 8},
		{AT(RING_SAMPLES, kind), RING_RECORD_BYTES},
		{AT(RING_FLAGS, stride), 0},
		{AT(TEXT, offset), place[TEXT].offset + 1},
		{AT(TEXT, offset), place[BOXES].offset},
		{AT(TEXT, offset), 4032},
		{AT(TEXT, room), place[TEXT].room + 4096},
		{AT(TEXT, room), 63},
		{AT(TEXT, stride), 101},
		{AT(TEXT, stride), UINT64_MAX},
		{AT(BOXES, row), 0},
		{AT(BOXES, row), 3},
		{AT(BOXES, stride), 8},
		{AT(BOXES, dims), 4},
		{AT(BOXES, element), 11},
		{AT(BOXES, views), 2},
		{AT(BOXES, kind), 0},
		{AT(GRID, row), 2},
		{AT(GRID, dims), 5},
		{AT(GRID, stride), 13},
		{AT(GRID, stride), UINT64_MAX / 2},
	};
	assert_int_equal(consumer_with(&pair.producer, 0, 4, RING_MAGIC, size, F_SEAL_SHRINK), 0);
	for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++)
		if (consumer_with(&pair.producer, forged[i].offset, forged[i].size, forged[i].value,
				  size, F_SEAL_SHRINK) != -EPROTO)
			fail_msg("forged header %zu was accepted", i);
	pair_deinit(&pair);
#undef AT
}

static struct ring_geometry patches_geometry(void)
{
	struct ring_geometry geometry = sections_geometry();
	assert_int_equal(ring_geometry_patches(&geometry, 48, 30), 0);
	return geometry;
}

/* Images of patches are a ragged section, at the place of the pictures. */
TEST(consumer_checks_patches)
{
	struct ring_geometry geometry = sections_geometry();
	struct ring_producer producer;
	const size_t images = offsetof(struct ring_header_2, sections);
	assert_int_equal(ring_geometry_patches(&geometry, 0, 30), -EINVAL);
	assert_int_equal(ring_geometry_patches(&geometry, 48, UINT64_C(1) << 32), -EINVAL);
	geometry = patches_geometry();
	assert_int_equal(geometry.sections[RING_IMAGES].room, 64 + 30 * 48);
	assert_int_equal(fake_ring_init(&producer, &geometry), 0);
	assert_int_equal(fake_ring_start(&producer), 0);
	assert_int_equal(producer.layout.sections[RING_IMAGES].offset % RING_ALIGN, 0);
	int64_t size = (int64_t)(producer.size - RING_ACK_SIZE);
	assert_int_equal(consumer_with(&producer, 0, 4, RING_MAGIC, size, F_SEAL_SHRINK), 0);
	const struct {
		size_t offset, size;
		uint64_t value;
	} forged[] = {
		{images + offsetof(struct ring_section, dims), 1, 3},
		{images + offsetof(struct ring_section, row), 4, 0},
		{images + offsetof(struct ring_section, stride), 8, 48},
		{images + offsetof(struct ring_section, element), 1, RING_F64},
		{images + offsetof(struct ring_section, room), 8, 63},
		{images + offsetof(struct ring_section, kind), 1, RING_DENSE},
	};
	for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++)
		if (consumer_with(&producer, forged[i].offset, forged[i].size, forged[i].value,
				  size, F_SEAL_SHRINK) != -EPROTO)
			fail_msg("forged header %zu was accepted", i);
	ring_producer_deinit(&producer);
}

/* Begins a slot of one sample with a valid header. */
static struct ring_slot_2 *begin_sections(struct pair *pair)
{
	struct ring_slot_2 *slot = (struct ring_slot_2 *)ring_begin(&pair->producer);
	const uint64_t index = ring_ragged_offset(5);
	assert_non_null(slot);
	slot->batch.count = 1;
	slot->extents[RING_IMAGES] = (struct ring_extent){{7, 3, 3}, 63, RING_NHWC, 0};
	slot->extents[RING_LABELS] = (struct ring_extent){.bytes = 4};
	slot->extents[RING_SAMPLES] = (struct ring_extent){.bytes = 8};
	slot->extents[RING_FLAGS] = (struct ring_extent){.bytes = 1};
	slot->extents[TEXT] = (struct ring_extent){.bytes = index + 100};
	slot->extents[BOXES] = (struct ring_extent){.shape = {4}, .bytes = index + 16};
	slot->extents[GRID] = (struct ring_extent){.shape = {2, 3}, .bytes = 12};
	return slot;
}

TEST(consumer_checks_the_extents)
{
	static const struct {
		uint32_t section;
		struct ring_extent extent;
	} forged[] = {
		{RING_IMAGES, {{7, 3, 2}, 42, RING_NHWC, 0}},
		{RING_IMAGES, {{7, 3, 3}, 62, RING_NHWC, 0}},
		{RING_IMAGES, {{7, 3, 3}, 63, 3, 0}},
		{RING_IMAGES, {{7, 3, 3, 1}, 63, RING_NHWC, 0}},
		{RING_IMAGES, {{0, 3, 3}, 0, RING_NHWC, 0}},
		{RING_IMAGES, {{UINT32_MAX, UINT32_MAX, 3}, 3, RING_NHWC, 0}},
		{RING_IMAGES, {{1000, 1000, 3}, 3000000, RING_NHWC, 0}},
		{RING_LABELS, {.bytes = 8}},
		{RING_LABELS, {.shape = {1}, .bytes = 4}},
		{RING_SAMPLES, {.bytes = 0}},
		{TEXT, {.bytes = 63}},
		{TEXT, {.bytes = 64 + 501}},
		{TEXT, {.bytes = UINT64_MAX}},
		{BOXES, {.shape = {5}, .bytes = 80}},
		{BOXES, {.bytes = 80}},
		{BOXES, {.shape = {4, 1}, .bytes = 80}},
		{BOXES, {.shape = {4}, .bytes = 63}},
		{GRID, {.shape = {2, 3}, .bytes = 24}},
		{GRID, {.shape = {3, 3}, .bytes = 18}},
	};
	struct pair pair;
	sections_pair_init(&pair);
	begin_sections(&pair);
	ring_publish(&pair.producer);
	const struct ring_slot *slot = ring_take(&pair.consumer);
	struct ring_extent *written =
		((struct ring_slot_2 *)((char *)pair.producer.header + RING_HEADER_SIZE))->extents;
	const struct ring_extent *checked = ring_check_extents(&pair.consumer, slot, 1);
	assert_non_null(checked);
	assert_ptr_equal(ring_extents(&pair.consumer, 1), checked);
	assert_null(ring_extents(&pair.consumer, 2));
	assert_null(ring_check_extents(&pair.consumer, slot, 2));
	assert_null(ring_check_extents(&pair.consumer, slot, 6));
	for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++) {
		const struct ring_extent before = written[forged[i].section];
		written[forged[i].section] = forged[i].extent;
		if (ring_check_extents(&pair.consumer, slot, 1))
			fail_msg("forged extent %zu was accepted", i);
		written[forged[i].section] = before;
		assert_non_null(ring_check_extents(&pair.consumer, slot, 1));
	}
	/* the consumer uses the copy that it checked */
	written[GRID].bytes = UINT64_MAX;
	assert_int_equal(checked[GRID].bytes, 12);
	assert_int_equal(ring_ack(&pair.consumer, 1), 0);
	assert_null(ring_extents(&pair.consumer, 1));
	pair_deinit(&pair);
}

TEST(extents_of_a_held_batch_stay)
{
	struct pair pair;
	sections_pair_init(&pair);
	struct ring_slot_2 *written = begin_sections(&pair);
	ring_publish(&pair.producer);
	const struct ring_slot *held = ring_take(&pair.consumer);
	assert_non_null(ring_check_extents(&pair.consumer, held, 1));
	/* The daemon publishes the next batch in the slot that the client holds. */
	written->extents[GRID].bytes = UINT64_MAX;
	atomic_store(&pair.producer.control->order[1], 0);
	atomic_store(&pair.producer.control->head, 2);
	assert_ptr_equal(ring_take(&pair.consumer), held);
	assert_null(ring_check_extents(&pair.consumer, held, 1));
	assert_int_equal(ring_extents(&pair.consumer, 1)[GRID].bytes, 12);
	written->extents[GRID].bytes = 0;
	assert_null(ring_check_extents(&pair.consumer, held, 0));
	assert_int_equal(ring_extents(&pair.consumer, 1)[GRID].bytes, 12);
	pair_deinit(&pair);
}

TEST(seals_hold)
{
	unsigned fds = count_open_fds();
	struct pair pair;
	pair_init(&pair, 2);
	int ring = pair.producer.ring_fd, ack = pair.producer.ack_fd;
	size_t size = pair.consumer.map_size;

	assert_true(fcntl(ring, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(ack, F_GETFD) & FD_CLOEXEC);
	assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(mprotect((void *)pair.consumer.header, size, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(pwrite(ring, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fallocate(ring, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(ftruncate(ring, 0), -1);
	assert_int_equal(ftruncate(ring, (off_t)size + 4096), -1);
	assert_int_equal(fcntl(ring, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(ftruncate(ack, 0), -1);
	assert_int_equal(ftruncate(ack, 8192), -1);
	assert_int_equal(fcntl(ack, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* the daemon's own mapping stays writable and is fully allocated before the first batch */
	assert_int_equal(((struct ring_slot *)ring_begin(&pair.producer))->number, 1);
	struct stat status;
	assert_int_equal(fstat(ring, &status), 0);
	assert_true((uint64_t)status.st_blocks * 512 >= size);
	pair_deinit(&pair);
	assert_int_equal(count_open_fds(), fds);
}

TEST(writable_ring_is_sealed_once_mapped)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct ring_geometry geometry = small_geometry(2);
	struct pair pair;
	assert_int_equal(fake_ring_init(&pair.producer, &geometry), 0);
	int ring = pair.producer.ring_fd;
	assert_int_equal(
		ring_consumer_map(&pair.consumer, ring, pair.producer.ack_fd, RING_MAP_WRITABLE),
		0);
	size_t size = pair.consumer.map_size;
	assert_int_equal(ftruncate(ring, 0), -1);
	assert_int_equal(ftruncate(ring, (off_t)size + 4096), -1);
	assert_int_equal(fcntl(ring, F_ADD_SEALS, F_SEAL_WRITE),
			 -1); /* the seal fails because the daemon has a writable mapping */

	assert_int_equal(ring_producer_start(&pair.producer), 0);
	assert_int_equal(ring_consumer_check(&pair.consumer), 0);
	assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(pwrite(ring, "x", 1, 0), -1);
	assert_int_equal(fallocate(ring, punch, 0, 4096), -1);
	if (!getenv("MESON_EXE_WRAPPER")) /* qemu does not forward MADV_REMOVE and returns 0 */
		assert_int_equal(madvise((void *)pair.consumer.header, size, MADV_REMOVE), -1);
	assert_int_equal(ftruncate(ring, 0), -1);

	/* both ends write to the ring, and the producer uses its own state */
	memset((void *)pair.consumer.header, 0xff, size);
	assert_int_equal(ring_begin(&pair.producer)->number, 1);
	ring_publish(&pair.producer);
	assert_int_equal(pair.consumer.header->head, 1);
	assert_int_equal(ring_take(&pair.consumer)->number, 1);
	pair_deinit(&pair);

	/* the client seals the ring, so that the daemon cannot */
	assert_int_equal(fake_ring_init(&pair.producer, &geometry), 0);
	assert_int_equal(fcntl(pair.producer.ring_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_int_equal(ring_producer_start(&pair.producer), -EPERM);
	ring_producer_deinit(&pair.producer);
}

static uint64_t allocated(int fd)
{
	struct stat status;
	assert_int_equal(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

/* The daemon never allocates a page that the client has not allocated or has removed. */
TEST(client_provides_all_pages)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct ring_geometry geometry = small_geometry(2);
	for (unsigned left_out = 0; left_out < 4; left_out++) {
		struct pair pair;
		assert_int_equal(fake_ring_init(&pair.producer, &geometry), 0);
		int ring = pair.producer.ring_fd, ack = pair.producer.ack_fd;
		assert_int_equal(allocated(ring) + allocated(ack), 0);
		assert_int_equal(ring_consumer_map(&pair.consumer, ring, ack, RING_MAP_WRITABLE),
				 0);
		uint64_t size = pair.consumer.map_size;
		assert_int_equal(allocated(ring), size);
		const off_t holes[] = {0, 4096, (off_t)size - 4096};
		if (left_out < 3)
			assert_int_equal(fallocate(ring, punch, holes[left_out], 4096), 0);
		else
			assert_int_equal(fallocate(ack, punch, 0, RING_ACK_SIZE), 0);
		assert_int_equal(ring_producer_start(&pair.producer), -ENODATA);
		assert_int_equal(allocated(ring) + allocated(ack), size);
		pair_deinit(&pair);
	}
}

/*
 * A client must not be able to remove the ack page, which its reader would allocate again and
 * again.
 */
TEST(ack_page_stays)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct pair pair;
	pair_init(&pair, 2);
	assert_int_equal(fallocate(pair.producer.ack_fd, punch, 0, RING_ACK_SIZE), -1);
	if (!getenv("MESON_EXE_WRAPPER"))
		assert_int_equal(madvise(pair.consumer.ack, RING_ACK_SIZE, MADV_REMOVE), -1);
	pair_deinit(&pair);
}

/* A client's fd of a read-only ring gives no way to write to the ring. */
TEST(client_can_only_read)
{
	struct ring_memory memory;
	char path[64];
	assert_int_equal(ring_memory_new(8192, false, &memory), 0);
	assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory.client_fd, 0),
			 MAP_FAILED);
	assert_int_equal(fallocate(memory.client_fd, 0, 0, 8192), -1);
	assert_int_equal(fcntl(memory.client_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory.client_fd);
	if (getuid() == 0) { /* reopening as another user must fail too */
		assert_int_equal(syscall(SYS_setresuid, -1, 12345, -1), 0);
		assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
		assert_int_equal(open(path, O_RDONLY | O_CLOEXEC), -1);
		assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
	}
	close(memory.fd);
	close(memory.client_fd);
	close(memory.watch_fd);
}

/*
 * Memory counts as in use while a pipe holds its pages, although no process has it open or mapped.
 */
TEST(memory_is_free_when_nothing_refers_to_it)
{
	struct ring_memory memory;
	int pipe_fds[2];
	off_t at = 0;
	assert_int_equal(ring_memory_new(1 << 20, false, &memory), 0);
	assert_true(ring_memory_open(memory.watch_fd));
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	void *map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, memory.client_fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(*((volatile char *)map + 4096), 0);
	assert_int_equal(splice(memory.client_fd, &at, pipe_fds[1], NULL, 8192, 0), 8192);
	close(memory.fd);
	close(memory.client_fd);
	assert_true(ring_memory_open(memory.watch_fd));
	munmap(map, 1 << 20);
	assert_false(ring_memory_open(memory.watch_fd));
	assert_int_equal(ring_memory_free(memory.watch_fd), -EBUSY);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(ring_memory_free(memory.watch_fd), 0);
	close(memory.watch_fd);
}

static size_t offset_of(const struct ring_producer *producer, const struct ring_slot *slot)
{
	return !slot ? 0 : (size_t)((const char *)slot - (const char *)producer->header);
}

/*
 * The producer never reads its state from the ring: while the client overwrites all of its ring,
 * the producer acts like one whose ring is untouched.
 */
TEST(ring_is_never_read_back)
{
	struct ring_geometry geometry = small_geometry(3);
	struct ring_producer left_alone, scribbled;
	uint64_t seed = 88172645463325252;
	assert_int_equal(fake_ring_init(&left_alone, &geometry), 0);
	assert_int_equal(fake_ring_init(&scribbled, &geometry), 0);
	assert_int_equal(fake_ring_start(&left_alone), 0);
	assert_int_equal(fake_ring_start(&scribbled), 0);
	uint64_t *words = (uint64_t *)scribbled.header;
	size_t count = (scribbled.size - RING_ACK_SIZE) / sizeof(*words);
	for (unsigned round = 0; round < 20000; round++) {
		for (unsigned i = 0; i < 8; i++)
			words[next_random(&seed) % (i < 4 ? RING_HEADER_SIZE / 8 : count)] =
				next_random(&seed) % 2 ? next_random(&seed)
						       : next_random(&seed) % 4;
		switch (next_random(&seed) % 4) {
		case 0:
			assert_int_equal(offset_of(&scribbled, ring_begin(&scribbled)),
					 offset_of(&left_alone, ring_begin(&left_alone)));
			break;
		case 1:
			assert_int_equal(ring_publish(&scribbled), ring_publish(&left_alone));
			break;
		case 2: {
			uint32_t slot = (uint32_t)(next_random(&seed) % 3);
			left_alone.ack->acks[slot] = left_alone.number[slot];
			scribbled.ack->acks[slot] = left_alone.number[slot];
			break;
		}
		default:
			left_alone.ack->consumer_waits = scribbled.ack->consumer_waits = 1;
		}
		assert_int_equal(scribbled.begun, left_alone.begun);
		assert_int_equal(scribbled.published, left_alone.published);
		assert_int_equal(ring_outstanding(&scribbled), ring_outstanding(&left_alone));
	}
	assert_true(scribbled.published > 1000);
	left_alone.ack->consumer_waits = scribbled.ack->consumer_waits = 1;
	memset(words, 0xff, RING_HEADER_SIZE);
	assert_int_equal(ring_end(&left_alone, NULL), 1);
	assert_int_equal(ring_end(&scribbled, NULL), 1);
	assert_int_equal(scribbled.header->state, RING_END);
	ring_producer_deinit(&left_alone);
	ring_producer_deinit(&scribbled);
}

TEST(batches_come_in_order)
{
	struct pair pair;
	pair_init(&pair, 3);
	assert_null(ring_take(&pair.consumer));
	for (uint64_t n = 1; n <= 20; n++) {
		publish(&pair.producer);
		assert_int_equal(ring_outstanding(&pair.producer), 1);
		assert_int_equal(ring_ready(&pair.producer), 1);
		const struct ring_slot *slot = ring_take(&pair.consumer);
		assert_non_null(slot);
		assert_int_equal(slot->number, n);
		assert_int_equal(ring_ready(&pair.producer), 0);
		assert_null(ring_take(&pair.consumer));
		assert_int_equal(ring_ack(&pair.consumer, n), 0);
		assert_int_equal(ring_ack(&pair.consumer, n), -EINVAL);
		assert_int_equal(ring_outstanding(&pair.producer), 0);
	}
	assert_int_equal(ring_ack(&pair.consumer, 0), -EINVAL);
	assert_int_equal(ring_ack(&pair.consumer, 21), -EINVAL);
	pair_deinit(&pair);
}

/*
 * Several slots are begun before any is published. Batches are published in order, and none is
 * visible earlier.
 */
TEST(slots_are_published_in_order_begun)
{
	struct pair pair;
	pair_init(&pair, 3);
	struct ring_slot *slots[3];
	for (int i = 0; i < 3; i++)
		assert_non_null(slots[i] = ring_begin(&pair.producer));
	assert_null(ring_begin(&pair.producer));
	assert_null(ring_take(&pair.consumer));
	for (uint32_t i = 0; i < 3; i++)
		slots[i]->count = 10 + i;
	for (uint32_t i = 0; i < 3; i++) {
		ring_publish(&pair.producer);
		assert_int_equal(ring_take(&pair.consumer)->count, 10 + i);
		assert_null(ring_take(&pair.consumer));
	}
	assert_int_equal(ring_publish(&pair.producer),
			 0); /* no batch has begun, so none is published */
	assert_int_equal(pair.producer.published, 3);
	pair_deinit(&pair);
}

/* A batch that is held forever occupies one slot and does not stall the feed. */
TEST(held_batch_does_not_stall)
{
	struct pair pair;
	pair_init(&pair, 3);
	publish(&pair.producer);
	const struct ring_slot *kept = ring_take(&pair.consumer);
	for (uint64_t n = 2; n <= 100; n++) {
		publish(&pair.producer);
		const struct ring_slot *slot = ring_take(&pair.consumer);
		assert_int_equal(slot->number, n);
		assert_ptr_not_equal(slot, kept);
		ring_ack(&pair.consumer, n);
	}
	assert_int_equal(kept->number, 1);
	/* released in reverse order */
	publish(&pair.producer);
	publish(&pair.producer);
	assert_null(ring_begin(&pair.producer));
	assert_non_null(ring_take(&pair.consumer));
	assert_non_null(ring_take(&pair.consumer));
	assert_int_equal(pair.consumer.held_count, 3);
	ring_ack(&pair.consumer, 102);
	ring_ack(&pair.consumer, 1);
	assert_int_equal(ring_outstanding(&pair.producer), 1);
	publish(&pair.producer);
	publish(&pair.producer);
	assert_null(ring_begin(&pair.producer));
	pair_deinit(&pair);
}

TEST(end_is_after_the_last_batch)
{
	struct pair pair;
	pair_init(&pair, 2);
	publish(&pair.producer);
	assert_non_null(ring_begin(&pair.producer)); /* begun but never published */
	ring_consumer_arm(&pair.consumer, 1);
	assert_int_equal(ring_end(&pair.producer, "disk on fire"), 1);
	assert_int_equal(ring_end(&pair.producer, NULL), 0); /* only the first reason counts */
	assert_int_equal(pair.consumer.header->state, RING_FAILED);
	assert_string_equal(pair.consumer.header->reason, "disk on fire");
	assert_int_equal(ring_take(&pair.consumer)->number, 1);
	assert_null(ring_take(&pair.consumer));
	pair_deinit(&pair);

	pair_init(&pair, 2);
	char *endless = malloc(10000);
	memset(endless, 'x', 9999);
	endless[9999] = '\0';
	ring_end(&pair.producer, endless);
	free(endless);
	assert_int_equal(strlen(pair.consumer.header->reason), RING_REASON_MAX - 1);
	pair_deinit(&pair);
}

TEST(doorbells_are_sent_only_on_request)
{
	struct pair pair;
	pair_init(&pair, 2);
	struct ring_slot *slot = ring_begin(&pair.producer);
	slot->count = 1;
	assert_int_equal(ring_publish(&pair.producer), 0);
	ring_take(&pair.consumer);
	ring_consumer_arm(&pair.consumer, 1);
	ring_begin(&pair.producer)->count = 1;
	assert_int_equal(ring_publish(&pair.producer), 1);
	assert_int_equal(pair.consumer.ack->consumer_waits, 0); /* one doorbell per wait */
	ring_take(&pair.consumer);

	assert_null(ring_begin(&pair.producer));
	ring_producer_arm(&pair.producer);
	assert_null(ring_begin(&pair.producer));
	assert_int_equal(ring_ack(&pair.consumer, 2), 1);
	assert_non_null(ring_begin(&pair.producer));
	assert_int_equal(ring_ack(&pair.consumer, 1), 0); /* taking a slot ends the wait */
	pair_deinit(&pair);
}

/*
 * Whatever the ack page contains, a slot is reused only after its batch was published, and never
 * twice at the same time. The producer's own state stays consistent.
 */
TEST(hostile_acks_do_not_break_the_producer)
{
	struct pair pair;
	enum { SLOTS = 4 };
	pair_init(&pair, SLOTS);
	struct ring_ack *ack = pair.consumer.ack;
	uint64_t seed = 88172645463325252;
	uint64_t begun[SLOTS] = {0};
	for (int round = 0; round < 20000; round++) {
		for (int i = 0; i < SLOTS; i++) {
			uint64_t r = next_random(&seed);
			/*
			 * mostly values near the right one: the number itself, its neighbours, one
			 * lap off, in the future
			 */
			uint64_t near = pair.producer.begun + (r >> 8) % 9 - 4;
			ack->acks[i] = r % 4 == 0   ? next_random(&seed)
				       : r % 4 == 1 ? UINT64_MAX
						    : near;
		}
		if (round % 7 == 0)
			for (size_t i = 0; i < RING_ACK_SIZE / 8; i++)
				((volatile uint64_t *)ack)[i] = next_random(&seed);
		assert_true(ring_outstanding(&pair.producer) <= SLOTS);
		assert_true(ring_ready(&pair.producer) <= SLOTS);
		struct ring_slot *slot = ring_begin(&pair.producer);
		if (slot) {
			size_t index =
				((char *)slot - (char *)pair.producer.header - RING_HEADER_SIZE) /
				pair.producer.layout.slot_size;
			assert_true(index < SLOTS);
			assert_true(begun[index] <= pair.producer.published);
			begun[index] = slot->number;
			assert_int_equal(slot->number, pair.producer.begun);
		}
		if (next_random(&seed) % 2 == 0)
			ring_publish(&pair.producer);
		assert_true(pair.producer.begun - pair.producer.published <= SLOTS);
	}
	pair_deinit(&pair);
}

TEST(consumer_checks_the_header)
{
	struct pair pair;
	pair_init(&pair, 3);
	struct ring_producer *producer = &pair.producer;
	int64_t size = (int64_t)pair.consumer.map_size;
	uint64_t slot = producer->layout.slot_size;
	assert_int_equal(consumer_with(producer, 0, 4, RING_MAGIC, size, F_SEAL_SHRINK), 0);

	static const struct {
		size_t offset, size;
		uint64_t value;
	} forged[] = {
		{0, 4, 0x676e6973},
		{4, 4, 2},
		{8, 4, 0},
		{8, 4, 4},
		{8, 4, 257},
		{8, 4, UINT32_MAX},
		{12, 4, 0},
		{12, 4, 4096},
		{12, 4, UINT32_MAX},
		{16, 8, 0},
		{16, 8, 4096},
		{16, 8, 1},
		{16, 8, UINT64_MAX},
		{16, 8, UINT64_C(1) << 63},
		{24, 8, 0},
		{24, 8, 128},
		{24, 8, 4097},
		{24, 8, 8192},
		{24, 8, UINT64_MAX - 63},
		{32, 8, 0},
		{32, 8, 4097},
		{32, 8, UINT64_MAX},
		{40, 8, 64},
		{40, 8, 257},
		{40, 8, 8192},
		{40, 8, UINT64_MAX - 63},
		{48, 8, 8192},
		{48, 8, 0},
		{56, 8, 8192},
		{56, 8, 8191},
		{64, 4, 17},
		{64, 4, UINT32_MAX},
		{68, 4, UINT32_MAX},
		{68, 4, 8},
		{72, 8, 8192},
		{72, 8, 12},
		{72, 8, UINT64_MAX - 63},
		{80, 4, 0},
		{80, 4, 6},
		{84, 4, 0},
		{84, 4, UINT32_MAX},
		{84, 4, 16},
		{100, 4, 0},
		{100, 4, 3},
		{100, 4, 6},
		{100, 4, 20},
		{100, 4, UINT32_MAX - 3},
	};
	for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++) {
		int r = consumer_with(producer, forged[i].offset, forged[i].size, forged[i].value,
				      size, F_SEAL_SHRINK);
		if (r != -EPROTO)
			print_error("case %zu: offset %zu value %llx gives %d\n", i,
				    forged[i].offset, (unsigned long long)forged[i].value, r);
		assert_int_equal(r, -EPROTO);
	}
	assert_int_equal(consumer_with(producer, 0, 4, RING_MAGIC, size, 0),
			 -EPROTO); /* not sealed against shrinking */
	assert_int_equal(consumer_with(producer, 0, 4, RING_MAGIC, size - 4096, F_SEAL_SHRINK),
			 -EPROTO);
	assert_int_equal(
		consumer_with(producer, 0, 4, RING_MAGIC, size + (int64_t)slot, F_SEAL_SHRINK),
		-EPROTO);
	assert_int_equal(consumer_with(producer, 0, 4, RING_MAGIC, 100, F_SEAL_SHRINK), -EPROTO);

	/* fds in the wrong order, and an fd that is not a memfd */
	struct ring_consumer consumer;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(ring_consumer_map(&consumer, producer->ack_fd, producer->ring_fd, 0),
			 -EPROTO);
	assert_int_equal(ring_consumer_map(&consumer, producer->ring_fd, producer->ring_fd, 0),
			 -EPROTO);
	assert_int_equal(ring_consumer_map(&consumer, null, producer->ack_fd, 0), -EPROTO);
	assert_int_equal(ring_consumer_map(&consumer, producer->ring_fd, null, 0), -EPROTO);
	assert_int_equal(ring_consumer_map(&consumer, -1, -1, 0), -EPROTO);
	close(null);
	pair_deinit(&pair);
}
