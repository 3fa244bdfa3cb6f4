/*
 * Calls of ranks.c to NCCL, with one rank: sums of the sizes that it queues, parts, captured with
 * events around them, and recovery from a failure. tests/gpu/run runs it on a GPU; on the emulated
 * GPU fake_nccl.c replaces NCCL. A sum over one rank must return its input.
 */
#include "tests/test.h"
#include "trainer/device/cuda/ranks/collective.h"
#include "trainer/device/device.h"

enum { SKIPPED = 77 };

static struct comm alone = {.world = 1, .local_world = 1};
static gpu_stream compute, reduce;
static gpu_event ready, reduced;

/*
 * The same bytes in host memory and twice in GPU memory: `source` is copied to `values`, which are
 * summed.
 */
struct sum {
	size_t count, size; /* elements; bytes per element */
	char *expected;
	void *source, *values;
};

/* No byte is 0xff, so no value equals the poison pattern. */
static void sum_init(struct sum *sum, size_t count, enum comm_element element)
{
	*sum = (struct sum){.count = count, .size = element == COMM_FLOAT ? 4 : 8};
	size_t bytes = count * sum->size;
	sum->expected = malloc(bytes);
	assert_non_null(sum->expected);
	for (size_t i = 0; i < bytes; i++)
		sum->expected[i] = (char)(1 + i * 31 % 63);
	assert_int_equal(gpu_allocate(bytes, &sum->source), 0);
	assert_int_equal(gpu_allocate(bytes, &sum->values), 0);
	assert_int_equal(gpu_copy_in(sum->source, sum->expected, bytes, compute), 0);
	assert_int_equal(gpu_stream_synchronize(compute), 0);
}

static void sum_deinit(struct sum *sum)
{
	gpu_free(sum->source);
	gpu_free(sum->values);
	free(sum->expected);
}

/*
 * Queues the work of a step: `compute` produces the values, `reduce` sums them, `compute`
 * continues.
 */
static void queue(struct collective *collective, const struct sum *sums, uint32_t count,
		  enum comm_element element)
{
	struct collective_range ranges[2];

	for (uint32_t i = 0; i < count; i++) {
		ranges[i] = (struct collective_range){sums[i].values, sums[i].count};
		assert_int_equal(gpu_copy(sums[i].values, sums[i].source,
					  sums[i].count * sums[i].size, compute),
				 0);
	}
	assert_int_equal(gpu_event_record(ready, compute), 0);
	assert_int_equal(gpu_stream_wait(reduce, ready), 0);
	if (collective_sum(collective, ranges, count, element, reduce) < 0)
		fail_msg("%s", collective_error(collective));
	assert_int_equal(gpu_event_record(reduced, reduce), 0);
	assert_int_equal(gpu_stream_wait(compute, reduced), 0);
}

static void poison(const struct sum *sum)
{
	assert_int_equal(gpu_fill(sum->values, 0xff, sum->count * sum->size, compute), 0);
}

/* Waits as the trainer does, then compares. */
static void expect(struct collective *collective, const struct sum *sum)
{
	size_t bytes = sum->count * sum->size;
	char *found = malloc(bytes);
	gpu_event done;

	assert_non_null(found);
	assert_int_equal(gpu_event_new(false, &done), 0);
	assert_int_equal(gpu_copy_out(found, sum->values, bytes, compute), 0);
	assert_int_equal(gpu_event_record(done, compute), 0);
	if (collective_wait(collective, done) < 0)
		fail_msg("%s", collective_error(collective));
	assert_memory_equal(found, sum->expected, bytes);
	gpu_event_free(done);
	free(found);
}

static struct collective *connect_alone(void)
{
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	if (collective_new(&alone, &collective, error) < 0 ||
	    collective_connect(collective, error) < 0)
		fail_msg("%s", error);
	return collective;
}

/*
 * Sizes: the count of labels, losses, both sums of a norm, a bucket, and a size that no bucket has.
 */
