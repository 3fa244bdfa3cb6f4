/* Files that change while they are opened and served: the library uses exactly what it checked. */
#include "tests/dataset.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <xxhash.h>

/* Writes a set of four shards with this many classes, or a single file. */
static void write_dataset(const char *name, uint32_t class_count, bool set)
{
	static const uint8_t pixels[48];
	const struct packimg_item item = test_item(pixels, 4, 4);
	struct test_dataset data;
	const char *names[1000];
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s.pimg", directory, name);
	for (uint32_t i = 0; i < class_count; i++)
		names[i] = "class";
	test_dataset_begin(&data, path, set ? 1150 : 0);
	assert_int_equal(packimg_writer_classes(data.writer, names, class_count, &error), 0);
	assert_int_equal(packimg_writer_metadata(data.writer, "key", "value", &error), 0);
	for (int i = 0; i < 8; i++)
		test_dataset_add(&data, &item);
	test_dataset_finish(&data);
}

static void replace_shards(void)
{
	for (int i = 0; i < 4; i++) {
		char from[4200], to[4200];
		size_t size;

		snprintf(from, sizeof(from), "%s/few-%05d-of-00004.pimg", directory, i);
		snprintf(to, sizeof(to), "%s/many-%05d-of-00004.pimg", directory, i);
		uint8_t *data = image_file_read(from, &size);
		int fd = open(to, O_WRONLY | O_TRUNC | O_CLOEXEC);
		assert_int_equal(write(fd, data, size), size);
		close(fd);
		free(data);
	}
}

static void (*after_header)(void);

/* Wraps the library's read function to change the file right after the first read of its header. */
ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
	ssize_t n = syscall(SYS_pread64, fd, bytes, size, offset);
	void (*then)(void) = offset == 0 ? after_header : NULL;

	if (then) {
		after_header = NULL;
		then();
	}
	return n;
}

/* Counts and sections must come from the same read: a second read would find fewer classes. */
TEST(changed_while_opened)
{
	struct packimg *dataset;
	char path[4200];

	write_dataset("many", 1000, true);
	write_dataset("few", 1, true);
	snprintf(path, sizeof(path), "%s/many.pimg", directory);
	after_header = replace_shards;
	assert_int_equal(packimg_open(path, &dataset, &error), 0);
	assert_null(after_header);
	assert_int_equal(packimg_class_count(dataset), 1);
	assert_string_equal(packimg_class_name(dataset, 0), "class");
	assert_int_equal(packimg_check(dataset, &error), 0);
	packimg_close(dataset);
}

/* Names and metadata stay the same, and null-terminated, whatever happens to the file. */
TEST(changed_when_open)
{
	struct packimg *dataset;
	struct packimg_field field;
	char path[4200];
	size_t size;

	snprintf(path, sizeof(path), "%s/good/full.pimg", getenv("PIMG_GOLDEN"));
	uint8_t *data = image_file_read(path, &size);
	int file = memfd_create("changing", MFD_CLOEXEC);
	assert_int_equal(write(file, data, size), size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	assert_int_equal(packimg_open(path, &dataset, &error), 0);
	char *metadata = strdup(packimg_metadata(dataset)),
	     *name = strdup(packimg_class_name(dataset, 0));
	memset(data + 1024, 'x', size - 1024);
	assert_int_equal(pwrite(file, data, size, 0), size);
	assert_string_equal(packimg_metadata(dataset), metadata);
	assert_string_equal(packimg_class_name(dataset, 0), name);
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++)
		assert_int_equal(packimg_field(dataset, i, &field), 0);
	packimg_close(dataset);
	close(file);
	free(metadata);
	free(name);
	free(data);
}

enum { WIDTH = 200, HEIGHT = 160 };

static const struct packimg_region whole = {0, 0, WIDTH, HEIGHT};

static struct packimg_sample jpeg_sample(const uint8_t *data, size_t size)
{
	return (struct packimg_sample){
		.data = data,
		.data_size = (uint32_t)size,
		.width = WIDTH,
		.height = HEIGHT,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = 3,
		.orientation = 1,
	};
}

