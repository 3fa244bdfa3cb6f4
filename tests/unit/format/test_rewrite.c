/*
 * Rewriting a dataset with other indexes: everything else is preserved, whatever the file contains,
 * and the old dataset stays until the end.
 */
#include "format/layout.h"
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { SAMPLES = 9 };

static struct packimg_error error;
static struct packimg_decoder *decoder;
static char *directory;

static const char *path_of(const char *name)
{
	static char paths[4][600];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

#define MUST(call)                                                                                 \
	do {                                                                                       \
		error.text[0] = '\0';                                                              \
		int result_ = (call);                                                              \
		if (result_ < 0)                                                                   \
			fail_msg("%s: %d %s", #call, result_, error.text);                         \
	} while (0)

/*
 * Writes JPEGs, with a raw sample at every third position. Fields have gaps, and odd samples have
 * private side data.
 */
static void write_dataset(const char *path, uint64_t shard_size)
{
	static const struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2};
	static const char *const classes[] = {"ant", "bee"};
	static const uint8_t note[16] = {1, 0, 0, 0x80, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};
	const struct packimg_writer_options options = {.shard_size = shard_size};
	struct packimg_writer *writer;
	uint32_t number, words;

	MUST(packimg_writer_new(path, &options, &writer, &error));
	MUST(packimg_writer_classes(writer, classes, 2, &error));
	MUST(packimg_writer_metadata(writer, "tool", "test", &error));
	MUST(packimg_writer_field(writer, "n", PACKIMG_FIELD_INT64, &number, &error));
	MUST(packimg_writer_field(writer, "w", PACKIMG_FIELD_BYTES, &words, &error));
	for (uint32_t i = 0; i < SAMPLES; i++) {
		bool raw = i % 3 == 2;
		char name[16];
		size_t size = 20 * 30 * 3;
		uint8_t *data =
			raw ? image_pixels(20, 30, 3, i) : image_jpeg(40 + i, 200, &kind, i, &size);
		struct packimg_item item = {
			.data = data,
			.data_size = size,
			.side = i % 2 ? note : NULL,
			.side_size = i % 2 ? sizeof(note) : 0,
			.width = raw ? 20 : 40 + i,
			.height = raw ? 30 : 200,
			.label = (int32_t)(i % 2),
			.codec = raw ? PACKIMG_CODEC_RAW : PACKIMG_CODEC_JPEG,
			.channels = 3,
			.orientation = 1,
			.source = name,
			.source_size = (size_t)snprintf(name, sizeof(name), "s/%u.jpg", i),
		};
		struct packimg_value value = {.present = i % 4 != 0, .int64 = i * 1000};
		struct packimg_value text = {.present = i > 4, .bytes = name, .size = i};
		if (i == 6 && !raw) /* a JPEG with another orientation than upright */
			item.orientation = 6, item.width = 200, item.height = 46;
		MUST(packimg_writer_add(writer, &item, &error));
		MUST(packimg_writer_value(writer, number, &value, &error));
		if (text.size <= item.source_size)
			MUST(packimg_writer_value(writer, words, &text, &error));
		free(data);
	}
	double mean[3] = {1, 2, 3}, std[3] = {4, 5, 6};
	MUST(packimg_writer_statistics(writer, mean, std));
	MUST(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
}

/* Compares everything that the API returns for two datasets, except side data. */
static void same_but_for_side(const struct packimg *a, const struct packimg *b)
{
	double numbers[4][3] = {{0}};

	assert_int_equal(packimg_count(a), packimg_count(b));
	assert_int_equal(packimg_shard_count(a), packimg_shard_count(b));
	assert_memory_equal(packimg_uuid(a), packimg_uuid(b), 16);
	assert_string_equal(packimg_metadata(a), packimg_metadata(b));
	assert_int_equal(packimg_statistics(a, numbers[0], numbers[1]),
			 packimg_statistics(b, numbers[2], numbers[3]));
	assert_memory_equal(numbers[0], numbers[2], sizeof(numbers) / 2);
	assert_int_equal(packimg_class_count(a), packimg_class_count(b));
	for (uint32_t i = 0; i < packimg_class_count(a); i++)
		assert_string_equal(packimg_class_name(a, i), packimg_class_name(b, i));
	assert_int_equal(packimg_field_count(a), packimg_field_count(b));
	for (uint64_t i = 0; i < packimg_count(a); i++) {
		struct packimg_sample p, q;
		const char *name, *other;
		size_t size, other_size;

		MUST(packimg_sample(a, i, &p));
		MUST(packimg_sample(b, i, &q));
		assert_int_equal(p.data_size, q.data_size);
		assert_memory_equal(p.data, q.data, p.data_size);
		assert_int_equal(p.data_xxh3, q.data_xxh3);
		assert_true(p.width == q.width && p.height == q.height && p.label == q.label &&
			    p.codec == q.codec && p.channels == q.channels &&
			    p.orientation == q.orientation && p.shard == q.shard);
		MUST(packimg_sample_check(&q));
		packimg_source(a, i, &name, &size);
		packimg_source(b, i, &other, &other_size);
		assert_int_equal(size, other_size);
		assert_memory_equal(name, other, size);
		for (uint32_t f = 0; f < packimg_field_count(a); f++) {
			struct packimg_value v, w;

			MUST(packimg_value(a, i, f, &v));
			MUST(packimg_value(b, i, f, &w));
			assert_true(v.present == w.present && v.int64 == w.int64 &&
				    memcmp(&v.float64, &w.float64, 8) == 0 && v.size == w.size);
			if (v.size)
				assert_memory_equal(v.bytes, w.bytes, v.size);
		}
	}
	MUST(packimg_check(b, &error));
}

enum what { KEEP, INDEX, DROP };

/*
 * Rewrites all samples. INDEX gives every JPEG an index that can have one. The old dataset is still
 * open on return.
 */
static void rewrite(struct packimg *dataset, enum what what)
{
	struct packimg_rewriter *rewriter;

	MUST(packimg_rewriter_new(dataset, &rewriter, &error));
	const uint64_t *order = packimg_rewriter_order(rewriter);
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		struct packimg_sample sample;
		struct packimg_jpeg_info info;
		const uint8_t *side = what == DROP ? (const uint8_t *)"" : NULL;
		size_t size = 0;

		MUST(packimg_sample(dataset, order[i], &sample));
		if (what == INDEX && sample.codec == PACKIMG_CODEC_JPEG &&
		    packimg_jpeg_probe(sample.data, sample.data_size, &info, NULL) == 0)
			packimg_index_jpeg(decoder, sample.data, sample.data_size, &info, &side,
					   &size);
		MUST(packimg_rewriter_put(rewriter, side, size, &error));
	}
	assert_int_equal(packimg_rewriter_put(rewriter, NULL, 0, &error), -EINVAL);
	MUST(packimg_rewriter_finish(rewriter, &error));
	packimg_rewriter_free(rewriter);
}

static unsigned files_in(const char *path)
{
	DIR *listing = opendir(path);
	unsigned count = 0;

	assert_non_null(listing);
	while (readdir(listing))
		count++;
	closedir(listing);
	return count;
}

static void check_rewritten(const char *path, unsigned files)
{
	struct packimg *old, *new;
	struct packimg_shard a, b;
	struct packimg_sample sample;

	MUST(packimg_open(path, &old, &error));
	rewrite(old, INDEX);
	assert_int_equal(files_in(directory), files);
	MUST(packimg_open(path, &new, &error));
	same_but_for_side(old, new);
	for (uint32_t i = 0; i < packimg_shard_count(old); i++) {
		MUST(packimg_shard(old, i, &a));
		MUST(packimg_shard(new, i, &b));
		/* bytes 48 to 63 of the header are shard_uuid */
		assert_memory_not_equal(a.map + 48, b.map + 48, 16);
		assert_int_equal(b.map[48 + 6] >> 4, 8);
	}
	for (uint64_t i = 0; i < SAMPLES; i++) {
		MUST(packimg_sample(new, i, &sample));
		assert_int_equal(packimg_sample_indexed(&sample), i % 3 != 2);
		assert_int_equal(packimg_index_check(decoder, &sample, &error),
				 i % 3 != 2 ? 0 : -ENODATA);
		if (i % 2)
			assert_memory_equal(sample.side, "\1\0\0\x80\5\0\0\0hello\0\0\0", 16);
		/* data and side data are adjacent, so that one read fetches both */
		if (sample.side)
			assert_int_equal(sample.side - sample.data,
					 ((int64_t)sample.data_size + 63) / 64 * 64);
	}
	packimg_close(old);
	/*
	 * another rewrite gives the same bytes, and dropping the new indexes gives the bytes of a
	 * dataset that never had them
	 */
	MUST(packimg_shard(new, 0, &a));
	uint8_t *first = malloc(a.size);
	memcpy(first, a.map, a.size);
	rewrite(new, INDEX);
	MUST(packimg_open(path, &old, &error));
	MUST(packimg_shard(old, 0, &b));
	assert_int_equal(a.size, b.size);
	assert_memory_equal(first, b.map, a.size);
	free(first);
	rewrite(old, DROP);
	packimg_close(new);
	MUST(packimg_open(path, &new, &error));
	same_but_for_side(old, new);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		MUST(packimg_sample(new, i, &sample));
		assert_false(packimg_sample_indexed(&sample));
		assert_int_equal(sample.side_size, i % 2 ? 16 : 0);
	}
	packimg_close(new);
	packimg_close(old);
}

