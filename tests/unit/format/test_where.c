/*
 * Filters over samples: which samples of where_dataset.c match, bounds, other datasets, damage.
 */
#include "tests/unit/format/where_fixture.h"

#include "format/base/schema.h"
#include "format/layout.h"

#include <fcntl.h>

struct match {
	const char *filter, *expected;
};

static void check_all(const struct match *matches, size_t count)
{
	for (size_t i = 0; i < count; i++)
		check_matches(matches[i].filter, matches[i].expected);
}
#define CHECK_ALL(matches) check_all(matches, sizeof(matches) / sizeof((matches)[0]))

TEST(names)
{
	static const struct match matches[] = {
		{"width >= 200", "011101"},
		{"height = 70", "001000"},
		{"width(image) >= 200 and height(image) < 70", "010001"},
		{"width(mask) == 100", "100000"},
		{"height(mask) >= 50", "101010"},
		{"label in (1, 5)", "010010"},
		{"label != 1", "101001"},
		{"label == -1", "000000"},
		{"class == 'dog'", "010010"},
		{"\"dog\" == class", "010010"},
		{"class in (\"dog\", 'bird\\'s \"x\"')", "011010"},
		{"class(label) != 'cat'", "011010"},
		{"class(species) == \"cat\"", "100000"},
		{"class(species) not in (\"cat\", \"dog\")", "010001"},
		{"species == -1", "000010"},
		{"sample < 2", "110000"},
		{"sample in (0, 5, 77)", "100001"},
		{"key == \"val/b\"", "000010"},
		{"`my size` >= 30", "000111"},
		{"`label` == 2", "001000"},
		{"zZ9.x == 1", "010000"},
		{"`a\\`b\\\\c` == 2", "001000"},
		{"half == 0.5 or brain == 1 or single == 1.5", "011100"},
		{"'val/b' == key or key == class", "000010"},
		{"class == 'dog' or class == 'dog' or class in ('dog', 'dog')", "010010"},
		{"caption == \"a cat\"", "100000"},
		{"info == '{\"a\":1}'", "100000"},
		{"key != caption", "101011"},
	};

	CHECK_ALL(matches);
}

TEST(presence_and_counts)
{
	static const struct match matches[] = {
		{"has(label)", "111011"},
		{"has(class)", "111011"},
		{"has(width)", "111111"},
		{"has(sample) and has(image)", "111111"},
		{"has(key)", "111011"},
		{"has(mask)", "101010"},
		{"has(boxes)", "110110"},
		{"has(blob)", "100001"},
		{"has(score)", "101111"},
		{"has(target)", "111111"},
		{"count(boxes) >= 1", "100110"},
		{"count(boxes) == 0", "010000"},
		{"count(outlines) == 2", "100000"},
		{"count(outlines) == 0", "010000"},
		{"count(outlines) == 1", "000100"},
		{"count(outlines) == 3", "000010"},
		{"count(caption) == 0", "001000"},
		{"count(caption) == 10000", "000010"},
		{"count(blob) == 3", "100000"},
		{"count(key) > 11", "001001"},
		{"count(boxes) == count(outlines)", "110110"},
	};

	CHECK_ALL(matches);
}

/* SQL's logic: unknown is neither true nor false, and its negation is unknown. */
TEST(absent_values_are_unknown)
{
	static const struct match matches[] = {
		{"score > 0", "100101"},
		{"not score > 0", "000010"},
		{"score <= 0 or score > 0", "100111"},
		{"score == score", "100111"},
		{"score != score", "000000"},
		{"not (score > 0 and width > 0)", "000010"},
		{"not (score > 0 and width < 0)", "111111"},
		{"score > 0 or width > 0", "111111"},
		{"width > 0 or score > 0", "111111"},
		{"not (score > 0 or width < 0)", "000010"},
		{"score > 0 and has(score)", "100101"},
		{"-score < 0", "100101"},
		{"score + 1 > 0", "100101"},
		{"score in (0.5)", "100000"},
		{"score not in (0.5)", "000111"},
		{"caption like '*'", "101111"},
		{"caption not like 'a*'", "001111"},
		{"not not score > 0", "100101"},
		{"0/0 == 0/0 or width == 50", "000010"},
		{"1/0 > 1e308", "111111"},
		{"score - score == 0", "100011"},
	};

	CHECK_ALL(matches);
}

