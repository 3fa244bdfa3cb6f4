/* Buffers of replies: as many as were asked for, no two in the same place, pages used again. */
#include "tests/test.h"
#include "tools/fetch/buffers.h"

#include <string.h>

enum { COUNT = 3, SIZE = 4096 };

static void test_all_are_apart(void **state)
{
	struct buffers buffers;
	uint8_t *taken[COUNT];

	(void)state;
	assert_int_equal(buffers_init(&buffers, COUNT, SIZE), 0);
	for (int i = 0; i < COUNT; i++) {
		taken[i] = buffers_take(&buffers);
		assert_non_null(taken[i]);
		memset(taken[i], i + 1, SIZE);
	}
	assert_null(buffers_take(&buffers));
	buffers_give(&buffers, NULL); /* a reply without a buffer */
	assert_null(buffers_take(&buffers));
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(taken[i][0], i + 1);
		assert_int_equal(taken[i][SIZE - 1], i + 1);
	}
	buffers_close(&buffers);
	assert_null(buffers_take(&buffers));
}

static void test_last_given_is_taken_first(void **state)
{
	struct buffers buffers;

	(void)state;
	assert_int_equal(buffers_init(&buffers, COUNT, SIZE), 0);
	uint8_t *first = buffers_take(&buffers), *second = buffers_take(&buffers);
	buffers_give(&buffers, first);
	assert_ptr_equal(buffers_take(&buffers), first);
	buffers_give(&buffers, second);
	buffers_give(&buffers, first);
	assert_ptr_equal(buffers_take(&buffers), first);
	assert_ptr_equal(buffers_take(&buffers), second);
	buffers_close(&buffers);
}

static void test_without_memory(void **state)
{
	struct buffers buffers;

	(void)state;
	assert_int_equal(buffers_init(&buffers, 1 << 8, (size_t)1 << 54), -ENOMEM);
	assert_null(buffers_take(&buffers));
	buffers_close(&buffers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_apart),
		cmocka_unit_test(test_last_given_is_taken_first),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
