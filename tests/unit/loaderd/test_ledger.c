/*
 * A ring counts until nobody has it any more; those whose workers are done with them are looked at
 * again soon.
 */
#include "loaderd/supervisor/ledger.h"

#include "proto/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

enum { RING_BYTES = RING_ACK_SIZE + 8192, OTHER_BYTES = 1000, WORKER = 7, USER = 1000 };

static void let_go(int fds[LINK_FDS_MAX])
{
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		close(fds[i]);
}

/* A ring that is sent to a client, which keeps it: the test. */
static void give(struct ledger *ledger, struct ledger_account *account, uint64_t feed,
		 int client_fds[LINK_FDS_MAX])
{
	const struct link_record record = {
		.feed = feed, .ring_bytes = RING_BYTES, .other_bytes = OTHER_BYTES};
	struct link_order order = {0};
	int fds[LINK_FDS_MAX];
	assert_int_equal(ledger_make(ledger, account, USER, WORKER, &record, &order, fds), 0);
	assert_true(ledger_take_fds(ledger, WORKER, feed, client_fds));
	assert_false(ledger_take_fds(ledger, WORKER, feed, client_fds));
}

static void test_counts_until_nobody_has_it(void **state)
{
	struct ledger ledger = {.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3};
	struct ledger_account account = {0};
	int fds[3][LINK_FDS_MAX];
	assert_int_equal(closer_new(&ledger.closer), 0);
	assert_false(ledger_sweep(&ledger));
	for (unsigned i = 0; i < 3; i++)
		give(&ledger, &account, 1 + i, fds[i]);
	assert_int_equal(account.bytes, 3 * (RING_BYTES + OTHER_BYTES));
	assert_false(ledger_sweep(&ledger)); /* none is done with */
	ledger_done(&ledger, WORKER, 2);     /* whether it comes first or last among those in use */
	assert_int_equal(account.bytes, 3 * RING_BYTES + 2 * OTHER_BYTES);
	assert_true(ledger_sweep(&ledger));
	assert_int_equal(account.rings, 3);
	let_go(fds[1]);
	assert_false(ledger_sweep(&ledger));
	assert_int_equal(account.rings, 2);
	assert_int_equal(account.bytes, 2 * (RING_BYTES + OTHER_BYTES));
	ledger_done(&ledger, WORKER, 0);
	assert_true(ledger_sweep(&ledger));
	let_go(fds[0]);
	let_go(fds[2]);
	assert_false(ledger_sweep(&ledger));
	assert_int_equal(account.rings, 0);
	assert_int_equal(account.bytes, 0);
	assert_int_equal(ledger.bytes, 0);
	closer_free(ledger.closer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts_until_nobody_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
