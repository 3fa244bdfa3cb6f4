#include "proto/ring_layout.h"

#include "format/base/copy_once.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Missing in the oldest headers that we support; kernels without them return EINVAL. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/*
 * Size of a memfd that its owner can no longer shrink; negative errno. Rejects hugetlbfs, where a
 * missing huge page faults too.
 */
static int64_t sealed_size(int fd)
{
	struct stat status;
	struct statfs place;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return -EPROTO;
	if (fstat(fd, &status) < 0 || fstatfs(fd, &place) < 0)
		return -errno;
	if (place.f_type == HUGETLBFS_MAGIC)
		return -EPROTO;
	return status.st_size;
}

/* Reads one byte of each page, so that it exists. */
static void read_pages(const void *memory, size_t size)
{
	for (size_t at = 0; at < size; at += RING_ALIGN)
		(void)*((const volatile char *)memory + at);
}

/*
 * Allocates every page at the client's expense: the daemon refuses a ring with holes. Linux before
 * 5.14 cannot do this in one call, and qemu-user 7.2 reports success without doing anything.
 */
static int provide_pages(void *memory, size_t size, int fd)
{
	(void)madvise(memory, size, MADV_HUGEPAGE);
	int r = madvise(memory, size, MADV_POPULATE_READ) == 0 ? 0 : -errno;
	if (r == -EFAULT) /* a read would have raised SIGBUS */
		return -ENOMEM;
	if (r < 0 && r != -EINVAL)
		return r;
	if (r < 0 || !ring_has_all_pages(fd, size))
		read_pages(memory, size);
	return 0;
}

int ring_consumer_map(struct ring_consumer *consumer, int ring_fd, int ack_fd,
		      enum ring_mapping mapping)
{
	int protection = mapping == RING_MAP_WRITABLE ? PROT_READ | PROT_WRITE : PROT_READ;
	int64_t ring_file = sealed_size(ring_fd);
	int64_t ack_file = sealed_size(ack_fd);
	if (ring_file < 0 || ack_file < 0)
		return (int)(ring_file < 0 ? ring_file : ack_file);
	if (ring_file < RING_HEADER_SIZE || ack_file != RING_ACK_SIZE)
		return -EPROTO;
	/* The header is not valid yet, so bound the memory before allocating its pages. */
	if ((uint64_t)ring_file / 4096 > (uint64_t)sysconf(_SC_PHYS_PAGES))
		return -E2BIG;

	void *ring = mmap(NULL, (size_t)ring_file, protection, MAP_SHARED, ring_fd, 0);
	if (ring == MAP_FAILED)
		return -errno;
	*consumer = (struct ring_consumer){.header = ring, .map_size = (uint64_t)ring_file};
	void *ack = mmap(NULL, RING_ACK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ack_fd, 0);
	int r = ack == MAP_FAILED ? -errno : 0;
	if (r == 0) {
		consumer->ack = ack;
		r = provide_pages(ack, RING_ACK_SIZE, ack_fd);
	}
	r = r ?: provide_pages(ring, (size_t)ring_file, ring_fd);
	if (r == 0 && mapping == RING_MAP_OWN)
		r = own_pages_init(&consumer->own, ring_fd, (size_t)ring_file, RING_ALIGN);
	if (r < 0)
		ring_consumer_deinit(consumer);
	return r;
}

int ring_consumer_check(struct ring_consumer *consumer)
{
	union {
		struct ring_header version_1;
		struct ring_header_2 version_2;
	} header;
	struct ring_geometry *layout = &consumer->layout;
	copy_once(&header, consumer->header, sizeof(header));
	if (!ring_header_read(&header, consumer->map_size, layout))
		return -EPROTO;
	consumer->control = ring_control_of(consumer->header, layout->version);
	if (layout->version == RING_VERSION_1)
		return 0;
	consumer->extents =
		calloc((size_t)layout->slots * layout->section_count, sizeof(*consumer->extents));
	return consumer->extents ? 0 : -ENOMEM;
}

void ring_consumer_deinit(struct ring_consumer *consumer)
{
	if (!consumer->header)
		return;
	ring_unmap(consumer->header, consumer->map_size, consumer->ack);
	own_pages_deinit(&consumer->own);
	free(consumer->extents);
	memset(consumer, 0, sizeof(*consumer));
}