TEST(numbers)
{
	static const struct match matches[] = {
		{"id == 9007199254740993", "010000"},
		{"id == 9007199254740992.0", "100000"},
		{"id > 9007199254740992.0", "010100"},
		{"id < 9007199254740993", "101011"},
		{"id in (9007199254740993, 8, 1e300)", "010000"},
		{"id in (9007199254740992.0, -1.0)", "101000"},
		{"id + 1 == 9007199254740994", "010000"},
		{"id * 2 == 18014398509481986", "010000"},
		{"id == 9223372036854775807", "000100"},
		{"id == -9223372036854775808", "000010"},
		{"id in (-9223372036854775808)", "000010"},
		{"id == -9223372036854775808.0", "000010"},
		{"-9223372036854775808 + 1 == -9223372036854775807", "111111"},
		{"id >= 9223372036854775808", "000000"},
		{"id < 9223372036854775807.0", "111111"},
		{"id >= -9223372036854775808.0", "111111"},
		{"id + 1 == 9223372036854775808", "000100"},
		{"id - 1 < -9223372036854775807", "000010"},
		{"-id == 9223372036854775808", "000010"},
		{"- -id == id", "111111"},
		{"id * id > 1e30", "110110"},
		{"hash == 18446744073709551615", "100000"},
		{"hash == 18446744073709551614", "000001"},
		{"hash > 18446744073709551613", "100001"},
		{"hash >= 9223372036854775808.0", "110001"},
		{"hash > 9223372036854775808", "100001"},
		{"hash < 18446744073709551616", "111111"},
		{"hash in (18446744073709551614, 5)", "001001"},
		{"hash > id", "111011"},
		{"score == 1e300", "000001"},
		{"score > 1e300", "000100"},
		{"score in (-2.5, .5, 1)", "100010"},
		{"score == +0.5", "100000"},
		{"width / height == 2", "100000"},
		{"width / 100 == 2.01", "000001"},
		{"2 + 3 * 4 == 14 and (2 + 3) * 4 == 20 and 7 - 4 - 2 == 1", "111111"},
		{"8 / 4 / 2 == 1 and -2 * -3 == 6 and 1 - -1 == 2", "111111"},
		{"1.5e2 + 1E1 == 160. and 007 == 7", "111111"},
		{"1e+2 == 100 and 25e-1 == 2.5", "111111"},
		{"width + 1 in (101, 202)", "100001"},
		{"sample * 10 == `my size`", "111111"},
	};

	CHECK_ALL(matches);
}

TEST(logic)
{
	static const struct match matches[] = {
		{"width > 100 and height > 60 and label == 2", "001000"},
		{"width == 50 or width == 100 and label == 7", "000010"},
		{"(width == 50 or width == 100) and label == 0", "100000"},
		{"not width == 50 and not width == 100", "011101"},
		{"not (width == 50 or width == 100)", "011101"},
		{"not not not width == 50", "111101"},
		{"(width==50)or(width==100)", "100010"},
		{"\twidth\n<\r60 ", "000010"},
	};

	CHECK_ALL(matches);
}

