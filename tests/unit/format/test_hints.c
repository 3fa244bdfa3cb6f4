/*
 * Sections `members` and `sizes`: what the writer records, compared with a plain search, and what a
 * reader does with sections that are damaged, missing, or change.
 */
#include "format/hints.h"
#include "format/layout.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/images.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <xxhash.h>

enum { SIDE_MAX_OF_TEST = 3 };

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, error.text);                                     \
	} while (0)

/* The label and the size of sample i are any function of i; -1 is a possible label. */
typedef int32_t label_of(uint64_t i);

static struct pimg_size size_of(uint64_t i)
{
	return (struct pimg_size){
		.width = (uint16_t)(1 + i % SIDE_MAX_OF_TEST),
		.height = (uint16_t)(1 + i / SIDE_MAX_OF_TEST % SIDE_MAX_OF_TEST),
	};
}

static void set_classes(struct packimg_writer *writer, uint32_t count)
{
	const char **names = calloc(count + 1, sizeof(*names));

	for (uint32_t i = 0; i < count; i++)
		names[i] = "";
	MUST(packimg_writer_classes(writer, names, count, &error));
	free(names);
}

static void write_samples(const char *path, uint64_t count, uint32_t class_count, label_of *label,
			  uint64_t shard_size)
{
	static const uint8_t pixels[3 * SIDE_MAX_OF_TEST * SIDE_MAX_OF_TEST];
	const struct packimg_writer_options options = {.shard_size = shard_size};
	struct packimg_writer *writer;

	MUST(packimg_writer_new(path, &options, &writer, &error));
	for (uint64_t i = 0; i < count; i++) {
		struct pimg_size size = size_of(i);
		struct packimg_item item = {
			.data = pixels,
			.data_size = (size_t)size.width * size.height * 3,
			.width = size.width,
			.height = size.height,
			.label = label(i),
			.codec = PACKIMG_CODEC_RAW,
			.channels = 3,
			.orientation = 1,
		};
		MUST(packimg_writer_add(writer, &item, &error));
	}
	/* Shards end before the classes are known. */
	set_classes(writer, class_count);
	MUST(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
}

static struct packimg *open_checked(const char *path)
{
	struct packimg *dataset;

	MUST(packimg_open(path, &dataset, &error));
	MUST(packimg_check(dataset, &error));
	return dataset;
}

static struct packimg *reopen_unmapped(const struct packimg *mapped)
{
	uint32_t count = packimg_shard_count(mapped);
	struct packimg_shard shard;
	struct packimg *dataset;
	int fds[64];

	assert_true(count <= 64);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(packimg_shard(mapped, i, &shard), 0);
		fds[i] = fcntl(shard.fd, F_DUPFD_CLOEXEC, 3);
	}
	MUST(packimg_open_unmapped("NAME", fds, count, &dataset, &error));
	return dataset;
}

/* The number of samples of a class in a shard, by packimg_class_starts(). */
static int class_size(const struct packimg *dataset, uint32_t shard, uint32_t class_number,
		      uint64_t *ret_count)
{
	uint32_t classes = packimg_class_count(dataset);
	uint64_t *starts = calloc(classes + 1, sizeof(*starts));
	int r = class_number < classes ? packimg_class_starts(dataset, shard, starts) : -ERANGE;

	if (r == 0)
		*ret_count = starts[class_number + 1] - starts[class_number];
	free(starts);
	return r;
}

/* Asks for every class and rank, and compares with the labels. */
static void check_members(const struct packimg *dataset, label_of *label)
{
	uint32_t classes = packimg_class_count(dataset);
	uint64_t *seen = calloc(classes + 1, sizeof(*seen)), index;
	uint64_t *starts = calloc(classes + 1, sizeof(*starts));
	struct packimg_shard shard;

	assert_true(packimg_has_members(dataset));
	for (uint32_t s = 0; s < packimg_shard_count(dataset); s++) {
		assert_int_equal(packimg_shard(dataset, s, &shard), 0);
		memset(seen, 0, classes * sizeof(*seen));
		for (uint64_t i = 0; i < shard.sample_count; i++) {
			int32_t of = label(shard.sample_first + i);
			if (of < 0)
				continue;
			MUST(packimg_class_member(dataset, s, (uint32_t)of, seen[of]++, &index));
			assert_int_equal(index, shard.sample_first + i);
		}
		assert_int_equal(packimg_class_starts(dataset, s, starts), 0);
		for (uint32_t c = 0; c < classes; c++) {
			assert_int_equal(starts[c + 1] - starts[c], seen[c]);
			assert_int_equal(packimg_class_member(dataset, s, c, seen[c], &index),
					 -EBADMSG);
		}
		assert_int_equal(packimg_class_member(dataset, s, classes, 0, &index), -ERANGE);
	}
	assert_int_equal(packimg_class_starts(dataset, packimg_shard_count(dataset), starts),
			 -ERANGE);
	free(starts);
	free(seen);
}

