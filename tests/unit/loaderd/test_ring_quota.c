/*
 * A ring counts until no process has it open or mapped and nothing in the kernel refers to its
 * pages. Rings that their worker has released are checked again soon.
 */
#include "loaderd/supervisor/ring_quota.h"

#include "proto/ring.h"
#include "tests/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

enum { RING_BYTES = RING_ACK_SIZE + 8192, OTHER_BYTES = 1000, WORKER = 7, USER = 1000 };

/* Limits used by most tests. */
static const struct ring_quota small = {.bytes_max = 1 << 20,
					.bytes_per_user_max = 1 << 20,
					.rings_per_user_max = 3,
					.rings_max = 8};

static void set_up(struct ring_quota *quota, const struct ring_quota *bounds)
{
	*quota = *bounds;
	assert_int_equal(ring_quota_init(quota), 0);
	assert_true(quota->inotify_fd >= 0);
	quota->has_leases = true;
	assert_int_equal(blocking_pool_new(&quota->blocking_pool), 0);
}

static void tear_down(struct ring_quota *quota)
{
	ring_quota_deinit(quota);
	blocking_pool_free(quota->blocking_pool);
}

static void close_fds(int fds[IPC_FDS_MAX])
{
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		close(fds[i]);
}

/* Allocates a ring and sends it to the test, which acts as the client and keeps it. */
static void give(struct ring_quota *quota, struct ring_usage *usage, uint64_t feed,
		 int client_fds[IPC_FDS_MAX])
{
	const struct ipc_record record = {
		.feed = feed, .ring_bytes = RING_BYTES, .other_bytes = OTHER_BYTES};
	struct ipc_order order = {0};
	int fds[IPC_FDS_MAX];
	assert_int_equal(ring_quota_allocate(quota, usage, USER, WORKER, &record, &order, fds), 0);
	close_fds(fds); /* the worker's fds */
	assert_true(ring_quota_take_fds(quota, WORKER, feed, client_fds));
	assert_false(ring_quota_take_fds(quota, WORKER, feed, client_fds));
}

/* Sweeps until this many rings remain; a thread delivers the results of probes. */
static void sweep_until(struct ring_quota *quota, const struct ring_usage *usage, unsigned rings)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	while (usage->rings > rings) {
		ring_quota_sweep(quota, true);
		nanosleep(&nap, NULL);
	}
	assert_int_equal(usage->rings, rings);
}

/* Sweeps until a probe has found that pages of the user's only ring are in use. */
static void sweep_until_pinned(struct ring_quota *quota, const struct ring_usage *usage)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	while (usage->slow_until_ns == 0) {
		ring_quota_sweep(quota, true);
		assert_int_equal(usage->rings, 1);
		nanosleep(&nap, NULL);
	}
}

/* Sweeps for so long that results would have arrived. */
static void sweep_finds_nothing(struct ring_quota *quota, const struct ring_usage *usage)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	unsigned rings = usage->rings;
	for (unsigned i = 0; i < 300; i++) {
		ring_quota_sweep(quota, true);
		assert_int_equal(usage->rings, rings);
		nanosleep(&nap, NULL);
	}
}

TEST(ring_counts_until_unused)
{
	struct ring_quota quota;
	struct ring_usage usage = {0};
	int fds[3][IPC_FDS_MAX];
	set_up(&quota, &small);
	assert_false(ring_quota_sweep(&quota, true));
	for (unsigned i = 0; i < 3; i++)
		give(&quota, &usage, 1 + i, fds[i]);
	assert_int_equal(usage.bytes, 3 * (RING_BYTES + OTHER_BYTES));
	assert_false(ring_quota_sweep(&quota, true)); /* the worker has released none of them */
	ring_quota_release(&quota, WORKER,
			   2); /* the position among the rings in use does not matter */
	assert_int_equal(usage.bytes, 3 * RING_BYTES + 2 * OTHER_BYTES);
	assert_true(ring_quota_sweep(&quota, true));
	assert_int_equal(usage.rings, 3);
	close_fds(fds[1]);
	sweep_until(&quota, &usage, 2);
	assert_false(ring_quota_sweep(&quota, true));
	assert_int_equal(usage.bytes, 2 * (RING_BYTES + OTHER_BYTES));
	ring_quota_release(&quota, WORKER, 0);
	assert_true(ring_quota_sweep(&quota, true));
	close_fds(fds[0]);
	close_fds(fds[2]);
	sweep_until(&quota, &usage, 0);
	assert_false(ring_quota_sweep(&quota, true));
	assert_int_equal(usage.bytes, 0);
	assert_int_equal(quota.bytes, 0);
	tear_down(&quota);
}