static int setup(void **state)
{
	directory = image_directory();
	return packimg_decoder_new(&decoder);
}

static int teardown(void **state)
{
	packimg_decoder_free(decoder);
	image_directory_remove(directory);
	return 0;
}

TEST_WITH(single, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct stat status;

	write_dataset(path, 0);
	assert_int_equal(chmod(path, 0640), 0);
	check_rewritten(path, 3);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0640);
	/* a rewrite through a symlink replaces the target and keeps the link */
	assert_int_equal(symlink("one.pimg", path_of("link.pimg")), 0);
	check_rewritten(path_of("link.pimg"), 4);
	assert_int_equal(lstat(path_of("link.pimg"), &status), 0);
	assert_true(S_ISLNK(status.st_mode));
}

TEST_WITH(set, setup, teardown)
{
	write_dataset(path_of("set.pimg"), 8000);
	unsigned files = files_in(directory);
	assert_true(files > 5);
	check_rewritten(path_of("set.pimg"), files);
}

TEST_WITH(abandoned, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *dataset;
	struct packimg_rewriter *rewriter;
	size_t size, size_after;

	write_dataset(path, 0);
	uint8_t *before = image_file_read(path, &size);
	MUST(packimg_open(path, &dataset, &error));
	for (int puts = 0; puts < SAMPLES; puts += 4) {
		MUST(packimg_rewriter_new(dataset, &rewriter, &error));
		for (int i = 0; i < puts; i++)
			MUST(packimg_rewriter_put(rewriter, NULL, 0, &error));
		assert_int_equal(packimg_rewriter_finish(rewriter, &error),
				 puts == SAMPLES ? 0 : -EINVAL);
		packimg_rewriter_free(rewriter);
		assert_int_equal(files_in(directory), 3);
	}
	packimg_rewriter_free(NULL);
	packimg_close(dataset);
	uint8_t *after = image_file_read(path, &size_after);
	assert_int_equal(size, size_after);
	assert_memory_equal(before, after, size);
	free(before);
	free(after);
}

