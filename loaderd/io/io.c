#include "loaderd/io/io.h"

#include "loaderd/io/extents.h"
#include "loaderd/io/filling.h"
#include "loaderd/io/futex.h"
#include "loaderd/io/io_internal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	/* While the data seem to be cached, probe one sample in PROBE_INTERVAL. */
	PROBE_INTERVAL = 16,
	/* consecutive successful probes after which the data count as cached */
	PROBES_WARM = 64,
	/*
	 * after this many, probe only one sample in PROBE_INTERVAL_LONG: a probe costs system calls
	 */
	PROBES_SURE = 1024,
	PROBE_INTERVAL_LONG = 256,
	/* Bytes that one probe reads of a sample. */
	PROBE_BYTES = 4,
	AHEAD_UNITS_MAX = 1 << 16,
};
/* A longer read-ahead distance gains nothing even on slow storage, and costs page cache. */
#define MMAP_AHEAD_BYTES (UINT64_C(128) << 20)

enum io_mode io_choose(uint64_t dataset_bytes, uint64_t memory_bytes)
{
	/* Leave a quarter of memory for batches and programs. */
	return dataset_bytes > memory_bytes / 4 * 3 && io_can_uring() ? IO_URING : IO_MMAP;
}

void io_wake(struct io *io)
{
	atomic_store(&io->asleep, false);
	atomic_fetch_add(&io->wake_word, 1);
	futex_wake(&io->wake_word, 1);
}

void io_sleep(struct io *io, bool (*look)(struct io *io))
{
	uint32_t word = atomic_load(&io->wake_word);
	atomic_store(&io->asleep, true);
	if (!look(io) && !atomic_load(&io->stopping))
		futex_wait(&io->wake_word, word);
	atomic_store(&io->asleep, false);
}

uint64_t io_target(struct io *io)
{
	uint64_t target = atomic_load(&io->limit) + io->ahead_units;
	io->known_seen = atomic_load(&io->known);
	return target < io->known_seen ? target : io->known_seen;
}

bool io_more_known(const struct io *io)
{
	return atomic_load(&io->known) > io->known_seen;
}

uint32_t io_part_count(const struct io *io)
{
	return 1 + io->options.image_count;
}

int io_lookup(struct io *io, uint64_t index, uint32_t part, struct packimg_sample *ret_image)
{
	struct dataset *dataset = io->options.dataset;
	sigbus_guard_enter(&dataset->guard);
	int r = part == 0 ? packimg_sample(dataset->image, index, ret_image)
			  : packimg_image(dataset->image, index, io->options.images[part - 1],
					  ret_image);
	if (sigbus_guard_leave()) {
		atomic_store(&dataset->suspect, true);
		r = -EBADMSG;
	}
	return r;
}

/* Pages of a file that hold stored bytes. */
struct pages {
	void *begin;
	size_t size;
	uint64_t offset; /* offset of `begin` in the file */
	int fd;
};

/* Sets ret_pages, at most IO_PARTS_MAX, to the pages of a sample. Returns their number. */
static uint32_t io_pages_of(struct io *io, uint64_t index, uintptr_t page, struct pages *ret_pages)
{
	struct io_extent extents[IO_PARTS_MAX];
	uint8_t of[IO_PARTS_MAX];
	uint32_t count = 0, shard_number = 0;
	struct packimg_shard shard;
	for (uint32_t part = 0; part < io_part_count(io); part++) {
		struct packimg_sample image;
		uint64_t side_offset;
		if (io_lookup(io, index, part, &image) < 0)
			continue;
		shard_number = image.shard;
		extents[count++] = io_extent_of(&image, &side_offset);
	}
	if (packimg_shard(io->options.dataset->image, shard_number, &shard) < 0)
		return 0;
	count = io_extents_merge(extents, count, of);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t begin = extents[i].begin & ~(uint64_t)(page - 1);
		uint64_t end = (extents[i].end + page - 1) & ~(uint64_t)(page - 1);
		ret_pages[i] = (struct pages){
			.begin = (uint8_t *)shard.map + begin,
			.size = end - begin,
			.offset = begin,
			.fd = shard.fd,
		};
	}
	return count;
}

/*
 * mincore() reports every page resident for files of other users, so probe with RWF_NOWAIT reads
 * instead. Read only a few bytes, spread over the pages, because preadv2() copies.
 */
static bool io_resident(const struct pages *pages, uintptr_t page)
{
	for (unsigned i = 0; i < PROBE_BYTES; i++) {
		char byte;
		struct iovec iov = {&byte, 1};
		uint64_t at = pages->size / page * i / PROBE_BYTES * page;
		if (preadv2(pages->fd, &iov, 1, (off_t)(pages->offset + at), RWF_NOWAIT) != 1)
			return false;
	}
	return true;
}

static bool io_all_resident(const struct pages *pages, uint32_t count, uintptr_t page)
{
	for (uint32_t i = 0; i < count; i++)
		if (!io_resident(&pages[i], page))
			return false;
	return true;
}

struct prober {
	uintptr_t page;
	uint64_t position; /* next unit to probe */
	unsigned found;    /* consecutive probes that found their sample cached */
	bool ended;
};

