/* Filters that are wrong: the message and its position. */
#include "tests/unit/format/where_fixture.h"

TEST(errors)
{
	static const struct {
		const char *filter;
		int position;
		const char *text;
	} errors[] = {
		{"", 0, "expected a name, a number or a text, found the end of the filter"},
		{"width", 0, "width is a number, not a condition; compare it, as in width >= 200"},
		{"widht > 1", 0,
		 "the dataset has no value \"widht\"; did you mean width? (text is in quotes)"},
		{"wobble > 1", 0,
		 "the dataset has no value \"wobble\": it has image, mask, boxes, outlines, "
		 "species, score, id, hash, target, caption, info, blob, `my size`, zZ9.x, "
		 "`a\\`b\\\\c`, half, brain, single, label, sample, key, width, height, class "
		 "(text is in quotes)"},
		{"class == \"cta\"", 9, "the dataset has no class \"cta\"; did you mean \"cat\"?"},
		{"class in (\"cat\", \"zebra\", \"dgo\")", 17,
		 "the dataset has no class \"zebra\"; packimg info --classes lists them"},
		{"\"cat\" != class and class != \"dogg\"", 28,
		 "the dataset has no class \"dogg\"; did you mean \"dog\"?"},
		{"label == \"cat\"", 9,
		 "label is a number, and \"cat\" is a text; the name of the class is class(label)"},
		{"species in (\"cat\")", 12,
		 "species is a number, and \"cat\" is a text; the name of the class is "
		 "class(species)"},
		{"caption == 5", 11,
		 "caption is a text, and 5 is a number; numbers compare with numbers, texts with "
		 "texts"},
		{"5 == caption", 5,
		 "5 is a number, and caption is a text; numbers compare with numbers, texts with "
		 "texts"},
		{"width in (1, \"a\")", 13,
		 "width is a number, and \"a\" is a text; numbers compare with numbers, texts with "
		 "texts"},
		{"width in ()", 10, "expected a number or a text in quotes, found )"},
		{"width in (1, height)", 13, "expected a number or a text in quotes, found height"},
		{"width in 5", 9, "expected \"(\" and a list, as in label in (1, 5), found 5"},
		{"width in (1 2)", 12, "expected \",\" or \")\", found 2"},
		{"width in (1, 2", 14, "expected \",\" or \")\", found the end of the filter"},
		{"key in (-\"a\")", 9, "expected a number or a text in quotes, found \"a\""},
		{"width == 1 == 2", 11, "comparisons do not chain; write a < b and b < c"},
		{"1 < width < 5", 10, "comparisons do not chain; write a < b and b < c"},
		{"(width > 1) == (height > 1)", 0,
		 "conditions cannot be compared with each other; connect them by and, or and not"},
		{"(width > 1) + 1 > 2", 0,
		 "(width > 1) is a condition; only numbers can be added, subtracted, multiplied, "
		 "divided and negated"},
		{"-caption == 1", 1,
		 "caption is a text; only numbers can be added, subtracted, multiplied, divided "
		 "and negated"},
		{"key + 1 == 2", 0,
		 "key is a text; only numbers can be added, subtracted, multiplied, divided and "
		 "negated"},
		{"1 + key == 2", 4,
		 "key is a text; only numbers can be added, subtracted, multiplied, divided and "
		 "negated"},
		{"width == (height > 1)", 0,
		 "conditions cannot be compared with each other; connect them by and, or and not"},
		{"width > 1 and height", 14,
		 "height is a number, not a condition; compare it, as in width >= 200"},
		{"width in (1, $)", 13,
		 "a character that no filter has outside of quotes; names with it are written in "
		 "backquotes, texts in quotes"},
		{"width > 1 eightlet", 10, "expected an operator or the end, found eightlet"},
		{"class(label) == \"cta\"", 16,
		 "the dataset has no class \"cta\"; did you mean \"cat\"?"},
		{"class(id) == \"cat\"", 6, "class() takes a value that is one class; id is not"},
		{"`a\\`bc` > 1", 0,
		 "the dataset has no value \"a\\`bc\"; did you mean `a\\`b\\\\c`? (text is in "
		 "quotes)"},
		{"not width", 4,
		 "width is a number, not a condition; compare it, as in width >= 200"},
		{"width and height", 0,
		 "width is a number, not a condition; compare it, as in width >= 200"},
		{"width > 1 and", 13,
		 "expected a name, a number or a text, found the end of the filter"},
		{"width > 1 &&  height > 1", 10, "\"and\" connects conditions"},
		{"width > 1 || height > 1", 10, "\"or\" connects conditions"},
		{"!has(label)", 0, "\"not\" negates a condition"},
		{"width > 1 AND height > 1", 10, "there is no operator AND; did you mean and?"},
		{"width > 1 adn height > 1", 10, "there is no operator adn; did you mean and?"},
		{"width between 1 and 2", 6, "write a <= x and x <= b"},
		{"score is null", 6, "has(NAME) tells whether a sample has a value"},
		{"width > 1)", 9, "this parenthesis was not opened"},
		{"(width > 1", 10, "expected an operator or \")\", found the end of the filter"},
		{"((width > 1) height", 13, "expected an operator or \")\", found height"},
		{"width > 1 height", 10, "expected an operator or the end, found height"},
		{"has(mask", 8,
		 "expected \")\" after the name of a value, found the end of the filter"},
		{"has()", 4, "expected the name of a value, found )"},
		{"has(1)", 4, "expected the name of a value, found 1"},
		{"hsa(mask)", 0, "there is no function hsa(); did you mean has()?"},
		{"frob(mask)", 0,
		 "there is no function frob(); has(), count(), width(), height() and class() "
		 "exist"},
		{"count(image) > 1", 6,
		 "count() takes a value with any number of rows, or text or bytes; image is not"},
		{"count(width) > 1", 6,
		 "count() takes a value with any number of rows, or text or bytes; width is not a "
		 "value of the schema"},
		{"count(score) > 1", 6,
		 "count() takes a value with any number of rows, or text or bytes; score is not"},
		{"count(target) > 1", 6,
		 "count() takes a value with any number of rows, or text or bytes; target is not"},
		{"width(boxes) > 1", 6, "width() takes an image, a mask or a raster; boxes is not"},
		{"class(caption) == \"x\"", 6,
		 "class() takes a value that is one class; caption is not"},
		{"boxes > 1", 0, "boxes is not one number or text; use has(boxes) or count(boxes)"},
		{"image > 1", 0,
		 "image has pixels, which a filter does not read; use has(image), width(image) or "
		 "height(image)"},
		{"mask == 1", 0,
		 "mask has pixels, which a filter does not read; use has(mask), width(mask) or "
		 "height(mask)"},
		{"target == 1", 0, "target is not one number or text; use has(target)"},
		{"blob == \"1\"", 0,
		 "blob is not one number or text; use has(blob) or count(blob)"},
		{"outlines > 1", 0,
		 "outlines is not one number or text; use has(outlines) or count(outlines)"},
		{"width not 5", 10, "expected \"in\" or \"like\" after \"not\", found 5"},
		{"width not == 5", 10, "expected \"in\" or \"like\" after \"not\", found =="},
		{"key like train", 9,
		 "expected a pattern in quotes, such as \"train/*\", found train"},
		{"key like key", 9, "expected a pattern in quotes, such as \"train/*\", found key"},
		{"width like \"a*\"", 0, "width is a number; only a text can be like a pattern"},
		{"key like \"abc", 9,
		 "a quote has no counterpart; text ends with the quote with which it begins"},
		{"`my size > 5", 0,
		 "a backquote has no counterpart; names in backquotes end with another one"},
		{"`my siz` > 5", 0,
		 "the dataset has no value \"my siz\"; did you mean `my size`? (text is in "
		 "quotes)"},
		{"width > 1e", 8, "a number has no digit in its exponent"},
		{"width > 1e999", 8, "a number is too large"},
		{"width > 0x10", 8,
		 "a number is decimal, such as 200, -1.5 or 1e6; names that begin with a digit are "
		 "written in backquotes"},
		{"width > 12abc", 8,
		 "a number is decimal, such as 200, -1.5 or 1e6; names that begin with a digit are "
		 "written in backquotes"},
		{"width % 5 == 1", 6, "there is no operator %"},
		{"width > 5;", 9,
		 "a character that no filter has outside of quotes; names with it are written in "
		 "backquotes, texts in quotes"},
		{"and", 0, "expected a name, a number or a text, found and"},
		{"width >", 7, "expected a name, a number or a text, found the end of the filter"},
		{"width > * 5", 8, "expected a name, a number or a text, found *"},
		{"width => 5", 7, "expected a name, a number or a text, found >"},
		{"caption like 5", 13,
		 "expected a pattern in quotes, such as \"train/*\", found 5"},
	};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		check_error(mapped, errors[i].filter, errors[i].position, errors[i].text);
}