/*
 * Writes sections `members` and `sizes` anew after records have changed. Every sample has one of
 * the two classes.
 */
static void patch_hints(uint8_t *data, const struct pimg_header *header,
			const struct pimg_record *records)
{
	const struct pimg_section *sections = &header->sections[header->section_count - 2];
	struct pimg_size *sizes = (struct pimg_size *)(data + sections[1].offset);
	uint64_t *starts = (uint64_t *)(data + sections[0].offset);
	uint32_t *numbers = (uint32_t *)&starts[3], count = 0;

	assert_int_equal(sections[0].type, PIMG_SECTION_MEMBERS);
	assert_int_equal(sections[1].type, PIMG_SECTION_SIZES);
	for (int c = 0; c < 2; c++) {
		starts[c] = count;
		for (uint32_t i = 0; i < SAMPLES; i++)
			if (records[i].label == c)
				numbers[count++] = i;
	}
	assert_int_equal(count, SAMPLES);
	for (int i = 0; i < SAMPLES; i++)
		sizes[i] =
			(struct pimg_size){(uint16_t)records[i].width, (uint16_t)records[i].height};
}

/* Changes the records of a file and updates what follows from them. */
static void patch_records(const char *path, void (*change)(struct pimg_record *records))
{
	size_t size;
	uint8_t *data = image_file_read(path, &size);
	struct pimg_header *header = (struct pimg_header *)data;
	struct pimg_record *records = (struct pimg_record *)(data + header->sections[0].offset);

	assert_int_equal(header->sections[0].type, PIMG_SECTION_INDEX);
	change(records);
	patch_hints(data, header, records);
	for (uint32_t i = 0; i < header->section_count; i++) {
		struct pimg_section *section = &header->sections[i];
		section->xxh3 = XXH3_64bits(data + section->offset, section->size);
	}
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	image_file_write(path, data, size);
	free(data);
}

