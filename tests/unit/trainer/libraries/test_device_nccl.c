/* Loading and calling NCCL, with fake_nccl.c in its place; FAKE_NCCL is its directory. */
#include "tests/test.h"
#include "trainer/device/cuda/gpu.h"
#include "trainer/device/cuda/ranks/collective.h"
#include "trainer/device/device.h"

/* The part of gpu.h that nccl.c uses: an event is complete at the second query. */
static int looks;

int gpu_event_query(gpu_event event)
{
	return looks++ % 2 ? 0 : -EAGAIN;
}

const char *gpu_error(void)
{
	return "";
}

static struct comm all = {.world = 1, .local_world = 1};
static struct comm alone = {.world = 1, .local_world = 1, .parent = &all};

TEST(old)
{
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	setenv("LOADERD_CUDA_LIBRARIES", getenv("FAKE_NCCL"), 1);
	setenv("FAKE_NCCL_VERSION", "21104", 1);
	assert_int_equal(collective_new(&alone, &collective, error), -ENODEV);
	assert_non_null(strstr(error, "NCCL 2.11.4 is installed, 2.13 or newer"));
}

/*
 * NCCL_GRAPH_REGISTER is 0, so that captured sums equal launched ones, unless the environment sets
 * it.
 */
TEST(alike)
{
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	setenv("FAKE_NCCL_VERSION", "22803", 1);
	for (int i = 0; i < 2; i++) {
		unsetenv("NCCL_GRAPH_REGISTER");
		if (i)
			setenv("NCCL_GRAPH_REGISTER", "1", 1);
		assert_int_equal(collective_new(&alone, &collective, error), 0);
		assert_string_equal(getenv("NCCL_GRAPH_REGISTER"), i ? "1" : "0");
		collective_free(collective);
	}
}

/* Parts are those of one rank, and bytes are gathered only. */
TEST(parts)
{
	float values[4] = {0};
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	setenv("FAKE_NCCL_VERSION", "22803", 1);
	assert_int_equal(collective_new(&alone, &collective, error), 0);
	assert_int_equal(collective_connect(collective, error), 0);
	assert_int_equal(collective_reduce_scatter(collective, values, 4, COMM_FLOAT, NULL), 0);
	assert_int_equal(collective_all_gather(collective, values, 4, COMM_FLOAT, NULL), 0);
	assert_int_equal(collective_all_gather(collective, values, 16, COMM_BYTE, NULL), 0);
	assert_int_equal(collective_reduce_scatter(collective, values, 16, COMM_BYTE, NULL),
			 -ECOMM);
	assert_non_null(strstr(collective_error(collective), "ncclReduceScatter"));
	collective_free(collective);
}

TEST(sums)
{
	float values[4] = {0};
	double totals[3] = {0};
	struct collective_range ranges[] = {{values, 2}, {values + 2, 2}};
	struct collective *collective;
	char error[DEVICE_ERROR_MAX];

	setenv("FAKE_NCCL_VERSION", "22803", 1);
	setenv("FAKE_NCCL_SUMS", "5", 1); /* three of them in other tests */
	assert_int_equal(collective_new(&alone, &collective, error), 0);
	assert_string_equal(collective_name(collective), "NCCL 2.28.3");
	assert_int_equal(collective_connect(collective, error), 0);
	assert_int_equal(collective_sum(collective, ranges, 2, COMM_FLOAT, NULL), 0);
	assert_int_equal(collective_wait(collective, NULL), 0);
	assert_int_equal(looks, 2);
	/* the fake's third sum: a rank fails */
	assert_int_equal(collective_sum(collective, &(struct collective_range){totals, 3}, 1,
					COMM_DOUBLE, NULL),
			 0);
	assert_int_equal(collective_wait(collective, NULL), -ECOMM);
	assert_non_null(strstr(collective_error(collective), "rank 0 of 1"));
	assert_non_null(strstr(collective_error(collective), "remote process exited"));
	assert_int_equal(alone.ended, COMM_LOST);
	assert_int_equal(all.ended, COMM_LOST);
	alone.ended = COMM_RUNNING;
	collective_free(collective);
}

/* A failed sum of the communicator that is watched ends the wait for the other. */
TEST(two_communicators)
{
	uint16_t values[2] = {0};
	struct collective *first, *second;
	char error[DEVICE_ERROR_MAX];

	setenv("FAKE_NCCL_VERSION", "22803", 1);
	setenv("FAKE_NCCL_SUMS", "1000", 1);
	assert_int_equal(collective_new(&alone, &first, error), 0);
	assert_int_equal(collective_new(&alone, &second, error), 0);
	collective_watch(first, second);
	assert_int_equal(collective_connect(first, error), 0);
	assert_int_equal(collective_connect(second, error), 0);
	for (int i = 0; i < 3; i++) {
		static const enum cuda_element elements[] = {CUDA_F16, CUDA_BF16, CUDA_F32};

		assert_int_equal(collective_sum_activations(second, values, 1, elements[i], NULL),
				 0);
	}
	assert_int_equal(collective_wait(first, NULL), 0);
	assert_int_equal(collective_sum_activations(second, NULL, 1, CUDA_F16, NULL), -ECOMM);
	assert_non_null(strstr(collective_error(second), "ncclAllReduce: invalid argument"));
	collective_free(first);
	collective_free(second);
}
