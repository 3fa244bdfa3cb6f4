/*
 * Meaning of file names: which files are converted, which classes their folders give, and how new
 * files are named.
 */
#include "tests/test.h"
#include "tools/packimg/common/file_name.h"
#include "tools/packimg/convert/class_names.h"

enum {
	NAMES_MAX = 6,
};

TEST(classes)
{
	static const struct {
		enum class_from from;
		struct {
			const char *name, *class; /* expected class; NULL for none */
		} images[NAMES_MAX];
		const char *shared;
		size_t part_count;
	} sets[] = {
		{CLASS_AUTO, {{"a/1.jpg", "a"}, {"b/c/1.jpg", "b"}, {"1.jpg", NULL}}, "", 0},
		/* leading folders that contain everything are ignored */
		{CLASS_AUTO, {{"d/a/1.jpg", "a"}, {"d/b/1.jpg", "b"}}, "d/", 0},
		{CLASS_AUTO, {{"./d/e/a/1.jpg", "a"}, {"d/e/b/1.jpg", "b"}}, "d/e/", 0},
		{CLASS_AUTO, {{"/d/ab/1.jpg", "ab"}, {"d/a/1.jpg", "a"}}, "d/", 0},
		/* the innermost such folder is the class if it contains images itself */
		{CLASS_AUTO, {{"a/1.jpg", "a"}, {"a/2.jpg", "a"}}, "", 0},
		{CLASS_AUTO, {{"d/a/1.jpg", "a"}, {"d/a/2.jpg", "a"}}, "d/", 0},
		{CLASS_AUTO, {{"d/a/1.jpg", "d"}, {"d/2.jpg", "d"}}, "", 0},
		{CLASS_AUTO, {{"d/2.jpg", "d"}, {"d/a/1.jpg", "d"}, {"d/b/1.jpg", "d"}}, "", 0},
		{CLASS_AUTO,
		 {{"d/a/x/1.jpg", "a"}, {"d/a/y/1.jpg", "a"}, {"d/b/1.jpg", "b"}},
		 "d/",
		 0},
		{CLASS_AUTO, {{"1.jpg", NULL}, {"2.jpg", NULL}}, "", 0},
		/* parts of a split */
		{CLASS_AUTO,
		 {{"train/a/1.jpg", "a"}, {"val/a/1.jpg", "a"}, {"val/b/1.jpg", "b"}},
		 "",
		 2},
		{CLASS_AUTO, {{"d/Train/a/1.jpg", "a"}, {"d/Test/b/1.jpg", "b"}}, "d/", 2},
		{CLASS_AUTO, {{"train/a/1.jpg", "a"}, {"test/1.jpg", NULL}}, "", 2},
		{CLASS_AUTO, {{"train/1.jpg", "train"}, {"test/1.jpg", "test"}}, "", 2},
		{CLASS_AUTO, {{"train/a/1.jpg", "train"}, {"cat/1.jpg", "cat"}}, "", 0},
		{CLASS_AUTO, {{"train/a/1.jpg", "train"}, {"1.jpg", NULL}}, "", 0},
		{CLASS_AUTO, {{"train/a/1.jpg", "a"}, {"train/b/1.jpg", "b"}}, "train/", 0},
		/* explicit settings */
		{CLASS_TOP,
		 {{"d/a/1.jpg", "d"}, {"./train/b/1.jpg", "train"}, {"1.jpg", NULL}},
		 "",
		 0},
		{CLASS_PARENT, {{"d/a/1.jpg", "a"}, {"/b/1.jpg", "b"}, {"1.jpg", NULL}}, "", 0},
		{CLASS_NONE, {{"d/a/1.jpg", NULL}}, "d/", 0},
		{CLASS_ARCHIVE, {{"d/a/1.jpg", NULL}}, "d/", 0},
		{CLASS_PARENT, {{"../../1.jpg", NULL}, {"a/../1.jpg", NULL}}, "", 0},
	};

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		struct catalog_sample samples[NAMES_MAX];
		struct catalog catalog = {.samples = samples};
		struct class_rule rule;

		for (; catalog.count < NAMES_MAX && sets[i].images[catalog.count].name;
		     catalog.count++)
			samples[catalog.count] = (struct catalog_sample){
				.name = sets[i].images[catalog.count].name,
				.class = CATALOG_CLASS_OF_NAME,
			};
		class_rule_learn(&rule, sets[i].from, &catalog);
		assert_int_equal(rule.shared_size, strlen(sets[i].shared));
		assert_memory_equal(rule.shared, sets[i].shared, rule.shared_size);
		assert_int_equal(rule.part_count, sets[i].part_count);
		for (uint64_t k = 0; k < catalog.count; k++) {
			const char *wanted = sets[i].images[k].class;
			char class_name[64];
			const char *class = class_rule_apply(&rule, samples[k].name, class_name);

			if (!class != !wanted || (class && strcmp(class, wanted) != 0))
				fail_msg("set %zu, %s: class %s, not %s", i, samples[k].name,
					 class ? class : "none", wanted ? wanted : "none");
		}
	}
}