/*
 * Changes the order of samples in the file and makes some samples share bytes, with and without
 * side data.
 */
static void shuffle_and_share(struct pimg_record *records)
{
	struct pimg_record first = records[0];

	records[0] = records[7];
	records[7] = first;
	records[4] = records[3];
	records[4].label = 0;
	records[1] = records[3];
	records[1].side_offset = records[1].side_size = 0;
	records[1].side_xxh3 = 0;
	records[6] = records[1];
}

TEST_WITH(order_and_sharing, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *old, *new;
	struct packimg_sample samples[SAMPLES];

	write_dataset(path, 0);
	patch_records(path, shuffle_and_share);
	MUST(packimg_open(path, &old, &error));
	rewrite(old, INDEX);
	MUST(packimg_open(path, &new, &error));
	same_but_for_side(old, new);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		MUST(packimg_sample(new, i, &samples[i]));
		assert_int_equal(packimg_index_check(decoder, &samples[i], &error),
				 i % 3 != 2 ? 0 : -ENODATA);
	}
	assert_ptr_equal(samples[3].data, samples[4].data);
	assert_ptr_equal(samples[3].side, samples[4].side);
	assert_ptr_equal(samples[3].data, samples[1].data);
	assert_ptr_not_equal(samples[3].side, samples[1].side);
	assert_ptr_equal(samples[1].data, samples[6].data);
	assert_ptr_equal(samples[1].side, samples[6].side);
	assert_true(samples[7].data < samples[2].data && samples[0].data > samples[6].data);
	packimg_close(old);
	packimg_close(new);
}

static void damage_record(struct pimg_record *records)
{
	records[5].orientation = 9;
}

TEST_WITH(damage, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *dataset;
	struct packimg_rewriter *rewriter;

	write_dataset(path, 0);
	patch_records(path, damage_record);
	MUST(packimg_open(path, &dataset, &error));
	assert_int_equal(packimg_rewriter_new(dataset, &rewriter, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "sample 5"));
	packimg_close(dataset);
	assert_int_equal(files_in(directory), 3);
}

/*
 * Makes a rewrite expand the file: each sample is the remainder of the file from a slightly later
 * offset, and all samples share their bytes.
 */
static void pile_up(struct pimg_record *records)
{
	uint64_t first = records[0].data_offset;
	uint64_t end = records[SAMPLES - 1].data_offset + records[SAMPLES - 1].data_size;

	for (uint32_t i = 0; i < SAMPLES; i++) {
		records[i] = records[0];
		records[i].data_offset = first + 64 * i;
		records[i].data_size = (uint32_t)(end - records[i].data_offset);
	}
}

TEST_WITH(overlaps, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *dataset;
	struct packimg_rewriter *rewriter;

	write_dataset(path, 0);
	patch_records(path, pile_up);
	MUST(packimg_open(path, &dataset, &error));
	assert_int_equal(packimg_rewriter_new(dataset, &rewriter, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "the data of sample 0"));
	assert_non_null(strstr(error.text, "overlap"));
	packimg_close(dataset);
}

/*
 * Adds a section of an unknown type, and a blob outside all ranges to which it may lead. size:
 * bytes of the blob.
 */
