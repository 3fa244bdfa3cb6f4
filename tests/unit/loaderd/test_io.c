/*
 * Sources of a feed's stored bytes. With IO_URING, bytes are read into the ring's buffer from the
 * given fd: to prove it, the test passes a second file with inverted bytes. If a dataset is not
 * mapped, both modes read or copy all bytes, with the same contents; accessing the file in place
 * would fault.
 */
#include "loaderd/io/io.h"

#include "format/base/poison.h"
#include "format/layout.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_batcher.h"

#include <fcntl.h>
#include <xxhash.h>

enum { SAMPLES = 37, BATCH_SIZE = 8, EPOCHS = 3 };
enum { SIDE_MIN = 16, SIDE_STEP = 3, SIDE_MAX = SIDE_MIN + SAMPLES * SIDE_STEP };
enum { BLOCK = 4096, TAIL = 64 };

static char path[] = "/tmp/loaderd-io-XXXXXX", swapped_path[] = "/tmp/loaderd-io-apart-XXXXXX";
/* dataset: mapped. apart: the side data of each sample is stored after another sample's bytes. */
static struct dataset *dataset, *unmapped, *swapped, *apart_unmapped;
static struct io_buffer buffer;

/* Writes JPEGs with an index, each larger than the one before. */
static void write_dataset(void)
{
	static uint8_t pixels[SIDE_MAX * SIDE_MAX * 3];
	struct test_dataset data;
	uint32_t noise = 1;
	test_dataset_begin(&data, path, 0);
	for (size_t i = 0; i < sizeof(pixels); i++) {
		noise = noise * 1664525 + 1013904223;
		pixels[i] = (uint8_t)(noise >> 24);
	}
	for (uint32_t i = 1; i <= SAMPLES; i++) {
		const uint32_t side = SIDE_MIN + i * SIDE_STEP;
		struct packimg_item item = test_item(pixels, side, side);
		test_item_to_jpeg(&data, &item, 95);
		test_item_index(&data, &item);
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
}

static struct packimg_shard shard_of_dataset(void)
{
	struct packimg_shard shard;
	assert_int_equal(packimg_shard(dataset->image, 0, &shard), 0);
	return shard;
}

static struct packimg_sample mapped_sample(uint64_t index)
{
	struct packimg_sample sample;
	assert_int_equal(packimg_sample(dataset->image, index, &sample), 0);
	return sample;
}

static struct io_options options_for(enum io_mode mode, uint64_t bytes, const int *direct)
{
	struct io_options options = {
		.dataset = dataset,
		.walk = {.order = {.samples = SAMPLES,
				   .batch_size = BATCH_SIZE,
				   .world = 1,
				   .shuffle = true,
				   .seed = 5,
				   .last_short = true},
			 .epoch_end = EPOCHS},
		.mode = mode,
		.bytes = bytes,
		.queue_depth = 4,
		.direct = direct,
		.direct_count = direct != NULL,
	};
	assert_int_equal(order_init(&options.walk.order), 0);
	return options;
}

/*
 * Calls `look` with the result of io_get() for each sample of the feed. Its argument `read` is NULL
 * if nothing was read.
 */
static void for_each(const struct io_options *options,
		     void (*look)(int result, const struct packimg_sample *read, uint64_t index))
{
	struct order_walk walk = options->walk;
	struct packimg_sample last = {0};
	uint64_t index, seen = 0;
	struct io *io;
	int place;
	assert_int_equal(io_new(options, &io), 0);
	assert_int_equal(io_mode_of(io), options->mode);
	for (uint64_t unit = 0; (place = order_walk_at(&walk, unit, &index)) >= 0; unit++) {
		struct packimg_sample sample;
		struct packimg_error error = {{0}};
		io_begun(io, unit + 1);
		if (place == 0)
			continue;
		int r = io_get(io, unit, index, &buffer, &sample, &error);
		look(r, r == IO_READ ? &sample : NULL, index);
		assert_int_equal(r < 0, error.text[0] != '\0');
		if (r == IO_READ)
			last = sample;
		io_done(io, unit);
		seen++;
	}
	/*
	 * no read follows the last unit, so its memory in the buffer is not reused and stays
	 * poisoned
	 */
	if (POISON_IS_SEEN && last.data && options->dataset->mapped)
		assert_ptr_equal(poison_find(last.data, last.data_size), last.data);
	io_free(io);
	assert_int_equal(seen, SAMPLES * EPOCHS);
}

/*
 * Asserts that the bytes were read: they are outside the mapping, and equal to its bytes or to
 * their inverse.
 */
static void assert_bytes(const uint8_t *read, const uint8_t *mapped, uint32_t size,
			 uint8_t difference)
{
	const struct packimg_shard shard = shard_of_dataset();
	assert_true(read + size <= shard.map || read >= shard.map + shard.size);
	for (uint32_t i = 0; i < size; i++)
		if (read[i] != (mapped[i] ^ difference))
			fail_msg("byte %u of %u is %u and not %u", i, size, read[i],
				 mapped[i] ^ difference);
}

static void assert_read(int result, const struct packimg_sample *read, uint64_t index,
			uint8_t difference)
{
	const struct packimg_sample mapped = mapped_sample(index);
	assert_int_equal(result, IO_READ);
	assert_int_equal(read->index, index);
	assert_int_equal(read->data_size, mapped.data_size);
	assert_int_equal(read->side_size, mapped.side_size);
	assert_bytes(read->data, mapped.data, mapped.data_size, difference);
	assert_bytes(read->side, mapped.side, mapped.side_size, difference);
}

static void check_equal(int result, const struct packimg_sample *read, uint64_t index)
{
	assert_read(result, read, index, 0);
}

static void check_inverted(int result, const struct packimg_sample *read, uint64_t index)
{
	assert_read(result, read, index, 0xff);
}

static void look_mapped(int result, const struct packimg_sample *read, uint64_t index)
{
	assert_int_equal(result, IO_MAPPED);
}

/* Sizes the buffer for one read of the last sample, which is the largest, with its index. */
static uint64_t largest(void)
{
	const struct packimg_sample sample = mapped_sample(SAMPLES - 1);
	uint64_t end = sample.data_offset + (uint64_t)(sample.side - sample.data) +
		       sample.side_size + TAIL;
	return (end + BLOCK - 1) / BLOCK * BLOCK - sample.data_offset / BLOCK * BLOCK;
}

static void need_uring(void)
{
	if (!io_can_uring())
		skip();
}

TEST(reads_past_the_mapping)
{
	need_uring();
	const struct io_options roomy = options_for(IO_URING, 8 << 20, NULL);
	const struct io_options narrow = options_for(IO_URING, 4 * largest(), NULL);
	for_each(&roomy, check_equal);
	for_each(&narrow, check_equal);
}

/* As if the file, which tells the sample of a draw by class, had changed since it was read ahead.
 */
TEST(reads_of_another_sample_are_bad)
{
	need_uring();
	const struct io_options options = options_for(IO_URING, 8 << 20, NULL);
	struct order_walk walk = options.walk;
	struct packimg_sample sample;
	struct io *io;
	assert_int_equal(io_new(&options, &io), 0);
	for (uint64_t unit = 0; unit < 4; unit++) {
		struct packimg_error error = {{0}};
		uint64_t index;
		assert_int_equal(order_walk_at(&walk, unit, &index), 1);
		io_begun(io, unit + 1);
		uint64_t asked = unit % 2 == 0 ? (index + 1) % SAMPLES : index;
		assert_int_equal(io_get(io, unit, asked, &buffer, &sample, &error),
				 unit % 2 == 0 ? -EBADMSG : IO_READ);
		assert_int_equal(unit % 2 == 0, error.text[0] != '\0');
		io_done(io, unit);
	}
	io_free(io);
}

TEST(reads_the_descriptors_it_is_given)
{
	need_uring();
	const int fd = opposite_file(dataset);
	const struct io_options options = options_for(IO_URING, 8 << 20, &fd);
	for_each(&options, check_inverted);
	close(fd);
}

static void look_large_mapped(int result, const struct packimg_sample *read, uint64_t index)
{
	if (index == SAMPLES - 1)
		assert_int_equal(result, IO_MAPPED);
	else if (result != IO_MAPPED)
		check_equal(result, read, index);
	if (index < SAMPLES / 2)
		assert_int_equal(result, IO_READ);
}

/* A sample must not occupy the whole buffer. */
TEST(leaves_what_is_too_large_for_the_buffer)
{
	need_uring();
	const struct io_options options = options_for(IO_URING, 4 * largest() - BLOCK, NULL);
	for_each(&options, look_large_mapped);
}

/*
 * Asserts that the byte is poisoned, except at the start of a block, which may belong to another
 * entry.
 */
static void assert_hidden(const uint8_t *byte)
{
	if ((uintptr_t)byte % BLOCK != 0)
		assert_ptr_equal(poison_find(byte, 1), byte);
}

static void look_hidden(int result, const struct packimg_sample *read, uint64_t index)
{
	assert_int_equal(result, IO_READ);
	assert_null(poison_find(read->data, read->data_size + (size_t)TAIL));
	assert_null(poison_find(read->side, read->side_size + (size_t)TAIL));
	/* ASan marks the end of a range exactly, its start at multiples of eight bytes */
	if ((uintptr_t)read->data % BLOCK != 0)
		assert_ptr_equal(poison_find(read->data - 1, 1), read->data - 1);
	assert_hidden(read->side + read->side_size + TAIL);
}

/* ASan detects reads outside an entry. */
TEST(hides_what_is_no_sample_from_workers)
{
	const struct io_options options = options_for(IO_URING, 8 << 20, NULL);
	if (!POISON_IS_SEEN)
		skip();
	for_each(&options, look_hidden);
}

/* Copies the dataset, and moves the first sample and its side data to other offsets and sizes. */
static void write_moved(char *copy, uint32_t data_size, uint32_t side_size)
{
	const struct packimg_shard shard = shard_of_dataset();
	uint8_t *bytes = malloc(shard.size);
	assert_non_null(bytes);
	memcpy(bytes, shard.map, shard.size);
	struct pimg_header *header = (struct pimg_header *)bytes;
	struct pimg_section *section = &header->sections[0];
	struct pimg_record *record = (struct pimg_record *)(bytes + section->offset);
	assert_int_equal(section->type, PIMG_SECTION_INDEX);
	record->data_offset = (shard.size + PIMG_ALIGN - 1) / PIMG_ALIGN * PIMG_ALIGN;
	record->data_size = data_size;
	record->side_offset =
		(record->data_offset + data_size + PIMG_ALIGN - 1) / PIMG_ALIGN * PIMG_ALIGN;
	record->side_size = side_size;
	header->file_size = record->side_offset + side_size + PIMG_TAIL;
	section->xxh3 = XXH3_64bits(bytes + section->offset, section->size);
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	int fd = mkstemp(copy);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, shard.size, 0), shard.size);
	assert_int_equal(ftruncate(fd, (off_t)header->file_size), 0);
	close(fd);
	free(bytes);
}