TEST(parts)
{
	static const char *const names[] = {"d/train/a/1.jpg", "./d/val/2.jpg", "d/Val/2.jpg"};
	struct catalog_sample samples[3];
	struct catalog catalog = {.samples = samples, .count = 3};
	struct class_rule rule;

	for (size_t i = 0; i < 3; i++)
		samples[i] =
			(struct catalog_sample){.name = names[i], .class = CATALOG_CLASS_OF_NAME};
	class_rule_learn(&rule, CLASS_NONE, &catalog);
	assert_int_equal(rule.part_count, 3);
	assert_int_equal(rule.parts[1].images, 1);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(class_rule_find_part(&rule, names[i]), i);
	assert_int_equal(class_rule_find_part(&rule, "d/value/1.jpg"), 3);
	assert_int_equal(class_rule_find_part(&rule, "train/1.jpg"), 3);
	samples[1].name = "d/cat/1.jpg";
	class_rule_learn(&rule, CLASS_NONE, &catalog);
	assert_int_equal(rule.part_count, 0);
	assert_string_equal(rule.outside_parts, "d/cat/1.jpg");
}

TEST(no_names)
{
	struct catalog_sample sample = {.name = "train/a.jpg", .class = 3};
	struct catalog catalog = {.samples = &sample, .count = 1};
	struct class_rule rule;
	char class_name[64];

	class_rule_learn(&rule, CLASS_AUTO, &catalog);
	assert_int_equal(rule.part_count, 0);
	assert_null(class_rule_apply(&rule, "a/b.jpg", class_name));
}