static void add_unknown_section(const char *path, size_t size)
{
	size_t file_size;
	uint8_t *data = image_file_read(path, &file_size);
	size_t section = (file_size + 63) & ~(size_t)63, blob = section + 64;
	uint8_t *longer = calloc(1, blob + 64);
	struct pimg_header *header = (struct pimg_header *)longer;

	memcpy(longer, data, file_size);
	memcpy(longer + section, &blob, sizeof(blob));
	memset(longer + blob, 'b', size);
	header->sections[header->section_count++] = (struct pimg_section){
		.type = 200,
		.offset = section,
		.size = sizeof(blob),
		.xxh3 = XXH3_64bits(longer + section, sizeof(blob)),
	};
	header->file_size = blob + 64;
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	image_file_write(path, longer, blob + 64);
	free(data);
	free(longer);
}

/* A rewrite refuses to lose bytes that a section of an unknown type may lead to. */
TEST_WITH(bytes_of_unknown_sections, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *dataset;
	struct packimg_rewriter *rewriter;
	struct stat before, after;

	write_dataset(path, 0);
	add_unknown_section(path, 0);
	MUST(packimg_open(path, &dataset, &error));
	rewrite(dataset, INDEX);
	packimg_close(dataset);
	write_dataset(path, 0);
	add_unknown_section(path, 3);
	MUST(packimg_open(path, &dataset, &error));
	MUST(packimg_check(dataset, &error));
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(packimg_rewriter_new(dataset, &rewriter, &error), -ENOTSUP);
	assert_non_null(strstr(error.text, "one.pimg: has a section of the unknown type 200"));
	packimg_close(dataset);
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
}

/* Verifying finds damage in a section of an unknown type. */
TEST_WITH(damaged_unknown_section, setup, teardown)
{
	const char *path = path_of("one.pimg");
	struct packimg *dataset;
	size_t size;

	write_dataset(path, 0);
	add_unknown_section(path, 0);
	uint8_t *data = image_file_read(path, &size);
	data[size - 128] ^= 1;
	image_file_write(path, data, size);
	free(data);
	MUST(packimg_open(path, &dataset, &error));
	assert_int_equal(packimg_check(dataset, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "section of the unknown type 200"));
	packimg_close(dataset);
}

/* Whatever else a valid file may contain: unknown sections, gaps, unknown kinds of side data. */
TEST_WITH(golden, setup, teardown)
{
	static const char *const names[] = {"minimal.pimg",
					    "full.pimg",
					    "extended.pimg",
					    "typed.pimg",
					    "images.pimg",
					    "set-00000-of-00003.pimg",
					    "set-00001-of-00003.pimg",
					    "set-00002-of-00003.pimg"};
	static const char *const datasets[] = {"minimal.pimg", "full.pimg",   "extended.pimg",
					       "typed.pimg",   "images.pimg", "set.pimg"};
	char golden[600];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t size;
		snprintf(golden, sizeof(golden), "%s/good/%s", getenv("PIMG_GOLDEN"), names[i]);
		uint8_t *data = image_file_read(golden, &size);
		image_file_write(path_of(names[i]), data, size);
		free(data);
	}
	for (size_t i = 0; i < sizeof(datasets) / sizeof(*datasets); i++) {
		struct packimg *old, *new;
		struct packimg_sample p, q;
		struct packimg_shard a, b;

		MUST(packimg_open(path_of(datasets[i]), &old, &error));
		rewrite(old, KEEP);
		MUST(packimg_open(path_of(datasets[i]), &new, &error));
		same_but_for_side(old, new);
		MUST(packimg_shard(old, 0, &a));
		MUST(packimg_shard(new, 0, &b));
		/* header.section_count */
		assert_memory_equal(a.map + 112, b.map + 112, 4);
		for (uint64_t n = 0; n < packimg_count(old); n++) {
			MUST(packimg_sample(old, n, &p));
			MUST(packimg_sample(new, n, &q));
			assert_int_equal(p.side_size, q.side_size);
			if (p.side_size)
				assert_memory_equal(p.side, q.side, p.side_size);
		}
		packimg_close(old);
		packimg_close(new);
	}
}
