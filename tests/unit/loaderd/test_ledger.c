/*
 * A ring counts until no process has it and nothing in the kernel refers to its pages; those whose
 * workers are done with them are looked at again soon.
 */
#include "loaderd/supervisor/ledger.h"

#include "proto/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RING_BYTES = RING_ACK_SIZE + 8192, OTHER_BYTES = 1000, WORKER = 7, USER = 1000 };

static void set_up(struct ledger *ledger)
{
	assert_int_equal(ledger_init(ledger), 0);
	assert_true(ledger->inotify_fd >= 0);
	ledger->has_leases = true;
	assert_int_equal(closer_new(&ledger->closer), 0);
}

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
	let_go(fds); /* the worker's */
	assert_true(ledger_take_fds(ledger, WORKER, feed, client_fds));
	assert_false(ledger_take_fds(ledger, WORKER, feed, client_fds));
}

/* Until so many rings are left. A sweep has its answers from a thread. */
static void sweep_until(struct ledger *ledger, const struct ledger_account *account, unsigned rings)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	while (account->rings > rings) {
		ledger_sweep(ledger, true);
		nanosleep(&nap, NULL);
	}
	assert_int_equal(account->rings, rings);
}

/* Long enough for answers to have come. */
static void sweep_in_vain(struct ledger *ledger, const struct ledger_account *account)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	unsigned rings = account->rings;
	for (unsigned i = 0; i < 300; i++) {
		ledger_sweep(ledger, true);
		assert_int_equal(account->rings, rings);
		nanosleep(&nap, NULL);
	}
}

