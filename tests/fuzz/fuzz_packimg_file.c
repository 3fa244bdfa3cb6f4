/*
 * Any bytes as a .pimg file: opened, checked, every record, name, class and value read, the first samples decoded. A second time
 * with the checksums put right, which no mutation would get past otherwise.
 */
#include "fuzz.h"
#include "layout.h"
#include "packimg.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { SAMPLES_READ = 1000, SAMPLES_DECODED = 8, PIXELS_MAX = 1 << 20 };

static struct packimg_decoder *decoder;
static volatile uint8_t sink;

static void use(const void *bytes, size_t size)
{
	uint8_t sum = 0;

	for (size_t i = 0; i < size; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
	sink = sum;
}

static void read_sample(const struct packimg *dataset, uint64_t index)
{
	struct packimg_sample sample;
	struct packimg_pixels pixels;
	struct packimg_value value;
	struct packimg_error error;
	const char *name;
	size_t size;

	if (packimg_source(dataset, index, &name, &size) == 0)
		use(name, size);
	for (uint32_t field = 0; field < packimg_field_count(dataset); field++)
		if (packimg_value(dataset, index, field, &value) == 0 && value.bytes)
			use(value.bytes, value.size);
	if (packimg_sample(dataset, index, &sample) < 0)
		return;
	packimg_sample_check(&sample);
	if (index >= SAMPLES_DECODED || (uint64_t)sample.width * sample.height > PIXELS_MAX)
		return;
	struct packimg_region region = {0, 0, sample.width, sample.height};
	if (packimg_decode(decoder, &sample, &region, 0, 0, &pixels, &error) == 0)
		for (uint32_t y = 0; y < pixels.height; y++)
			use(pixels.data + y * pixels.stride, (size_t)pixels.width * 3);
}

static void read_dataset(const struct packimg *dataset)
{
	struct packimg_error error;
	struct packimg_field field;
	struct packimg_shard shard;
	double mean[3], std[3];

	packimg_check(dataset, &error);
	use(packimg_metadata(dataset), strlen(packimg_metadata(dataset)));
	packimg_statistics(dataset, mean, std);
	packimg_shard(dataset, 0, &shard);
	for (uint32_t i = 0; i < packimg_class_count(dataset) && i < SAMPLES_READ; i++) {
		const char *name = packimg_class_name(dataset, i);
		if (name)
			use(name, strlen(name));
	}
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++)
		if (packimg_field(dataset, i, &field) == 0)
			use(field.name, strlen(field.name));
	for (uint64_t i = 0; i < packimg_count(dataset) && i < SAMPLES_READ; i++)
		read_sample(dataset, i);
}

static void open_bytes(int fd, const uint8_t *data, size_t size)
{
	struct packimg *dataset;
	struct packimg_error error;
	char path[64];

	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (packimg_open(path, &dataset, &error) < 0)
		return;
	read_dataset(dataset);
	packimg_close(dataset);
}

static void repair_checksums(uint8_t *data, size_t size)
{
	struct pimg_header header;

	memcpy(&header, data, sizeof(header));
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++) {
		struct pimg_section *section = &header.sections[i];
		if (section->type != PIMG_SECTION_NONE && section->offset <= size &&
		    section->size <= size - section->offset)
			section->xxh3 = XXH3_64bits(data + section->offset, section->size);
	}
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	memcpy(data, &header, sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!decoder && packimg_decoder_new(&decoder) < 0)
		return 0;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0)
		return 0;
	open_bytes(fd, data, size);
	if (size >= sizeof(struct pimg_header)) {
		uint8_t *copy = malloc(size);
		memcpy(copy, data, size);
		repair_checksums(copy, size);
		open_bytes(fd, copy, size);
		free(copy);
	}
	close(fd);
	return 0;
}
