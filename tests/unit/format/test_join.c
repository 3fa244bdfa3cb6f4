/*
 * Joined datasets: everything that a joined dataset returns is what its parts return, with samples,
 * shards, fields, images and classes renumbered; what it leaves out, and why.
 */
#include "format/base/schema_rules.h"
#include "format/hints.h"
#include "format/join.h"
#include "format/layout.h"
#include "format/reader.h"
#include "tests/unit/format/fixture.h"
#include "tests/unit/format/made.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <xxhash.h>

#define assert_contains(text, part)                                                                \
	do {                                                                                       \
		if (!strstr(text, part))                                                           \
			fail_msg("\"%s\" lacks \"%s\"", text, part);                               \
	} while (0)

static struct packimg *join(struct packimg *const *parts, uint32_t count)
{
	struct packimg *joined;

	if (packimg_join(parts, count, &joined, &error) < 0)
		fail_msg("%s", error.text);
	return joined;
}

/* Checks that a join fails with an error that contains `text`, and closes the parts. */
static void refuse(struct packimg *a, struct packimg *b, int code, const char *text)
{
	struct packimg *parts[] = {a, b}, *joined = NULL;

	assert_int_equal(packimg_join(parts, 2, &joined, &error), code);
	assert_null(joined);
	assert_contains(error.text, text);
	packimg_close(a);
	packimg_close(b);
}

/* Comparison with the parts, which finds everything by name */

static void check_bytes(const struct packimg *joined, uint64_t index, const struct packimg *part,
			uint64_t i, const void *at, size_t size)
{
	uint8_t bytes[2][4096];

	assert_true(size <= sizeof(bytes[0]));
	assert_int_equal(packimg_read(joined, index, at, bytes[0], size), 0);
	assert_int_equal(packimg_read(part, i, at, bytes[1], size), 0);
	assert_memory_equal(bytes[0], bytes[1], size);
	if (packimg_is_mapped(joined))
		assert_memory_equal(bytes[0], at, size);
}

static void check_label(const struct packimg *joined, int32_t label, const struct packimg *part,
			int32_t expected)
{
	if (expected == PACKIMG_LABEL_NONE || packimg_class_count(joined) == 0)
		assert_int_equal(label, expected);
	else
		assert_string_equal(packimg_class_name(joined, (uint32_t)label),
				    packimg_class_name(part, (uint32_t)expected));
}

/* first_shard: number of the part's first file in the joined dataset */
static void check_picture(const struct packimg *joined, uint64_t index, const struct packimg *part,
			  uint64_t i, const struct packimg_sample *sample,
			  const struct packimg_sample *own, uint32_t first_shard)
{
	struct packimg_shard shards[2];

	assert_int_equal(sample->index, index);
	assert_ptr_equal(sample->data, own->data);
	assert_ptr_equal(sample->side, own->side);
	assert_int_equal(sample->data_size, own->data_size);
	assert_int_equal(sample->side_size, own->side_size);
	assert_int_equal(sample->data_xxh3, own->data_xxh3);
	assert_int_equal(sample->width, own->width);
	assert_int_equal(sample->height, own->height);
	assert_int_equal(sample->codec, own->codec);
	assert_int_equal(sample->channels, own->channels);
	assert_int_equal(sample->orientation, own->orientation);
	assert_int_equal(sample->shard, own->shard + first_shard);
	assert_int_equal(sample->data_offset, own->data_offset);
	check_label(joined, sample->label, part, own->label);
	check_bytes(joined, index, part, i, sample->data, sample->data_size);
	assert_int_equal(packimg_shard(joined, sample->shard, &shards[0]), 0);
	assert_int_equal(packimg_shard(part, own->shard, &shards[1]), 0);
	assert_string_equal(shards[0].path, shards[1].path);
	assert_int_equal(shards[0].fd, shards[1].fd);
	assert_ptr_equal(shards[0].map, shards[1].map);
	assert_int_equal(shards[0].size, shards[1].size);
	assert_int_equal(shards[0].sample_count, shards[1].sample_count);
	assert_int_equal(shards[0].sample_first, shards[1].sample_first + index - i);
}

