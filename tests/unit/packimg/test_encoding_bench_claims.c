/*
 * The benchmark must decode ahead in groups of the same size as a daemon's worker, or predictions
 * for images without an index would be systematically wrong. Each sample takes the time that the
 * test sets, on a simulated clock.
 */
#include "loaderd/batch/batch.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tests/unit/loaderd/fake_batcher.h"
#include "tests/unit/proto/fake_ring.h"
#include "tools/packimg/estimate/encoding_bench.h"

#include "format/augment/pipeline.h"

#include <time.h>

enum { SAMPLES = 96, SIDE = 16, BATCH_SIZE_MAX = 48, EPOCHS = 3 };

static char folder[] = "/tmp/packimg-encoding-bench-XXXXXX";

/* Which samples of the dataset are JPEGs without an index. */
enum kind { ALL, NONE, TWO_OF_THREE, KINDS };

static struct dataset *datasets[KINDS];

/* ---- samples decoded ahead, and simulated time ---- */

/* Per sample of a run: the number of samples decoded ahead when it was decoded; 0 if none. */
static struct record {
	uint64_t made; /* samples decoded so far */
	uint32_t ahead[16 * SAMPLES];
} record;
static uint64_t cost_ns;

void __real_packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
				 uint32_t count);
void __wrap_packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
				 uint32_t count);
int __real_pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			  void *output, struct pipeline_times *times, struct packimg_error *error);
int __wrap_pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			  void *output, struct pipeline_times *times, struct packimg_error *error);
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

void __wrap_packimg_decode_ahead(struct packimg_decoder *decoder, const struct packimg_ahead *parts,
				 uint32_t count)
{
	record.ahead[record.made] = count;
	__real_packimg_decode_ahead(decoder, parts, count);
}

int __wrap_pipeline_apply(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			  const struct packimg_sample *sample, uint64_t seed, uint64_t epoch,
			  void *output, struct pipeline_times *times, struct packimg_error *error)
{
	record.made++;
	return __real_pipeline_apply(pipeline, scratch, sample, seed, epoch, output, times, error);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	uint64_t ns = record.made * cost_ns;

	if (clock != CLOCK_THREAD_CPUTIME_ID)
		return __real_clock_gettime(clock, ret_time);
	*ret_time = (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
				      .tv_nsec = (long)(ns % 1000000000)};
	return 0;
}

/* ---- datasets ---- */

static void make(enum kind kind)
{
	static const uint8_t pixels[SIDE * SIDE * 3];
	struct test_dataset data;
	char path[64];

	snprintf(path, sizeof(path), "%s/%d.pimg", folder, kind);
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct packimg_item item = test_item(pixels, SIDE, SIDE);

		test_item_to_jpeg(&data, &item, 90);
		if (kind == NONE || (kind == TWO_OF_THREE && i % 3 == 0))
			test_item_index(&data, &item);
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	datasets[kind] = own_dataset(path);
	unlink(path);
}

static int set_up(void **state)
{
	assert_non_null(mkdtemp(folder));
	assert_int_equal(sigbus_guard_install(), 0);
	for (enum kind kind = 0; kind < KINDS; kind++)
		make(kind);
	return 0;
}

static int tear_down(void **state)
{
	for (enum kind kind = 0; kind < KINDS; kind++)
		dataset_free(datasets[kind]);
	rmdir(folder);
	return 0;
}

static struct pipeline *make_pipeline(void)
{
	struct pipeline *pipeline;
	struct pipeline_error fault;

	assert_int_equal(pipeline_parse("resize(8x8)", &pipeline, &fault), 0);
	return pipeline;
}

/* ---- runs of the daemon and of the benchmark ---- */

static void no_doorbell(void *user)
{
}

static void no_report(void *user, struct dataset *dataset, uint64_t index, const char *text)
{
	abort();
}