TEST(texts)
{
	static const struct match matches[] = {
		{"key < \"train/1\"", "100000"},
		{"key <= \"train/1.jpg\"", "110000"},
		{"key > \"train/1.jpg\"", "001011"},
		{"key >= \"train/1.jpg\"", "011011"},
		{"key in (\"train/0.jpg\", \"val/b\", \"val/b\", \"val/bb\", \"\")", "100010"},
		{"caption in (\"\", \"a dog\", \"a cat\")", "101000"},
		{"caption == \"\"", "001000"},
		{"caption == 'it\\'s 100%*'", "000100"},
		{"caption > \"xxxx\"", "000011"},
		{"caption < \"xxxy\" and caption > \"x\"", "000010"},
		{"caption == caption", "101111"},
		{"caption < caption or caption > caption", "000000"},
		{"key < caption", "000011"},
		{"key like \"train/*\"", "110001"},
		{"key like \"train/?.jpg\"", "110000"},
		{"key like \"*.jpg\"", "111000"},
		{"key like \"val/?t?.jpg\"", "001000"},
		{"key like \"val/??t?.jpg\"", "000000"},
		{"key like \"*/*/*\"", "000001"},
		{"key like \"*a*i*/*\"", "110001"},
		{"key like \"\"", "000000"},
		{"key like \"*\"", "111011"},
		{"key like \"**?\"", "111011"},
		{"key not like \"train/*\"", "001010"},
		{"caption like \"\"", "001000"},
		{"caption like \"?*\"", "100111"},
		{"caption like \"*\\*\"", "000100"},
		{"caption like \"???\"", "000001"},
		{"caption like \"*y\"", "000010"},
		{"caption like \"*xy\"", "000010"},
		{"caption like \"x*x?\"", "000010"},
		{"caption like \"*x*x*x*x*x*x*x*x*x*x*x*x*x*z\"", "000000"},
		{"class like \"*g\"", "010010"},
		{"class like 'bird\\'s \"?\"'", "001000"},
		{"info like '*a*'", "100000"},
		{"'abc' like 'a*c' and 'abc' in ('abc')", "111111"},
	};

	CHECK_ALL(matches);
}

/* A literal of the long caption, and one with another last byte. */
TEST(long_texts)
{
	enum { SIZE = 10000 };
	static char filter[SIZE + 100], text[SIZE + 1];
	static const struct {
		const char *before, *after, *same, *other;
	} forms[] = {
		{"caption == \"", "\"", "000010", "000000"},
		{"caption != \"", "\"", "101101", "101111"},
		{"caption >= \"", "\"", "000011", "000001"},
		{"caption in (\"", "\", \"b\")", "000010", "000000"},
		{"caption in (\"", "\", \"a cat\")", "100010", "100000"},
	};

	memset(text, 'x', SIZE);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		for (int same = 0; same < 2; same++) {
			text[SIZE - 1] = same ? 'y' : 'z';
			snprintf(filter, sizeof(filter), "%s%s%s", forms[i].before, text,
				 forms[i].after);
			check_matches(filter, same ? forms[i].same : forms[i].other);
		}
}

/* Each element of a list is found, wherever it is. */
TEST(short_lists)
{
	for (int first = -4; first <= 0; first++)
		for (int end = 1; end <= WHERE_SAMPLES; end++) {
			char filter[200] = "sample in (", expected[] = "000000";

			for (int i = end - 1; i >= first; i--)
				sprintf(filter + strlen(filter), "%d%s", i, i > first ? "," : ")");
			memset(expected, '1', (size_t)end);
			check_matches(filter, expected);
		}
}

TEST(long_lists)
{
	enum { ELEMENTS = 100000 };
	static char filter[WHERE_TEXT_MAX + 1];
	size_t used = (size_t)sprintf(filter, "id in (");

	for (int i = 0; i < ELEMENTS; i++)
		used += (size_t)sprintf(filter + used, "%d,", 7 + (i * 7919) % ELEMENTS);
	strcpy(filter + used - 1, ")");
	check_matches(filter, "000001");
	used = (size_t)sprintf(filter, "key not in (");
	for (int i = 0; i < ELEMENTS; i++)
		used += (size_t)sprintf(filter + used, "'%x',", i);
	strcpy(filter + used, "'val/b')");
	check_matches(filter, "111001");
}