static void check_fields(const struct packimg *joined, uint64_t index, const struct packimg *part,
			 uint64_t i)
{
	for (uint32_t f = 0; f < packimg_field_count(joined); f++) {
		struct packimg_field field, own;
		struct packimg_value value, expected;
		uint32_t k = 0;

		assert_int_equal(packimg_field(joined, f, &field), 0);
		while (packimg_field(part, k, &own) == 0 && strcmp(field.name, own.name) != 0)
			k++;
		assert_int_equal(field.type, own.type);
		assert_true(field.type < PACKIMG_FIELD_BYTES || field.longest >= own.longest);
		assert_int_equal(packimg_value(joined, index, f, &value), 0);
		assert_int_equal(packimg_value(part, i, k, &expected), 0);
		assert_int_equal(value.present, expected.present);
		assert_int_equal(value.int64, expected.int64);
		assert_true(value.float64 == expected.float64);
		assert_ptr_equal(value.bytes, expected.bytes);
		assert_int_equal(value.size, expected.size);
		if (value.bytes)
			check_bytes(joined, index, part, i, value.bytes, value.size);
	}
}

static void check_images(const struct packimg *joined, uint64_t index, const struct packimg *part,
			 uint64_t i, uint32_t first_shard)
{
	const struct schema *schema = packimg_schema(joined), *own = packimg_schema(part);

	for (unsigned v = 0; v < schema->count; v++) {
		const struct schema_value *value = &schema->values[v];
		int k = schema_find(own, value->name);
		struct packimg_sample image, expected;

		assert_true(k >= 0);
		assert_int_equal(value->store, own->values[k].store);
		assert_true(value->longest >= own->values[k].longest);
		if (value->store != SCHEMA_IN_IMAGES)
			continue;
		int r = packimg_image(part, i, own->values[k].number, &expected);
		assert_int_equal(packimg_image(joined, index, value->number, &image), r);
		if (r == 0)
			check_picture(joined, index, part, i, &image, &expected, first_shard);
	}
}

static void check_sample(const struct packimg *joined, uint64_t index, const struct packimg *part,
			 uint64_t i, uint32_t first_shard)
{
	struct packimg_sample sample, expected;
	const char *names[2];
	size_t sizes[2];

	assert_int_equal(packimg_sample(joined, index, &sample), 0);
	assert_int_equal(packimg_sample(part, i, &expected), 0);
	check_picture(joined, index, part, i, &sample, &expected, first_shard);
	assert_int_equal(packimg_source(joined, index, &names[0], &sizes[0]), 0);
	assert_int_equal(packimg_source(part, i, &names[1], &sizes[1]), 0);
	assert_ptr_equal(names[0], names[1]);
	assert_int_equal(sizes[0], sizes[1]);
	check_bytes(joined, index, part, i, names[0], sizes[0]);
	check_fields(joined, index, part, i);
	check_images(joined, index, part, i, first_shard);
}

static void check_past_end(const struct packimg *joined)
{
	uint64_t count = packimg_count(joined);
	struct packimg_sample sample;
	struct packimg_shard shard;
	struct packimg_value value;
	const char *name;
	size_t size;

	assert_int_equal(packimg_sample(joined, count, &sample), -ERANGE);
	assert_int_equal(packimg_image(joined, count, 0, &sample), -ERANGE);
	assert_int_equal(packimg_image(joined, 0, packimg_image_count(joined), &sample), -ERANGE);
	assert_int_equal(packimg_source(joined, count, &name, &size), -ERANGE);
	assert_int_equal(packimg_value(joined, count, 0, &value), -ERANGE);
	assert_int_equal(packimg_value(joined, 0, packimg_field_count(joined), &value), -ERANGE);
	assert_int_equal(packimg_read(joined, count, NULL, &sample, 1), -ERANGE);
	assert_int_equal(packimg_shard(joined, packimg_shard_count(joined), &shard), -ERANGE);
}

