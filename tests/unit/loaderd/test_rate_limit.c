/* Connection rate limit per user, with a simulated clock. */
#include "loaderd/supervisor/rate_limit.h"
#include "tests/test.h"

#define SECOND_NS UINT64_C(1000000000)

enum { ALICE = 1000, BOB = 1001 };

static unsigned take_all(struct rate_limit *limit, uid_t uid, uint64_t now_ns)
{
	unsigned count = 0;
	while (count <= 2 * CONNECTS_AT_ONCE && rate_limit_take(limit, uid, now_ns))
		count++;
	return count;
}

TEST(burst_then_rate_applies)
{
	static struct rate_limit limit;
	uint64_t now_ns = 77 * SECOND_NS;
	assert_int_equal(take_all(&limit, ALICE, now_ns), CONNECTS_AT_ONCE);
	assert_int_equal(take_all(&limit, ALICE, now_ns + SECOND_NS / 2), CONNECTS_PER_SECOND / 2);
	assert_int_equal(take_all(&limit, ALICE, now_ns + SECOND_NS), CONNECTS_PER_SECOND / 2);
	/* Refused attempts use no tokens, and the bucket's capacity limits how many accumulate. */
	assert_int_equal(take_all(&limit, ALICE, now_ns + 100 * SECOND_NS), CONNECTS_AT_ONCE);
}

TEST(users_are_counted_apart)
{
	static struct rate_limit limit;
	uint64_t now_ns = 77 * SECOND_NS;
	assert_int_equal(take_all(&limit, ALICE, now_ns), CONNECTS_AT_ONCE);
	assert_int_equal(take_all(&limit, BOB, now_ns), CONNECTS_AT_ONCE);
	assert_int_equal(take_all(&limit, 0, now_ns), CONNECTS_AT_ONCE);
	assert_false(rate_limit_take(&limit, ALICE, now_ns));
}

/* The user with the largest debt stays in the table longest. */
TEST(largest_debt_is_evicted_last)
{
	static struct rate_limit limit;
	uint64_t now_ns = 77 * SECOND_NS;
	assert_int_equal(take_all(&limit, ALICE, now_ns), CONNECTS_AT_ONCE);
	for (uid_t uid = 5000; uid < 5000 + 4 * RATE_LIMIT_USERS; uid++)
		assert_true(rate_limit_take(&limit, uid, now_ns));
	assert_false(rate_limit_take(&limit, ALICE, now_ns));
}

/*
 * More users than table entries: an entry that is reused for another user keeps its debt. Otherwise
 * the earlier user would come back with a full bucket.
 */
TEST(reused_entry_keeps_its_debt)
{
	enum { FIRST = 5000, HALF = CONNECTS_AT_ONCE / 2, USERS = 2 * RATE_LIMIT_USERS };
	static struct rate_limit limit;
	unsigned counts[USERS] = {0}, total = 0;
	uint64_t now_ns = 77 * SECOND_NS;
	for (unsigned i = 0; i < RATE_LIMIT_USERS; i++)
		for (unsigned j = 0; j < HALF; j++)
			counts[i] += rate_limit_take(&limit, FIRST + i, now_ns);
	for (unsigned round = 0; round < 4; round++)
		for (unsigned i = 0; i < USERS; i++)
			for (unsigned j = 0; j < HALF; j++)
				counts[i] += rate_limit_take(&limit, FIRST + i, now_ns);
	for (unsigned i = 0; i < USERS; i++) {
		assert_true(counts[i] <= CONNECTS_AT_ONCE);
		total += counts[i];
	}
	assert_true(total <= RATE_LIMIT_USERS * CONNECTS_AT_ONCE);
	/* The debts decrease at the usual rate. */
	now_ns += 2 * SECOND_NS;
	assert_int_equal(take_all(&limit, FIRST + USERS, now_ns), CONNECTS_AT_ONCE);
}
