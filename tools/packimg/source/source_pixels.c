/*
 * Source: a file of raw pixels. Either idx, the format of MNIST and similar datasets, optionally
 * compressed by gzip (http://yann.lecun.com/exdb/mnist/), with the labels in a file next to it; or
 * the binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html), with
 * the class names next to it. Each image is read as a PNM file with these pixels.
 */
#include "tools/packimg/source/source_pixels.h"

#include "format/base/system/io.h"
#include "tools/packimg/common/text.h"

#include <archive.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	IDX_HEAD = 20, /* bytes of the longest header: magic and four dimensions */
	IDX_TYPE_U8 = 8,
	CIFAR_SIDE = 32,
	CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE * 3, /* bytes: three planes */
	CIFAR10_RECORD = 1 + CIFAR_PIXELS,          /* label, pixels */
	CIFAR100_RECORD = 2 + CIFAR_PIXELS,         /* coarse label, fine label, pixels */
	CIFAR100_COARSE = 20,                       /* number of coarse labels */
	CIFAR_CLASSES_MAX = 100,
	CLASS_TEXT_MAX = 4096, /* bytes of a file of class names */
	UNPACK_BLOCK = 64 << 10,
};

struct source_pixels {
	struct source source;
	char *path;
	const char *base; /* name of the file in path */
	uint32_t container;
	bool unpacked;   /* the pixels are in the container's spill file */
	uint64_t offset; /* of the first record */
	uint64_t record, count, next;
	uint32_t label_bytes; /* bytes before the pixels of a record: labels */
	struct blob_pixels pixels;
	uint8_t *labels; /* of all images, in the store's arena; NULL if they are in the records */
	char class_text[CLASS_TEXT_MAX];
	const char *class_names[CIFAR_CLASSES_MAX];
	uint32_t class_count; /* number of class names; 0 if there are none */
	char name[512], coarse[16];
	struct source_field field;
};

/* Opens a gzip file for unpacking; NULL if it is not one. */
static struct archive *gzip_open(const char *path)
{
	struct archive *archive = archive_read_new();
	struct archive_entry *entry;

	if (!archive)
		return NULL;
	archive_read_support_filter_gzip(archive);
	archive_read_support_format_raw(archive);
	if (archive_read_open_filename(archive, path, UNPACK_BLOCK) ||
	    archive_read_next_header(archive, &entry)) {
		archive_read_free(archive);
		return NULL;
	}
	return archive;
}

/* Reads the first bytes of a file, unpacked if it is compressed; returns their number. */
static size_t read_head(const char *path, uint8_t head[static IDX_HEAD])
{
	la_ssize_t size = -1;

	if (text_ends_with(path, ".gz")) {
		struct archive *archive = gzip_open(path);

		size = archive ? archive_read_data(archive, head, IDX_HEAD) : -1;
		archive_read_free(archive);
	} else {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		size = fd < 0 ? -1 : read(fd, head, IDX_HEAD);
		if (fd >= 0)
			close(fd);
	}
	return size > 0 ? (size_t)size : 0;
}

static bool is_idx(const uint8_t *head, size_t size, unsigned dimensions)
{
	return size >= 4 + 4 * dimensions && !head[0] && !head[1] && head[2] == IDX_TYPE_U8 &&
	       head[3] == dimensions;
}

/* Returns the size in bytes of a record of CIFAR's binary version; 0 if the file is not one. */
static uint64_t cifar_record(const char *path)
{
	struct stat status;

	if (!text_ends_with(path, ".bin") || stat(path, &status) || !status.st_size)
		return 0;
	return status.st_size % CIFAR10_RECORD == 0    ? CIFAR10_RECORD
	       : status.st_size % CIFAR100_RECORD == 0 ? CIFAR100_RECORD
						       : 0;
}

bool source_is_pixels(const char *path)
{
	uint8_t head[IDX_HEAD];
	size_t size = read_head(path, head);

	return is_idx(head, size, 3) || is_idx(head, size, 4) || cifar_record(path);
}

