/*
 * Samples decoded ahead of files that are being filled: what was decoded of another turn is not
 * used, though the sample's bytes and turn are right when it is made.
 */
#include "format/base/system/ticks.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_batcher.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { SAMPLES = 8, SIDE = 64, FLIP = 0x10 };

static char folder[] = "/tmp/loaderd-filling-XXXXXX";
static char path[128];
static int file, map_fd;
static _Atomic uint8_t *turns;
static struct dataset *dataset;
static bool wrong[SAMPLES]; /* the file has other bytes of these samples */

/* Changes a byte in the middle of a sample, or changes it back. */
static void flip(uint64_t index)
{
	struct packimg_sample sample;
	uint8_t byte;
	assert_int_equal(packimg_sample(dataset->image, index, &sample), 0);
	off_t at = (off_t)(sample.data_offset + sample.data_size / 2);
	assert_int_equal(pread(file, &byte, 1, at), 1);
	byte ^= FLIP;
	assert_int_equal(pwrite(file, &byte, 1, at), 1);
	wrong[index] = !wrong[index];
}

int __real_filling_look(struct filling *filling, struct filling_units *units, uint64_t index,
			uint8_t *ret_turn, struct packimg_error *error);
int __wrap_filling_look(struct filling *filling, struct filling_units *units, uint64_t index,
			uint8_t *ret_turn, struct packimg_error *error);

/* The sample is fetched again between decoding ahead and making it. */
int __wrap_filling_look(struct filling *filling, struct filling_units *units, uint64_t index,
			uint8_t *ret_turn, struct packimg_error *error)
{
	if (wrong[index]) {
		flip(index);
		atomic_fetch_add(&turns[index], 2);
	}
	return __real_filling_look(filling, units, index, ret_turn, error);
}

static int set_up(void **state)
{
	static uint8_t pixels[SIDE * SIDE * 3];
	struct test_dataset data;
	uint32_t noise = 1;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/filling.pimg", folder);
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		for (size_t j = 0; j < sizeof(pixels); j++) {
			noise = noise * 1664525 + 1013904223;
			pixels[j] = (uint8_t)(noise >> 25);
		}
		struct packimg_item item = test_item(pixels, SIDE, SIDE);
		test_item_to_jpeg(&data, &item, 90);
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	file = open(path, O_RDWR | O_CLOEXEC);
	assert_true(file >= 0);
	assert_int_equal(sigbus_guard_install(), 0);
	ticks_init();
	dataset = own_dataset(path);
	return 0;
}

static int tear_down(void **state)
{
	dataset_free(dataset);
	close(file);
	unlink(path);
	rmdir(folder);
	return 0;
}

static void no_doorbell(void *user)
{
}

static void no_report(void *user, struct dataset *d, uint64_t index, const char *text)
{
	fail_msg("sample %u: %s", (unsigned)index, text);
}

static void never_ready(void *user, struct batcher *batcher, uint64_t units)
{
	fail_msg("all samples are there");
}

static void *map_memory(int fd, size_t size)
{
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static struct filling *new_filling(void)
{
	int page_fd = memfd_create("page", MFD_CLOEXEC);
	struct filling *filling;
	map_fd = memfd_create("map", MFD_CLOEXEC);
	turns = map_memory(map_fd, SAMPLES);
	for (unsigned i = 0; i < SAMPLES; i++)
		atomic_store(&turns[i], FILLING_PRESENT);
	struct filling_part *part = malloc(sizeof(*part));
	*part = (struct filling_part){.first = 0, .count = SAMPLES, .map_fd = map_fd};
	struct filling_options options = {.dataset = dataset,
					  .parts = part,
					  .part_count = 1,
					  .page = map_memory(page_fd, FILLING_PAGE_SIZE),
					  .timeout_ms = 60000,
					  .thread_indices = 1};
	close(page_fd);
	assert_int_equal(filling_new(&options, &filling), 0);
	dataset->filling = true;
	return filling;
}

static struct batcher *new_batcher(struct filling *filling)
{
	struct batcher_options options = {
		.dataset = dataset,
		.order = {.samples = SAMPLES, .batch_size = SAMPLES, .world = 1, .seed = 1},
		.slots = 2,
		.threads = 1,
		.thread_indices = 1,
		.doorbell = no_doorbell,
		.report = no_report,
		.ready = never_ready,
		.io = {.mode = IO_MMAP, .bytes = 1 << 20, .filling = filling},
	};
	struct pipeline_error error;
	assert_int_equal(order_init(&options.order), 0);
	assert_int_equal(pipeline_parse("resize(32x32)", &options.pipeline, &error), 0);
	return fake_batcher(&options);
}

/* Makes the next batch, which is the same in each epoch, and returns a copy of its images. */
static uint8_t *next_batch(struct batcher *batcher, struct batcher_thread *thread,
			   struct ring_consumer *ring, size_t *ret_size)
{
	const struct ring_slot *slot;
	uint64_t begun;
	while (!(slot = ring_take(ring)))
		batcher_work(batcher, thread, &begun);
	const struct ring_section *images = &ring->layout.sections[RING_IMAGES];
	*ret_size = SAMPLES * 32 * 32 * 3;
	uint8_t *copy = malloc(*ret_size);
	assert_non_null(copy);
	memcpy(copy, (const uint8_t *)slot + images->offset, *ret_size);
	if (ring_ack(ring, slot->number) == 1)
		batcher_kick(batcher);
	return copy;
}

TEST(what_was_decoded_of_another_turn_is_not_used)
{
	enum { BATCHES = 20 };
	struct filling *filling = new_filling();
	struct batcher *batcher = new_batcher(filling);
	struct batcher_thread thread = {.alone = true};
	struct ring_consumer ring;
	size_t size;
	assert_int_equal(pipeline_scratch_new(&thread.scratch), 0);
	thread_clock_init(&thread.clock);
	assert_int_equal(ring_consumer_map(&ring, batcher->ring.ring_fd, batcher->ring.ack_fd,
					   RING_MAP_READ_ONLY),
			 0);
	assert_int_equal(ring_producer_start(&batcher->ring), 0);
	assert_int_equal(ring_consumer_check(&ring), 0);
	uint8_t *expected = next_batch(batcher, &thread, &ring, &size);
	for (unsigned n = 0; n < BATCHES; n++) {
		bool together = atomic_load(&batcher->together);
		for (uint64_t i = 0; i < SAMPLES; i++)
			flip(i);
		uint8_t *images = next_batch(batcher, &thread, &ring, &size);
		assert_memory_equal(images, expected, size);
		free(images);
		for (uint64_t i = 0; i < SAMPLES; i++)
			assert_false(wrong[i]);
		assert_true(n == 0 || together); /* they were decoded ahead */
	}
	free(expected);
	batcher_stop(batcher);
	ring_consumer_deinit(&ring);
	batcher_free(batcher);
	filling_free(filling);
	munmap(turns, SAMPLES);
	pipeline_scratch_free(thread.scratch);
	thread_clock_deinit(&thread.clock);
	batcher_forget_buffers(&thread);
}

TEST_MAIN(set_up, tear_down)
