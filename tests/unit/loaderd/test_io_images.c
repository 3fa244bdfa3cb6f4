/*
 * Read-ahead of further images: those that a feed delivers come with the sample, through the ring's
 * buffer or by the look-ahead of the mapping, and others are not read. As in test_io.c, the ring
 * reads a second file with inverted bytes.
 */
#include "loaderd/io/extents.h"
#include "loaderd/io/io.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_batcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SAMPLES = 9, CUT = 5, LARGE = 320, SMALL = 20 };
/*
 * In the file, `near` follows the first image directly; `between`, which is not delivered, parts
 * `far` from them. Every third sample lacks `far`.
 */
enum { NEAR, BETWEEN, FAR, IMAGES };
static const char schema[] = "image: image u8[h,w,3]\n"
			     "near: image u8[h,w,3]\n"
			     "between: image u8[h,w,3]\n"
			     "far: image u8[h,w,3] sparse\n";

static char path[] = "/tmp/loaderd-io-images-XXXXXX";
static struct dataset *dataset;
static struct io_buffer buffer;

static bool lacks_far(uint64_t index)
{
	return index % 3 == 2;
}

static void add_image(struct test_dataset *data, uint32_t image, const struct packimg_item *item)
{
	struct packimg_error error;
	if (packimg_writer_image(data->writer, image, item, &error) < 0)
		fail_msg("%s", error.text);
}

static void write_dataset(void)
{
	static uint8_t pixels[LARGE * LARGE * 3];
	const struct packimg_item large = test_item(pixels, LARGE, LARGE);
	struct packimg_error error;
	struct test_dataset data;
	uint32_t noise = 1;
	for (size_t i = 0; i < sizeof(pixels); i++) {
		noise = noise * 1664525 + 1013904223;
		pixels[i] = (uint8_t)(noise >> 24);
	}
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_schema(data.writer, schema, &error), 0);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		test_dataset_add(&data, &large);
		struct packimg_item near = test_item(pixels, SMALL, SMALL);
		test_item_to_jpeg(&data, &near, 90);
		test_item_index(&data, &near);
		add_image(&data, NEAR, &near);
		add_image(&data, BETWEEN, &large);
		if (!lacks_far(i))
			add_image(&data, FAR, &large);
	}
	test_dataset_finish(&data);
}

static struct packimg_sample mapped_image(uint64_t index, uint32_t image)
{
	struct packimg_sample found;
	assert_int_equal(packimg_image(dataset->image, index, image, &found), 0);
	return found;
}

static struct packimg_sample mapped_sample(uint64_t index)
{
	struct packimg_sample found;
	assert_int_equal(packimg_sample(dataset->image, index, &found), 0);
	return found;
}

static struct io_options options_for(struct dataset *of, enum io_mode mode, uint64_t bytes,
				     unsigned depth, const int *direct)
{
	struct io_options options = {
		.dataset = of,
		.walk = {.order = {.samples = SAMPLES,
				   .batch_size = 2,
				   .world = 1,
				   .shuffle = true,
				   .seed = 5,
				   .last_short = true},
			 .epoch_end = 2},
		.mode = mode,
		.bytes = bytes,
		.queue_depth = depth,
		.images = {NEAR, FAR},
		.image_count = 2,
		.direct = direct,
		.direct_count = direct != NULL,
	};
	assert_int_equal(order_init(&options.walk.order), 0);
	return options;
}

/* Calls `look` for each sample of the feed, between io_get() and io_done(). */
static void for_each(const struct io_options *options,
		     void (*look)(struct io *io, uint64_t unit, uint64_t index, int result,
				  const struct packimg_sample *read))
{
	struct order_walk walk = options->walk;
	struct io_buffer first = {0};
	uint64_t index, seen = 0;
	struct io *io;
	int place;
	assert_int_equal(io_new(options, &io), 0);
	for (uint64_t unit = 0; (place = order_walk_at(&walk, unit, &index)) >= 0; unit++) {
		struct packimg_sample sample;
		struct packimg_error error = {{0}};
		io_begun(io, unit + 1);
		if (place == 0)
			continue;
		int r = io_get(io, unit, index, &first, &sample, &error);
		look(io, unit, index, r, &sample);
		io_done(io, unit);
		seen++;
	}
	io_free(io);
	io_buffer_deinit(&first);
	assert_int_equal(seen, 2 * SAMPLES);
}