static void check_sizes(const struct packimg *dataset)
{
	uint64_t count = packimg_count(dataset);
	uint16_t(*sizes)[2] = calloc(count + 1, sizeof(*sizes));

	assert_true(packimg_has_sizes(dataset));
	for (uint64_t first = 0; first < count; first = first * 2 + 1) {
		memset(sizes, 0, (count + 1) * sizeof(*sizes));
		MUST(packimg_sizes(dataset, first, count - first, sizes));
		for (uint64_t i = first; i < count; i++) {
			struct pimg_size size = size_of(i);
			assert_int_equal(sizes[i - first][0], size.width);
			assert_int_equal(sizes[i - first][1], size.height);
		}
		assert_int_equal(sizes[count - first][0], 0);
	}
	assert_int_equal(packimg_sizes(dataset, count, 0, sizes), 0);
	assert_int_equal(packimg_sizes(dataset, count, 1, sizes), -ERANGE);
	assert_int_equal(packimg_sizes(dataset, 1, UINT64_MAX, sizes), -ERANGE);
	free(sizes);
}

static void check_round_trip(uint64_t count, uint32_t class_count, label_of *label,
			     uint64_t shard_size)
{
	write_samples(path_of("a.pimg"), count, class_count, label, shard_size);
	struct packimg *dataset = open_checked(path_of("a.pimg"));
	struct packimg *unmapped = reopen_unmapped(dataset);

	assert_int_equal(packimg_count(dataset), count);
	assert_true(shard_size == 0 || packimg_shard_count(dataset) > 2);
	check_members(dataset, label);
	check_members(unmapped, label);
	check_sizes(dataset);
	check_sizes(unmapped);
	packimg_close(unmapped);
	packimg_close(dataset);
	image_directory_remove(directory);
	directory = image_directory();
}

static int32_t one_of_three(uint64_t i)
{
	return (int32_t)(i * i % 4) - 1;
}

static int32_t one_of_256(uint64_t i)
{
	return (int32_t)(i * 2654435761u >> 8 & 255);
}

/* Half of the samples have class 5, so that its entries fill blocks of the spool. */
static int32_t mostly_five(uint64_t i)
{
	return i % 2 ? 5 : (int32_t)(i * 2654435761u % 257);
}

/* The lowest and highest class, and some of each digit. */
static int32_t one_of_70000(uint64_t i)
{
	return i < 2 ? (int32_t)i * 69999 : (int32_t)(i * 2654435761u % 70000);
}

static int32_t none(uint64_t i)
{
	return PACKIMG_LABEL_NONE;
}

TEST(round_trip)
{
	check_round_trip(0, 2, none, 0);
	check_round_trip(5, 2, none, 0);
	check_round_trip(1, 3, one_of_three, 0);
	check_round_trip(1500, 3, one_of_three, 0);
	check_round_trip(70000, 3, one_of_three, 0);
	check_round_trip(3000, 256, one_of_256, 0);
	check_round_trip(20000, 257, mostly_five, 0);
	check_round_trip(9000, 70000, one_of_70000, 0);
}

TEST(round_trip_of_set)
{
	check_round_trip(300, 3, one_of_three, 4096);
	check_round_trip(600, 70000, one_of_70000, 16384);
}

