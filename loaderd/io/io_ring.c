#include "loaderd/io/io_internal.h"

#ifdef HAVE_LIBURING

#include "format/base/poison.h"
#include "loaderd/io/extents.h"
#include "loaderd/io/futex.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * A window of units, [oldest, next), slides along the feed's order. Each unit has an entry (unit %
 * window) and, while its bytes are in use, a range of a circular buffer. The thread fills entries
 * at the front of the window and frees them at the back once workers are done with them.
 *
 * A unit's parts are the images of its sample that the feed delivers. Those that lie close together
 * in the file arrive in one read. Parts of which the read does not fit, or that cannot be read this
 * way, are left to the other functions of io.h, which find their errors, too.
 *
 * An entry's tag holds unit and state, so a worker that asks early finds another unit's tag and
 * waits. Workers wait on `progress`, which changes after every state change by the thread. There is
 * no deadlock: claims are given out in order, so the unit at the back of the window has been
 * claimed by a worker that is processing it. A worker that is about to wait wakes a sleeping
 * thread, and so does a worker that finishes a unit while another waits.
 */
enum entry_state { ENTRY_READING = 1, ENTRY_READY, ENTRY_FAILED, ENTRY_DONE };
enum {
	STATE_BITS = 3,
	WINDOW_MAX = 1 << 16,
	WINDOW_MIN = 1 << 10,
	RESERVE_MAX = 64,
	TAIL = 64, /* readable bytes that decoders need after stored bytes */
	/*
	 * Maximum size of an entry: sizes are 32-bit, and one read returns less than 2 GiB. Larger
	 * samples are left to the IO_MMAP path.
	 */
	ENTRY_BYTES_MAX = 1 << 30,
	READ_BITS = 6,    /* of user_data: the number of the read in its unit */
	READ_NONE = 0xff, /* of a part: not in the buffer */
};
_Static_assert(IO_PARTS_MAX <= 1 << READ_BITS, "user_data holds the numbers of reads");

/* One read of a unit. */
struct ring_read {
	uint8_t *memory;
	uint64_t file_offset; /* file offset of memory[0] */
	uint32_t size;        /* bytes to read, a multiple of IO_BLOCK */
	uint32_t needed;      /* the part of `size` that must arrive; the rest only fills blocks */
	uint32_t got;
	bool unsuited; /* the file system cannot read this way */
};

struct ring_part {
	struct packimg_sample image; /* its pointers lead to the buffer */
	uint8_t read;                /* number of the read that contains it, or READ_NONE */
};

struct entry {
	_Atomic uint64_t tag;    /* unit << STATE_BITS | state */
	struct ring_part *parts; /* [io_part_count()] */
	struct ring_read *reads; /* [io_part_count()], of which `read_count` are in use */
	uint8_t *memory;         /* of all reads */
	uint32_t size;           /* bytes of `memory` */
	uint32_t read_count;
	uint32_t pending;    /* reads that have not ended */
	uint64_t buffer_end; /* used_end of the buffer after this entry */
	int fd, error;
};

struct io_ring {
	struct io_uring uring;
	bool uring_open;
	struct entry *entries;   /* [window] */
	struct ring_part *parts; /* of all entries */
	struct ring_read *reads; /* of all entries */
	uint64_t window;         /* a power of two */
	uint8_t *buffer;
	uint64_t buffer_size;
	uint64_t used_end, free_end; /* total bytes allocated and freed so far, including padding at
					the wrap */
	uint64_t oldest, next;       /* the window of units, [oldest, next) */
	bool begun;                  /* unit `next` has reads, of which `submitted` are under way */
	uint32_t submitted;
	unsigned in_flight;
	bool ended;
	_Alignas(64) _Atomic uint32_t progress; /* futex */
	_Atomic uint32_t waiters;
};

/*
 * Reserved rings, taken from the end. The mutex is also held while rings are created and destroyed:
 * liburing maps and unmaps with raw system calls, so without an ordering the thread sanitizer
 * mistakes a new ring at the address of a freed one for the same memory.
 */