const struct ring_slot *ring_take(struct ring_consumer *consumer)
{
	const struct ring_control *control = consumer->control;
	if (atomic_load_explicit(&control->head, memory_order_seq_cst) <= consumer->taken)
		return NULL;
	uint64_t number = ++consumer->taken;
	uint32_t slot = atomic_load_explicit(&control->order[(number - 1) % consumer->layout.slots],
					     memory_order_relaxed);
	/* Bounds the index of a broken daemon, whose batch number will not match either. */
	slot %= consumer->layout.slots;
	uint64_t free = 0;
	if (atomic_compare_exchange_strong_explicit(&consumer->held[slot], &free, number,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_fetch_add_explicit(&consumer->held_count, 1, memory_order_relaxed);
	else
		consumer->broken = 1; /* the daemon is overwriting the batch held there */
	atomic_store_explicit(&consumer->ack->taken, number, memory_order_relaxed);
	return (const struct ring_slot *)((const char *)consumer->header + RING_HEADER_SIZE +
					  slot * consumer->layout.slot_size);
}

const char *ring_show(const struct ring_consumer *consumer, const struct ring_slot *slot)
{
	const char *shared = (const char *)consumer->header, *at = (const char *)slot;
	if (!consumer->own.memory)
		return at;
	return own_pages_show(&consumer->own, shared, (size_t)(at - shared),
			      consumer->layout.slot_size);
}

void ring_keep_held(const struct ring_consumer *consumer)
{
	for (uint32_t slot = 0; consumer->own.memory && slot < consumer->layout.slots; slot++)
		if (atomic_load_explicit(&consumer->held[slot], memory_order_relaxed) != 0)
			own_pages_keep(&consumer->own,
				       RING_HEADER_SIZE + slot * consumer->layout.slot_size,
				       consumer->layout.slot_size);
}

void ring_copy_slot(const struct ring_slot *slot, struct ring_slot *ret_copy)
{
	copy_once(ret_copy, slot, sizeof(*ret_copy));
}

/* Sets the bytes of a value or row of the extent's shape. Returns false if there is no such shape.
 */
static bool shape_size(const struct ring_section *section, const struct ring_extent *extent,
		       uint64_t *ret_size)
{
	uint64_t size = ring_element_size(section->element);
	for (uint32_t d = 0; d < RING_DIMS_MAX; d++) {
		if (d >= section->dims
			    ? extent->shape[d] != 0
			    : __builtin_mul_overflow(size, (uint64_t)extent->shape[d], &size))
			return false;
	}
	*ret_size = size;
	return true;
}

/* Returns true if the dense values of `count` samples have the extent's shape and size. */
static bool dense_is_sound(const struct ring_section *section, const struct ring_extent *extent,
			   uint32_t count)
{
	uint64_t bytes;
	if (!shape_size(section, extent, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)count, &bytes))
		return false;
	return bytes == extent->bytes && bytes <= section->room &&
	       (section->stride == 0 || bytes == count * section->stride);
}

/* Returns true if the extent is that of finished images. */
static bool image_is_sound(const struct ring_extent *extent)
{
	if (extent->layout != RING_NHWC && extent->layout != RING_NCHW)
		return false;
	uint32_t channels = extent->shape[extent->layout == RING_NHWC ? 2 : 0];
	return extent->bytes > 0 && (channels == 3 || channels == 4);
}

static bool extent_is_sound(const struct ring_geometry *layout, uint32_t s,
			    const struct ring_extent *extent, uint32_t count)
{
	const struct ring_section *section = &layout->sections[s];
	uint64_t size;
	if (section->kind == RING_RAGGED)
		return (s != RING_IMAGES || extent->layout == 0) &&
		       shape_size(section, extent, &size) && size == section->row &&
		       extent->bytes >= ring_ragged_offset(layout->batch_size_max) &&
		       extent->bytes <= section->room;
	return dense_is_sound(section, extent, count) &&
	       (s != RING_IMAGES || image_is_sound(extent));
}

const struct ring_extent *ring_check_extents(struct ring_consumer *consumer,
					     const struct ring_slot *slot, uint32_t count)
{
	const struct ring_geometry *layout = &consumer->layout;
	uint64_t at = (uint64_t)((const char *)slot - (const char *)consumer->header);
	struct ring_extent *extents = consumer->extents + (at - RING_HEADER_SIZE) /
								  layout->slot_size *
								  layout->section_count;
	struct ring_extent said[RING_SECTIONS_MAX];
	size_t size = layout->section_count * sizeof(*said);
	/* In a broken ring, the extents may be those of a batch that the caller holds. */
	if (consumer->broken || count > layout->batch_size_max)
		return NULL;
	copy_once(said, (const char *)slot + offsetof(struct ring_slot_2, extents), size);
	for (uint32_t s = 0; s < layout->section_count; s++)
		if (!extent_is_sound(layout, s, &said[s], count))
			return NULL;
	memcpy(extents, said, size);
	return extents;
}

const struct ring_extent *ring_extents(const struct ring_consumer *consumer, uint64_t number)
{
	for (uint32_t slot = 0; consumer->extents && slot < consumer->layout.slots; slot++)
		if (atomic_load_explicit(&consumer->held[slot], memory_order_relaxed) == number)
			return consumer->extents + slot * consumer->layout.section_count;
	return NULL;
}

void ring_copy_reason(const struct ring_consumer *consumer, char *ret_reason)
{
	copy_once(ret_reason, consumer->control->reason, RING_REASON_MAX);
	ret_reason[RING_REASON_MAX - 1] = '\0';
}

void ring_consumer_arm(struct ring_consumer *consumer, int waiting)
{
	atomic_store_explicit(&consumer->ack->consumer_waits, waiting != 0, memory_order_seq_cst);
}

int ring_ack(struct ring_consumer *consumer, uint64_t number)
{
	if (number == 0)
		return -EINVAL;
	for (uint32_t slot = 0; slot < consumer->layout.slots; slot++) {
		uint64_t expected = number;
		if (!atomic_compare_exchange_strong_explicit(&consumer->held[slot], &expected, 0,
							     memory_order_relaxed,
							     memory_order_relaxed))
			continue;
		atomic_fetch_sub_explicit(&consumer->held_count, 1, memory_order_relaxed);
		atomic_store_explicit(&consumer->ack->acks[slot], number, memory_order_seq_cst);
		return atomic_load_explicit(&consumer->control->producer_waits,
					    memory_order_seq_cst) != 0;
	}
	return -EINVAL;
}