/* Unpacks a gzip file to the container's spill file. */
static int unpack(struct source_pixels *pixels, const char *path, uint32_t container,
		  struct packimg_error *error)
{
	struct blob_store *blobs = pixels->source.blobs;
	struct archive *archive = gzip_open(path);
	uint8_t block[UNPACK_BLOCK];
	uint64_t total = 0;
	la_ssize_t size = -1;
	int r = 0;

	while (!r && archive && (size = archive_read_data(archive, block, sizeof(block))) > 0) {
		uint64_t packed = (uint64_t)archive_filter_bytes(archive, -1);

		total += (uint64_t)size;
		if (total > ARCHIVE_FREE &&
		    (total - ARCHIVE_FREE) / blobs->limits.expansion_max > packed)
			r = packimg_fail(error, -EINVAL,
					 "%s: unpacks to more than %u times its size, which "
					 "--max-expansion allows",
					 path, blobs->limits.expansion_max);
		else
			r = blob_store_spill(blobs, container, block, (size_t)size, error);
	}
	archive_read_free(archive);
	if (!r && size < 0)
		return packimg_fail(error, -EBADMSG, "%s: damaged gzip file", path);
	return r;
}

/* Adds a file as a container, and unpacks it if it is compressed. Returns its size. */
static int add_file(struct source_pixels *pixels, const char *path, uint32_t *ret_container,
		    uint64_t *ret_size, struct packimg_error *error)
{
	struct blob_store *blobs = pixels->source.blobs;
	struct stat status;

	int r = blob_store_add(blobs, path, false, ret_container, error);
	if (r)
		return r;
	if (text_ends_with(path, ".gz")) {
		r = unpack(pixels, path, *ret_container, error);
		*ret_size = blobs->containers[*ret_container].spill_size;
		return r;
	}
	if (fstat(blobs->containers[*ret_container].fd, &status))
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	*ret_size = (uint64_t)status.st_size;
	return 0;
}

/* Reads bytes of a file that add_file() has added. */
static int read_at(const struct source_pixels *pixels, const char *path, uint32_t container,
		   uint64_t offset, void *bytes, size_t size, struct packimg_error *error)
{
	const struct container *file = &pixels->source.blobs->containers[container];
	int fd = file->spill_fd >= 0 ? file->spill_fd : file->fd;
	int64_t n = io_read_at(fd, bytes, size, offset);

	return n == (int64_t)size
		       ? 0
		       : packimg_fail(error, -EBADMSG, "%s: ends after %" PRId64 " of %zu bytes",
				      path, n < 0 ? 0 : n, size);
}

static uint32_t read_u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/* Replaces a word in the base name of a path, which is enlarged at most by the difference. */
static void replace_word(char *path, const char *word, const char *by)
{
	char *slash = strrchr(path, '/'), *found = strstr(slash ? slash : path, word);

	if (found)
		memcpy(found, by, strlen(by));
}

/*
 * Finds the labels of "train-images-idx3-ubyte.gz": "train-labels-idx1-ubyte", with or without
 * ".gz". The caller frees the path; NULL if there is none.
 */
static char *find_labels(const char *path)
{
	size_t size = strlen(path);
	char *labels = malloc(size + sizeof(".gz"));

	if (!labels)
		return NULL;
	memcpy(labels, path, size + 1);
	replace_word(labels, "images", "labels");
	replace_word(labels, "idx3", "idx1");
	replace_word(labels, "idx4", "idx1");
	bool differs = strcmp(labels, path) != 0;
	if (differs && access(labels, F_OK) == 0)
		return labels;
	if (text_ends_with(labels, ".gz"))
		labels[size - strlen(".gz")] = 0;
	else
		memcpy(labels + size, ".gz", sizeof(".gz"));
	if (differs && access(labels, F_OK) == 0)
		return labels;
	free(labels);
	return NULL;
}

