#include "proto/ring_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Missing in the oldest headers that we support; kernels without them return EINVAL. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* Populates the page table, so that no batch takes page faults. */
static int map_pages(void *memory, uint64_t size)
{
	return madvise(memory, size, MADV_POPULATE_WRITE) == 0 || errno == EINVAL ? 0 : -errno;
}

/* Maps memory of exactly this size that is sealed against shrinking. */
static int map_memory(int fd, uint64_t size, void **ret_memory)
{
	off_t end = lseek(fd, 0, SEEK_END);
	int seals = fcntl(fd, F_GET_SEALS);
	if (end < 0 || seals < 0)
		return -errno;
	if ((uint64_t)end != size || (seals & F_SEAL_SHRINK) == 0)
		return -EINVAL;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*ret_memory = memory;
	return 0;
}

int ring_producer_init(struct ring_producer *producer, const struct ring_geometry *geometry,
		       int ring_fd, int ack_fd)
{
	struct ring_geometry layout;
	void *ring = NULL, *ack = NULL;
	int r = ring_lay_out(geometry, &layout);
	if (r < 0)
		return r;
	uint64_t bytes = ring_bytes(layout.slots, layout.slot_size);
	r = bytes == 0 ? -EINVAL : map_memory(ring_fd, bytes, &ring);
	r = r ?: map_memory(ack_fd, RING_ACK_SIZE, &ack);
	if (r < 0) {
		ring_unmap(ring, bytes, ack);
		return r;
	}
	/*
	 * khugepaged charges a huge page to the process in whose mapping it found the small ones.
	 * Only the client may ask for huge pages.
	 */
	(void)madvise(ring, bytes, MADV_NOHUGEPAGE);
	*producer = (struct ring_producer){
		.header = ring,
		.control = ring_control_of(ring, layout.version),
		.layout = layout,
		.ack = ack,
		.ring_fd = ring_fd,
		.ack_fd = ack_fd,
		.size = bytes + RING_ACK_SIZE,
	};
	return 0;
}

int ring_producer_start(struct ring_producer *producer)
{
	const uint64_t bytes = producer->size - RING_ACK_SIZE;
	/*
	 * The seals do not affect existing mappings, the daemon's and the client's. The ring gets
	 * no F_SEAL_SEAL, because ring_memory_free() adds the last seal.
	 */
	if (fcntl(producer->ring_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ||
	    fcntl(producer->ack_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	/*
	 * A page stays once it exists: holes can be punched only before F_SEAL_FUTURE_WRITE, and a
	 * swapped-out page stays charged. The kernel drops (drop_caches, reclaim) a page that was
	 * never written only if no process maps it.
	 */
	if (!ring_has_all_pages(producer->ring_fd, bytes) ||
	    !ring_has_all_pages(producer->ack_fd, RING_ACK_SIZE))
		return -ENODATA;
	int r = map_pages(producer->ack, RING_ACK_SIZE);
	r = r ?: map_pages(producer->header, bytes);
	if (r < 0)
		return r;
	ring_header_write(&producer->layout, producer->header);
	return 0;
}

void ring_producer_deinit(struct ring_producer *producer)
{
	if (!producer->header)
		return;
	ring_unmap(producer->header, producer->size - RING_ACK_SIZE, producer->ack);
	close(producer->ring_fd);
	close(producer->ack_fd);
	*producer = (struct ring_producer){.ring_fd = -1, .ack_fd = -1};
}

static struct ring_slot *slot_at(const struct ring_producer *producer, uint32_t slot)
{
	return (struct ring_slot *)((char *)producer->header + RING_HEADER_SIZE +
				    slot * producer->layout.slot_size);
}

/* Returns true if the client has released what was published in this slot, or nothing was. */
static bool slot_is_free(const struct ring_producer *producer, uint32_t slot)
{
	uint64_t number = producer->number[slot];
	if (number == 0)
		return true;
	/*
	 * An ack for a batch that is still being written is invalid; accepting it would hand the
	 * slot out twice.
	 */
	if (number > producer->published)
		return false;
	return atomic_load_explicit(&producer->ack->acks[slot], memory_order_seq_cst) == number;
}

struct ring_slot *ring_begin(struct ring_producer *producer)
{
	for (uint32_t i = 0; i < producer->layout.slots; i++) {
		uint32_t slot = (producer->next + i) % producer->layout.slots;
		if (!slot_is_free(producer, slot))
			continue;
		atomic_store_explicit(&producer->control->producer_waits, 0, memory_order_relaxed);
		uint64_t number = ++producer->begun;
		producer->next = (slot + 1) % producer->layout.slots;
		producer->number[slot] = number;
		producer->order[(number - 1) % producer->layout.slots] = slot;
		struct ring_slot *header = slot_at(producer, slot);
		header->number = number;
		return header;
	}
	return NULL;
}

void ring_producer_arm(struct ring_producer *producer)
{
	atomic_store_explicit(&producer->control->producer_waits, 1, memory_order_seq_cst);
}

/*
 * Sends one doorbell per wait: clears the word here; the client sets it again before its next wait.
 */
static int client_waits(struct ring_producer *producer)
{
	if (atomic_load_explicit(&producer->ack->consumer_waits, memory_order_seq_cst) == 0)
		return 0;
	atomic_store_explicit(&producer->ack->consumer_waits, 0, memory_order_relaxed);
	return 1;
}

int ring_publish(struct ring_producer *producer)
{
	if (producer->published == producer->begun)
		return 0;
	uint64_t number = producer->published + 1;
	uint32_t place = (uint32_t)((number - 1) % producer->layout.slots);
	atomic_store_explicit(&producer->control->order[place], producer->order[place],
			      memory_order_relaxed);
	producer->published = number;
	atomic_store_explicit(&producer->control->head, number, memory_order_seq_cst);
	return client_waits(producer);
}

int ring_end(struct ring_producer *producer, const char *reason)
{
	struct ring_control *control = producer->control;
	if (producer->ended)
		return 0;
	producer->ended = 1;
	if (reason) {
		size_t length = strnlen(reason, RING_REASON_MAX - 1);
		memcpy(control->reason, reason, length);
		control->reason[length] = '\0';
	}
	atomic_store_explicit(&control->state, !reason ? RING_END : RING_FAILED,
			      memory_order_seq_cst);
	return client_waits(producer);
}

uint32_t ring_outstanding(const struct ring_producer *producer)
{
	uint32_t count = 0;
	for (uint32_t slot = 0; slot < producer->layout.slots; slot++)
		count += producer->number[slot] <= producer->published &&
			 !slot_is_free(producer, slot);
	return count;
}

uint32_t ring_ready(const struct ring_producer *producer)
{
	uint64_t taken = atomic_load_explicit(&producer->ack->taken, memory_order_relaxed);
	uint64_t ready = taken > producer->published ? 0 : producer->published - taken;
	uint32_t outstanding = ring_outstanding(producer);
	return ready > outstanding ? outstanding : (uint32_t)ready;
}