static void check_joined(const struct packimg *joined, struct packimg *const *parts, uint32_t count)
{
	uint64_t index = 0, at;
	uint32_t first_shard = 0;
	struct schema_fault fault;

	assert_int_equal(packimg_part_count(joined), count);
	for (uint32_t p = 0; p < count; p++) {
		assert_ptr_equal(packimg_part(joined, p), parts[p]);
		assert_int_equal(packimg_part_first(joined, p), index);
		for (uint64_t i = 0; i < packimg_count(parts[p]); i++, index++) {
			assert_int_equal(packimg_part_of(joined, index, &at), p);
			assert_int_equal(at, i);
			check_sample(joined, index, parts[p], i, first_shard);
		}
		first_shard += packimg_shard_count(parts[p]);
	}
	assert_int_equal(packimg_count(joined), index);
	assert_int_equal(packimg_shard_count(joined), first_shard);
	if (!schema_is_sound(packimg_schema(joined), &fault))
		fail_msg("%s", fault.text);
	check_past_end(joined);
}

/* Asserts the canonical text of the joined schema. */
static void check_schema(const struct packimg *joined, const char *expected)
{
	static char text[SCHEMA_TEXT_MAX];

	schema_print(packimg_schema(joined), text, sizeof(text));
	assert_string_equal(text, expected);
}

static void check_lacks(const struct packimg *joined, const char *name, const char *expected)
{
	char text[8192];

	if (!packimg_join_lacks(joined, name, text, sizeof(text)))
		fail_msg("%s is in the schema", name);
	assert_contains(text, expected);
}

static const struct made rich_a = {
	.name = "a",
	.schema = "image: image\n"
		  "only_a: value f32\n"
		  "boxes: boxes(image) f32[*,4]\n"
		  "class: class(boxes) i32[*]\n"
		  "depth: mask(image)\n"
		  "mask: mask(image) sparse\n"
		  "score: value f64\n"
		  "small: value u8\n"
		  "caption: text\n"
		  "facts: json sparse\n",
	.classes = "cat,dog,cat",
	.count = 13,
	.labels = 3,
};

static const struct made rich_b = {
	.name = "bb",
	.schema = "image: image u8[8,w,3]\n"
		  "only_b: bytes\n"
		  "caption: text sparse\n"
		  "small: value u8 sparse\n"
		  "mask: mask(image)\n"
		  "depth: mask(image)\n"
		  "other: image u8[h,w] sparse\n"
		  "boxes: boxes(image) f32[*,4]\n"
		  "facts: json\n"
		  "class: class(boxes) i32[*]\n"
		  "score: value f64\n",
	.classes = "cat,dog",
	.count = 29,
	.labels = 2,
	.shard_size = 1500,
};

static const char rich_schema[] = "image: image u8[h,w,3]\n"
				  "boxes: boxes(image) f32[*,4] xyxy\n"
				  "class: class(boxes) i32[*]\n"
				  "depth: mask(image) u8[h,w]\n"
				  "mask: mask(image) u8[h,w] sparse\n"
				  "score: value f64\n"
				  "small: value u8 sparse\n"
				  "caption: text sparse\n"
				  "facts: json sparse\n"
				  "label: class i32\n"
				  "sample: number u64\n"
				  "key: key\n";

TEST(samples_are_those_of_the_parts)
{
	struct made empty = rich_a;
	empty.name = "empty";
	empty.count = 0;
	for (int unmapped = 0; unmapped < 2; unmapped++) {
		struct packimg *made[] = {make(rich_a), make(empty), make(rich_b), make(empty)};
		struct packimg *parts[] = {reopen(made[0], unmapped), reopen(made[1], unmapped),
					   reopen(made[2], unmapped), reopen(made[3], unmapped)};
		struct packimg *joined = join(parts, 4);

		assert_true(packimg_shard_count(made[2]) > 2);
		check_joined(joined, parts, 4);
		check_schema(joined, rich_schema);
		assert_true(packimg_has_schema(joined));
		assert_int_equal(packimg_is_mapped(joined), !unmapped);
		assert_int_equal(packimg_class_count(joined), 3);
		assert_int_equal(packimg_image_count(joined), 2);
		assert_int_equal(packimg_schema(joined)->values[0].width, 10);
		assert_int_equal(packimg_source_longest(joined), strlen("bb/784"));
		assert_int_equal(packimg_check(joined, &error), unmapped ? -ENOTSUP : 0);
		packimg_close(joined);
		for (int p = 0; p < 4; p++)
			packimg_close(made[p]);
	}
}

