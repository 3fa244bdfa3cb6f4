/* The amount of available memory can be read without a free fd. */
#include "format/base/system/memory.h"
#include "tests/test.h"

#include <sys/resource.h>

TEST(nothing_opens)
{
	struct rlimit some, none;
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &some), 0);
	none = (struct rlimit){0, some.rlim_max};
	memory_init();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	/* less than all memory, because the kernel uses some */
	assert_in_range(memory_available(), 1, all - 1);
	/* restored, because a sanitizer opens files at exit */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &some), 0);
}
