/*
 * The emulation of grids, on which kernel tests rely, must detect errors. Deliberately wrong
 * kernels give wrong results in some order of threads, or end the program.
 */
#include "tests/gpu/emulation/kernel.h"
#include "trainer/device/cuda/kernels/common/kernel.h"

#include <setjmp.h>
#include <stdarg.h>

extern "C" {
#include <cmocka.h>
}
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 8

static gpu_stream stream;

struct sums {
	const uint32_t *from; /* [blocks][KERNEL_THREADS] */
	uint32_t *to;         /* [blocks] */
	uint32_t without;     /* number of the barrier that is left out, 0 if none */
};

/* Sums by halving in shared memory, and then reuses that memory. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tree(const __grid_constant__ struct sums a)
{
	SHARED(uint32_t, values, KERNEL_THREADS);
	uint32_t thread = threadIdx.x, block = blockIdx.y * gridDim.x + blockIdx.x, first;

	values[thread] = a.from[block * KERNEL_THREADS + thread];
	for (uint32_t half = KERNEL_THREADS / 2; half; half /= 2) {
		if (a.without != 1)
			__syncthreads();
		if (thread < half)
			values[thread] += values[thread + half];
	}
	__syncthreads();
	first = values[0];
	if (a.without != 2)
		__syncthreads();
	values[thread] = 0;
	__syncthreads();
	if (thread == KERNEL_THREADS - 1)
		a.to[block] = first + values[0];
}

/* Sums with shuffles. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	butterfly(const __grid_constant__ struct sums a)
{
	SHARED(uint32_t, warps, KERNEL_THREADS / KERNEL_WARP);
	uint32_t thread = threadIdx.x, block = blockIdx.y * gridDim.x + blockIdx.x;
	uint32_t value = a.from[block * KERNEL_THREADS + thread];

	for (uint32_t mask = 1; mask < KERNEL_WARP; mask *= 2)
		value += __shfl_xor_sync(KERNEL_LANES, value, mask);
	if (thread % KERNEL_WARP == 7)
		warps[thread / KERNEL_WARP] = value;
	__syncthreads();
	value = 0;
	for (uint32_t i = 0; i < KERNEL_THREADS / KERNEL_WARP; i++)
		value += warps[i];
	if (thread == KERNEL_THREADS - 1)
		a.to[block] = value;
}

static const struct gpu_kernel tree_kernel = KERNEL(tree), butterfly_kernel = KERNEL(butterfly);

#define BLOCKS 6

/* Returns true if all blocks have the right sums. */
static bool sums_are_right(const struct gpu_kernel *kernel, uint32_t without, uint64_t seed)
{
	uint32_t from[BLOCKS * KERNEL_THREADS], to[BLOCKS], expected[BLOCKS] = {0};
	void *memory;
	struct sums sums = {.without = without};

	for (uint32_t i = 0; i < BLOCKS * KERNEL_THREADS; i++) {
		from[i] = i * i + 1;
		expected[i / KERNEL_THREADS] += from[i];
	}
	assert_int_equal(gpu_allocate(sizeof(from) + sizeof(to), &memory), 0);
	sums.from = (const uint32_t *)memory;
	sums.to = (uint32_t *)memory + BLOCKS * KERNEL_THREADS;
	assert_int_equal(gpu_copy_in(memory, from, sizeof(from), stream), 0);
	emulation_order(seed);
	assert_int_equal(
		gpu_launch(kernel, BLOCKS / 2, 2, KERNEL_THREADS, &sums, sizeof(sums), stream), 0);
	/* the arguments were copied */
	memset(&sums.without, 0xff, sizeof(sums.without));
	assert_int_equal(gpu_copy_out(to, sums.to, sizeof(to), stream), 0);
	assert_int_equal(gpu_stream_synchronize(stream), 0);
	gpu_free(memory);
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (to[i] != expected[i])
			return false;
	return true;
}

static void test_right(void **state)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		assert_true(sums_are_right(&tree_kernel, 0, seed));
		assert_true(sums_are_right(&butterfly_kernel, 0, seed));
	}
}

/* A missing barrier shows in some order of threads. */
static void test_missing_barrier(void **state)
{
	for (uint32_t barrier = 1; barrier <= 2; barrier++) {
		unsigned wrong = 0;

		for (uint64_t seed = 0; seed < SEEDS; seed++)
			wrong += !sums_are_right(&tree_kernel, barrier, seed);
		assert_true(wrong > 0);
	}
}

/* ---- misuse that ends the program ---- */

enum misuse { LEAVES_EARLY, OTHER_BARRIER, HALF_A_WARP, OTHER_MASK, MISALIGNED, MISUSES };

struct misuse_arguments {
	enum misuse misuse;
	char *memory;
};

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	misused(const __grid_constant__ struct misuse_arguments a)
{
	uint32_t thread = threadIdx.x;

	if (a.misuse == LEAVES_EARLY && thread == 5)
		return;
	if (a.misuse == OTHER_BARRIER && thread == 5)
		__syncthreads();
	else
		__syncthreads();
	if (a.misuse == HALF_A_WARP && thread % 2)
		return;
	__shfl_xor_sync(KERNEL_LANES, 1.0f, a.misuse == OTHER_MASK && thread == 9 ? 2 : 1);
	if (a.misuse == MISALIGNED)
		kernel_load16(a.memory + 8);
}

static const struct gpu_kernel misused_kernel = KERNEL(misused);

static bool is_found(enum misuse misuse)
{
	alignas(16) static char memory[32];
	struct misuse_arguments arguments = {misuse, memory};
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		fclose(stderr);
		/*
		 * detected misuse ends in abort(), which sanitizers need not report and cmocka must
		 * not catch
		 */
		signal(SIGABRT, SIG_DFL);
		gpu_launch(&misused_kernel, 1, 1, KERNEL_THREADS, &arguments, sizeof(arguments),
			   stream);
		gpu_stream_synchronize(stream);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_misuse(void **state)
{
	for (int misuse = 0; misuse < MISUSES; misuse++)
		assert_true(is_found((enum misuse)misuse));
	assert_false(is_found(MISUSES));
}

/* Launches that CUDA refuses. */
static void test_refused(void **state)
{
	struct sums sums = {0};

	assert_int_equal(
		gpu_launch(&tree_kernel, 0, 1, KERNEL_THREADS, &sums, sizeof(sums), stream), -EIO);
	assert_int_equal(
		gpu_launch(&tree_kernel, 1, 65536, KERNEL_THREADS, &sums, sizeof(sums), stream),
		-EIO);
	assert_int_equal(gpu_launch(&tree_kernel, 1, 1, 1056, &sums, sizeof(sums), stream), -EIO);
	assert_int_equal(gpu_launch(&tree_kernel, 1, 1, KERNEL_THREADS, &sums, 4097, stream), -EIO);
}

static int open_stream(void **state)
{
	return gpu_stream_new(&stream);
}

static int close_stream(void **state)
{
	gpu_stream_free(stream);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_missing_barrier),
		cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("emulation: launch", tests, open_stream, close_stream);
}
