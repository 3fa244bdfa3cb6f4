/*
 * Guarantees of the writer: no dataset is visible before finish or after a failure, errors state
 * the reason, and equal input gives equal bytes.
 */
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static uint8_t pixels[64 * 64 * 3];

static unsigned count_entries(void)
{
	unsigned count = 0;
	DIR *listing = opendir(directory);

	while (readdir(listing))
		count++;
	closedir(listing);
	return count - 2;
}

static struct packimg_item plain_item(void)
{
	return (struct packimg_item){
		.data = pixels,
		.data_size = sizeof(pixels),
		.width = 64,
		.height = 64,
		.label = 0,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
	};
}

static struct packimg_writer *begin(const char *name, uint64_t shard_size)
{
	struct packimg_writer_options options = {.shard_size = shard_size};
	struct packimg_writer *writer;

	if (packimg_writer_new(path_of(name), &options, &writer, &error) < 0)
		fail_msg("%s", error.text);
	return writer;
}

static void add(struct packimg_writer *writer, unsigned count)
{
	struct packimg_item item = plain_item();

	while (count-- > 0)
		if (packimg_writer_add(writer, &item, &error) < 0)
			fail_msg("%s", error.text);
}

/* With the option `alone`, the writer does not look for leftovers of other writers. */
TEST(alone)
{
	static const char leftover[] = ".a.pimg.partial.0123456789abcdef.0";
	for (int alone = 1; alone >= 0; alone--) {
		struct packimg_writer_options options = {.alone = alone};
		struct packimg_writer *writer;
		int fd = open(path_of(leftover), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
		assert_true(fd >= 0);
		close(fd);
		/* in the second round, replaces the dataset of the first */
		assert_int_equal(packimg_writer_new(path_of("a.pimg"), &options, &writer, &error),
				 0);
		add(writer, 3);
		assert_int_equal(packimg_writer_finish(writer, &error), 0);
		packimg_writer_free(writer);
		assert_int_equal(try_open(path_of("a.pimg")), 0);
		assert_int_equal(access(path_of(leftover), F_OK), alone ? 0 : -1);
	}
	unlink(path_of("a.pimg"));
}

TEST(abandon)
{
	for (int sharded = 0; sharded < 2; sharded++) {
		struct packimg_writer *writer = begin("a.pimg", sharded ? 20000 : 0);
		add(writer, 500);
		assert_int_equal(try_open(path_of("a.pimg")), -ENOENT);
		assert_int_equal(try_open(directory), -ENOENT);
		packimg_writer_free(writer);
		assert_int_equal(count_entries(), 0);
	}
	packimg_writer_free(NULL);
}

/* Checks that no file of the directory opens as a dataset, whatever its name. */
static void assert_nothing_opens(void)
{
	struct dirent *entry;
	DIR *listing = opendir(directory);

	while ((entry = readdir(listing)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			assert_true(try_open(path_of(entry->d_name)) < 0);
	closedir(listing);
	assert_true(try_open(directory) < 0);
}

TEST(killed)
{
	for (int sharded = 0; sharded < 2; sharded++) {
		int pipes[2];
		char byte;
		assert_int_equal(pipe(pipes), 0);
		pid_t child = fork();
		if (child == 0) {
			struct packimg_writer *writer = begin("b.pimg", sharded ? 20000 : 0);
			add(writer, 300);
			if (write(pipes[1], "x", 1) == 1)
				pause();
			_exit(0);
		}
		assert_int_equal(read(pipes[0], &byte, 1), 1);
		/* other writers keep the files of a writer that is running */
		unsigned before = count_entries();
		struct packimg_writer *other = begin("b.pimg", 0);
		assert_int_equal(count_entries(), before + 1);
		packimg_writer_free(other);
		assert_int_equal(count_entries(), before);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		close(pipes[0]);
		close(pipes[1]);
		assert_nothing_opens();
		/*
		 * a writer of another target keeps the leftover; one of the same target removes it
		 */
		packimg_writer_free(begin("b2.pimg", 0));
		assert_int_equal(count_entries(), before);
		packimg_writer_free(begin("b.pimg", 0));
		assert_int_equal(count_entries(), 0);
	}
}

/* Simulates a full disk with RLIMIT_FSIZE. */
TEST(no_room)
{
	struct rlimit old;
	struct packimg_item item = plain_item();
	struct packimg_writer *writer = begin("c.pimg", 0);
	int r = 0;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	struct rlimit limit = {3 << 20, old.rlim_max};
	setrlimit(RLIMIT_FSIZE, &limit);
	for (int i = 0; i < 1000 && r == 0; i++)
		r = packimg_writer_add(writer, &item, &error);
	assert_int_equal(r, -EFBIG);
	assert_non_null(strstr(error.text, "c.pimg"));
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
	/* the disk has space again, but the file already lacks a part */
	assert_int_equal(packimg_writer_add(writer, &item, &error), -EFBIG);
	assert_int_equal(packimg_writer_finish(writer, &error), -EFBIG);
	packimg_writer_free(writer);
	assert_int_equal(count_entries(), 0);
}

TEST(replaces)
{
	struct packimg *dataset;
	struct packimg_writer *writer = begin("d.pimg", 0);

	add(writer, 3);
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	writer = begin("d.pimg", 0);
	add(writer, 5);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of("d.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_count(dataset), 3);
	/* an open dataset is unaffected when its file is replaced */
	writer = begin("d.pimg", 0);
	add(writer, 7);
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_count(dataset), 3);
	struct packimg_sample sample;
	assert_int_equal(packimg_sample(dataset, 2, &sample), 0);
	assert_int_equal(packimg_sample_check(&sample), 0);
	packimg_close(dataset);
	assert_int_equal(packimg_open(path_of("d.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_count(dataset), 7);
	packimg_close(dataset);
	assert_int_equal(count_entries(), 1);
	remove(path_of("d.pimg"));
}

static void refuse_item(struct packimg_writer *writer, const struct packimg_item *item,
			const char *part)
{
	error.text[0] = '\0';
	assert_int_equal(packimg_writer_add(writer, item, &error), -EINVAL);
	if (!strstr(error.text, part) || !strstr(error.text, "e.pimg") ||
	    !strstr(error.text, "sample 1"))
		fail_msg("expected \"%s\" in: %s", part, error.text);
}

TEST(refusals)
{
	struct packimg_writer *writer = begin("e.pimg", 0);
	struct packimg_item item;
	uint8_t odd[7] = {1, 2, 3};

	add(writer, 1);
#define REFUSE(part, ...)                                                                          \
	item = plain_item();                                                                       \
	__VA_ARGS__;                                                                               \
	refuse_item(writer, &item, part)
	REFUSE("data_size", item.data_size = 0);
	REFUSE("data_size", item.data_size = (size_t)UINT32_MAX + 1);
	REFUSE("data_size", item.data_size--);
	REFUSE("side data", item.side = odd, item.side_size = sizeof(odd));
	REFUSE("width", item.width = 0);
	REFUSE("width", item.height = 65536);
	REFUSE("label", item.label = -2);
	REFUSE("orientation", item.orientation = 0);
	REFUSE("orientation", item.orientation = 9);
	REFUSE("channels", item.channels = 4);
	REFUSE("channels", item.channels = 2, item.codec = PACKIMG_CODEC_JPEG);
	REFUSE("codec", item.codec = 9);
	REFUSE("zstd", item.codec = PACKIMG_CODEC_RAW_ZSTD);
	REFUSE("source", item.source = (const char *)pixels, item.source_size = 65536);
#undef REFUSE
	/* a call that the writer refuses does not make it fail */
	add(writer, 1);
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	struct packimg *dataset;
	assert_int_equal(packimg_open(path_of("e.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_count(dataset), 2);
	packimg_close(dataset);
	remove(path_of("e.pimg"));
}

TEST(refused_info)
{
	static const char *const classes[] = {"only", "two"}, *const broken[] = {"\xff"};
	static const double good[3] = {1, 2, 3}, bad[3] = {1, 0.0 / 0.0, 3};
	struct packimg_writer *writer = begin("f.pimg", 0);
	struct packimg_item item = plain_item();
	struct packimg_value value = {.present = true, .bytes = "\xc0", .size = 1};
	char name[300];
	uint32_t field;

	assert_int_equal(packimg_writer_value(writer, 0, &value, &error), -EINVAL);
	assert_int_equal(packimg_writer_field(writer, "", PACKIMG_FIELD_INT64, &field, &error),
			 -EINVAL);
	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	assert_int_equal(packimg_writer_field(writer, name, PACKIMG_FIELD_INT64, &field, &error),
			 -EINVAL);
	assert_int_equal(packimg_writer_field(writer, "a", 0, &field, &error), -EINVAL);
	assert_int_equal(packimg_writer_field(writer, "a", PACKIMG_FIELD_TEXT + 1, &field, &error),
			 -EINVAL);
	for (unsigned i = 0; i < PACKIMG_FIELDS_MAX; i++) {
		snprintf(name, sizeof(name), "field %u", i);
		assert_int_equal(
			packimg_writer_field(writer, name, PACKIMG_FIELD_JSON, &field, &error), 0);
		assert_int_equal(field, i);
	}
	assert_int_equal(
		packimg_writer_field(writer, "field 7", PACKIMG_FIELD_JSON, &field, &error), 0);
	assert_int_equal(field, 7);
	assert_int_equal(
		packimg_writer_field(writer, "field 7", PACKIMG_FIELD_BYTES, &field, &error),
		-EEXIST);
	assert_int_equal(
		packimg_writer_field(writer, "one more", PACKIMG_FIELD_JSON, &field, &error),
		-E2BIG);
	assert_int_equal(packimg_writer_value(writer, 7, &value, &error), -EINVAL);
	add(writer, 1);
	assert_int_equal(packimg_writer_value(writer, 7, &value, &error), -EINVAL);
	assert_int_equal(packimg_writer_metadata(writer, "no key", "x", &error), -EINVAL);
	assert_int_equal(packimg_writer_metadata(writer, "key", "\xc0", &error), -EINVAL);
	assert_int_equal(packimg_writer_statistics(writer, good, bad), -EINVAL);
	assert_int_equal(packimg_writer_classes(writer, broken, 1, &error), -EINVAL);
	/* finish detects a label without a class, which the caller can then correct */
	item.label = 1;
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	assert_int_equal(packimg_writer_classes(writer, classes, 1, &error), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), -EINVAL);
	assert_non_null(strstr(error.text, "label 1"));
	assert_int_equal(packimg_writer_classes(writer, classes, 2, &error), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	remove(path_of("f.pimg"));
}

TEST(bad_targets)
{
	struct packimg_writer *writer;
	char name[400];

	assert_int_equal(packimg_writer_new(path_of("none/a.pimg"), NULL, &writer, &error),
			 -ENOENT);
	assert_non_null(strstr(error.text, "none/a.pimg"));
	assert_int_equal(packimg_writer_new(path_of(""), NULL, &writer, &error), -EINVAL);
	assert_int_equal(
		packimg_writer_new(path_of("a-00001-of-00003.pimg"), NULL, &writer, &error),
		-EINVAL);
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(packimg_writer_new(path_of(name), NULL, &writer, &error), -ENAMETOOLONG);
	/* the target is a folder: the rename fails, and everything is rolled back */
	assert_int_equal(mkdir(path_of("folder.pimg"), 0777), 0);
	writer = begin("folder.pimg", 0);
	add(writer, 1);
	assert_int_equal(packimg_writer_finish(writer, &error), -EISDIR);
	packimg_writer_free(writer);
	assert_int_equal(count_entries(), 1);
	assert_int_equal(rmdir(path_of("folder.pimg")), 0);
	/* a folder has the name of the third shard: the first two are rolled back */
	assert_int_equal(mkdir(path_of("s-00002-of-00004.pimg"), 0777), 0);
	writer = begin("s.pimg", 13000);
	add(writer, 4);
	assert_int_equal(packimg_writer_finish(writer, &error), -EISDIR);
	packimg_writer_free(writer);
	assert_int_equal(count_entries(), 1);
	assert_int_equal(rmdir(path_of("s-00002-of-00004.pimg")), 0);
}

TEST(same_bytes)
{
	static const char *const names[] = {"g1.pimg", "g2.pimg", "g3.pimg", "g4.pimg"};
	uint8_t *files[4];
	size_t sizes[4];

	for (int i = 0; i < 4; i++) {
		struct packimg_writer *writer;
		struct packimg_writer_options options = {
			.uuid = i == 3 ? (const uint8_t *)"0123456789abcdef" : NULL};
		assert_int_equal(packimg_writer_new(path_of(names[i]), &options, &writer, &error),
				 0);
		pixels[0] = i == 2;
		add(writer, 20);
		assert_int_equal(packimg_writer_finish(writer, &error), 0);
		packimg_writer_free(writer);
		files[i] = image_file_read(path_of(names[i]), &sizes[i]);
	}
	pixels[0] = 0;
	assert_int_equal(sizes[0], sizes[1]);
	assert_memory_equal(files[0], files[1], sizes[0]);
	/* bytes 32 to 47 are the UUID */
	assert_memory_not_equal(files[0] + 32, files[2] + 32, 16);
	assert_memory_equal(files[3] + 32, "0123456789abcdef", 16);
	for (int i = 0; i < 4; i++) {
		free(files[i]);
		remove(path_of(names[i]));
	}
}

/* Writes 40 samples. `way` selects a difference in sample 30 or in the metadata. */
static void write_variant(const char *name, uint64_t shard_size, const char *way,
			  uint8_t ret_uuids[32])
{
	struct packimg_writer *writer = begin(name, shard_size);
	struct packimg *dataset;
	struct packimg_shard shard;
	uint32_t text, number;
	const double mean[3] = {1, 2, strcmp(way, "mean") == 0 ? 4 : 3}, std[3] = {1, 1, 1};
	static const char *const classes[] = {"cat", "dog", "fox"};
	const uint8_t side[16] = {7, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};

	assert_int_equal(packimg_writer_field(writer, "text", PACKIMG_FIELD_TEXT, &text, &error),
			 0);
	assert_int_equal(
		packimg_writer_field(writer, "number", PACKIMG_FIELD_INT64, &number, &error), 0);
	for (int i = 0; i < 40; i++) {
		const bool odd = i == 30;
		struct packimg_item item = plain_item();
		struct packimg_value value = {
			.present = true, .bytes = "abcd", .size = 4, .int64 = i};

		item.source = odd && strcmp(way, "source") == 0 ? "b" : "a";
		item.source_size = 1;
		item.label = odd && strcmp(way, "label") == 0 ? 1 : 0;
		item.orientation = odd && strcmp(way, "orientation") == 0 ? 3 : 1;
		pixels[0] = odd && strcmp(way, "pixels") == 0;
		if (strcmp(way, "side") == 0) {
			item.side = side;
			item.side_size = sizeof(side);
		}
		if (odd && strcmp(way, "dropped") == 0)
			continue;
		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		if (i % 3 == 0)
			assert_int_equal(packimg_writer_value(writer, number, &value, &error), 0);
		value.size -= odd && strcmp(way, "text") == 0;
		if (!odd || strcmp(way, "no text") != 0)
			assert_int_equal(packimg_writer_value(writer, text, &value, &error), 0);
	}
	pixels[0] = 0;
	assert_int_equal(packimg_writer_classes(writer, classes,
						strcmp(way, "classes") == 0 ? 3 : 2, &error),
			 0);
	assert_int_equal(packimg_writer_statistics(writer, mean, std), 0);
	assert_int_equal(packimg_writer_metadata(writer, "made", way, &error), 0);
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of(name), &dataset, &error), 0);
	assert_int_equal(packimg_check(dataset, &error), 0);
	memcpy(ret_uuids, packimg_uuid(dataset), 16);
	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++) {
		assert_int_equal(packimg_shard(dataset, i, &shard), 0);
		if (i == 0) {
			size_t size;
			uint8_t *file = image_file_read(shard.path, &size);

			memcpy(ret_uuids + 16, file + 48, 16);
			free(file);
		}
		assert_int_equal(remove(shard.path), 0);
	}
	packimg_close(dataset);
}

/* The UUID depends on a dataset's contents, not on the division into shards. */
TEST(uuid)
{
	static const char *const other[] = {"pixels", "label",   "orientation", "source", "dropped",
					    "text",   "no text", "classes",     "mean"};
	uint8_t one[32], again[32], found[sizeof(other) / sizeof(other[0])][32];

	write_variant("u.pimg", 0, "", one);
	write_variant("u.pimg", 0, "", again);
	assert_memory_equal(one, again, 32);
	write_variant("u.pimg", 4096, "", again);
	assert_memory_equal(one, again, 16);
	assert_memory_not_equal(one + 16, again + 16, 16);
	write_variant("u.pimg", 3000, "made otherwise", again);
	assert_memory_equal(one, again, 16);
	write_variant("u.pimg", 0, "side", again);
	assert_memory_equal(one, again, 16);
	assert_memory_not_equal(one + 16, again + 16, 16);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		write_variant("u.pimg", i % 2 ? 0 : 4096, other[i], found[i]);
		assert_memory_not_equal(one, found[i], 16);
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(found[k], found[i], 16);
	}
}

/* Exceeds one block of the spool for every kind of data, in two shards. */
TEST(many)
{
	enum { COUNT = 30000 };
	struct packimg_writer *writer = begin("h.pimg", 1600000);
	struct packimg *dataset;
	uint8_t pixel[3];
	char text[64];
	uint32_t bytes, number;

	assert_int_equal(packimg_writer_field(writer, "bytes", PACKIMG_FIELD_BYTES, &bytes, &error),
			 0);
	assert_int_equal(
		packimg_writer_field(writer, "number", PACKIMG_FIELD_INT64, &number, &error), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		memcpy(pixel, &i, 3);
		int size = snprintf(text, sizeof(text), "folder/of/sources/%u.jpeg", i);
		struct packimg_item item = plain_item();
		item.width = item.height = 1;
		item.data = pixel;
		item.data_size = 3;
		item.source = text;
		item.source_size = (size_t)size;
		assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
		struct packimg_value value = {
			.present = true, .bytes = text, .size = (size_t)size, .int64 = i};
		assert_int_equal(packimg_writer_value(writer, bytes, &value, &error), 0);
		if (i >= 20000)
			assert_int_equal(packimg_writer_value(writer, number, &value, &error), 0);
	}
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of("h.pimg"), &dataset, &error), 0);
	assert_int_equal(packimg_check(dataset, &error), 0);
	assert_int_equal(packimg_shard_count(dataset), 2);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct packimg_sample sample;
		struct packimg_value value;
		const char *name;
		size_t name_size;
		uint32_t got = 0;
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		memcpy(&got, sample.data, 3);
		assert_int_equal(got, i);
		int size = snprintf(text, sizeof(text), "folder/of/sources/%u.jpeg", i);
		assert_int_equal(packimg_source(dataset, i, &name, &name_size), 0);
		assert_int_equal(name_size, size);
		assert_memory_equal(name, text, name_size);
		assert_int_equal(packimg_value(dataset, i, bytes, &value), 0);
		assert_int_equal(value.size, size);
		assert_memory_equal(value.bytes, text, value.size);
		assert_int_equal(packimg_value(dataset, i, number, &value), 0);
		assert_int_equal(value.present, i >= 20000);
		assert_int_equal(value.int64, i >= 20000 ? i : 0);
	}
	packimg_close(dataset);
}

TEST_MAIN(directory_setup, directory_teardown)