/* Pages of a ring stay in a pipe after no process has the ring. */
TEST(counts_while_pages_are_in_use)
{
	struct ring_quota quota;
	struct ring_usage usage = {0}, other = {0};
	int fds[IPC_FDS_MAX], others[IPC_FDS_MAX], pipe_fds[2];
	char *map;
	off_t at = 0;
	set_up(&quota, &small);
	give(&quota, &usage, 1, fds);
	give(&quota, &other, 2, others);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[0], 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(*(volatile char *)map, 0);
	munmap(map, 4096);
	assert_int_equal(splice(fds[0], &at, pipe_fds[1], NULL, 100, 0), 100);
	close_fds(fds);
	close_fds(others);
	ring_quota_release(&quota, WORKER, 0);
	sweep_until(&quota, &other, 0); /* the other user's ring does not delay it */
	sweep_until_pinned(&quota, &usage);
	assert_int_equal(usage.bytes, RING_BYTES);
	assert_int_equal(other.slow_until_ns, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	sweep_until(&quota, &usage, 0);
	assert_int_equal(quota.bytes, 0);
	tear_down(&quota);
}

/* An O_PATH fd permits no access but keeps the memory allocated. */
TEST(counts_while_a_path_is_open)
{
	struct ring_quota quota;
	struct ring_usage usage = {0};
	int fds[IPC_FDS_MAX];
	char path[64];
	set_up(&quota, &small);
	give(&quota, &usage, 1, fds);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	int path_fd = open(path, O_PATH | O_CLOEXEC);
	assert_true(path_fd >= 0);
	close_fds(fds);
	ring_quota_release(&quota, WORKER, 0);
	sweep_finds_nothing(&quota, &usage);
	assert_int_equal(usage.bytes, RING_BYTES);
	close(path_fd);
	sweep_until(&quota, &usage, 0);
	assert_int_equal(quota.bytes, 0);
	tear_down(&quota);
}

/* In a private daemon on a system that refuses leases. */
TEST(counts_while_the_worker_has_it_without_leases)
{
	struct ring_quota quota;
	struct ring_usage usage = {0};
	int fds[IPC_FDS_MAX];
	set_up(&quota, &small);
	quota.has_leases = false;
	give(&quota, &usage, 1, fds);
	sweep_finds_nothing(&quota, &usage);
	ring_quota_release(&quota, WORKER, 1);
	close_fds(fds);
	sweep_until(&quota, &usage, 0);
	tear_down(&quota);
}

/* The total over all users is limited, whatever each of them may have. */
TEST(rings_are_bounded_by_descriptors)
{
	struct ring_quota bounds = small, quota;
	struct ring_usage usage = {0}, other = {0};
	const struct ipc_record record = {.feed = 9, .ring_bytes = RING_BYTES};
	struct ipc_order order = {0};
	int fds[3][IPC_FDS_MAX];
	bounds.rings_max = 2;
	set_up(&quota, &bounds);
	give(&quota, &usage, 1, fds[0]);
	give(&quota, &usage, 2, fds[1]);
	assert_int_equal(ring_quota_allocate(&quota, &other, USER, WORKER, &record, &order, fds[2]),
			 EDQUOT);
	/* The shortage may end soon: the worker repeats the request, and the supervisor sweeps. */
	assert_int_equal(order.code, EDQUOT);
	assert_int_equal(order.limit, IPC_LIMIT_DESCRIPTORS);
	ring_quota_release(&quota, WORKER, 1);
	close_fds(fds[0]);
	sweep_until(&quota, &usage, 1);
	give(&quota, &other, 3, fds[2]);
	close_fds(fds[1]);
	close_fds(fds[2]);
	tear_down(&quota);
}

/* Users who take as many rings as they can get leave some for users who arrive later. */
TEST(few_users_cannot_take_all_rings)
{
	enum { USERS = 8, RINGS = 128, SHARE = 4 };
	const struct ring_quota bounds = {.bytes_max = UINT64_C(1) << 40,
					  .bytes_per_user_max = UINT64_C(1) << 40,
					  .rings_per_user_max = RINGS,
					  .rings_max = RINGS,
					  .rings_share = SHARE};
	struct ring_quota quota;
	struct ring_usage accounts[USERS + 1] = {0};
	const struct ipc_record record = {.feed = 9, .ring_bytes = RING_BYTES};
	int kept[RINGS][IPC_FDS_MAX];
	unsigned count = 0;
	set_up(&quota, &bounds);
	for (unsigned user = 0; user <= USERS; user++) {
		struct ipc_order order = {0};
		int fds[IPC_FDS_MAX];
		while (user < USERS && accounts[user].rings < RINGS &&
		       ring_quota_allocate(&quota, &accounts[user], USER + user, WORKER, &record,
					   &order, fds) == 0) {
			close_fds(fds);
			assert_true(
				ring_quota_take_fds(&quota, WORKER, record.feed, kept[count++]));
		}
		assert_int_equal(order.limit, user < USERS ? IPC_LIMIT_DESCRIPTORS : 0);
	}
	assert_in_range(accounts[0].rings, 20, 26); /* a fifth of all rings, as for a single user */
	assert_in_range(quota.rings_count, 4 * USERS, RINGS - 4);
	give(&quota, &accounts[USERS], 10, kept[count++]);
	for (unsigned i = 0; i < count; i++)
		close_fds(kept[i]);
	tear_down(&quota);
}

/* The client's fd is writable only if a writable ring was granted. */
TEST(client_writes_only_where_granted)
{
	for (unsigned i = 0; i < 4; i++) {
		struct ring_quota bounds = small, quota;
		struct ring_usage usage = {0};
		const struct ipc_record record = {
			.feed = 1, .ring_bytes = RING_BYTES, .writable = i / 2};
		struct ipc_order order = {0};
		int fds[IPC_FDS_MAX], client_fds[IPC_FDS_MAX];
		bounds.writable_rings = i % 2;
		set_up(&quota, &bounds);
		assert_int_equal(
			ring_quota_allocate(&quota, &usage, USER, WORKER, &record, &order, fds), 0);
		assert_true(ring_quota_take_fds(&quota, WORKER, 1, client_fds));
		assert_int_equal(fcntl(client_fds[0], F_GETFL) & O_ACCMODE,
				 i == 3 ? O_RDWR : O_RDONLY);
		assert_int_equal(fcntl(client_fds[1], F_GETFL) & O_ACCMODE, O_RDWR);
		close_fds(fds);
		close_fds(client_fds);
		ring_quota_deinit(&quota);
		tear_down(&quota);
	}
}
