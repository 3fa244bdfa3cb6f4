/* What limits a feed ("limit"), for unambiguous counters. */
#include "proto/limit.h"
#include "tests/test.h"

#define S UINT64_C(1000000000)

TEST(judgements)
{
	/* All cases cover ten seconds on two CPUs. */
	static const struct {
		struct limit_times times;
		enum limit known, unknown; /* expected limit if elapsed time and CPU count are
					      known, and if not */
	} cases[] = {
		{{0}, LIMIT_NONE, LIMIT_NONE},
		{{.stall_client = 3 * S, .stall_daemon = 3 * S, .stage[STAGE_DECODE] = 19 * S},
		 LIMIT_NONE,
		 LIMIT_NONE},
		{{.stall_client = 1 * S, .stall_daemon = 9 * S, .stage[STAGE_DECODE] = 4 * S},
		 LIMIT_CONSUMER,
		 LIMIT_CONSUMER},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 14 * S,
		  .stage[STAGE_RESIZE] = 4 * S,
		  .stage[STAGE_STORE] = S,
		  .stage[STAGE_OTHER] = S},
		 LIMIT_DECODE,
		 LIMIT_DECODE},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 7 * S,
		  .stage[STAGE_RESIZE] = 2 * S,
		  .stage[STAGE_AUGMENT] = 3 * S,
		  .stage[STAGE_STORE] = 6 * S,
		  .stage[STAGE_OTHER] = S},
		 LIMIT_AUGMENT,
		 LIMIT_AUGMENT},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 2 * S,
		  .stage[STAGE_RESIZE] = S,
		  .stage[STAGE_OTHER] = 10 * S,
		  .stage[STAGE_READ] = 6 * S},
		 LIMIT_OTHER,
		 LIMIT_OTHER},
		{{.stall_client = 9 * S, .stage[STAGE_DECODE] = 4 * S, .stage[STAGE_WAIT] = 16 * S},
		 LIMIT_STORAGE,
		 LIMIT_STORAGE},
		/* of a dataset in a store: both sides wait */
		{{.stall_client = 10 * S,
		  .stall_daemon = 10 * S,
		  .stage[STAGE_DECODE] = S,
		  .stage[STAGE_WAIT] = 9 * S},
		 LIMIT_STORAGE,
		 LIMIT_STORAGE},
		/*
		 * First a client that waits from the start, then one that makes the loader wait at
		 * the start.
		 */
		{{.stage[STAGE_DECODE] = 18 * S}, LIMIT_DECODE, LIMIT_DECODE},
		{{.stall_daemon = S / 2, .stage[STAGE_DECODE] = 18 * S},
		 LIMIT_DECODE,
		 LIMIT_CONSUMER},
		/*
		 * Eight threads: in the first case the work of some threads hides that others wait,
		 * in the second it does not.
		 */
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 18 * S,
		  .stage[STAGE_WAIT] = 60 * S},
		 LIMIT_DECODE,
		 LIMIT_STORAGE},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 6 * S,
		  .stage[STAGE_WAIT] = 70 * S,
		  .stage[STAGE_QUEUED] = 4 * S},
		 LIMIT_STORAGE,
		 LIMIT_STORAGE},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 19 * S,
		  .stage[STAGE_QUEUED] = 61 * S},
		 LIMIT_DECODE,
		 LIMIT_DECODE},
		{{.stall_client = 9 * S,
		  .stage[STAGE_DECODE] = 8 * S,
		  .stage[STAGE_QUEUED] = 12 * S},
		 LIMIT_CPUS,
		 LIMIT_DECODE},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(limit_judge(&cases[i].times, 10 * S, 2), cases[i].known);
		assert_int_equal(limit_judge(&cases[i].times, 0, 0), cases[i].unknown);
	}
}

TEST(differences)
{
	Loaderd__FeedStatus before = LOADERD__FEED_STATUS__INIT, now = LOADERD__FEED_STATUS__INIT;
	struct limit_times first = {0}, second = {0}, times;
	before.decode_ns = 5;
	before.wait_ns = 1;
	now.decode_ns = 12;
	now.wait_ns = 4;
	now.queued_ns = 2;
	now.store_ns = 3;
	now.augment_ns = 5;
	limit_times_add(&first, &before);
	limit_times_add(&second, &now);
	times = limit_times_between(&first, &second);
	assert_int_equal(times.stage[STAGE_DECODE], 7);
	assert_int_equal(times.stage[STAGE_WAIT], 3);
	assert_int_equal(times.stage[STAGE_QUEUED], 2);
	assert_int_equal(stages_work(times.stage), 15);
	assert_string_equal(limit_name(LIMIT_NONE), "none");
	assert_string_equal(limit_name(LIMIT_OTHER), "other");
	limit_times_add(&second, &before);
	assert_int_equal(second.stage[STAGE_DECODE], 17);
	assert_int_equal(stages_work(second.stage), 25);
}

/*
 * Gives every counter a different value, to check that each is subtracted from its own predecessor.
 */
TEST(every_field)
{
	Loaderd__FeedStatus before = LOADERD__FEED_STATUS__INIT, now = LOADERD__FEED_STATUS__INIT;
	struct limit_times first = {0}, second = {0}, times;
	uint64_t *const fields[2][10] = {
		{&before.stall_client_ns, &before.stall_daemon_ns, &before.wait_ns,
		 &before.queued_ns, &before.read_ns, &before.decode_ns, &before.resize_ns,
		 &before.augment_ns, &before.store_ns, &before.other_ns},
		{&now.stall_client_ns, &now.stall_daemon_ns, &now.wait_ns, &now.queued_ns,
		 &now.read_ns, &now.decode_ns, &now.resize_ns, &now.augment_ns, &now.store_ns,
		 &now.other_ns},
	};
	const uint64_t *const results[10] = {
		&times.stall_client,        &times.stall_daemon,         &times.stage[STAGE_WAIT],
		&times.stage[STAGE_QUEUED], &times.stage[STAGE_READ],    &times.stage[STAGE_DECODE],
		&times.stage[STAGE_RESIZE], &times.stage[STAGE_AUGMENT], &times.stage[STAGE_STORE],
		&times.stage[STAGE_OTHER]};
	for (uint64_t i = 0; i < 10; i++) {
		*fields[0][i] = 1000 + 7 * i;
		*fields[1][i] = 1000 + 7 * i + (UINT64_C(1) << i);
	}
	limit_times_add(&first, &before);
	limit_times_add(&second, &now);
	times = limit_times_between(&first, &second);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(*results[i], UINT64_C(1) << i);
	/* Only stages that use CPU time count as work, waiting does not. */
	assert_int_equal(stages_work(times.stage), 0x3f0);
	/* The times of a daemon's feeds add up. */
	limit_times_add(&first, &now);
	times = limit_times_between(&second, &first);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(*results[i], 1000 + 7 * i);
}
