/* What memory there is can be asked for, too, where nothing can be opened any more. */
#include "memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void test_nothing_opens(void **state)
{
	const struct rlimit none = {0, 0};
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	memory_init();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	/* never all of it: the kernel has some itself */
	assert_in_range(memory_available(), 1, all - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