static void look_first_mapped(int result, const struct packimg_sample *read, uint64_t index)
{
	assert_int_equal(result, index == 0 ? IO_MAPPED : IO_READ);
}

/* The size of data and side data together overflows 32 bits but fits the buffer. */
TEST(leaves_what_is_too_large_for_a_read)
{
	struct dataset *small = dataset;
	struct io *io;
	char copy[] = "/tmp/loaderd-io-large-XXXXXX";
	const struct io_options options = options_for(IO_URING, UINT64_C(17) << 30, NULL);
	if (io_new(&options, &io) < 0)
		skip(); /* this machine cannot allocate a buffer of that size */
	io_free(io);
	write_moved(copy, UINT32_MAX, 1 << 20);
	dataset = own_dataset(copy);
	unlink(copy);
	struct io_options large = options;
	large.dataset = dataset;
	for_each(&large, look_first_mapped);
	dataset_free(dataset);
	dataset = small;
}

enum { FIRST_CUT = SAMPLES / 2 };

static void look_cut(int result, const struct packimg_sample *read, uint64_t index)
{
	if (index >= FIRST_CUT)
		assert_int_equal(result, -EIO);
	else if (index < FIRST_CUT - 1) /* the sample in between may end in the block where the file
					   is truncated */
		check_inverted(result, read, index);
}