/* Asserts that bytes are those of the mapping, or their inverse, and lie elsewhere. */
static void assert_bytes(const uint8_t *read, const uint8_t *mapped, uint32_t size,
			 uint8_t difference)
{
	assert_ptr_not_equal(read, mapped);
	for (uint32_t i = 0; i < size; i++)
		if (read[i] != (mapped[i] ^ difference))
			fail_msg("byte %u of %u is %u and not %u", i, size, read[i],
				 mapped[i] ^ difference);
}

static void assert_image(const struct packimg_sample *read, const struct packimg_sample *mapped,
			 uint8_t difference)
{
	assert_int_equal(read->index, mapped->index);
	assert_int_equal(read->width, mapped->width);
	assert_int_equal(read->data_size, mapped->data_size);
	assert_int_equal(read->side_size, mapped->side_size);
	assert_bytes(read->data, mapped->data, mapped->data_size, difference);
	if (mapped->side)
		assert_bytes(read->side, mapped->side, mapped->side_size, difference);
}

/* Asserts where a further image of a unit comes from. difference: see assert_bytes(). */
static void assert_further(struct io *io, uint64_t unit, uint64_t index, uint32_t image,
			   uint8_t difference)
{
	struct packimg_sample read;
	struct packimg_error error;
	const struct packimg_sample mapped = mapped_image(index, image);
	assert_int_equal(io_get_image(io, unit, index, image, &buffer, &read, &error), 0);
	assert_image(&read, &mapped, difference);
}

static void assert_mapped(struct io *io, uint64_t unit, uint64_t index, uint32_t image)
{
	struct packimg_sample read;
	struct packimg_error error;
	assert_int_equal(io_get_image(io, unit, index, image, &buffer, &read, &error), 0);
	assert_ptr_equal(read.data, mapped_image(index, image).data);
}

static void assert_missing(struct io *io, uint64_t unit, uint64_t index)
{
	struct packimg_sample read;
	struct packimg_error error;
	assert_int_equal(io_get_image(io, unit, index, FAR, &buffer, &read, &error), -ENODATA);
}

static void need_uring(void)
{
	if (!io_can_uring())
		skip();
}

static void look_ring(struct io *io, uint64_t unit, uint64_t index, int result,
		      const struct packimg_sample *read)
{
	const struct packimg_sample mapped = mapped_sample(index);
	assert_int_equal(result, IO_READ);
	assert_image(read, &mapped, 0xff);
	assert_further(io, unit, index, NEAR, 0xff);
	assert_mapped(io, unit, index, BETWEEN);
	assert_mapped(io, IO_NO_UNIT, index, NEAR);
	if (lacks_far(index))
		assert_missing(io, unit, index);
	else
		assert_further(io, unit, index, FAR, 0xff);
}

/* Also if a unit has more reads than may be in flight, and if the buffer holds few units. */
TEST(further_images_come_with_the_sample)
{
	need_uring();
	const int fd = opposite_file(dataset);
	const struct io_options roomy = options_for(dataset, IO_URING, 8 << 20, 4, &fd);
	const struct io_options single = options_for(dataset, IO_URING, 8 << 20, 1, &fd);
	const struct io_options narrow = options_for(dataset, IO_URING, 3 << 20, 4, &fd);
	for_each(&roomy, look_ring);
	for_each(&single, look_ring);
	for_each(&narrow, look_ring);
	close(fd);
}

static void look_first_fits(struct io *io, uint64_t unit, uint64_t index, int result,
			    const struct packimg_sample *read)
{
	assert_int_equal(result, IO_READ);
	assert_further(io, unit, index, NEAR, 0xff);
	if (!lacks_far(index))
		assert_mapped(io, unit, index, FAR);
}

/* The ring still reads those parts that fit into a quarter of the buffer. */
TEST(leaves_images_that_do_not_fit)
{
	need_uring();
	const int fd = opposite_file(dataset);
	const uint64_t bytes = 4 * (LARGE * LARGE * 3 + 4 * IO_BLOCK + IO_GAP_MAX);
	const struct io_options options = options_for(dataset, IO_URING, bytes, 4, &fd);
	for_each(&options, look_first_fits);
	close(fd);
}

static void look_cut(struct io *io, uint64_t unit, uint64_t index, int result,
		     const struct packimg_sample *read)
{
	if (index < CUT - 1)
		assert_int_equal(result, IO_READ);
	else
		assert_int_equal(result, -EIO);
}