/* Runs a worker for EPOCHS epochs and returns the record of the last one. */
static void run_daemon(enum kind kind, const struct claim_options *claim, uint32_t *ret_ahead)
{
	struct batcher_options options = {
		.dataset = datasets[kind],
		.order = {.samples = SAMPLES,
			  .batch_size = (uint32_t)claim->batch_size,
			  .world = 1},
		.slots = EPOCHS * SAMPLES / (uint32_t)claim->batch_size,
		.threads = claim->workers,
		.thread_indices = claim->workers,
		.doorbell = no_doorbell,
		.report = no_report,
		.pipeline = make_pipeline(),
		.io = {.mode = IO_MMAP, .bytes = 1 << 20, .queue_depth = 8},
	};
	struct batcher_thread worker = {.alone = claim->alone};
	uint64_t begun;

	record = (struct record){0};
	assert_int_equal(order_init(&options.order), 0);
	struct batcher *batcher = fake_batcher(&options);
	assert_int_equal(fake_ring_start(&batcher->ring), 0);
	assert_int_equal(pipeline_scratch_new(&worker.scratch), 0);
	thread_clock_init(&worker.clock);
	do
		atomic_store(&batcher->cost_ns, record.made ? cost_ns : 0);
	while (batcher_work(batcher, &worker, &begun) > 0);
	assert_int_equal(record.made, EPOCHS * SAMPLES);
	memcpy(ret_ahead, record.ahead + (EPOCHS - 1) * SAMPLES, SAMPLES * sizeof(*ret_ahead));
	thread_clock_deinit(&worker.clock);
	pipeline_scratch_free(worker.scratch);
	batcher_free(batcher);
}

/* Benchmarks one or more epochs and returns the record of the last one. */
static void run_bench(enum kind kind, const struct claim_options *claim, uint32_t *ret_ahead)
{
	struct packimg_sample samples[SAMPLES];
	struct pipeline *pipeline = make_pipeline();
	struct encoding_run run = {samples, SAMPLES, pipeline};
	struct packimg_error error;

	for (uint64_t i = 0; i < SAMPLES; i++)
		assert_int_equal(packimg_sample(datasets[kind]->image, i, &samples[i]), 0);
	record = (struct record){0};
	assert_int_equal(encoding_bench_measure(&run, 1, claim, 0, NULL, &error), 0);
	assert_true(record.made >= SAMPLES && record.made % SAMPLES == 0);
	memcpy(ret_ahead, record.ahead + record.made - SAMPLES, SAMPLES * sizeof(*ret_ahead));
	pipeline_free(pipeline);
}

static uint32_t max(const uint32_t *ahead)
{
	uint32_t found = 0;

	for (unsigned i = 0; i < SAMPLES; i++)
		found = ahead[i] > found ? ahead[i] : found;
	return found;
}

/* Compares the groups of daemon and benchmark. `expected` is the size of the largest group. */
static void compare(enum kind kind, uint32_t batch_size, unsigned workers, bool alone,
		    uint64_t cost_us, uint32_t expected)
{
	const struct claim_options claim = {batch_size, workers, alone};
	uint32_t daemon[SAMPLES], bench[SAMPLES];

	cost_ns = cost_us * 1000;
	run_daemon(kind, &claim, daemon);
	run_bench(kind, &claim, bench);
	assert_int_equal(max(daemon), expected);
	for (unsigned i = 0; i < SAMPLES; i++)
		if (daemon[i] != bench[i])
			fail_msg("kind %d, batches of %u, %u workers, %s, %llu us: at sample %u "
				 "a daemon decodes %u ahead, the benchmark %u",
				 kind, batch_size, workers, alone ? "alone" : "not alone",
				 (unsigned long long)cost_us, i, daemon[i], bench[i]);
}

TEST(groups_equal_those_of_a_daemon)
{
	compare(ALL, 48, 1, true, 300, 8);
	compare(ALL, 12, 1, true, 300, 8);
	compare(ALL, 12, 3, true, 300, 4);
	compare(ALL, 16, 1, true, 10, 8);
	/*
	 * Expensive samples give small groups: a claim must be short, especially with other feeds
	 * in the pool.
	 */
	compare(ALL, 16, 1, true, 700, 5);
	compare(ALL, 16, 1, true, 5000, 0);
	compare(ALL, 16, 1, false, 300, 0);
	compare(ALL, 16, 1, false, 20, 5);
	compare(TWO_OF_THREE, 48, 1, true, 300, 6);
	compare(NONE, 48, 1, true, 300, 0);
}

TEST_MAIN(set_up, tear_down)
