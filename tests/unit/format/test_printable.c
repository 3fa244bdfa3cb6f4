/* Untrusted text for a terminal: no control character gets through. */
#include "format/base/text/printable.h"
#include "tests/test.h"

static void expect(const char *text, size_t size, const char *wanted)
{
	char *copy = printable_copy(text, size);

	assert_string_equal(copy, wanted);
	free(copy);
}

TEST(texts)
{
#define EXPECT(text, wanted) expect(text, sizeof(text) - 1, wanted)
	EXPECT("", "");
	EXPECT("a cat.jpg", "a cat.jpg");
	EXPECT("Käfer 猫 🐈 \xc2\xa0", "Käfer 猫 🐈 \xc2\xa0");
	EXPECT("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07");
	EXPECT("a\r\nb\tc\x7f", "a\\x0d\\x0ab\\x09c\\x7f");
	EXPECT("a\0b", "a\\x00b");
	EXPECT("\\x1b", "\\x1b");
	/* C1 control characters, as characters and as bytes */
	EXPECT("\xc2\x9b"
	       "31m\xc2\x80\xc2\x9f",
	       "\\u009b31m\\u0080\\u009f");
	EXPECT("\x9b"
	       "31m",
	       "\\x9b31m");
	EXPECT("\uffff\ufffe", "\\uffff\\ufffe");
	EXPECT("\u202agpj.\u202e\u2066\u2069\u200e\u2028\ufeff",
	       "\\u202agpj.\\u202e\\u2066\\u2069\\u200e\\u2028\\ufeff");
	EXPECT("\U000e0041", "\\U000e0041");
	/* invalid UTF-8: overlong, a surrogate, truncated */
	EXPECT("\xc0\x9b\xed\xa0\x80\xe2\x80", "\\xc0\\x9b\\xed\\xa0\\x80\\xe2\\x80");
	EXPECT("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
#undef EXPECT
}

TEST(span)
{
	assert_int_equal(printable_span("", 0), 0);
	assert_int_equal(printable_span("K\u00e4fer", 6), 6);
	assert_int_equal(printable_span("cat\x1b[m", 6), 3);
	assert_int_equal(printable_span("cat\0s", 5), 3);
	assert_int_equal(printable_span("\u732b\u202e", 6), 3);
	assert_int_equal(printable_span("a\xe7\x8c", 3), 1);
}

/* Writes as many whole characters as fit. */
TEST(write)
{
	static const char text[] = "a\u00e9\u202e!", shown[] = "a\u00e9\\u202e!";
	static const size_t fits[] = {0, 1, 1, 3, 3, 3, 3, 3, 3, 9, 10, 10};
	char to[16];

	for (size_t room = 0; room < sizeof(fits) / sizeof(fits[0]); room++) {
		memset(to, '#', sizeof(to));
		size_t size = printable_write(to, room, text, sizeof(text) - 1);
		assert_int_equal(size, fits[room]);
		assert_memory_equal(to, shown, size);
		for (size_t i = size; i < sizeof(to); i++)
			assert_int_equal(to[i], '#');
	}
}

/* Every byte and every pair of bytes gives valid UTF-8 without control characters. */
TEST(pairs)
{
	for (unsigned pair = 0; pair < 1 << 16; pair++) {
		char text[2] = {(char)(pair >> 8), (char)pair};
		char *copy = printable_copy(text, 2);

		for (const uint8_t *p = (const uint8_t *)copy; *p; p++) {
			assert_true(*p >= 0x20 && *p != 0x7f);
			assert_false(p[0] == 0xc2 && p[1] < 0xa0);
		}
		free(copy);
	}
}

TEST(line)
{
	char text[100] = "";
	FILE *file = fmemopen(text, sizeof(text), "w");

	printable_line(file, "%s: %d %s", "evil\nclass", 3, "images");
	fclose(file);
	assert_string_equal(text, "evil\\x0aclass: 3 images\n");
}