/* Without class names there are no classes to order by; sizes are there. */
TEST(without_classes)
{
	uint64_t count;

	write_samples(path_of("plain.pimg"), 10, 0, one_of_three, 0);
	struct packimg *dataset = open_checked(path_of("plain.pimg"));
	assert_false(packimg_has_members(dataset));
	assert_int_equal(class_size(dataset, 0, 0, &count), -ERANGE);
	check_sizes(dataset);
	packimg_close(dataset);
}

/* Changes a file and repairs its checksums. */
static void change_file(const char *path, void (*change)(uint8_t *file, struct pimg_header *header))
{
	size_t size;
	uint8_t *file = image_file_read(path, &size);
	struct pimg_header *header = (struct pimg_header *)file;

	change(file, header);
	for (uint32_t i = 0; i < header->section_count; i++)
		header->sections[i].xxh3 =
			XXH3_64bits(file + header->sections[i].offset, header->sections[i].size);
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
	image_file_write(path, file, size);
	free(file);
}

/* Makes both sections unknown ones, as in a file of an earlier version. */
static void hide(uint8_t *file, struct pimg_header *header)
{
	for (uint32_t i = 0; i < header->section_count; i++)
		if (header->sections[i].type == PIMG_SECTION_MEMBERS ||
		    header->sections[i].type == PIMG_SECTION_SIZES)
			header->sections[i].type += 1000;
}

/* One shard without the sections is enough for the dataset to count as lacking them. */
TEST(shard_of_earlier_version)
{
	uint16_t sizes[300][2];
	struct packimg_shard shard;
	uint64_t count;

	write_samples(path_of("set.pimg"), 300, 3, one_of_three, 4096);
	struct packimg *dataset = open_checked(path_of("set.pimg"));
	assert_int_equal(packimg_shard(dataset, 1, &shard), 0);
	change_file(shard.path, hide);
	uint64_t first = shard.sample_first;
	packimg_close(dataset);
	dataset = open_checked(path_of("set.pimg"));
	assert_false(packimg_has_members(dataset));
	assert_false(packimg_has_sizes(dataset));
	assert_int_equal(class_size(dataset, 0, 0, &count), 0);
	assert_int_equal(class_size(dataset, 1, 0, &count), -ENODATA);
	assert_int_equal(packimg_sizes(dataset, 0, first, sizes), 0);
	assert_int_equal(packimg_sizes(dataset, 0, first + 1, sizes), -ENODATA);
	packimg_close(dataset);
}

static struct packimg *open_golden(const char *folder, const char *name)
{
	struct packimg *dataset;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s/%s", getenv("PIMG_GOLDEN"), folder, name);
	MUST(packimg_open(path, &dataset, &error));
	return dataset;
}

/* packimg_open_info() has no samples. */
TEST(info_only)
{
	struct packimg *dataset;
	char path[4096];
	uint64_t count;
	uint16_t sizes[1][2];

	snprintf(path, sizeof(path), "%s/good/full.pimg", getenv("PIMG_GOLDEN"));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	MUST(packimg_open_info(fd, "full", &dataset, &error));
	assert_false(packimg_has_members(dataset));
	assert_false(packimg_has_sizes(dataset));
	assert_int_equal(class_size(dataset, 0, 0, &count), -ERANGE);
	assert_int_equal(packimg_sizes(dataset, 0, 1, sizes), -ERANGE);
	packimg_close(dataset);
}

/* Damage that each use finds: the class, the rank, and what is found of them. */
static const struct damage {
	const char *name;
	uint32_t class_number;
	uint64_t rank;
	int size_result, member_result;
	const char *text; /* of verifying */
} damages[] = {
	{"check_members_first.pimg", 0, 0, -EBADMSG, -EBADMSG, "start 0 is 1"},
	{"check_members_start.pimg", 0, 2, 0, -EBADMSG,
	 "number 3 is sample 4, expected is 1, the next sample of class 1"},
	{"check_members_start_high.pimg", 0, 0, -EBADMSG, -EBADMSG,
	 "start 1 is 18446744073709551615, after 0 and of 5 sample numbers"},
	{"check_members_start_high.pimg", 1, 0, -EBADMSG, -EBADMSG, "start 1 is "},
	{"check_members_end.pimg", 2, 0, -EBADMSG, -EBADMSG, "start 3 is 4"},
	{"check_members_order.pimg", 0, 0, 0, 0, "number 0 is sample 3, expected is 0"},
	{"check_members_twice.pimg", 0, 1, 0, 0, "number 1 is sample 0, expected is 3"},
	{"check_members_label.pimg", 0, 0, 0, -EBADMSG, "number 0 is sample 1, expected is 0"},
	{"check_members_label.pimg", 0, 1, 0, 0, "number 0 is sample 1"},
	{"check_members_number.pimg", 2, 0, 0, -EBADMSG, "number 4 is sample 6, expected is 2"},
	{"check_members_missing.pimg", 2, 0, 0, -EBADMSG, "sample 2 of class 2 is missing"},
	{"check_members_unlabelled.pimg", 2, 1, 0, -EBADMSG,
	 "the numbers of class 2 end at 6, its samples at 5"},
	{"check_sizes_width.pimg", 0, 0, 0, 0, "sample 3 is 17 x 8, in the index 16 x 8"},
	{"check_sizes_height.pimg", 0, 0, 0, 0, "sample 4 is 8 x 0, in the index 8 x 16"},
};