/* Decodes all rows one by one and calls changed() once the first is ready. */
static int decode_rows(const struct packimg_sample *sample, void (*changed)(void),
		       uint8_t output[3 * WIDTH * HEIGHT])
{
	struct packimg_pixels pixels;
	uint32_t ready = 0;

	int r = packimg_decode_begin(decoder, sample, &whole, 0, 0, &pixels, &error);
	for (uint32_t y = 0; r == 0 && y < HEIGHT; y++) {
		r = packimg_decode_rows(decoder, y + 1, &ready, &error);
		if (r == 0)
			memcpy(output + 3 * WIDTH * (size_t)y,
			       pixels.data + (pixels.ring ? y % pixels.ring : y) * pixels.stride,
			       3 * WIDTH);
		if (y == 0 && changed)
			changed();
	}
	return r;
}

static uint8_t *changing_side;
static size_t changing_side_size;

/* Sets every offset and predictor in the index to all ones. */
static void spoil_side(void)
{
	memset(changing_side + 8 + 12, 0xff, changing_side_size - 8 - 12);
}

/*
 * The library checks the index when it begins an image, and uses the checked values for later rows.
 */
TEST(index_between_rows)
{
	static uint8_t expected[3 * WIDTH * HEIGHT], got[3 * WIDTH * HEIGHT];
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2};
	struct packimg_jpeg_info info = {.width = WIDTH, .height = HEIGHT, .components = 3};
	const uint8_t *side;
	size_t size;

	uint8_t *data = image_jpeg(WIDTH, HEIGHT, &kind, 1, &size);
	struct packimg_sample sample = jpeg_sample(data, size);
	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(packimg_index_jpeg(decoder, data, size, &info, &side, &changing_side_size),
			 0);
	changing_side = malloc(changing_side_size);
	memcpy(changing_side, side, changing_side_size);
	sample.side = changing_side;
	sample.side_size = (uint32_t)changing_side_size;
	sample.side_xxh3 = XXH3_64bits(changing_side, changing_side_size);
	assert_int_equal(decode_rows(&sample, NULL, expected), 0);
	assert_int_equal(decode_rows(&sample, spoil_side, got), 0);
	assert_memory_equal(got, expected, sizeof(got));
	packimg_decoder_free(decoder);
	free(changing_side);
	free(data);
}

/* Returns the sampling factors of luma in the frame header. */
static uint8_t *find_factors(uint8_t *data, size_t size)
{
	for (size_t i = 2; i + 12 < size; i += 2 + (size_t)data[i + 2] * 256 + data[i + 3])
		if (data[i + 1] == 0xc0)
			return data + i + 11;
	fail_msg("no frame header");
	return NULL;
}

/*
 * Data decoded ahead is laid out according to the headers. Then the headers change to twice as many
 * blocks.
 */
TEST(ahead)
{
	static uint8_t expected[3 * WIDTH * HEIGHT], got[3 * WIDTH * HEIGHT];
	struct jpeg_kind kind = {.components = 3, .h = 1, .v = 1};
	struct packimg_ahead parts[2];
	struct packimg_sample samples[2];
	uint8_t *data[2];

	assert_int_equal(packimg_decoder_new(&decoder), 0);
	for (unsigned i = 0; i < 2; i++) {
		size_t size;
		data[i] = image_jpeg(WIDTH, HEIGHT, &kind, i, &size);
		samples[i] = jpeg_sample(data[i], size);
		parts[i] = (struct packimg_ahead){.sample = &samples[i], .region = whole};
	}
	assert_int_equal(decode_rows(&samples[1], NULL, expected), 0);
	packimg_decode_ahead(decoder, parts, 2);
	*find_factors(data[1], samples[1].data_size) = 0x22;
	assert_int_equal(decode_rows(&samples[1], NULL, got), 0);
	assert_memory_equal(got, expected, sizeof(got));
	packimg_decoder_free(decoder);
	free(data[0]);
	free(data[1]);
}

TEST_MAIN(directory_setup, directory_teardown)