TEST(sums)
{
	static const struct {
		size_t count;
		enum comm_element element;
		uint32_t ranges;
	} cases[] = {{1, COMM_DOUBLE, 1},   {3, COMM_DOUBLE, 1},       {64, COMM_FLOAT, 2},
		     {2048, COMM_FLOAT, 2}, {10 << 18, COMM_FLOAT, 1}, {1000003, COMM_FLOAT, 1}};
	struct collective *collective = connect_alone();
	struct sum sums[2];

	print_message("%s\n", collective_name(collective));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (uint32_t j = 0; j < cases[i].ranges; j++) {
			sum_init(&sums[j], cases[i].count, cases[i].element);
			poison(&sums[j]);
		}
		queue(collective, sums, cases[i].ranges, cases[i].element);
		for (uint32_t j = 0; j < cases[i].ranges; j++) {
			expect(collective, &sums[j]);
			sum_deinit(&sums[j]);
		}
	}
	collective_free(collective);
}

/* A bucket's parts: scattered in fp32, and exchanged in fp32 and as the bytes of 16-bit weights. */
TEST(parts)
{
	struct collective *collective = connect_alone();
	struct sum sum;

	for (int i = 0; i < 3; i++) {
		sum_init(&sum, 1 << 16, COMM_FLOAT);
		assert_int_equal(gpu_copy(sum.values, sum.source, sum.count * sum.size, compute),
				 0);
		assert_int_equal(gpu_event_record(ready, compute), 0);
		assert_int_equal(gpu_stream_wait(reduce, ready), 0);
		int r = i == 0 ? collective_reduce_scatter(collective, sum.values, sum.count,
							   COMM_FLOAT, reduce)
			       : collective_all_gather(collective, sum.values,
						       i == 1 ? sum.count : sum.count * sum.size,
						       i == 1 ? COMM_FLOAT : COMM_BYTE, reduce);
		if (r < 0)
			fail_msg("%s", collective_error(collective));
		assert_int_equal(gpu_event_record(reduced, reduce), 0);
		assert_int_equal(gpu_stream_wait(compute, reduced), 0);
		expect(collective, &sum);
		sum_deinit(&sum);
	}
	collective_free(collective);
}

TEST(captured)
{
	struct collective *collective = connect_alone();
	gpu_graph graph;
	struct sum sum;

	sum_init(&sum, collective_elements, COMM_FLOAT);
	assert_int_equal(gpu_capture_begin(compute), 0);
	queue(collective, &sum, 1, COMM_FLOAT);
	assert_int_equal(gpu_capture_end(compute, &graph), 0);
	for (int i = 0; i < 3; i++) {
		poison(&sum);
		assert_int_equal(gpu_graph_launch(graph, compute), 0);
		expect(collective, &sum);
	}
	gpu_graph_free(graph);
	sum_deinit(&sum);
	collective_free(collective);
}

/*
 * NCCL rejects an invalid pointer (NCCL_CHECK_POINTERS): the communicator is aborted, and a new one
 * works.
 */
TEST(abort)
{
	struct collective *collective = connect_alone();

	assert_int_equal(collective_sum(collective, &(struct collective_range){NULL, 16}, 1,
					COMM_FLOAT, reduce),
			 -ECOMM);
	assert_non_null(strstr(collective_error(collective), "rank 0 of 1: ncclAllReduce: "));
	collective_free(collective);
	test_captured(state);
}

static int open_gpu(void **state)
{
	int r = gpu_stream_new(&compute);

	if (r == 0)
		r = gpu_stream_new(&reduce);
	if (r == 0)
		r = gpu_event_new(false, &ready);
	return r < 0 ? r : gpu_event_new(false, &reduced);
}

static int close_gpu(void **state)
{
	gpu_event_free(ready);
	gpu_event_free(reduced);
	gpu_stream_free(reduce);
	gpu_stream_free(compute);
	return 0;
}

/* Returns false, with the reason on standard error, if there is no GPU or no NCCL. */
static bool is_possible(void)
{
	struct gpu_properties properties;
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	if (gpu_select(0, &properties) < 0) {
		fprintf(stderr, "skipped: %s\n", gpu_error());
		return false;
	}
	if (collective_new(&alone, &collective, error) < 0) {
		fprintf(stderr, "skipped: %s\n", error);
		return false;
	}
	collective_free(collective);
	return true;
}

int main(void)
{
	setenv("NCCL_CHECK_POINTERS", "1", 1);
	return is_possible() ? test_run(open_gpu, close_gpu) : SKIPPED;
}