static int read_labels(struct source_pixels *pixels, const char *path, struct packimg_error *error)
{
	uint8_t head[8];
	uint32_t container;
	uint64_t size;

	int r = add_file(pixels, path, &container, &size, error);
	if (r)
		return r;
	r = read_at(pixels, path, container, 0, head, sizeof(head), error);
	if (r)
		return r;
	if (!is_idx(head, sizeof(head), 1) || size != sizeof(head) + read_u32(head + 4))
		return packimg_fail(error, -EBADMSG, "%s: not a complete idx file of bytes", path);
	if (read_u32(head + 4) != pixels->count)
		return packimg_fail(error, -EINVAL,
				    "%s: %u labels for the %" PRIu64 " images of %s", path,
				    read_u32(head + 4), pixels->count, pixels->path);
	pixels->labels = arena_array(pixels->source.blobs->arena, (size_t)pixels->count);
	if (!pixels->labels)
		return packimg_fail(error, -ENOMEM, "out of memory");
	return read_at(pixels, path, container, sizeof(head), pixels->labels, (size_t)pixels->count,
		       error);
}

static int add_labels(struct source_pixels *pixels, struct packimg_error *error)
{
	char *labels = find_labels(pixels->path);
	int r;

	if (labels) {
		r = read_labels(pixels, labels, error);
		free(labels);
		return r;
	}
	if (!pixels->source.options->notes)
		return 0;
	r = string_list_add_format(
		pixels->source.options->notes,
		"%s: no label file next to it, such as train-labels-idx1-ubyte next to "
		"train-images-idx3-ubyte",
		pixels->path);
	return r ? packimg_fail(error, r, "out of memory") : 0;
}

static int open_idx(struct source_pixels *pixels, uint64_t size, struct packimg_error *error)
{
	uint8_t head[IDX_HEAD] = {0};
	uint32_t sides[4] = {0, 0, 0, 1};

	int r = read_at(pixels, pixels->path, pixels->container, 0, head,
			size < IDX_HEAD ? (size_t)size : IDX_HEAD, error);
	if (r)
		return r;
	pixels->offset = 4 + 4 * (uint64_t)head[3];
	for (unsigned i = 0; i < head[3] && i < 4; i++)
		sides[i] = read_u32(head + 4 + 4 * i);
	if (!sides[1] || sides[1] > PACKIMG_SIDE_MAX || !sides[2] || sides[2] > PACKIMG_SIDE_MAX ||
	    (sides[3] != 1 && sides[3] != 3))
		return packimg_fail(error, -EINVAL,
				    "%s: an idx file of %u x %u x %u bytes each; images have sides "
				    "of 1 to %d and 1 or 3 channels",
				    pixels->path, sides[1], sides[2], sides[3], PACKIMG_SIDE_MAX);
	pixels->record = (uint64_t)sides[1] * sides[2] * sides[3];
	pixels->count = sides[0];
	pixels->pixels = (struct blob_pixels){(uint16_t)sides[2], (uint16_t)sides[1],
					      (uint8_t)sides[3], false};
	if (pixels->record > pixels->source.blobs->limits.file_max ||
	    size != pixels->offset + pixels->record * pixels->count)
		return packimg_fail(error, -EBADMSG,
				    "%s: %" PRIu64 " bytes, but its header states %u images of "
				    "%" PRIu64,
				    pixels->path, size, sides[0], pixels->record);
	return add_labels(pixels, error);
}

/* Reads class names, one per line, from a file next to the source, if it exists. */
static void read_class_names(struct source_pixels *pixels, const char *name)
{
	char *path, *rest = NULL;
	const int folder = (int)(pixels->base - pixels->path);

	if (asprintf(&path, "%.*s%s", folder, pixels->path, name) < 0)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	ssize_t size = fd < 0 ? -1 : read(fd, pixels->class_text, CLASS_TEXT_MAX - 1);
	if (fd >= 0)
		close(fd);
	if (size <= 0)
		return;
	pixels->class_text[size] = 0;
	for (char *line = strtok_r(pixels->class_text, "\r\n", &rest);
	     line && pixels->class_count < CIFAR_CLASSES_MAX; line = strtok_r(NULL, "\r\n", &rest))
		pixels->class_names[pixels->class_count++] = line;
}

