/* Class names as stored in weights, and comparison of lists. */
#include "tests/test.h"
#include "trainer/checkpoint/class_names.h"

TEST(there_and_back)
{
	static const char *const names[] = {"cat", "a \"dog\"", "", "\xc3\xa9l\xc3\xa9phant"};
	struct class_names read;
	char *text = class_names_write(names, 4);
	assert_non_null(text);
	assert_int_equal(class_names_read(text, &read), 0);
	free(text);
	assert_int_equal(read.count, 4);
	for (int i = 0; i < 4; i++)
		assert_string_equal(read.name[i], names[i]);
	class_names_deinit(&read);
	assert_null(read.name);
}

/* Weights omit names that would make the header too large to be read, or invalid JSON. */
TEST(left_out)
{
	enum { HALF = CLASS_NAMES_MAX / 2 };
	static char half[HALF + 1];
	const char *names[] = {half, half}, *odd[] = {"cat", "\xe9"};
	assert_null(class_names_write(names, 0));
	assert_null(class_names_write(odd, 2));
	memset(half, 'a', HALF - 3);
	assert_null(class_names_write(names, 2)); /* ["a...","a..."] adds 7 bytes */
	half[HALF - 4] = '\0';
	char *text = class_names_write(names, 2);
	assert_non_null(text);
	assert_int_equal(strlen(text), CLASS_NAMES_MAX - 1);
	free(text);
}

TEST(refused)
{
	static const char *const texts[] = {
		"",       "cat", "{\"cat\": 0}", "[\"cat\", 1]", "[\"cat\"", "[\"a\\u0000b\"]",
		"\"cat\""};
	struct class_names read;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(class_names_read(texts[i], &read), -EINVAL);
	/* longer than any list that class_names_write() returns */
	char *many = malloc(CLASS_NAMES_MAX + 2);
	memset(many, ' ', CLASS_NAMES_MAX + 1);
	memcpy(many, "[\"cat\"]", 7);
	many[CLASS_NAMES_MAX + 1] = '\0';
	assert_int_equal(class_names_read(many, &read), -EINVAL);
	free(many);
}

TEST(compared)
{
	static const char *const names[] = {"cat", "dog", "cow"}, *const other[] = {"cat", "cow"},
				 *const numbers[] = {"0", "01", "2", "3"},
				 *const wrong[] = {"0", "2"};
	assert_int_equal(class_names_differ(names, 3, names, 3), 3);
	assert_int_equal(class_names_differ(names, 3, names, 1), 1);
	assert_int_equal(class_names_differ(names, 3, other, 2), 1);
	assert_int_equal(class_names_differ(names, 3, numbers, 4), 3);
	assert_int_equal(class_names_differ(wrong, 2, names, 3), 1);
	assert_int_equal(class_names_differ(wrong, 2, numbers, 4), 1);
	assert_int_equal(class_names_differ(names, 3, names, 0), 0);
}
