/*
 * Arbitrary bytes as files of raw pixels for packimg: idx files with labels, plain or compressed by
 * gzip, and CIFAR's records. Reading a listed image must give a PNM file of exactly its pixels. The
 * first byte of an input selects the names of the files, the second the size of the labels.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/source_files.h"
#include "tools/packimg/source/catalog.h"
#include "tools/packimg/source/source_pixels.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	IMAGE_MAX = 1 << 16, /* bytes */
	IMAGES_MAX = 64,
};

static const struct {
	const char *images, *labels;
} names[] = {
	{"a-images-idx3-ubyte", "a-labels-idx1-ubyte"},
	{"a-images-idx3-ubyte.gz", "a-labels-idx1-ubyte"},
	{"a-images-idx3-ubyte", "a-labels-idx1-ubyte.gz"},
	{"data_batch_1.bin", "batches.meta.txt"},
	{"train.bin", "fine_label_names.txt"},
};

static void read_image(const struct blob_store *blobs, const struct source_item *item)
{
	const struct blob_pixels *pixels = &item->location.pixels;
	const size_t size = (size_t)pixels->width * pixels->height * pixels->channels;
	struct buffer bytes = {0};
	struct packimg_error error;
	char header[32];

	if (!size || item->location.size != size)
		source_files_die("an image of another size than its pixels");
	int header_size =
		snprintf(header, sizeof(header), "P%c\n%u %u\n255\n",
			 pixels->channels == 1 ? '5' : '6', pixels->width, pixels->height);
	if (!blob_store_read(blobs, &item->location, &bytes, &error) &&
	    (bytes.size != (size_t)header_size + size ||
	     memcmp(bytes.data, header, (size_t)header_size) != 0))
		source_files_die("not a PNM file of the pixels");
	buffer_deinit(&bytes);
}

static void read_source(const char *path)
{
	struct source_options options = {0};
	struct packimg_error error;
	struct source_item item;
	struct catalog catalog;
	struct source *source;

	catalog_init(&catalog);
	catalog.blobs.limits = (struct archive_limits){IMAGE_MAX, 10};
	if (source_is_pixels(path) &&
	    !source_new(&catalog.blobs, path, &options, &source, &error)) {
		for (int i = 0; i < IMAGES_MAX && !source_next(source, &item, &error); i++)
			read_image(&catalog.blobs, &item);
		source_free(source);
	}
	catalog_deinit(&catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char images[SOURCE_FILE_PATH], labels[SOURCE_FILE_PATH];

	if (size < 2)
		return 0;
	const size_t kind = data[0] % (sizeof(names) / sizeof(*names));
	const size_t label_size = data[1] < size - 2 ? data[1] : size - 2;
	source_files_write(labels, names[kind].labels, data + 2, label_size);
	source_files_write(images, names[kind].images, data + 2 + label_size,
			   size - 2 - label_size);
	read_source(images);
	unlink(images);
	unlink(labels);
	return 0;
}