/* Builds a filter: `count` times `repeated`, between two other texts. */
static const char *repeat(const char *before, const char *repeated, size_t count, const char *after)
{
	static char filter[WHERE_TEXT_MAX + 100];
	char *end = stpcpy(filter, before);

	for (size_t i = 0; i < count; i++)
		end = stpcpy(end, repeated);
	strcpy(end, after);
	return filter;
}

/* Nests `depth` parentheses, each level of which holds as many operands as possible. */
static const char *nest(size_t depth, const char *innermost)
{
	static char filter[1 << 14];
	char *end = filter;

	for (size_t i = 0; i < depth; i++)
		end = stpcpy(end, i + 1 < depth ? "width < 0 or width > 0 and (" : "1 < 1 + 1 * (");
	end = stpcpy(end, innermost);
	for (size_t i = 0; i < depth; i++)
		*end++ = ')';
	*end = 0;
	return filter;
}

TEST(bounds)
{
	static char text[WHERE_TEXT_MAX + 2];
	struct where *where;

	check_matches(nest(WHERE_DEPTH_MAX, "width"), "111111");
	check_error(mapped, nest(WHERE_DEPTH_MAX + 1, "width"),
		    WHERE_DEPTH_MAX * (int)strlen("width < 0 or width > 0 and (") +
			    (int)strlen("1 < 1 + 1 * "),
		    "more than 64 parentheses are open");
	/* the parser's deepest stack, before it finds that a condition is no number */
	const char *deepest =
		repeat("", "width < 0 or width > 0 and 1 < 1 + 1 * (", WHERE_DEPTH_MAX, "width");
	assert_int_equal(where_parse(deepest, mapped, &where, NULL), -EINVAL);
	check_matches(repeat("(", "width < 0 or ", 13000, "width > 100)"), "011101");
	check_matches(repeat("", "not ", 100001, "width > 100"), "100010");
	check_matches(repeat("width > ", "- ", 100000, "100"), "011101");
	check_matches(repeat("width > ", "1 + ", 1000, "100 - 1000"), "011101");
	check_matches(repeat("", "(has(mask)) and ", WHERE_OPERATIONS_MAX / 3 - 1, "width > 100"),
		      "001000");
	check_error(mapped, repeat("", "has(mask) and ", WHERE_OPERATIONS_MAX / 3 + 1, "width > 9"),
		    (WHERE_OPERATIONS_MAX / 3 + 1) * (int)strlen("has(mask) and ") - 4,
		    "the filter has more than 65536 operations; a list, as in label in (1, 2), is "
		    "one");
	check_matches(repeat("key like '", "*", WHERE_PATTERN_MAX, "'"), "111011");
	check_error(mapped, repeat("key like '", "*", WHERE_PATTERN_MAX + 1, "'"), 9,
		    "the pattern has more than 255 bytes");
	memset(text, ' ', WHERE_TEXT_MAX + 1);
	memcpy(text, "width > 100", 11);
	check_error(mapped, text, WHERE_TEXT_MAX, "the filter has more than 1048576 bytes");
	text[WHERE_TEXT_MAX] = 0;
	check_matches(text, "011101");
}