TEST(tells_where_the_file_ends)
{
	need_uring();
	const int fd = opposite_file(dataset);
	const struct io_options options = options_for(IO_URING, 8 << 20, &fd);
	const uint64_t end = mapped_sample(FIRST_CUT).data_offset / BLOCK * BLOCK;
	assert_int_equal(ftruncate(fd, (off_t)end), 0);
	for_each(&options, look_cut);
	close(fd);
}

TEST(leaves_all_to_the_mapping)
{
	const struct io_options options = options_for(IO_MMAP, 8 << 20, NULL);
	for_each(&options, look_mapped);
}

static struct io_options unmapped_options(struct dataset *of, enum io_mode mode, uint64_t bytes)
{
	struct io_options options = options_for(mode, bytes, NULL);
	options.dataset = of;
	return options;
}

TEST(copies_what_is_not_mapped)
{
	const struct io_options options = unmapped_options(unmapped, IO_MMAP, 8 << 20);
	for_each(&options, check_equal);
}

/* Also covers samples that do not fit into the buffer. */
TEST(reads_or_copies_what_is_not_mapped)
{
	need_uring();
	const struct io_options roomy = unmapped_options(unmapped, IO_URING, 8 << 20);
	const struct io_options narrow =
		unmapped_options(unmapped, IO_URING, 4 * largest() - BLOCK);
	const struct io_options least = unmapped_options(unmapped, IO_URING, BLOCK);
	for_each(&roomy, check_equal);
	for_each(&narrow, check_equal);
	for_each(&least, check_equal);
}

