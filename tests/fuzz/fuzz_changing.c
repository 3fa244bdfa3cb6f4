/*
 * Bytes that change while they are read, as the owner of a mapped file can change them. The input
 * is a .pimg file, a JPEG, or two bytes and a zstd frame. A second thread writes at offsets and
 * with values drawn from the input, and restores the old bytes, so that most bytes are valid most
 * of the time. Errors and wrong pixels are acceptable; sanitizers detect memory errors.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/dataset_read.h"
#include "tests/fuzz/support/mutate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

enum { PIXELS_MAX = 1 << 16, ROUNDS = 8, HEADERS_SIZE = 700, TAIL = 64, MEMORY_MAX = 64 << 20 };

static struct packimg_decoder *decoder, *borrower;
static volatile uint8_t sink;

/* The bytes that the second thread changes. side is NULL without side data. */
struct changed_bytes {
	volatile uint8_t *bytes, *side;
	const uint8_t *original;
	size_t size, side_size;
	uint64_t random;
	atomic_bool stop;
};

static void *change_bytes(void *context)
{
	static const uint8_t values[] = {0x00, 0xff, 0x01, 0x22, 0x7f, 0x80, 0xd0, 0xda};
	struct changed_bytes *changing = context;

	while (!atomic_load_explicit(&changing->stop, memory_order_relaxed)) {
		uint64_t random = mutate_random(&changing->random);
		bool side = changing->side_size && random % 4 == 0;
		size_t size = side ? changing->side_size : changing->size;
		volatile uint8_t *bytes = side ? changing->side : changing->bytes;

		if (random & 8 && size > HEADERS_SIZE)
			size = HEADERS_SIZE;
		size_t at = random / 64 % size;
		uint8_t was = side ? bytes[at] : changing->original[at];
		/* alternate between both values, so that two reads may see different ones */
		for (int i = 0; i < 16; i++) {
			bytes[at] =
				random & 16 ? values[random >> 32 & 7] : (uint8_t)(random >> 40);
			for (unsigned wait = random >> 48 & 63; wait > 0; wait--)
				__asm__ volatile("");
			bytes[at] = was;
		}
	}
	return NULL;
}

static void use(const struct packimg_pixels *pixels)
{
	uint8_t sum = 0;

	for (uint32_t y = 0; y < pixels->height; y++)
		for (size_t x = 0; x < (size_t)pixels->width * 3; x++)
			sum = (uint8_t)(sum + pixels->data[y * pixels->stride + x]);
	sink = sum;
}

static void decode_rows(const struct packimg_ahead *part)
{
	struct packimg_planes planes;
	struct packimg_pixels pixels;
	struct packimg_error error;
	uint32_t ready = 0, height;

	int r = packimg_decode_begin_planes(decoder, part->sample, &part->region,
					    part->size_hint_width, part->size_hint_height, &planes,
					    &error);
	height = planes.planes[0].height;
	if (r != 0) {
		r = packimg_decode_begin(decoder, part->sample, &part->region,
					 part->size_hint_width, part->size_hint_height, &pixels,
					 &error);
		height = pixels.height;
	}
	for (uint32_t end = 0; r == 0 && end < height;) {
		end = end + 5 < height ? end + 5 : height;
		r = packimg_decode_rows(decoder, end, &ready, &error);
	}
}

static void decode_sample(const struct packimg_sample *sample, uint64_t *random)
{
	struct packimg_ahead parts[3];
	struct packimg_pixels pixels;
	struct packimg_error error;

	for (int i = 0; i < 3; i++) {
		struct packimg_region region = {
			.x = (uint32_t)mutate_random(random) % sample->width,
			.y = (uint32_t)mutate_random(random) % sample->height,
		};
		region.width = 1 + (uint32_t)mutate_random(random) % (sample->width - region.x);
		region.height = 1 + (uint32_t)mutate_random(random) % (sample->height - region.y);
		parts[i] = (struct packimg_ahead){.sample = sample, .region = region};
		if (mutate_random(random) % 4 == 0)
			parts[i].size_hint_width = parts[i].size_hint_height = 4;
	}
	if (packimg_decode_keep(decoder, sample, &parts[0].region) == 0) {
		packimg_decode_borrow(borrower, decoder);
		for (uint32_t i = 0; i < 3; i++) {
			struct packimg_region part = parts[0].region;

			part.width -= part.width / (2 + i);
			part.height -= part.height / (2 + i);
			if (packimg_decode(borrower, sample, &part, 4 * i, 4 * i, &pixels,
					   &error) == 0)
				use(&pixels);
		}
		packimg_decode_borrow(borrower, NULL);
	}
	packimg_decode_ahead(decoder, parts, 3);
	for (int i = 0; i < 3; i++)
		if (mutate_random(random) % 2)
			decode_rows(&parts[i]);
		else if (packimg_decode(decoder, sample, &parts[i].region, 0, 0, &pixels, &error) ==
			 0)
			use(&pixels);
	packimg_sample_check(sample);
	packimg_index_check(decoder, sample, &error);
}