static struct {
	pthread_mutex_t mutex;
	bool only; /* after io_reserve(): no ring can be created */
	unsigned count;
	struct io_uring rings[RESERVE_MAX];
} reserve = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Creates a ring that accepts only reads. */
static int make_reader(unsigned depth, struct io_uring *ret_uring)
{
	struct io_uring_params parameters = {.flags = IORING_SETUP_R_DISABLED};
	struct io_uring_restriction restrictions[] = {
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
		{.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = 0},
	};
	int r = io_uring_queue_init_params(depth, ret_uring, &parameters);
	if (r < 0)
		return r;
	/* liburing 2.3 does not export these two operations: use the system call. */
	if (syscall(SYS_io_uring_register, ret_uring->ring_fd, IORING_REGISTER_RESTRICTIONS,
		    restrictions, 2) < 0 ||
	    syscall(SYS_io_uring_register, ret_uring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
		    0) < 0) {
		r = -errno;
		io_uring_queue_exit(ret_uring);
	}
	return r;
}

int io_reserve(unsigned rings, unsigned queue_depth)
{
	int r = 0;
	pthread_mutex_lock(&reserve.mutex);
	reserve.only = true;
	while (r == 0 && reserve.count < rings && reserve.count < RESERVE_MAX) {
		r = make_reader(queue_depth, &reserve.rings[reserve.count]);
		reserve.count += r == 0;
	}
	bool any = reserve.count > 0;
	pthread_mutex_unlock(&reserve.mutex);
	return any ? 0 : r;
}

static int open_uring(unsigned depth, struct io_uring *ret_uring)
{
	int r = -EAGAIN;
	pthread_mutex_lock(&reserve.mutex);
	if (!reserve.only) {
		r = make_reader(depth, ret_uring);
	} else if (reserve.count > 0) {
		*ret_uring = reserve.rings[--reserve.count];
		r = 0;
	}
	pthread_mutex_unlock(&reserve.mutex);
	return r;
}

/* Call it when no operation is in flight. */
static void close_uring(struct io_uring *uring)
{
	pthread_mutex_lock(&reserve.mutex);
	if (reserve.only)
		reserve.rings[reserve.count++] = *uring;
	else
		io_uring_queue_exit(uring);
	pthread_mutex_unlock(&reserve.mutex);
}

static uint64_t tag_of(uint64_t unit, enum entry_state state)
{
	return unit << STATE_BITS | state;
}

static struct entry *entry_of(const struct io_ring *ring, uint64_t unit)
{
	return &ring->entries[unit & (ring->window - 1)];
}

bool io_can_uring(void)
{
	struct io_uring uring;
	if (open_uring(4, &uring) < 0)
		return false;
	close_uring(&uring);
	return true;
}

/* Allocates the window. The parts of all its entries are limited, whatever a unit has of them. */
static int io_ring_window(struct io *io, struct io_ring *ring)
{
	const uint32_t parts = io_part_count(io);
	ring->window = WINDOW_MIN;
	while (ring->window < io->ahead_units + io->options.walk.order.batch_size &&
	       ring->window * parts < WINDOW_MAX)
		ring->window *= 2;
	ring->entries = calloc(ring->window, sizeof(*ring->entries));
	ring->parts = calloc(ring->window * parts, sizeof(*ring->parts));
	ring->reads = calloc(ring->window * parts, sizeof(*ring->reads));
	if (!ring->entries || !ring->parts || !ring->reads)
		return -ENOMEM;
	for (uint64_t i = 0; i < ring->window; i++) {
		ring->entries[i].parts = ring->parts + i * parts;
		ring->entries[i].reads = ring->reads + i * parts;
	}
	return 0;
}