TEST(patterns)
{
	static const struct {
		const char *include, *exclude, *name;
		enum filter_verdict verdict;
	} cases[] = {
		{NULL, NULL, "a/b.jpg", FILTER_TAKE},
		{NULL, NULL, "a/b.JPEG", FILTER_TAKE},
		{NULL, NULL, "a/b.txt", FILTER_OTHER},
		{NULL, NULL, "a/.b.jpg", FILTER_HIDDEN},
		{NULL, NULL, "a/.b/c.jpg", FILTER_HIDDEN},
		{NULL, NULL, "./../c.jpg", FILTER_TAKE},
		{NULL, NULL, "..c/c.jpg", FILTER_HIDDEN},
		{"*.png", NULL, "a/b.png", FILTER_TAKE},
		{"*.png", NULL, "a/b.jpg", FILTER_EXCLUDED},
		{"*.txt", NULL, "a/b.txt", FILTER_OTHER},
		{"train", NULL, "./train/a/b.jpg", FILTER_TAKE},
		{"train", NULL, "d/train/a/b.jpg", FILTER_TAKE},
		{"train", NULL, "d/train2/a/b.jpg", FILTER_EXCLUDED},
		{"train/", NULL, "d/train/b.jpg", FILTER_TAKE},
		{"/train", NULL, "d/train/b.jpg", FILTER_EXCLUDED},
		{"/train", NULL, "train/b.jpg", FILTER_TAKE},
		{"d/train", NULL, "d/train/a/b.jpg", FILTER_TAKE},
		{"d/t*.jpg", NULL, "d/train/a/b.jpg", FILTER_TAKE},
		{"t*.jpg", NULL, "d/train/a/b.jpg", FILTER_EXCLUDED},
		{"train", "b.*", "train/a/b.jpg", FILTER_EXCLUDED},
		{"train", "b.*", "train/a/c.jpg", FILTER_TAKE},
		{NULL, "n0[12]*", "n01/a.jpg", FILTER_EXCLUDED},
		{NULL, "n0[12]*", "n03/a.jpg", FILTER_TAKE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct filter filter = {0};

		if (cases[i].include)
			assert_int_equal(filter_add(&filter, cases[i].include, false), 0);
		if (cases[i].exclude)
			assert_int_equal(filter_add(&filter, cases[i].exclude, true), 0);
		if (filter_file(&filter, cases[i].name) != cases[i].verdict)
			fail_msg("case %zu: %s", i, cases[i].name);
		filter_deinit(&filter);
	}
}

TEST(patterns_that_match_nothing)
{
	struct filter filter = {0};

	assert_int_equal(filter_add(&filter, "train", false), 0);
	assert_int_equal(filter_add(&filter, "*.jgp", true), 0);
	assert_int_equal(filter_add(&filter, "*.jpg", true), 0);
	assert_int_equal(filter_file(&filter, "train/a.jpg"), FILTER_EXCLUDED);
	assert_true(filter.patterns[0].used);
	assert_false(filter.patterns[1].used);
	assert_true(filter.patterns[2].used);
	assert_true(filter_excludes_folder(&filter, "a.jpg/"));
	assert_false(filter_excludes_folder(&filter, "val/"));
	filter_deinit(&filter);
}

static void assert_file_name(const char *name, size_t size, const char *wanted)
{
	struct buffer path = {0}, back = {0};

	assert_int_equal(file_name_append(&path, name, size), 0);
	assert_int_equal(buffer_append(&path, "", 1), 0);
	assert_string_equal((char *)path.data, wanted);
	/* decoding the URL gives the original name */
	for (const char *p = wanted; *p; p++) {
		char digits[3] = "", *end = digits, byte = *p;

		if (*p == '%' && p[1] && p[2]) {
			memcpy(digits, p + 1, 2);
			long value = strtol(digits, &end, 16);
			if (end == digits + 2 && digits[0] != '-' && digits[0] != ' ') {
				byte = (char)value;
				p += 2;
			}
		}
		assert_int_equal(buffer_append(&back, &byte, 1), 0);
	}
	assert_int_equal(back.size, size);
	assert_memory_equal(back.data, name, size);
	buffer_deinit(&path);
	buffer_deinit(&back);
}

TEST(file_names)
{
#define EXPECT(name, wanted) assert_file_name(name, sizeof(name) - 1, wanted)
	EXPECT("cat 1.jpg", "cat 1.jpg");
	EXPECT("K\u00e4fer \u732b.jpg", "K\u00e4fer \u732b.jpg");
	EXPECT("-rf ~ $x;`y`\\z.jpg", "-rf ~ $x;`y`\\z.jpg");
	EXPECT("\x1b[2J\n\t\x7f", "%1B[2J%0A%09%7F");
	EXPECT("a\0b/c", "a%00b%2Fc");
	EXPECT("\xff\xc3(\xe2\x82", "%FF%C3(%E2%82");
	EXPECT("\u202egpj.a\xc2\x9b\u200b\ufeff", "%E2%80%AEgpj.a%C2%9B%E2%80%8B%EF%BB%BF");
	EXPECT("100%", "100%");
	EXPECT("100%.a %4", "100%.a %4");
	EXPECT("%41 %aF %2541", "%2541 %25aF %252541");
	EXPECT("%%41", "%%2541");
	EXPECT("%\n %4\n %\xff\xff", "%%0A %4%0A %%FF%FF");
#undef EXPECT
}