/* Calls read() repeatedly while the second thread writes. */
static void read_changing(struct changed_bytes *changing,
			  void (*read)(void *context, uint64_t *random), void *context)
{
	uint64_t random = changing->random + 1;
	pthread_t thread;

	if (pthread_create(&thread, NULL, change_bytes, changing) != 0)
		return;
	for (int i = 0; i < ROUNDS; i++)
		read(context, &random);
	atomic_store(&changing->stop, true);
	pthread_join(thread, NULL);
}

static void read_sample(void *context, uint64_t *random)
{
	const struct packimg_sample *sample = context;
	struct packimg_jpeg_info info;
	struct packimg_error error;
	const uint8_t *side;
	size_t size;

	decode_sample(sample, random);
	if (sample->codec == PACKIMG_CODEC_JPEG &&
	    packimg_jpeg_probe(sample->data, sample->data_size, &info, &error) == 0 &&
	    (uint64_t)info.width * info.height <= PIXELS_MAX)
		packimg_index_jpeg(decoder, sample->data, sample->data_size, &info, &side, &size);
}

static void change_sample(struct packimg_sample *sample, const uint8_t *data, size_t size)
{
	struct packimg_jpeg_info info = {.width = sample->width, .height = sample->height};
	const uint8_t *index;
	size_t index_size = 0;
	uint8_t *bytes = malloc(size + TAIL), *side = NULL;

	memcpy(bytes, data, size);
	memset(bytes + size, 0, TAIL);
	sample->data = bytes;
	sample->data_size = (uint32_t)size;
	info.components = sample->channels;
	if (sample->codec == PACKIMG_CODEC_JPEG &&
	    packimg_index_jpeg(decoder, data, size, &info, &index, &index_size) == 0) {
		side = malloc(index_size + TAIL);
		memcpy(side, index, index_size);
		sample->side = side;
		sample->side_size = (uint32_t)index_size;
		sample->side_xxh3 = XXH3_64bits(side, index_size);
	}
	struct changed_bytes changing = {.bytes = bytes,
					 .side = side,
					 .original = data,
					 .size = size,
					 .side_size = side ? index_size : 0,
					 .random = XXH3_64bits(data, size)};
	read_changing(&changing, read_sample, sample);
	if (side) { /* repeat without an index; such JPEGs are decoded ahead */
		sample->side = NULL;
		sample->side_size = 0;
		changing.side_size = 0;
		atomic_store(&changing.stop, false);
		read_changing(&changing, read_sample, sample);
	}
	free(side);
	free(bytes);
}

static void read_dataset(void *context, uint64_t *random)
{
	dataset_read(decoder, context);
}

static void change_file(const uint8_t *data, size_t size)
{
	struct packimg *dataset;
	struct packimg_error error;

	int fd = memfd_create("changing", MFD_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, data, size) != (ssize_t)size ||
	    packimg_open_fds("changing", &fd, 1, &dataset, &error) < 0) {
		close(fd);
		return;
	}
	void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct changed_bytes changing = {
		.bytes = bytes, .original = data, .size = size, .random = XXH3_64bits(data, size)};
	if (bytes != MAP_FAILED) {
		read_changing(&changing, read_dataset, dataset);
		munmap(bytes, size);
	}
	packimg_close(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_sample sample = {.codec = PACKIMG_CODEC_JPEG, .orientation = 1};
	struct packimg_jpeg_info info;
	struct packimg_error error;

	if (!decoder) {
		if (packimg_decoder_new(&decoder) < 0)
			return 0;
		if (packimg_decoder_new(&borrower) < 0)
			abort();
		packimg_decoder_limit(decoder, MEMORY_MAX);
		packimg_decoder_limit(borrower, MEMORY_MAX);
	}
	if (size < 8)
		return 0;
	if (memcmp(data, "\x89PIMG", 5) == 0) {
		change_file(data, size);
		return 0;
	}
	if (packimg_jpeg_probe(data, size, &info, &error) == 0) {
		sample.width = info.width;
		sample.height = info.height;
		sample.channels = info.components;
	} else {
		sample.codec = PACKIMG_CODEC_RAW_ZSTD;
		sample.width = data[0] + 1u;
		sample.height = data[1] + 1u;
		sample.channels = 3;
		data += 2;
		size -= 2;
	}
	if ((uint64_t)sample.width * sample.height <= PIXELS_MAX)
		change_sample(&sample, data, size);
	return 0;
}
