#include "tests/test.h"

enum { TESTS_MAX = 64 };

static struct test_case *first;

/* Constructors run in unspecified order. */
void test_register(struct test_case *test)
{
	struct test_case **place = &first;

	while (*place && (*place)->line < test->line)
		place = &(*place)->next;
	test->next = *place;
	*place = test;
}

int test_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	/* cmocka skips elements that are all zero */
	struct CMUnitTest tests[TESTS_MAX] = {0};
	size_t count = 0;

	for (const struct test_case *test = first; test; test = test->next) {
		if (count == TESTS_MAX) {
			fprintf(stderr, "more than %d tests: raise TESTS_MAX\n", TESTS_MAX);
			return 1;
		}
		tests[count++] = test->test;
	}
	return cmocka_run_group_tests_name(program_invocation_short_name, tests, setup, teardown);
}