/* Fields of a dataset without a schema and without names of classes and sources. */
TEST(implied_schema)
{
	static const uint8_t pixels[3 * 2 * 3];
	const struct packimg_item item = {
		.data = pixels,
		.data_size = sizeof(pixels),
		.width = 3,
		.height = 2,
		.label = 4,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = 1,
	};
	const struct packimg_value number = {.present = true, .int64 = 70};
	static const struct match matches[] = {
		{"width == 70", "1"},      {"width(image) == 3", "1"}, {"height == 2", "1"},
		{"`in` == 70", "1"},       {"label == 4", "1"},        {"has(class)", "0"},
		{"class like \"*\"", "0"}, {"has(key)", "0"},          {"key == \"\"", "0"},
		{"not has(`in`)", "0"},
	};
	static const char *const fields[] = {"width", "in"};
	struct packimg_writer *writer;
	struct packimg *dataset;
	uint32_t field;

	assert_int_equal(packimg_writer_new(path_of("implied.pimg"), NULL, &writer, &error), 0);
	assert_int_equal(packimg_writer_add(writer, &item, &error), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(packimg_writer_field(writer, fields[i], PACKIMG_FIELD_INT64,
						      &field, &error),
				 0);
		assert_int_equal(packimg_writer_value(writer, field, &number, &error), 0);
	}
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of("implied.pimg"), &dataset, &error), 0);
	for (size_t i = 0; i < sizeof(matches) / sizeof(matches[0]); i++) {
		struct where *where = parse(matches[i].filter, dataset);

		if (where_match(where, dataset, 0) != matches[i].expected[0] - '0')
			fail_msg("%s: not %s", matches[i].filter, matches[i].expected);
		where_free(where);
	}
	check_error(dataset, "class == \"cat\"", 9,
		    "the dataset has no names of classes; use label, the number");
	check_error(dataset, "nothing > 2", 0,
		    "the dataset has no value \"nothing\": it has image, width, `in`, label, "
		    "sample, key, height, class (text is in quotes)");
	check_error(dataset, "`inn` > 2", 0,
		    "the dataset has no value \"inn\"; did you mean `in`? (text is in quotes)");
	packimg_close(dataset);
}

TEST(no_such_sample)
{
	struct where *where = parse("sample >= 0", mapped);
	struct packimg_shard shard;
	struct packimg *info;

	assert_int_equal(where_match(where, mapped, WHERE_SAMPLES), -ERANGE);
	where_free(where);
	where = parse("width > 0 or key like '*'", mapped);
	assert_int_equal(packimg_shard(mapped, 0, &shard), 0);
	int fd = fcntl(shard.fd, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(packimg_open_info(fd, "info", &info, &error), 0);
	assert_int_equal(where_match(where, info, 0), -ERANGE);
	packimg_close(info);
	where_free(where);
}

static void check_match(const char *filter, const struct packimg *dataset, uint64_t index,
			int expected)
{
	struct where *where = parse(filter, dataset);
	int r = where_match(where, dataset, index);

	if (r != expected)
		fail_msg("%s: %d, not %d, for sample %d", filter, r, expected, (int)index);
	where_free(where);
}

/* Overwrites bytes of the file that holds a sample, at an address in its mapping. */
static void overwrite(const struct packimg *dataset, uint64_t index, const void *at,
		      const void *bytes, size_t size)
{
	struct packimg_sample sample;
	struct packimg_shard shard;

	assert_int_equal(packimg_sample(dataset, index, &sample), 0);
	assert_int_equal(packimg_shard(dataset, sample.shard, &shard), 0);
	int fd = open(shard.path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, size, (const uint8_t *)at - shard.map), size);
	close(fd);
}

static const uint8_t *section_of(const struct packimg *dataset, uint64_t index,
				 enum pimg_section_type type)
{
	struct packimg_sample sample;
	struct packimg_shard shard;

	assert_int_equal(packimg_sample(dataset, index, &sample), 0);
	assert_int_equal(packimg_shard(dataset, sample.shard, &shard), 0);
	const struct pimg_header *header = (const struct pimg_header *)shard.map;
	for (uint32_t i = 0; i < header->section_count; i++)
		if (header->sections[i].type == type)
			return shard.map + header->sections[i].offset;
	fail_msg("no section %d", type);
	return NULL;
}

/* Returns where a sample that is the first of its file has the value of a numeric field. */
static const uint8_t *column_number_at(const struct packimg *dataset, uint64_t index,
				       uint32_t field)
{
	const uint8_t *columns = section_of(dataset, index, PIMG_SECTION_COLUMNS);
	struct packimg_sample sample;
	struct packimg_shard shard;
	struct pimg_column column;

	memcpy(&column, columns + field * sizeof(column), sizeof(column));
	assert_int_equal(packimg_sample(dataset, index, &sample), 0);
	assert_int_equal(packimg_shard(dataset, sample.shard, &shard), 0);
	return shard.map + column.offset + (shard.sample_count + 63) / 64 * 8;
}