TEST(damage)
{
	for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
		const struct damage *damage = &damages[i];
		struct packimg *mapped = open_golden("bad", damage->name);
		struct packimg *both[2] = {mapped, reopen_unmapped(mapped)};
		uint64_t count = 99, index = 99;

		for (int k = 0; k < 2; k++) {
			int r = class_size(both[k], 0, damage->class_number, &count);
			assert_int_equal(r, damage->size_result);
			r = packimg_class_member(both[k], 0, damage->class_number, damage->rank,
						 &index);
			if (r != damage->member_result)
				fail_msg("%s: %d", damage->name, r);
			assert_true(r == 0 || index == 99);
		}
		assert_int_equal(packimg_check(mapped, &error), -EBADMSG);
		if (!strstr(error.text, damage->text))
			fail_msg("%s: %s", damage->name, error.text);
		packimg_close(both[1]);
		packimg_close(mapped);
	}
}

/* The owner changes the file after it was opened; each call uses what it has read and checked. */
TEST(changing_file)
{
	const char *path = path_of("changing.pimg");
	uint64_t wrong = UINT64_MAX, count, index;
	uint32_t number = 1 << 30;
	int32_t label = 2;
	uint16_t sizes[8][2];
	size_t size;

	write_samples(path, 8, 3, one_of_three, 0);
	struct packimg *dataset = open_checked(path), *unmapped = reopen_unmapped(dataset);
	uint8_t *file = image_file_read(path, &size);
	struct pimg_header *header = (struct pimg_header *)file;
	const struct pimg_section *index_section = &header->sections[0],
				  *members = &header->sections[header->section_count - 2];
	assert_int_equal(members->type, PIMG_SECTION_MEMBERS);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	/* samples 0, 2, 4, 6 have no label, the others class 0 */
	assert_int_equal(packimg_class_member(dataset, 0, 0, 1, &index), 0);
	assert_int_equal(index, 3);
	off_t at = (off_t)(index_section->offset + 3 * sizeof(struct pimg_record) +
			   offsetof(struct pimg_record, label));
	assert_int_equal(pwrite(fd, &label, sizeof(label), at), sizeof(label));
	assert_int_equal(packimg_class_member(dataset, 0, 0, 1, &index), -EBADMSG);
	assert_int_equal(packimg_class_member(unmapped, 0, 0, 1, &index), -EBADMSG);
	assert_int_equal(packimg_class_member(dataset, 0, 0, 2, &index), 0);
	at = (off_t)(members->offset + 4 * sizeof(uint64_t) + 2 * sizeof(number));
	assert_int_equal(pwrite(fd, &number, sizeof(number), at), sizeof(number));
	assert_int_equal(packimg_class_member(dataset, 0, 0, 2, &index), -EBADMSG);
	assert_int_equal(class_size(dataset, 0, 0, &count), 0);
	assert_int_equal(count, 4);
	at = (off_t)(members->offset + sizeof(uint64_t));
	assert_int_equal(pwrite(fd, &wrong, sizeof(wrong), at), sizeof(wrong));
	assert_int_equal(class_size(dataset, 0, 0, &count), -EBADMSG);
	assert_int_equal(class_size(unmapped, 0, 0, &count), -EBADMSG);
	assert_int_equal(class_size(unmapped, 0, 1, &count), -EBADMSG);
	/* an unmapped file that shrinks */
	assert_int_equal(ftruncate(fd, 1024), 0);
	assert_int_equal(class_size(unmapped, 0, 0, &count), -EBADMSG);
	assert_int_equal(packimg_sizes(unmapped, 0, 8, sizes), -EBADMSG);
	close(fd);
	free(file);
	packimg_close(unmapped);
	packimg_close(dataset);
}

