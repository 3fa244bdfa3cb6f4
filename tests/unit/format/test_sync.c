/*
 * A folder that cannot be synced: the files of the dataset that remain, and the result that the
 * caller gets.
 */
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <sys/stat.h>

static bool folders_fail;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat status;
	if (!folders_fail || fstat(fd, &status) < 0 || !S_ISDIR(status.st_mode))
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

/* Writes `count` samples. Returns packimg_writer_finish(). */
static int write_samples(const char *path, unsigned count, uint64_t shard_size,
			 struct packimg_error *error)
{
	static const uint8_t pixels[8 * 8 * 3];
	const struct packimg_writer_options options = {.shard_size = shard_size};
	const struct packimg_item item = {
		.data = pixels,
		.data_size = sizeof(pixels),
		.width = 8,
		.height = 8,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
	};
	struct packimg_writer *writer;
	assert_int_equal(packimg_writer_new(path, &options, &writer, error), 0);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(packimg_writer_add(writer, &item, error), 0);
	int r = packimg_writer_finish(writer, error);
	packimg_writer_free(writer);
	return r;
}

static void assert_samples(const char *path, uint64_t count)
{
	struct packimg_error error;
	struct packimg *image;
	if (packimg_open(path, &image, &error) < 0)
		fail_msg("%s", error.text);
	assert_int_equal(packimg_count(image), count);
	packimg_close(image);
}

/* shard_size of 0 writes a single file. */
static void write_without_sync(const char *path, uint64_t shard_size)
{
	struct packimg_error error;
	folders_fail = true;
	assert_int_equal(write_samples(path, 2, shard_size, &error), -EIO);
	folders_fail = false;
	if (!strstr(error.text, ": complete, but its folder cannot be synced"))
		fail_msg("%s", error.text);
	assert_samples(path, 2);
}

static void finish_without_sync(const char *name, uint64_t shard_size)
{
	char *folder = image_directory(), path[4096];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	write_without_sync(path, shard_size);
	image_directory_remove(folder);
}

TEST(new_dataset_stays)
{
	finish_without_sync("one.pimg", 0);
	finish_without_sync("set.pimg", 1000);
}

TEST(replaced_dataset_stays_replaced)
{
	char *folder = image_directory(), path[4096];
	struct packimg_error error;
	snprintf(path, sizeof(path), "%s/one.pimg", folder);
	assert_int_equal(write_samples(path, 1, 0, &error), 0);
	write_without_sync(path, 0);
	image_directory_remove(folder);
}