static int open_cifar(struct source_pixels *pixels, uint64_t size)
{
	pixels->record = cifar_record(pixels->path);
	pixels->label_bytes = (uint32_t)pixels->record - CIFAR_PIXELS;
	pixels->count = size / pixels->record;
	pixels->pixels = (struct blob_pixels){CIFAR_SIDE, CIFAR_SIDE, 3, true};
	read_class_names(pixels, pixels->record == CIFAR10_RECORD ? "batches.meta.txt"
								  : "fine_label_names.txt");
	return 0;
}

static int source_pixels_open(struct source *source, const char *path, struct packimg_error *error)
{
	struct source_pixels *pixels = (struct source_pixels *)source;
	uint8_t head[IDX_HEAD];
	uint64_t size;

	pixels->path = strdup(path);
	if (!pixels->path)
		return packimg_fail(error, -ENOMEM, "out of memory");
	const char *slash = strrchr(pixels->path, '/');
	pixels->base = slash ? slash + 1 : pixels->path;
	int r = add_file(pixels, path, &pixels->container, &size, error);
	if (r)
		return r;
	pixels->unpacked = source->blobs->containers[pixels->container].spill_fd >= 0;
	const size_t head_size = read_head(path, head);
	return is_idx(head, head_size, 3) || is_idx(head, head_size, 4)
		       ? open_idx(pixels, size, error)
		       : open_cifar(pixels, size);
}

static void source_pixels_close(struct source *source)
{
	struct source_pixels *pixels = (struct source_pixels *)source;

	arena_release(source->blobs->arena, pixels->labels);
	free(pixels->path);
}

/* Sets the class from the labels of a CIFAR record. */
static int set_cifar_class(struct source_pixels *pixels, uint64_t offset, struct source_item *item,
			   struct packimg_error *error)
{
	uint8_t labels[2];
	const bool has_coarse = pixels->label_bytes == 2;

	int r = read_at(pixels, pixels->path, pixels->container, offset, labels,
			pixels->label_bytes, error);
	if (r)
		return r;
	const uint8_t label = labels[has_coarse];
	if (label >= (has_coarse ? 100 : 10) || (has_coarse && labels[0] >= CIFAR100_COARSE))
		return packimg_fail(error, -EINVAL,
				    "%s: image %" PRIu64 " has label %u, so it is not of the "
				    "binary version of CIFAR",
				    pixels->path, pixels->next - 1, label);
	item->class_number = label;
	if (label < pixels->class_count)
		item->class_name = pixels->class_names[label];
	if (!has_coarse)
		return 0;
	snprintf(pixels->coarse, sizeof(pixels->coarse), "%u", labels[0]);
	pixels->field = (struct source_field){"coarse_label", VALUE_INTEGER, pixels->coarse,
					      strlen(pixels->coarse)};
	item->fields = &pixels->field;
	item->field_count = 1;
	return 0;
}

static int source_pixels_next(struct source *source, struct source_item *ret_item,
			      struct packimg_error *error)
{
	struct source_pixels *pixels = (struct source_pixels *)source;
	const uint64_t number = pixels->next;
	const uint64_t offset = pixels->offset + number * pixels->record;

	if (number == pixels->count)
		return SOURCE_END;
	pixels->next++;
	snprintf(pixels->name, sizeof(pixels->name), "%.400s/%06" PRIu64, pixels->base, number);
	ret_item->name = pixels->name;
	ret_item->verdict = filter_listed(source->options->filter, ret_item->name);
	if (ret_item->verdict)
		return SOURCE_IGNORED;
	ret_item->location = (struct blob_location){
		.kind = pixels->unpacked ? LOCATION_SPILL : LOCATION_RANGE,
		.container = pixels->container,
		.offset = offset + pixels->label_bytes,
		.size = pixels->record - pixels->label_bytes,
		.pixels = pixels->pixels,
	};
	if (pixels->labels)
		ret_item->class_number = pixels->labels[number];
	return pixels->label_bytes ? set_cifar_class(pixels, offset, ret_item, error) : 0;
}

const struct source_ops source_pixels_ops = {sizeof(struct source_pixels), source_pixels_open,
					     source_pixels_next, source_pixels_close};