TEST(long_words_in_errors)
{
	char name[101] = "", text[400];

	memset(name, 'n', sizeof(name) - 1);
	snprintf(text, sizeof(text), "class == \"%s\"", name);
	check_error(mapped, text, 9,
		    "the dataset has no class \""
		    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"; packimg info "
		    "--classes lists them");
	snprintf(text, sizeof(text), "%s%s(mask)", name, name);
	check_error(
		mapped, text, 0,
		"there is no function nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
		"(); has(), count(), width(), height() and class() exist");
	memset(text, 'n', sizeof(text) - 1);
	for (int size = 126; size <= 128; size++) {
		text[size] = 0;
		check_error(
			mapped, text, 0,
			"the dataset has no value \""
			"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\": it has "
			"image, mask, boxes, outlines, species, score, id, hash, target, "
			"caption, info, blob, `my size`, zZ9.x, `a\\`b\\\\c`, half, brain, "
			"single, label, sample, key, width, height, class (text is in quotes)");
		text[size] = 'n';
	}
	memset(text, '1', sizeof(text) - 1);
	memcpy(text, "width < ", 8);
	text[8 + 127] = 0;
	check_matches(text, "111111");
	text[8 + 127] = '1';
	text[8 + 128] = 0;
	check_error(mapped, text, 8, "a number is longer than 127 characters");
}

TEST(many_names)
{
	struct packimg_writer *writer;
	struct packimg *dataset;
	uint32_t field;
	char name[32];

	assert_int_equal(packimg_writer_new(path_of("names.pimg"), NULL, &writer, &error), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "number_%02d", i);
		assert_int_equal(
			packimg_writer_field(writer, name, PACKIMG_FIELD_INT64, &field, &error), 0);
	}
	assert_int_equal(packimg_writer_finish(writer, &error), 0);
	packimg_writer_free(writer);
	assert_int_equal(packimg_open(path_of("names.pimg"), &dataset, &error), 0);
	check_error(
		dataset, "x > 1", 0,
		"the dataset has no value \"x\": it has image, number_00, number_01, number_02, "
		"number_03, number_04, number_05, number_06, number_07, number_08, number_09, "
		"number_10, number_11, number_12, number_13, number_14, number_15, number_16, "
		"number_17, number_18, number_19, number_20, number_21, ... (text is in quotes)");
	packimg_close(dataset);
}

TEST_MAIN(where_setup, where_teardown)