TEST(lists_by_class_and_sizes_are_of_the_parts)
{
	struct packimg *parts[] = {make(rich_a), make(rich_b)}, *joined = join(parts, 2);
	uint64_t starts[16], index;
	uint16_t size[1][2];

	assert_true(packimg_has_members(parts[0]) && packimg_has_sizes(parts[0]));
	assert_false(packimg_has_members(joined));
	assert_false(packimg_has_sizes(joined));
	assert_int_equal(packimg_class_starts(joined, 0, starts), -ENODATA);
	assert_int_equal(packimg_class_member(joined, 0, 0, 0, &index), -ENODATA);
	assert_int_equal(packimg_sizes(joined, 0, 1, size), -ENODATA);
	packimg_close(joined);
}

TEST(classes_join_by_name)
{
	struct made b = rich_b, c = rich_b;
	b.classes = "dog,,bird,";
	b.labels = 4;
	c.name = "c";
	c.classes = "bird,cat,dog";
	c.labels = 3;
	struct made a = rich_a;
	a.classes = "cat,dog";
	a.labels = 2;
	struct packimg *parts[] = {make(a), make(b), make(c)}, *joined = join(parts, 3);
	static const char *const names[] = {"cat", "dog", "", "bird", ""};

	check_joined(joined, parts, 3);
	assert_int_equal(packimg_class_count(joined), 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_string_equal(packimg_class_name(joined, i), names[i]);
	assert_null(packimg_class_name(joined, 5));
	/* the two empty names of b stay two classes */
	static const int32_t labels[] = {1, 2, 3, 4};
	for (uint32_t i = 0; i < 4; i++) {
		struct packimg_sample sample;
		assert_int_equal(packimg_sample(joined, a.count + i, &sample), 0);
		assert_int_equal(sample.label, labels[i]);
	}
	check_lacks(joined, "mask", "'mask' may have class numbers, and ");
	check_lacks(joined, "class", "bb-00000-of-");
	check_lacks(joined, "class", " numbers its classes in another way");
	packimg_close(joined);
}

TEST(names_must_tell_classes_apart)
{
	struct made a = rich_a, b = rich_b;
	a.classes = "cat,dog,cat";
	b.classes = "dog,cat";
	refuse(make(a), make(b), -EINVAL, "a.pimg: two classes are named 'cat'");
	refuse(make(b), make(a), -EINVAL, "a.pimg: two classes are named 'cat'");
}

TEST(unnamed_classes)
{
	struct made a = rich_a, b = rich_b;
	struct packimg_sample sample;
	b.classes = NULL;
	b.labels = 0;
	struct packimg *parts[] = {make(b), make(a)}, *joined = join(parts, 2);
	check_joined(joined, parts, 2);
	assert_int_equal(packimg_class_count(joined), 3);
	check_lacks(joined, "class", "has no class names, though another dataset has");
	packimg_close(joined);

	/* a label beside names is damage */
	b.labels = 30;
	struct packimg *labelled[] = {make(a), make(b)};
	joined = join(labelled, 2);
	for (uint32_t i = 0; i < b.count; i++) {
		assert_int_equal(packimg_sample(labelled[1], i, &sample), 0);
		assert_int_equal(packimg_sample(joined, a.count + i, &sample), -EBADMSG);
	}
	packimg_close(joined);

	/* without names anywhere, numbers stay as they are */
	a.classes = NULL;
	struct packimg *numbered[] = {make(a), make(b)};
	joined = join(numbered, 2);
	check_joined(joined, numbered, 2);
	check_schema(joined, rich_schema);
	assert_int_equal(packimg_class_count(joined), 0);
	packimg_close(joined);
}

/* Makes a part whose only class has a name of that size, of zeros. */
static struct packimg *make_large_class(size_t size)
{
	struct made made = rich_a;
	made.classes = "x";
	made.labels = 1;
	struct packimg *part = make(made);
	uint64_t table[2] = {0, size};
	uint8_t *data = mmap(NULL, sizeof(table) + size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(data != MAP_FAILED);
	memcpy(data, table, sizeof(table));
	free((void *)part->classes.data);
	part->classes = (struct section_view){data, sizeof(table) + size, 0};
	return part;
}

TEST(class_names_have_a_limit)
{
	struct packimg *parts[2], *joined;

	for (int p = 0; p < 2; p++)
		parts[p] = make_large_class(PIMG_CLASSES_SIZE_MAX / 2 + (size_t)p);
	assert_int_equal(packimg_join(parts, 2, &joined, &error), -E2BIG);
	assert_contains(error.text, "2 classes of different names or more");
	for (int p = 0; p < 2; p++) {
		munmap((void *)parts[p]->classes.data, parts[p]->classes.size);
		parts[p]->classes.data = NULL;
		packimg_close(parts[p]);
	}
}

TEST(what_is_left_out_is_explained)
{
	struct packimg *parts[] = {
		make((struct made){"a",
				   "image: image\n"
				   "boxes: boxes(image) f32[*,4] normalized\n"
				   "class: class(boxes) i32[*]\n"
				   "area: value(class) f32[*]\n"
				   "n: value i32\n"
				   "points: keypoints(boxes) f32[*,17,3]\n"
				   "label: class i32\n"
				   "only_a: text\n",
				   .count = 3}),
		make((struct made){"b",
				   "image: image\n"
				   "boxes: boxes(image) f32[*,4] cxcywh\n"
				   "class: class(boxes) i32[*]\n"
				   "area: value(class) f32[*]\n"
				   "n: value i64 sparse\n"
				   "points: keypoints(image) f32[*,17,3]\n"
				   "fine: class i32\n"
				   "label: class i32\n"
				   "only_b: text\n",
				   .count = 3}),
	};
	struct packimg *joined = join(parts, 2);
	char text[64] = "unchanged";

	check_joined(joined, parts, 2);
	check_schema(joined, "image: image u8[h,w,3]\nsample: number u64\nkey: key\n");
	check_lacks(joined, "boxes", "'boxes' is boxes(image) f32[*,4] xyxy normalized in /");
	check_lacks(joined, "boxes", "/a.pimg, but boxes(image) f32[*,4] cxcywh in /");
	check_lacks(joined, "class", "'class' belongs to 'boxes', which is left out: 'boxes' is ");
	check_lacks(joined, "area",
		    "'area' belongs to 'class', which is left out: 'class' belongs to 'boxes', "
		    "which is left out: 'boxes' is boxes(image) ");
	check_lacks(joined, "n", "'n' is value i32 in /");
	check_lacks(joined, "n", "/a.pimg, but value i64 sparse in /");
	check_lacks(joined, "points", "but keypoints(image) f32[*,17,3] xyv in /");
	check_lacks(joined, "label", "'label' is the label of the samples in /");
	check_lacks(joined, "only_a", "/b.pimg has no value 'only_a'");
	check_lacks(joined, "only_b", "/a.pimg has no value 'only_b'");
	assert_false(packimg_join_lacks(joined, "image", text, sizeof(text)));
	assert_false(packimg_join_lacks(joined, "nothing", text, sizeof(text)));
	assert_false(packimg_join_lacks(parts[0], "only_b", text, sizeof(text)));
	assert_string_equal(text, "unchanged");
	packimg_close(joined);
}

TEST(first_images_must_agree)
{
	static const char *const others[] = {"photo: image\n", "image: image u8[h,w]\n",
					     "image: image u16[h,w,3]\n"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct made a = {"a", "image: image\n"}, b = {"b", others[i]};
		refuse(make(a), make(b), -EINVAL, "/b.pimg: the first image is \"");
		refuse(make(b), make(a), -EINVAL, "but that of ");
	}
}

/* a field whose name is too long for a schema */
#define LONG "a23456789_123456789_123456789_123456789_123456789_123456789_1234567"

TEST(fields_without_schema)
{
	static const char *const a[] = {"1n", "2x", "3raw", "5text", "1" LONG, "1" LONG "t"},
				 *const b[] = {"1more", "5text", "2" LONG "t", "1" LONG,
					       "3raw",  "1x",    "1n"};
	struct packimg *parts[] = {make_implied("a", a, 6), make_implied("b", b, 7)};
	struct packimg *joined = join(parts, 2);
	struct packimg_field field;

	check_joined(joined, parts, 2);
	check_schema(joined, "image: image u8[h,w,3]\nn: value i64 sparse\nraw: bytes sparse\n"
			     "text: text sparse\nlabel: class i32\nsample: number u64\nkey: key\n");
	assert_false(packimg_has_schema(joined));
	assert_int_equal(packimg_field_count(joined), 4);
	assert_int_equal(packimg_field(joined, 3, &field), 0);
	assert_string_equal(field.name, LONG);
	check_lacks(joined, "x", "/a.pimg, but value i64 sparse in /");
	packimg_close(joined);

	/* beside a recorded schema */
	struct packimg *mixed[] = {
		make((struct made){"c", "image: image\ntext: text\nn: value i64\n", .count = 3}),
		make_implied("b", b, 7)};
	joined = join(mixed, 2);
	check_joined(joined, mixed, 2);
	check_schema(joined, "image: image u8[h,w,3]\ntext: text sparse\nn: value i64 sparse\n"
			     "label: class i32\nsample: number u64\nkey: key\n");
	assert_false(packimg_has_schema(joined));
	assert_int_equal(packimg_schema(joined)->values[0].width, 0);
	packimg_close(joined);
}

TEST(statistics_metadata_and_uuid)
{
	struct made a = {"a", .count = 3, .mean = 100, .std = 50, .metadata = "x"};
	struct made b = {"b", .count = 1, .mean = 100, .std = 50, .metadata = "x"};
	struct packimg *equal[] = {make(a), make(b)}, *swapped[] = {make(b), make(a)};
	struct packimg *joined = join(equal, 2), *other = join(swapped, 2);
	uint8_t uuids[32];
	double mean[3], std[3];

	assert_string_equal(packimg_metadata(joined), "origin=x\n");
	assert_int_equal(packimg_statistics(joined, mean, std), 0);
	assert_true(mean[0] == 100 && mean[2] == 102 && std[0] == 50 && std[2] == 70);
	memcpy(uuids, packimg_uuid(equal[0]), 16);
	memcpy(uuids + 16, packimg_uuid(equal[1]), 16);
	XXH128_hash_t hash = XXH3_128bits(uuids, sizeof(uuids));
	assert_int_equal(packimg_uuid(joined)[15], hash.low64 & 0xff);
	assert_memory_not_equal(packimg_uuid(joined), packimg_uuid(other), 16);
	packimg_close(joined);
	packimg_close(other);

	/* of the mixture: mean 3/4 100 + 1/4 140, variance 3/4 (50^2 + 10^2) + 1/4 (30^2 + 30^2) */
	b.mean = 140;
	b.std = 30;
	b.metadata = "y";
	struct packimg *mixed[] = {make(a), make(b)};
	joined = join(mixed, 2);
	assert_string_equal(packimg_metadata(joined), "");
	assert_int_equal(packimg_statistics(joined, mean, std), 0);
	assert_true(fabs(mean[0] - 110) < 1e-9 && fabs(std[0] - sqrt(2400)) < 1e-9);
	packimg_close(joined);

	/* a part with samples lacks them; one without does not matter */
	b.mean = 0;
	for (b.count = 0; b.count < 2; b.count++) {
		struct packimg *some[] = {make(b), make(a)};
		joined = join(some, 2);
		assert_int_equal(packimg_statistics(joined, mean, std), b.count ? -ENODATA : 0);
		assert_true(b.count || mean[0] == 100);
		packimg_close(joined);
	}
}

TEST(bad_parts)
{
	struct packimg *a = make(rich_a), *b = make(rich_b), *joined = NULL, *info;
	struct packimg *parts[] = {a, b};

	assert_int_equal(packimg_join(parts, 0, &joined, &error), -EINVAL);
	assert_contains(error.text, "0 datasets; 1 to 1024 can be joined");
	assert_int_equal(packimg_join(parts, PACKIMG_PARTS_MAX + 1, &joined, &error), -EINVAL);
	struct packimg *twice[] = {a, a};
	assert_int_equal(packimg_join(twice, 2, &joined, &error), -EINVAL);
	assert_contains(error.text, "open it twice");
	int fd = dup(a->shards[0].fd);
	assert_int_equal(packimg_open_info(fd, "a", &info, &error), 0);
	refuse(make(rich_b), info, -EINVAL, "part 1 was opened by packimg_open_info()");
	refuse(make(rich_b), reopen(a, true), -EINVAL, "again.pimg is unmapped, but /");
	/* the parts of a failed join stay open, and unchanged */
	joined = join(parts, 2);
	check_joined(joined, parts, 2);
	struct packimg_rewriter *rewriter;
	assert_int_equal(packimg_rewriter_new(joined, &rewriter, &error), -ENOTSUP);
	refuse(make(rich_a), joined, -EINVAL, "part 1 is a joined dataset");
}

TEST(too_many_samples)
{
	struct packimg *a = make(rich_a), *b = make(rich_b);

	b->sample_count = UINT64_MAX - 12;
	refuse(a, b, -E2BIG, "too many samples");
}

TEST(one_part)
{
	struct packimg *a = make(rich_a), *joined = join(&a, 1);
	struct packimg *unmapped = reopen(a, true), *info;
	uint64_t index;

	assert_ptr_equal(joined, a);
	assert_int_equal(packimg_part_count(joined), 1);
	assert_int_equal(packimg_part_of(joined, 5, &index), 0);
	assert_int_equal(index, 5);
	assert_ptr_equal(packimg_part(joined, 0), a);
	assert_int_equal(packimg_part_first(joined, 0), 0);
	packimg_close(join(&unmapped, 1));
	assert_int_equal(packimg_open_info(dup(a->shards[0].fd), "a", &info, &error), 0);
	assert_int_equal(packimg_join(&info, 1, &joined, &error), -EINVAL);
	packimg_close(info);
	packimg_close(a);
}

TEST(most_parts)
{
	struct packimg *a = make((struct made){"a", .classes = "x,y", .count = 3, .labels = 2});
	struct packimg *b = make((struct made){"b", .classes = "y,x", .count = 2, .labels = 2});
	struct packimg *parts[PACKIMG_PARTS_MAX];
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < PACKIMG_PARTS_MAX + 64)
		skip();
	for (uint32_t p = 0; p < PACKIMG_PARTS_MAX; p++)
		parts[p] = reopen(p % 3 ? a : b, false);
	struct packimg *joined = join(parts, PACKIMG_PARTS_MAX);
	check_joined(joined, parts, PACKIMG_PARTS_MAX);
	packimg_close(joined);
	packimg_close(a);
	packimg_close(b);
}

TEST(damage_in_a_part)
{
	struct packimg *parts[] = {make(rich_a), make(rich_b)}, *joined = join(parts, 2);
	struct packimg_sample sample;
	const struct shard *shard = &parts[1]->shards[1];
	uint64_t damaged = shard->sample_first;
	off_t offset = shard->sections[PIMG_SECTION_INDEX].data - shard->map +
		       (off_t)offsetof(struct pimg_record, label);
	int32_t label = 7;
	FILE *file = fopen(shard->path, "r+");

	assert_int_equal(pwrite(fileno(file), &label, sizeof(label), offset), sizeof(label));
	fclose(file);
	for (uint64_t i = 0; i < rich_b.count; i++)
		assert_int_equal(packimg_sample(joined, rich_a.count + i, &sample),
				 i == damaged ? -EBADMSG : 0);
	assert_int_equal(packimg_check(joined, &error), -EBADMSG);
	assert_contains(error.text, shard->path);
	packimg_close(joined);
}

TEST_MAIN(directory_setup, directory_teardown)