/* Returns the bytes of a section; NULL if the file has none. */
static const uint8_t *section_of(const uint8_t *file, uint32_t type, size_t *ret_size)
{
	const struct pimg_header *header = (const struct pimg_header *)file;

	for (uint32_t i = 0; i < header->section_count; i++)
		if (header->sections[i].type == type) {
			*ret_size = header->sections[i].size;
			return file + header->sections[i].offset;
		}
	return NULL;
}

/* A rewrite keeps the sections, and adds them to a file that lacks them. */
TEST(rewrite)
{
	static const char *const names[] = {"full.pimg", "no_members.pimg"};
	static const uint32_t types[] = {PIMG_SECTION_MEMBERS, PIMG_SECTION_SIZES};
	struct packimg_rewriter *rewriter;
	struct packimg *dataset;
	char path[4096];
	size_t size, expected_size = 0, made_size = 0;

	snprintf(path, sizeof(path), "%s/good/full.pimg", getenv("PIMG_GOLDEN"));
	uint8_t *full = image_file_read(path, &size);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/good/%s", getenv("PIMG_GOLDEN"), names[i]);
		uint8_t *old = image_file_read(path, &size);
		assert_true(!section_of(old, PIMG_SECTION_SIZES, &made_size) == (i == 1));
		image_file_write(path_of("rewritten.pimg"), old, size);
		free(old);
		MUST(packimg_open(path_of("rewritten.pimg"), &dataset, &error));
		MUST(packimg_rewriter_new(dataset, &rewriter, &error));
		for (int k = 0; k < 6; k++)
			MUST(packimg_rewriter_put(rewriter, NULL, 0, &error));
		MUST(packimg_rewriter_finish(rewriter, &error));
		packimg_rewriter_free(rewriter);
		packimg_close(dataset);
		dataset = open_checked(path_of("rewritten.pimg"));
		uint8_t *made = image_file_read(path_of("rewritten.pimg"), &size);
		assert_memory_equal(packimg_uuid(dataset), ((struct pimg_header *)full)->set_uuid,
				    16);
		for (int t = 0; t < 2; t++) {
			const uint8_t *expected = section_of(full, types[t], &expected_size);
			const uint8_t *bytes = section_of(made, types[t], &made_size);
			assert_non_null(bytes);
			assert_int_equal(made_size, expected_size);
			assert_memory_equal(bytes, expected, made_size);
		}
		free(made);
		packimg_close(dataset);
	}
	free(full);
}

/* The set's UUID does not depend on the sections: an earlier writer derived the same. */
TEST(same_uuid)
{
	struct packimg *new = open_golden("good", "full.pimg"),
		       *old = open_golden("good", "no_members.pimg");

	assert_true(packimg_has_members(new) && packimg_has_sizes(new));
	assert_false(packimg_has_members(old) || packimg_has_sizes(old));
	assert_memory_equal(packimg_uuid(new), packimg_uuid(old), 16);
	packimg_close(new);
	packimg_close(old);
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED

/* Returns the memory, in KiB, of a process that writes this many samples. */
static long memory_of(uint64_t samples)
{
	struct rusage usage;
	int status;

	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		write_samples(path_of("many.pimg"), samples, 3, one_of_three, 0);
		_exit(0);
	}
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	assert_int_equal(status, 0);
	return usage.ru_maxrss;
}

/* The sample numbers of 400,000 samples alone would take 1.6 MB. */
TEST(bounded_memory)
{
	long few = memory_of(100000), many = memory_of(500000);

	if (many - few > 700)
		fail_msg("%ld KiB for 100,000 samples, %ld KiB for 500,000", few, many);
}

#endif

TEST_MAIN(directory_setup, directory_teardown)
