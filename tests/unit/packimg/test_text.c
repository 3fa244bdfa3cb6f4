/* Parsing of text written by people: words, numbers, braces, tables. */
#include "tests/test.h"
#include "tools/packimg/common/brace_expand.h"
#include "tools/packimg/common/name_table.h"
#include "tools/packimg/common/split_spec.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/selection.h"
#include "tools/packimg/source/csv.h"

/* Joins all words of the expansion with spaces and compares the result. */
static void assert_expands(const char *word, const char *expected)
{
	struct string_list list = {0};
	struct packimg_error error;
	char joined[1024] = "";

	assert_int_equal(brace_expand(word, &list, &error), 0);
	for (size_t i = 0; i < list.count; i++)
		strcat(strcat(joined, i ? " " : ""), list.strings[i]);
	assert_string_equal(joined, expected);
	string_list_deinit(&list);
}

TEST(braces)
{
	struct string_list list = {0};
	struct packimg_error error;

	assert_expands("plain.tar", "plain.tar");
	assert_expands("x-{000..003}.tar", "x-000.tar x-001.tar x-002.tar x-003.tar");
	assert_expands("x-{8..11}.tar", "x-8.tar x-9.tar x-10.tar x-11.tar");
	assert_expands("x-{08..11}", "x-08 x-09 x-10 x-11");
	assert_expands("x-{3..1}", "x-3 x-2 x-1");
	assert_expands("x-{5..5}", "x-5");
	assert_expands("{a,b}-{0..1}", "a-0 a-1 b-0 b-1");
	assert_expands("{train,val{1,2}}.tar", "train.tar val1.tar val2.tar");
	assert_expands("a{,b}", "a ab");
	assert_expands("{}", "{}");
	assert_expands("{a}", "{a}");
	assert_expands("{a..b}", "{a..b}");
	assert_expands("{1..2", "{1..2");
	assert_expands("{x}{1..2}", "{x}1 {x}2");
	assert_int_equal(brace_expand("{0..99999}{0..99999}", &list, &error), -E2BIG);
	string_list_deinit(&list);
}

/* Joins rows with '/' and cells with '|'. */
static int read_table(const char *text, char separator, char *joined, struct packimg_error *error)
{
	struct csv csv;
	const char *const *cells;
	size_t count;
	int r;

	*joined = 0;
	csv_init(&csv, text, strlen(text), separator);
	while (!(r = csv_next(&csv, &cells, &count, error))) {
		for (size_t i = 0; i < count; i++)
			strcat(strcat(joined, i ? "|" : *joined ? "/" : ""), cells[i]);
	}
	csv_deinit(&csv);
	return r == CSV_END ? 0 : r;
}

static void assert_table(const char *text, const char *expected)
{
	struct packimg_error error;
	char joined[1024];

	assert_int_equal(read_table(text, ',', joined, &error), 0);
	assert_string_equal(joined, expected);
}

TEST(csv)
{
	struct packimg_error error;
	char joined[1024];

	assert_table("path,label\na.jpg,1\nb.jpg,2\n", "path|label/a.jpg|1/b.jpg|2");
	assert_table("a,b\r\nc,d", "a|b/c|d");
	assert_table("a,b\rc,d\r", "a|b/c|d");
	assert_table("a,b\r\r\nc,d\n", "a|b/c|d");
	assert_table(" a ,\tb c\n  \nd, \"e\"\" \" ,f\n", "a|b c/d|e\" |f");
	assert_table("\" a \",\"\r\"\n", " a |\r");
	assert_table("\xef\xbb\xbf"
		     "a,b\n",
		     "a|b");
	assert_table("a,\"x, \"\"y\"\"\",c\n", "a|x, \"y\"|c");
	assert_table("\"two\nlines\",b\nc,d\n", "two\nlines|b/c|d");
	assert_table("a,,\n,b,\n", "a||/|b|");
	assert_table("\n\na,b\n\n\nc,d\n\n", "a|b/c|d");
	assert_table("a,b\tc\n", "a|b\tc");
	assert_table("", "");
	assert_table("\"\",\"\"\n", "|");
	assert_int_equal(read_table("a;b\n", ';', joined, &error), 0);
	assert_string_equal(joined, "a|b");
	assert_int_equal(read_table("a\tb, c\td\n", '\t', joined, &error), 0);
	assert_string_equal(joined, "a|b, c|d");
	assert_int_equal(read_table("a  b c \n\n d e\n", ' ', joined, &error), 0);
	assert_string_equal(joined, "a|b|c/d|e");
	assert_int_equal(read_table("a\t\tb\t\n", '\t', joined, &error), 0);
	assert_string_equal(joined, "a||b|");
	assert_int_equal(read_table("x\na,\"open\n", ',', joined, &error), -EINVAL);
	assert_non_null(strstr(error.text, "line 2"));
	assert_int_equal(read_table("\"a\"b,c\n", ',', joined, &error), -EINVAL);
}

