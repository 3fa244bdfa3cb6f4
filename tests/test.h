/*
 * Tests on cmocka that register themselves:
 *
 *	TEST(bad_sample_is_replaced)
 *	{
 *		assert_int_equal(...);
 *	}
 *
 * A program runs its tests in the order of the source file. Without a fixture for all of them it
 * takes main() from the library; others write TEST_MAIN(), or a main() that calls test_run().
 *
 * Includes the headers of the C library that most tests need.
 */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct test_case {
	struct CMUnitTest test;
	int line;
	struct test_case *next;
};

#define TEST(name) TEST_WITH(name, NULL, NULL)

/* A test with its own fixture. setup and teardown may be NULL. */
#define TEST_WITH(name, setup, teardown)                                                           \
	static void test_##name(void **state);                                                     \
	__attribute__((constructor)) static void register_test_##name(void)                        \
	{                                                                                          \
		static struct test_case test = {                                                   \
			{#name, test_##name, setup, teardown, NULL}, __LINE__, NULL};              \
		test_register(&test);                                                              \
	}                                                                                          \
	static void test_##name(void **state)

/*
 * main() of a program whose tests share a fixture: `setup` runs before the first test and
 * `teardown` after the last one. Either may be NULL.
 */
#define TEST_MAIN(setup, teardown)                                                                 \
	int main(void)                                                                             \
	{                                                                                          \
		return test_run(setup, teardown);                                                  \
	}

/* TEST() calls this before main(). Keeps the pointer; does not copy the case. */
void test_register(struct test_case *test);

/* Runs the registered tests within the fixture. Returns the number of failures, like cmocka. */
int test_run(CMFixtureFunction setup, CMFixtureFunction teardown);