static void test_counts_until_nobody_has_it(void **state)
{
	struct ledger ledger = {
		.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3, .rings_all = 8};
	struct ledger_account account = {0};
	int fds[3][LINK_FDS_MAX];
	set_up(&ledger);
	assert_false(ledger_sweep(&ledger, true));
	for (unsigned i = 0; i < 3; i++)
		give(&ledger, &account, 1 + i, fds[i]);
	assert_int_equal(account.bytes, 3 * (RING_BYTES + OTHER_BYTES));
	assert_false(ledger_sweep(&ledger, true)); /* none is done with */
	ledger_done(&ledger, WORKER, 2); /* whether it comes first or last among those in use */
	assert_int_equal(account.bytes, 3 * RING_BYTES + 2 * OTHER_BYTES);
	assert_true(ledger_sweep(&ledger, true));
	assert_int_equal(account.rings, 3);
	let_go(fds[1]);
	sweep_until(&ledger, &account, 2);
	assert_false(ledger_sweep(&ledger, true));
	assert_int_equal(account.bytes, 2 * (RING_BYTES + OTHER_BYTES));
	ledger_done(&ledger, WORKER, 0);
	assert_true(ledger_sweep(&ledger, true));
	let_go(fds[0]);
	let_go(fds[2]);
	sweep_until(&ledger, &account, 0);
	assert_false(ledger_sweep(&ledger, true));
	assert_int_equal(account.bytes, 0);
	assert_int_equal(ledger.bytes, 0);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* Pages in a pipe, of a ring that no process has. */
static void test_counts_while_pages_are_in_use(void **state)
{
	struct ledger ledger = {
		.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3, .rings_all = 8};
	struct ledger_account account = {0}, other = {0};
	int fds[LINK_FDS_MAX], others[LINK_FDS_MAX], pipe_fds[2];
	char *map;
	off_t at = 0;
	set_up(&ledger);
	give(&ledger, &account, 1, fds);
	give(&ledger, &other, 2, others);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[0], 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(*(volatile char *)map, 0);
	munmap(map, 4096);
	assert_int_equal(splice(fds[0], &at, pipe_fds[1], NULL, 100, 0), 100);
	let_go(fds);
	let_go(others);
	ledger_done(&ledger, WORKER, 0);
	sweep_until(&ledger, &other, 0); /* is not held up by it */
	sweep_in_vain(&ledger, &account);
	assert_int_equal(account.bytes, RING_BYTES);
	assert_true(account.slow_until_ns > 0);
	assert_int_equal(other.slow_until_ns, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	sweep_until(&ledger, &account, 0);
	assert_int_equal(ledger.bytes, 0);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* A descriptor that can do nothing keeps all of the memory nevertheless. */
static void test_counts_while_a_path_is_open(void **state)
{
	struct ledger ledger = {
		.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3, .rings_all = 8};
	struct ledger_account account = {0};
	int fds[LINK_FDS_MAX];
	char path[64];
	set_up(&ledger);
	give(&ledger, &account, 1, fds);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	int path_fd = open(path, O_PATH | O_CLOEXEC);
	assert_true(path_fd >= 0);
	let_go(fds);
	ledger_done(&ledger, WORKER, 0);
	sweep_in_vain(&ledger, &account);
	assert_int_equal(account.bytes, RING_BYTES);
	close(path_fd);
	sweep_until(&ledger, &account, 0);
	assert_int_equal(ledger.bytes, 0);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* In a private daemon, where the system grants no leases. */
static void test_counts_while_the_worker_has_it_without_leases(void **state)
{
	struct ledger ledger = {
		.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3, .rings_all = 8};
	struct ledger_account account = {0};
	int fds[LINK_FDS_MAX];
	set_up(&ledger);
	ledger.has_leases = false;
	give(&ledger, &account, 1, fds);
	sweep_in_vain(&ledger, &account);
	ledger_done(&ledger, WORKER, 1);
	let_go(fds);
	sweep_until(&ledger, &account, 0);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* Of all users together, whatever each may have. */
static void test_rings_are_bounded_by_descriptors(void **state)
{
	struct ledger ledger = {
		.most = 1 << 20, .most_per_user = 1 << 20, .rings_per_user = 3, .rings_all = 2};
	struct ledger_account account = {0}, other = {0};
	const struct link_record record = {.feed = 9, .ring_bytes = RING_BYTES};
	struct link_order order = {0};
	int fds[3][LINK_FDS_MAX];
	set_up(&ledger);
	give(&ledger, &account, 1, fds[0]);
	give(&ledger, &account, 2, fds[1]);
	assert_int_equal(ledger_make(&ledger, &other, USER, WORKER, &record, &order, fds[2]),
			 EDQUOT);
	/* It may be over in a moment: the worker asks again, and the supervisor sweeps. */
	assert_int_equal(order.code, EDQUOT);
	assert_int_equal(order.limit, LINK_LIMIT_DESCRIPTORS);
	ledger_done(&ledger, WORKER, 1);
	let_go(fds[0]);
	sweep_until(&ledger, &account, 1);
	give(&ledger, &other, 3, fds[2]);
	let_go(fds[1]);
	let_go(fds[2]);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* Users who take all that they get leave some for one who comes later. */
static void test_few_users_cannot_take_all_rings(void **state)
{
	enum { USERS = 8, RINGS = 128, SHARE = 4 };
	struct ledger ledger = {.most = UINT64_C(1) << 40,
				.most_per_user = UINT64_C(1) << 40,
				.rings_per_user = RINGS,
				.rings_all = RINGS,
				.rings_share = SHARE};
	struct ledger_account accounts[USERS + 1] = {0};
	const struct link_record record = {.feed = 9, .ring_bytes = RING_BYTES};
	int kept[RINGS][LINK_FDS_MAX];
	unsigned count = 0;
	set_up(&ledger);
	for (unsigned user = 0; user <= USERS; user++) {
		struct link_order order = {0};
		int fds[LINK_FDS_MAX];
		while (user < USERS && accounts[user].rings < RINGS &&
		       ledger_make(&ledger, &accounts[user], USER + user, WORKER, &record, &order,
				   fds) == 0) {
			let_go(fds);
			assert_true(ledger_take_fds(&ledger, WORKER, record.feed, kept[count++]));
		}
		assert_int_equal(order.limit, user < USERS ? LINK_LIMIT_DESCRIPTORS : 0);
	}
	assert_in_range(accounts[0].rings, 20, 26); /* a fifth, as one alone */
	assert_in_range(ledger.rings_count, 4 * USERS, RINGS - 4);
	give(&ledger, &accounts[USERS], 10, kept[count++]);
	for (unsigned i = 0; i < count; i++)
		let_go(kept[i]);
	ledger_deinit(&ledger);
	closer_free(ledger.closer);
}

/* A description that writes is for rings that are granted so. */
static void test_client_writes_only_where_granted(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct ledger ledger = {.most = 1 << 20,
					.most_per_user = 1 << 20,
					.rings_per_user = 3,
					.rings_all = 8,
					.writable_rings = i % 2};
		struct ledger_account account = {0};
		const struct link_record record = {
			.feed = 1, .ring_bytes = RING_BYTES, .writable = i / 2};
		struct link_order order = {0};
		int fds[LINK_FDS_MAX], client_fds[LINK_FDS_MAX];
		set_up(&ledger);
		assert_int_equal(ledger_make(&ledger, &account, USER, WORKER, &record, &order, fds),
				 0);
		assert_true(ledger_take_fds(&ledger, WORKER, 1, client_fds));
		assert_int_equal(fcntl(client_fds[0], F_GETFL) & O_ACCMODE,
				 i == 3 ? O_RDWR : O_RDONLY);
		assert_int_equal(fcntl(client_fds[1], F_GETFL) & O_ACCMODE, O_RDWR);
		let_go(fds);
		let_go(client_fds);
		ledger_deinit(&ledger);
		ledger_deinit(&ledger);
		closer_free(ledger.closer);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts_until_nobody_has_it),
		cmocka_unit_test(test_counts_while_pages_are_in_use),
		cmocka_unit_test(test_counts_while_a_path_is_open),
		cmocka_unit_test(test_counts_while_the_worker_has_it_without_leases),
		cmocka_unit_test(test_client_writes_only_where_granted),
		cmocka_unit_test(test_rings_are_bounded_by_descriptors),
		cmocka_unit_test(test_few_users_cannot_take_all_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