/* The file ends within the last further image of a sample whose first image is whole. */
TEST(cut_image_fails_its_sample)
{
	need_uring();
	const int fd = opposite_file(dataset);
	const struct io_options options = options_for(dataset, IO_URING, 8 << 20, 4, &fd);
	assert_false(lacks_far(CUT - 1));
	assert_int_equal(
		ftruncate(fd, (off_t)(mapped_image(CUT - 1, FAR).data_offset / IO_BLOCK * IO_BLOCK +
				      IO_BLOCK)),
		0);
	for_each(&options, look_cut);
	close(fd);
}

static void look_equal(struct io *io, uint64_t unit, uint64_t index, int result,
		       const struct packimg_sample *read)
{
	const struct packimg_sample mapped = mapped_sample(index);
	assert_int_equal(result, IO_READ);
	assert_image(read, &mapped, 0);
	assert_further(io, unit, index, NEAR, 0);
	assert_further(io, unit, index, BETWEEN, 0);
	if (lacks_far(index))
		assert_missing(io, unit, index);
	else
		assert_further(io, unit, index, FAR, 0);
}

TEST(what_is_not_mapped_has_the_same_bytes)
{
	struct packimg_error error;
	struct dataset *unmapped;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(
		dataset_open(&(struct dataset_files){path, &fd, 1}, 1, false, &unmapped, &error),
		0);
	const struct io_options copied = options_for(unmapped, IO_MMAP, 8 << 20, 4, NULL);
	for_each(&copied, look_equal);
	if (io_can_uring()) {
		const struct io_options ring = options_for(unmapped, IO_URING, 8 << 20, 4, NULL);
		for_each(&ring, look_equal);
	}
	dataset_free(unmapped);
}

/* Whether the page in the middle of an image is in the page cache. */
static bool is_cached(const struct packimg_sample *image)
{
	unsigned char resident = 0;
	uintptr_t at = (uintptr_t)image->data + image->data_size / 2;
	assert_int_equal(mincore((void *)(at / IO_BLOCK * IO_BLOCK), 1, &resident), 0);
	return resident & 1;
}

TEST(looks_ahead_of_the_mapping)
{
	const struct io_options options = options_for(dataset, IO_MMAP, 64 << 20, 4, NULL);
	struct packimg_sample first, far, between;
	struct io *io;
	dataset_free(dataset); /* the kernel does not drop pages that are mapped */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
	dataset = own_dataset(path);
	struct io_options cold = options;
	cold.dataset = dataset;
	first = mapped_sample(SAMPLES / 2);
	far = mapped_image(SAMPLES / 2, FAR);
	between = mapped_image(SAMPLES / 2, BETWEEN);
	if (is_cached(&first) || is_cached(&far) || is_cached(&between))
		skip(); /* the file system keeps all in memory */
	assert_int_equal(io_new(&cold, &io), 0);
	io_begun(io, 1);
	while (!is_cached(&first) || !is_cached(&far))
		usleep(1000);
	assert_false(is_cached(&between));
	io_free(io);
}

TEST(neighbours_are_one_extent)
{
	struct io_extent extents[] = {
		{10 * IO_BLOCK, 11 * IO_BLOCK}, /* within the next */
		{9 * IO_BLOCK, 12 * IO_BLOCK},
		{400 * IO_BLOCK, 401 * IO_BLOCK},
		{12 * IO_BLOCK + IO_GAP_MAX - 1, 32 * IO_BLOCK},          /* near */
		{32 * IO_BLOCK + IO_GAP_MAX, 33 * IO_BLOCK + IO_GAP_MAX}, /* far */
	};
	static const uint8_t expected[] = {0, 0, 2, 0, 1};
	uint8_t of[5];
	assert_int_equal(io_extents_merge(extents, 5, of), 3);
	assert_memory_equal(of, expected, sizeof(of));
	assert_int_equal(extents[0].begin, 9 * IO_BLOCK);
	assert_int_equal(extents[0].end, 32 * IO_BLOCK);
	assert_int_equal(extents[1].begin, 32 * IO_BLOCK + IO_GAP_MAX);
	assert_int_equal(extents[2].end, 401 * IO_BLOCK);
}

static int set_up(void **state)
{
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	write_dataset();
	dataset = own_dataset(path);
	return 0;
}

static int tear_down(void **state)
{
	dataset_free(dataset);
	io_buffer_deinit(&buffer);
	unlink(path);
	return 0;
}

TEST_MAIN(set_up, tear_down)