TEST(csv_line_numbers)
{
	static const char text[] = "a\n\"b\nb\"\n\nc\n";
	static const uint64_t lines[] = {1, 2, 5};
	struct packimg_error error;
	const char *const *cells;
	struct csv csv;
	size_t count;

	csv_init(&csv, text, strlen(text), ',');
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(csv_next(&csv, &cells, &count, &error), 0);
		assert_int_equal(csv.line, lines[i]);
	}
	assert_int_equal(csv_next(&csv, &cells, &count, &error), CSV_END);
	csv_deinit(&csv);
}

TEST(numbers)
{
	struct text_buffer buffer;

	assert_string_equal(text_count(&buffer, 1234567), "1,234,567");
	assert_string_equal(text_count(&buffer, 12), "12");
	assert_string_equal(text_bytes(&buffer, 1536), "1.5 KiB");
	assert_string_equal(text_duration(&buffer, 3723), "1:02:03");
}

TEST(split_parse)
{
	struct split_part parts[SPLIT_PARTS_MAX];
	struct packimg_error error;
	uint32_t count;
	char text[64];

	assert_int_equal(split_parse(strcpy(text, "train=0.9,val=0.1"), parts, &count, &error), 0);
	assert_int_equal(count, 2);
	assert_string_equal(parts[0].name, "train");
	assert_true(parts[1].fraction == 0.1);
	assert_int_equal(split_parse(strcpy(text, "a=0.9,b=0.2"), parts, &count, &error), -EINVAL);
	assert_int_equal(split_parse(strcpy(text, "a=0.5,a=0.2"), parts, &count, &error), -EINVAL);
	assert_int_equal(split_parse(strcpy(text, "a=0"), parts, &count, &error), -EINVAL);
	assert_int_equal(split_parse(strcpy(text, "a/b=0.5"), parts, &count, &error), -EINVAL);
	assert_int_equal(split_parse(strcpy(text, "train"), parts, &count, &error), -EINVAL);
	assert_int_equal(split_parse(strcpy(text, ""), parts, &count, &error), -EINVAL);
	char *path = split_path("x/y.pimg", "val");
	assert_string_equal(path, "x/y-val.pimg");
	free(path);
	path = split_path("y.pimg", "a/b");
	assert_string_equal(path, "y-a_b.pimg");
	free(path);
}

TEST(names)
{
	struct arena arena = {0};
	struct name_table names;
	uint32_t number, order[1000];
	char name[32];
	bool added;

	name_table_init(&names, &arena);
	assert_int_equal(name_table_find(&names, "n1", &number), -ENOENT);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 1000; i++) {
			snprintf(name, sizeof(name), "n%u", 999 - i);
			assert_int_equal(name_table_add(&names, name, &number, &added), 0);
			assert_int_equal(number, i);
			assert_int_equal(added, round == 0);
		}
	}
	assert_int_equal(names.count, 1000);
	name_table_sort(&names, order);
	for (uint32_t i = 1; i < 1000; i++)
		assert_true(strcmp(names.names[order[i - 1]], names.names[order[i]]) < 0);
	name_table_deinit(&names);
	arena_deinit(&arena);
}
