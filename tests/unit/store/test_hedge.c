/* When a request to a store is late, and how often a second one may be sent. */
#include "tests/test.h"
#include "tools/store/hedge.h"

enum { SMALL = 30 << 10, LARGE = 1 << 20 };

static void note(struct hedging *hedging, uint64_t bytes, unsigned count, int64_t took_ms)
{
	while (count--)
		hedging_note(hedging, bytes, took_ms);
}

TEST(three_times_what_nineteen_of_twenty_took)
{
	struct hedging hedging = {0};
	note(&hedging, SMALL, 63, 100);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), INT64_MAX); /* too few are known */
	note(&hedging, SMALL, 1, 100);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), 300);
	/* rare slow ones do not make others wait longer */
	note(&hedging, SMALL, 180, 100);
	note(&hedging, SMALL, 12, 9000);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), 300);
	/* all that count have become slower */
	note(&hedging, SMALL, HEDGE_TIMES, 200);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), 600);
}

TEST(sizes_are_apart)
{
	struct hedging hedging = {0};
	note(&hedging, SMALL, 64, 100);
	assert_int_equal(hedging_late_ms(&hedging, LARGE), INT64_MAX);
	note(&hedging, LARGE, 64, 400);
	assert_int_equal(hedging_late_ms(&hedging, LARGE), 1200);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), 300);
	assert_int_equal(hedging_late_ms(&hedging, UINT64_MAX), INT64_MAX);
}

TEST(fast_stores_have_time)
{
	struct hedging hedging = {0};
	note(&hedging, SMALL, 64, 1);
	assert_int_equal(hedging_late_ms(&hedging, SMALL), 50);
	note(&hedging, SMALL, HEDGE_TIMES, INT64_MAX);
	assert_true(hedging_late_ms(&hedging, SMALL) > INT32_MAX);
}

TEST(one_in_twenty)
{
	struct hedging hedging = {0};
	unsigned hedges = 0;
	for (unsigned i = 0; i < 1000; i++) {
		note(&hedging, SMALL, 1, 100);
		hedges += hedging_spend(&hedging);
	}
	assert_int_equal(hedges, 50);
	/* what was not spent for long does not all come at once */
	note(&hedging, SMALL, 100000, 100);
	for (hedges = 0; hedging_spend(&hedging); hedges++)
		;
	assert_int_equal(hedges, 32);
}