int io_ring_new(struct io *io)
{
	struct io_ring *ring = aligned_alloc(64, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	memset(ring, 0, sizeof(*ring));
	io->ring = ring;
	ring->buffer_size = (io->options.bytes + IO_BLOCK - 1) / IO_BLOCK * IO_BLOCK;
	ring->buffer = mmap(NULL, ring->buffer_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring->buffer == MAP_FAILED)
		ring->buffer = NULL;
	else
		(void)madvise(ring->buffer, ring->buffer_size, MADV_HUGEPAGE);
	if (ring->buffer)
		poison(ring->buffer, ring->buffer_size); /* until an entry is ready */
	if (!ring->buffer || io_ring_window(io, ring) < 0)
		return -ENOMEM;
	int r = open_uring(io->options.queue_depth, &ring->uring);
	ring->uring_open = r == 0;
	return r;
}

void io_ring_free(struct io_ring *ring)
{
	if (!ring)
		return;
	if (ring->uring_open)
		close_uring(&ring->uring);
	if (ring->buffer) {
		unpoison(ring->buffer, ring->buffer_size);
		munmap(ring->buffer, ring->buffer_size);
	}
	free(ring->entries);
	free(ring->parts);
	free(ring->reads);
	free(ring);
}

/* Returns the fd of the sample's file, opened with O_DIRECT if the client could do so. */
static int io_ring_file_of(const struct io *io, uint32_t shard_number)
{
	struct packimg_shard shard;
	if (shard_number < io->options.direct_count)
		return io->options.direct[shard_number];
	if (packimg_shard(io->options.dataset->image, shard_number, &shard) < 0)
		return -EBADMSG;
	return shard.fd;
}

/* Allocates `size` contiguous bytes; returns NULL if workers must free some first. */
static uint8_t *io_ring_take(struct io_ring *ring, uint64_t size, uint64_t *ret_end)
{
	uint64_t at = ring->used_end % ring->buffer_size;
	uint64_t skip = at + size > ring->buffer_size ? ring->buffer_size - at : 0;
	if (ring->used_end + skip + size - ring->free_end > ring->buffer_size)
		return NULL;
	ring->used_end += skip;
	uint8_t *memory = ring->buffer + ring->used_end % ring->buffer_size;
	ring->used_end += size;
	*ret_end = ring->used_end;
	return memory;
}

static void io_ring_settle(struct entry *entry, uint64_t unit, enum entry_state state)
{
	/*
	 * Makes the bytes visible to the worker that sees the state. Sequentially consistent with
	 * the worker's check of the tag before it waits.
	 */
	atomic_store(&entry->tag, tag_of(unit, state));
}

static void io_ring_submit(struct io_ring *ring, uint64_t unit, uint32_t number)
{
	const struct entry *entry = entry_of(ring, unit);
	const struct ring_read *read = &entry->reads[number];
	struct io_uring_sqe *sqe =
		io_uring_get_sqe(&ring->uring); /* never NULL: in_flight is below the queue depth */
	io_uring_prep_read(sqe, entry->fd, read->memory + read->got, read->size - read->got,
			   read->file_offset + read->got);
	sqe->user_data = unit << READ_BITS | number;
	ring->in_flight++;
}

/* Redirects an image's pointers from the mapping to the buffer. */
static void io_ring_relocate(struct packimg_sample *image, const struct ring_read *read,
			     uint64_t side_offset)
{
	if (side_offset != 0)
		image->side = read->memory + (side_offset - read->file_offset);
	image->data = read->memory + (image->data_offset - read->file_offset);
}

/* What begin_unit() knows of an entry before it has memory. */
struct ring_plan {
	struct io_extent extents[IO_PARTS_MAX];
	uint64_t side_offsets[IO_PARTS_MAX]; /* of parts */
	uint8_t of[IO_PARTS_MAX];            /* number of a part's extent, or READ_NONE */
};

static uint64_t io_extent_size(const struct io_extent *extent)
{
	return (extent->end + TAIL - extent->begin + IO_BLOCK - 1) / IO_BLOCK * IO_BLOCK;
}

/*
 * Looks the parts up and chooses those to read, as long as they fit. Returns the number of reads.
 */
static uint32_t io_ring_plan(struct io *io, struct entry *entry, uint64_t index,
			     struct ring_plan *ret_plan)
{
	const uint64_t most = io->ring->buffer_size / 4 < ENTRY_BYTES_MAX
				      ? io->ring->buffer_size / 4
				      : ENTRY_BYTES_MAX;
	uint8_t merged[IO_PARTS_MAX];
	uint32_t count = 0;
	uint64_t size = 0; /* at most, once merged */
	for (uint32_t p = 0; p < io_part_count(io); p++) {
		struct packimg_sample *image = &entry->parts[p].image;
		uint64_t *side_offset = &ret_plan->side_offsets[p];
		ret_plan->of[p] = READ_NONE;
		if (io_lookup(io, index, p, image) < 0)
			continue;
		const struct io_extent extent = io_extent_of(image, side_offset);
		const uint64_t more = io_extent_size(&extent) + (count > 0 ? IO_GAP_MAX : 0);
		/*
		 * Side data elsewhere in the file is read from the mapping. If the dataset is not
		 * mapped, copy the whole image instead.
		 */
		bool apart = image->side && *side_offset == 0 && !io->options.dataset->mapped;
		entry->fd = io_ring_file_of(io, image->shard);
		if (apart || entry->fd < 0 || more > most - size)
			continue;
		size += more;
		ret_plan->of[p] = (uint8_t)count;
		ret_plan->extents[count++] = extent;
	}
	count = io_extents_merge(ret_plan->extents, count, merged);
	for (uint32_t p = 0; p < io_part_count(io); p++)
		if (ret_plan->of[p] != READ_NONE)
			ret_plan->of[p] = merged[ret_plan->of[p]];
	return count;
}

/*
 * Begins one unit; its reads still have to be submitted. Returns false if the buffer has no room
 * yet.
 */
static bool begin_unit(struct io *io, uint64_t unit, uint64_t index)
{
	struct io_ring *ring = io->ring;
	struct entry *entry = entry_of(ring, unit);
	struct ring_plan plan;
	entry->buffer_end = ring->used_end;
	entry->error = 0;
	entry->read_count = entry->pending = io_ring_plan(io, entry, index, &plan);
	uint64_t size = 0;
	for (uint32_t i = 0; i < entry->read_count; i++)
		size += io_extent_size(&plan.extents[i]);
	entry->size = (uint32_t)size;
	if (size > 0)
		entry->memory = io_ring_take(ring, size, &entry->buffer_end);
	if (size > 0 && !entry->memory)
		return false;
	uint8_t *memory = entry->memory;
	for (uint32_t i = 0; i < entry->read_count; i++) {
		const struct io_extent *extent = &plan.extents[i];
		entry->reads[i] = (struct ring_read){
			.memory = memory,
			.file_offset = extent->begin,
			.size = (uint32_t)io_extent_size(extent),
			.needed = (uint32_t)(extent->end - extent->begin),
		};
		memory += entry->reads[i].size;
	}
	for (uint32_t p = 0; p < io_part_count(io); p++) {
		struct ring_part *part = &entry->parts[p];
		part->read = plan.of[p];
		if (part->read != READ_NONE)
			io_ring_relocate(&part->image, &entry->reads[part->read],
					 plan.side_offsets[p]);
	}
	ring->begun = size > 0;
	ring->submitted = 0;
	io_ring_settle(entry, unit, size > 0 ? ENTRY_READING : ENTRY_READY);
	return true;
}

/* Unpoisons `size` bytes and their tail, limited to the needed part of the read and its tail. */
static void unpoison_read(const struct ring_read *read, const uint8_t *bytes, uint64_t size)
{
	const uint8_t *end = read->memory + read->needed + TAIL;
	if (bytes < read->memory || bytes >= end)
		return; /* the side data is in the mapping */
	uint64_t room = (uint64_t)(end - bytes);
	unpoison(bytes, size + TAIL < room ? size + TAIL : room);
}

/* Unpoisons what a worker may read of a ready entry: data and side data, each with its tail. */
static void io_ring_ready(const struct io *io, struct entry *entry)
{
	for (uint32_t p = 0; p < io_part_count(io); p++) {
		struct ring_part *part = &entry->parts[p];
		if (part->read != READ_NONE && entry->reads[part->read].unsuited)
			part->read = READ_NONE;
		if (part->read == READ_NONE)
			continue;
		unpoison_read(&entry->reads[part->read], part->image.data, part->image.data_size);
		unpoison_read(&entry->reads[part->read], part->image.side, part->image.side_size);
	}
}

static void finish_read(struct io *io, uint64_t unit, uint32_t number, int result)
{
	struct io_ring *ring = io->ring;
	struct entry *entry = entry_of(ring, unit);
	struct ring_read *read = &entry->reads[number];
	ring->in_flight--;
	if (result > 0)
		read->got += (uint32_t)result;
	if (read->got < read->needed) {
		if (result == -EINTR || result == -EAGAIN ||
		    (result > 0 && read->got % IO_BLOCK == 0)) {
			io_ring_submit(ring, unit, number);
			return;
		}
		if (result == -EINVAL || result > 0)
			read->unsuited = true;
		else if (entry->error == 0)
			entry->error = result == 0 ? -ENODATA : result;
	}
	/* The kernel still writes into the memory of the other reads. */
	if (--entry->pending > 0)
		return;
	if (entry->error == 0)
		io_ring_ready(io, entry);
	io_ring_settle(entry, unit, entry->error == 0 ? ENTRY_READY : ENTRY_FAILED);
}

static void free_done(struct io_ring *ring)
{
	while (ring->oldest < ring->next) {
		struct entry *entry = entry_of(ring, ring->oldest);
		if (atomic_load(&entry->tag) != tag_of(ring->oldest, ENTRY_DONE))
			return;
		ring->free_end = entry->buffer_end;
		ring->oldest++;
	}
}

enum fill { FILL_PROGRESS, FILL_LIMIT, FILL_FULL };

/* Starts reads until the queue depth, the limit or the window is reached, or the buffer is full. */
static enum fill io_ring_fill(struct io *io)
{
	struct io_ring *ring = io->ring;
	while (ring->in_flight < io->options.queue_depth) {
		uint64_t index;
		if (ring->begun) {
			io_ring_submit(ring, ring->next, ring->submitted++);
			ring->begun = ring->submitted < entry_of(ring, ring->next)->read_count;
			ring->next += !ring->begun;
			continue;
		}
		if (ring->ended || ring->next >= io_target(io))
			return FILL_LIMIT;
		if (ring->next - ring->oldest >= ring->window)
			return FILL_FULL;
		int r = order_walk_at(&io->options.walk, ring->next, &index);
		if (r < 0) {
			ring->ended = true;
			return FILL_LIMIT;
		}
		if (r == 0) {
			struct entry *entry = entry_of(ring, ring->next);
			entry->buffer_end = ring->used_end;
			io_ring_settle(entry, ring->next, ENTRY_DONE);
		} else if (!begin_unit(io, ring->next, index)) {
			return FILL_FULL;
		}
		ring->next += !ring->begun;
	}
	return FILL_PROGRESS;
}

static void wake_threads(struct io_ring *ring)
{
	atomic_fetch_add(&ring->progress, 1);
	uint32_t waiters = atomic_load(&ring->waiters);
	if (waiters > 0)
		futex_wake(&ring->progress, waiters);
}

static bool something_to_do(struct io *io)
{
	struct io_ring *ring = io->ring;
	if (!ring->ended &&
	    (atomic_load(&io->limit) >= atomic_load(&io->wake_limit) || io_more_known(io)))
		return true;
	uint64_t oldest = ring->oldest;
	free_done(ring);
	return ring->oldest != oldest;
}

static void wait_for_work(struct io *io, enum fill why)
{
	struct io_ring *ring = io->ring;
	/*
	 * Wake after half the window, so that wakes are rare: see io_ring_done(). A worker that has
	 * to wait wakes the thread at once.
	 */
	atomic_store(&io->wake_unit, why == FILL_FULL
					     ? ring->oldest + (ring->next - ring->oldest) / 2
					     : UINT64_MAX);
	atomic_store(&io->wake_limit,
		     why == FILL_LIMIT && !ring->ended ? atomic_load(&io->limit) + 1 : UINT64_MAX);
	io_sleep(io, something_to_do);
}

void *io_ring_main(void *argument)
{
	struct io *io = argument;
	struct io_ring *ring = io->ring;
	while (!atomic_load(&io->stopping)) {
		free_done(ring);
		uint64_t before = ring->next;
		enum fill why = io_ring_fill(io);
		if (ring->next != before)
			wake_threads(ring); /* some may already be ready, without a read */
		if (ring->in_flight == 0) {
			wait_for_work(io, why);
			continue;
		}
		int r = io_uring_submit_and_wait(&ring->uring, 1);
		if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
			break;
		struct io_uring_cqe *cqe;
		while (io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
			uint64_t unit = cqe->user_data >> READ_BITS;
			uint32_t number = cqe->user_data & ((1 << READ_BITS) - 1);
			int result = cqe->res;
			io_uring_cqe_seen(&ring->uring, cqe);
			finish_read(io, unit, number, result);
		}
		wake_threads(ring);
	}
	/*
	 * The kernel still writes into the buffer: it may be freed only when no read is in flight.
	 */
	while (ring->in_flight > 0) {
		struct io_uring_cqe *cqe;
		if (io_uring_submit_and_wait(&ring->uring, 1) < 0)
			continue;
		while (ring->in_flight > 0 && io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
			io_uring_cqe_seen(&ring->uring, cqe);
			ring->in_flight--;
		}
	}
	return NULL;
}

/*
 * Waits until the entry belongs to this unit and is no longer being read; returns its tag. Returns
 * 0 after io_stop().
 */
static uint64_t io_ring_await(struct io *io, struct entry *entry, uint64_t unit)
{
	struct io_ring *ring = io->ring;
	uint64_t tag = atomic_load(&entry->tag);
	if (tag >> STATE_BITS == unit && tag > tag_of(unit, ENTRY_READING))
		return tag;
	atomic_fetch_add(&ring->waiters, 1);
	for (;;) {
		uint32_t progress = atomic_load(&ring->progress);
		tag = atomic_load(&entry->tag);
		if (tag >> STATE_BITS == unit && tag > tag_of(unit, ENTRY_READING))
			break;
		if (atomic_load(&io->stopping)) {
			tag = 0;
			break;
		}
		if (atomic_load(&io->asleep))
			io_wake(io);
		futex_wait(&ring->progress, progress);
	}
	atomic_fetch_sub(&ring->waiters, 1);
	return tag;
}

int io_ring_get(struct io *io, uint64_t unit, uint64_t index, struct packimg_sample *ret_sample,
		struct packimg_error *error)
{
	struct entry *entry = entry_of(io->ring, unit);
	uint64_t tag = io_ring_await(io, entry, unit);
	if (tag == tag_of(unit, ENTRY_READY)) {
		if (entry->parts[0].read == READ_NONE)
			return IO_MAPPED;
		/* An order that draws by class reads the file again, which may have changed. */
		if (entry->parts[0].image.index != index) {
			snprintf(error->text, sizeof(error->text),
				 "sample %llu: the file lists other samples by class than when it "
				 "was read ahead",
				 (unsigned long long)dataset_number(io->options.dataset, index));
			return -EBADMSG;
		}
		*ret_sample = entry->parts[0].image;
		return IO_READ;
	}
	if (tag == 0)
		return -ECANCELED;
	snprintf(error->text, sizeof(error->text), "sample %llu: %s",
		 (unsigned long long)dataset_number(io->options.dataset, index),
		 entry->error == -ENODATA ? "the file ends before it" : strerror(-entry->error));
	return -EIO;
}

int io_ring_image(struct io *io, uint64_t unit, uint32_t image, struct packimg_sample *ret_image)
{
	const struct entry *entry = entry_of(io->ring, unit);
	for (uint32_t i = 0; i < io->options.image_count; i++) {
		const struct ring_part *part = &entry->parts[1 + i];
		if (io->options.images[i] != image || part->read == READ_NONE)
			continue;
		*ret_image = part->image;
		return IO_READ;
	}
	return IO_MAPPED;
}

void io_ring_done(struct io *io, uint64_t unit)
{
	struct entry *entry = entry_of(io->ring, unit);
	/* poison before the thread can reuse the memory for another entry */
	if (atomic_load(&entry->tag) == tag_of(unit, ENTRY_READY) && entry->size > 0)
		poison(entry->memory, entry->size);
	atomic_store(&entry->tag, tag_of(unit, ENTRY_DONE));
	if (atomic_load(&io->asleep) &&
	    (unit >= atomic_load(&io->wake_unit) || atomic_load(&io->ring->waiters) > 0))
		io_wake(io);
}

void io_ring_stop(struct io *io)
{
	wake_threads(io->ring);
}

#else

#include <errno.h>

int io_reserve(unsigned rings, unsigned queue_depth)
{
	return -ENOTSUP;
}

bool io_can_uring(void)
{
	return false;
}

int io_ring_new(struct io *io)
{
	return -ENOTSUP;
}

void io_ring_free(struct io_ring *ring)
{
}

void *io_ring_main(void *argument)
{
	return NULL;
}

int io_ring_get(struct io *io, uint64_t unit, uint64_t index, struct packimg_sample *ret_sample,
		struct packimg_error *error)
{
	return IO_MAPPED;
}

int io_ring_image(struct io *io, uint64_t unit, uint32_t image, struct packimg_sample *ret_image)
{
	return IO_MAPPED;
}

void io_ring_done(struct io *io, uint64_t unit)
{
}

void io_ring_stop(struct io *io)
{
}

#endif