static void check_swapped_index(int result, const struct packimg_sample *read, uint64_t index)
{
	struct packimg_sample mapped;
	assert_int_equal(packimg_sample(swapped->image, index, &mapped), 0);
	assert_int_equal(result, IO_READ);
	assert_int_equal(read->data_size, mapped.data_size);
	assert_int_equal(read->side_size, mapped.side_size);
	assert_memory_equal(read->data, mapped.data, mapped.data_size);
	assert_memory_equal(read->side, mapped.side, mapped.side_size);
	assert_int_equal((uintptr_t)read->data % TAIL, 0);
	assert_int_equal((uintptr_t)read->side % TAIL, 0);
	assert_int_equal(packimg_sample_check(read), 0);
}

TEST(copies_side_data_from_elsewhere)
{
	const struct io_options copied = unmapped_options(apart_unmapped, IO_MMAP, 8 << 20);
	const struct io_options ring = unmapped_options(apart_unmapped, IO_URING, 8 << 20);
	for_each(&copied, check_swapped_index);
	need_uring();
	for_each(&ring, check_swapped_index);
}

static void look_limited(int result, const struct packimg_sample *read, uint64_t index)
{
	const struct packimg_sample mapped = mapped_sample(index);
	uint64_t size = (uint64_t)(mapped.side - mapped.data) + mapped.side_size + TAIL;
	if (size > buffer.limit)
		assert_int_equal(result, -E2BIG);
	else
		check_equal(result, read, index);
}

TEST(limits_what_is_copied)
{
	const struct io_options options = unmapped_options(unmapped, IO_MMAP, 8 << 20);
	const struct packimg_sample middle = mapped_sample(SAMPLES / 2);
	buffer.limit = middle.data_size;
	for_each(&options, look_limited);
	buffer.limit = 0;
}

TEST(copies_other_samples)
{
	const struct io_options options = unmapped_options(unmapped, IO_MMAP, 8 << 20);
	struct packimg_sample sample;
	struct packimg_error error;
	struct io *io;
	assert_int_equal(io_new(&options, &io), 0);
	int r = io_get_other(io, SAMPLES - 1, &buffer, &sample, &error);
	assert_read(r, &sample, SAMPLES - 1, 0);
	dataset_condemn(unmapped, 3);
	assert_int_equal(io_get_other(io, 3, &buffer, &sample, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "found to be damaged before"));
	io_free(io);
}

/* The memory for a large sample is freed when a sample of normal size follows. */
TEST(gives_large_buffers_back)
{
	struct io_buffer one = {0};
	const uint64_t large = 64 << 20;
	assert_non_null(io_buffer_take(&one, 1));
	uint64_t usual = one.size;
	assert_non_null(io_buffer_take(&one, large));
	assert_true(one.size >= large);
	assert_non_null(io_buffer_take(&one, large - 1));
	assert_true(one.size >= large);
	assert_non_null(io_buffer_take(&one, 2));
	assert_int_equal(one.size, usual);
	io_buffer_deinit(&one);
}

static struct dataset *open_unmapped(const char *of)
{
	struct packimg_error error;
	struct dataset *opened;
	int fd = open(of, O_RDONLY | O_CLOEXEC);
	if (dataset_open(&(struct dataset_files){of, &fd, 1}, 1, false, &opened, &error) < 0)
		fail_msg("dataset_open: %s", error.text);
	return opened;
}

/* Rewrites the dataset so that sample i has the side data of sample SAMPLES - 1 - i. */
static void write_swapped_indexes(void)
{
	struct pimg_header header;
	struct pimg_record records[SAMPLES], changed[SAMPLES];
	const struct packimg_shard shard = shard_of_dataset();
	uint64_t index = 0;
	int fd = mkstemp(swapped_path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, shard.map, shard.size), shard.size);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	for (uint32_t i = 0; i < header.section_count; i++)
		if (header.sections[i].type == PIMG_SECTION_INDEX)
			index = header.sections[i].offset;
	assert_int_equal(pread(fd, records, sizeof(records), (off_t)index), sizeof(records));
	for (unsigned i = 0; i < SAMPLES; i++) {
		const struct pimg_record *other = &records[SAMPLES - 1 - i];
		changed[i] = records[i];
		changed[i].side_offset = other->side_offset;
		changed[i].side_size = other->side_size;
		changed[i].side_xxh3 = other->side_xxh3;
	}
	assert_int_equal(pwrite(fd, changed, sizeof(changed), (off_t)index), sizeof(changed));
	close(fd);
}

static int set_up(void **state)
{
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	write_dataset();
	dataset = own_dataset(path);
	unmapped = open_unmapped(path);
	write_swapped_indexes();
	swapped = own_dataset(swapped_path);
	apart_unmapped = open_unmapped(swapped_path);
	return 0;
}

static int tear_down(void **state)
{
	dataset_free(dataset);
	dataset_free(unmapped);
	dataset_free(swapped);
	dataset_free(apart_unmapped);
	io_buffer_deinit(&buffer);
	unlink(path);
	unlink(swapped_path);
	return 0;
}

TEST_MAIN(set_up, tear_down)