/* Requests read-ahead of one unit unless the data seem to be cached. */
static void io_look_ahead(struct io *io, struct prober *prober, uint64_t unit)
{
	bool warm = prober->found >= PROBES_WARM;
	bool probe =
		unit % (prober->found >= PROBES_SURE ? PROBE_INTERVAL_LONG : PROBE_INTERVAL) == 0;
	uint64_t index;
	struct pages pages[IO_PARTS_MAX];
	if (warm && !probe)
		return;
	int r = order_walk_at(&io->options.walk, unit, &index);
	prober->ended = r == -ENODATA;
	if (r == 1 && io->options.filling && !filling_has(io->options.filling, index))
		return;
	uint32_t count = r == 1 ? io_pages_of(io, index, prober->page, pages) : 0;
	if (count == 0)
		return;
	if (probe)
		prober->found = io_all_resident(pages, count, prober->page) ? prober->found + 1 : 0;
	for (uint32_t i = 0; i < count && prober->found < PROBES_WARM; i++)
		madvise(pages[i].begin, pages[i].size, MADV_WILLNEED);
}

static bool limit_has_come(struct io *io)
{
	return atomic_load(&io->limit) >= atomic_load(&io->wake_limit) || io_more_known(io);
}

static void *mmap_main(void *argument)
{
	struct io *io = argument;
	struct prober prober = {.page = (uintptr_t)sysconf(_SC_PAGESIZE)};
	while (!atomic_load_explicit(&io->stopping, memory_order_relaxed) && !prober.ended) {
		uint64_t limit = atomic_load(&io->limit);
		uint64_t target = io_target(io);
		/*
		 * If workers have overtaken the thread, for example after a pause, skip the units
		 * that they have passed.
		 */
		if (prober.position < limit && limit - prober.position > io->ahead_units)
			prober.position = limit;
		while (prober.position < target && !prober.ended &&
		       !atomic_load_explicit(&io->stopping, memory_order_relaxed))
			io_look_ahead(io, &prober, prober.position++);
		/*
		 * Wake after a quarter of the distance: the smaller the samples, the higher the
		 * relative cost of waking.
		 */
		atomic_store(&io->wake_limit, limit + io->ahead_units / 4 + 1);
		io_sleep(io, limit_has_come);
	}
	return NULL;
}

static uint64_t ahead_units(const struct io_options *options)
{
	uint64_t bytes = options->bytes;
	uint64_t sample_bytes = options->dataset->bytes / options->dataset->count + 1;
	if (options->mode == IO_MMAP && bytes > MMAP_AHEAD_BYTES)
		bytes = MMAP_AHEAD_BYTES;
	uint64_t units = bytes / sample_bytes;
	return units < 16 ? 16 : units > AHEAD_UNITS_MAX ? AHEAD_UNITS_MAX : units;
}

static int io_start_thread(struct io *io)
{
	sigset_t blocked, old;
	sigfillset(&blocked);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	int r = -pthread_create(&io->thread, NULL,
				io->options.mode == IO_URING ? io_ring_main : mmap_main, io);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	io->started = r == 0;
	if (r == 0)
		pthread_setname_np(io->thread, "read-ahead");
	return r;
}

int io_new(const struct io_options *options, struct io **ret_io)
{
	struct io *io = aligned_alloc(64, sizeof(*io));
	if (!io)
		return -ENOMEM;
	memset(io, 0, sizeof(*io));
	io->options = *options;
	io->ahead_units = ahead_units(options);
	io->known = options->walk.wants ? 0 : UINT64_MAX;
	int r = options->mode == IO_URING ? io_ring_new(io) : 0;
	/*
	 * No read-ahead for unmapped datasets: there is no range to advise, and record lookups
	 * would allocate pages.
	 */
	if (r == 0 && (options->mode == IO_URING || options->dataset->mapped))
		r = io_start_thread(io);
	if (r < 0) {
		io_free(io);
		return r;
	}
	*ret_io = io;
	return 0;
}

void io_free(struct io *io)
{
	if (!io)
		return;
	io_stop(io);
	if (io->started)
		pthread_join(io->thread, NULL);
	io_ring_free(io->ring);
	free(io);
}

enum io_mode io_mode_of(const struct io *io)
{
	return io->options.mode;
}

void io_begun(struct io *io, uint64_t limit)
{
	atomic_store(&io->limit, limit);
	if (atomic_load(&io->asleep) && limit >= atomic_load(&io->wake_limit))
		io_wake(io);
}

void io_known(struct io *io, uint64_t limit)
{
	atomic_store(&io->known, limit);
	io_wake(io);
}

int io_get_other(struct io *io, uint64_t index, struct io_buffer *buffer,
		 struct packimg_sample *ret_sample, struct packimg_error *error)
{
	struct dataset *dataset = io->options.dataset;
	return dataset->mapped ? IO_MAPPED : io_copy(dataset, index, buffer, ret_sample, error);
}

int io_get_image(struct io *io, uint64_t unit, uint64_t index, uint32_t image,
		 struct io_buffer *buffer, struct packimg_sample *ret_image,
		 struct packimg_error *error)
{
	struct dataset *dataset = io->options.dataset;
	if (io->ring && unit != IO_NO_UNIT && io_ring_image(io, unit, image, ret_image) == IO_READ)
		return 0;
	int r = dataset_image(dataset, index, image, ret_image, error);
	if (r < 0 || dataset->mapped)
		return r;
	r = io_copy_sample(dataset, ret_image, buffer, error);
	return r < 0 ? r : 0;
}

int io_get(struct io *io, uint64_t unit, uint64_t index, struct io_buffer *buffer,
	   struct packimg_sample *ret_sample, struct packimg_error *error)
{
	int r = io->ring ? io_ring_get(io, unit, index, ret_sample, error) : IO_MAPPED;
	return r == IO_MAPPED ? io_get_other(io, index, buffer, ret_sample, error) : r;
}

void io_done(struct io *io, uint64_t unit)
{
	if (io->ring)
		io_ring_done(io, unit);
}

void io_stop(struct io *io)
{
	atomic_store(&io->stopping, true);
	io_wake(io);
	if (io->ring)
		io_ring_stop(io);
}