/* Only what a filter reads can be damaged for it. */
TEST(damage)
{
	static const float vertex[2];
	static const uint64_t wrong = UINT64_MAX;
	static const uint32_t no_width;
	static const int64_t no_class = 3;
	struct packimg_value value;
	struct packimg *dataset;

	where_dataset_write(path_of("damaged.pimg"));
	assert_int_equal(packimg_open(path_of("damaged.pimg"), &dataset, &error), 0);
	const struct schema *schema = packimg_schema(dataset);
	uint16_t outlines = schema->values[schema_find(schema, "outlines")].number;
	uint16_t species = schema->values[schema_find(schema, "species")].number;
	uint16_t score = schema->values[schema_find(schema, "score")].number;
	check_match("count(outlines) == 1", dataset, 3, 1);
	assert_int_equal(packimg_value(dataset, 3, outlines, &value), 0);
	overwrite(dataset, 3, (const uint8_t *)value.bytes + value.size - sizeof(vertex), vertex,
		  sizeof(vertex));
	check_match("count(outlines) == 1", dataset, 3, -EBADMSG);
	check_match("has(outlines)", dataset, 3, 1);
	const uint8_t *columns = section_of(dataset, 0, PIMG_SECTION_COLUMNS);
	overwrite(dataset, 0,
		  columns + score * sizeof(struct pimg_column) +
			  offsetof(struct pimg_column, reserved_0),
		  &wrong, sizeof(wrong));
	check_match("score > 0", dataset, 0, -EBADMSG);
	check_match("has(score)", dataset, 0, -EBADMSG);
	check_match("score > 0 or width > 0", dataset, 0, -EBADMSG);
	check_match("width > 0 or score > 0", dataset, 0, 1);
	check_match("width < 0 and score > 0", dataset, 0, 0);
	check_match("caption like 'a*'", dataset, 0, 1);
	overwrite(dataset, 0, column_number_at(dataset, 0, species), &no_class, sizeof(no_class));
	check_match("species == 3", dataset, 0, 1);
	check_match("class(species) like '*'", dataset, 0, 0);
	overwrite(dataset, 0,
		  section_of(dataset, 0, PIMG_SECTION_INDEX) + offsetof(struct pimg_record, width),
		  &no_width, sizeof(no_width));
	check_match("width >= 0", dataset, 0, -EBADMSG);
	check_match("label == 0", dataset, 0, -EBADMSG);
	check_match("class != 'dog'", dataset, 0, -EBADMSG);
	check_match("width(mask) > 0", dataset, 0, -EBADMSG);
	check_match("sample == 0 and key like 'train*'", dataset, 0, 1);
	packimg_close(dataset);
}

/* An unmapped file that has become shorter is damaged. */
TEST(unmapped_cut)
{
	struct packimg *dataset, *cut;
	struct packimg_shard shard;

	where_dataset_write(path_of("cut.pimg"));
	assert_int_equal(packimg_open(path_of("cut.pimg"), &dataset, &error), 0);
	cut = open_unmapped(dataset);
	assert_int_equal(packimg_shard(dataset, 0, &shard), 0);
	assert_int_equal(truncate(shard.path, sizeof(struct pimg_header)), 0);
	check_match("width >= 0", cut, 0, -EBADMSG);
	check_match("key like 'train*'", cut, 0, -EBADMSG);
	check_match("sample == 0", cut, 0, 1);
	packimg_close(cut);
	packimg_close(dataset);
}

TEST(free_accepts_null)
{
	where_free(NULL);
}

TEST_MAIN(where_setup, where_teardown)
