/*
 * Layer norm: kernels and launchers of norm.h. A warp or a block handles a row; sums over rows
 * follow row_reduce.h.
 */
extern "C" {
#include "trainer/device/cuda/kernels/norm.h"
}

#include "trainer/device/cuda/kernels/common/block_reduce.h"
#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/row_tile.h"

#include <errno.h>

#define LAYER_NORM_SUMS_RESIDENT 2 /* blocks that fit on a multiprocessor */
#define WARPS                    (KERNEL_THREADS / KERNEL_WARP)
#define PACKS                    4 /* packs of a row in registers per thread */

/* A row, and the index of the thread among those that handle this row. */
struct row_thread {
	uint64_t row;
	uint32_t thread, threads;
};

DEVICE struct row_thread row_of_warp(void)
{
	struct row_thread here;

	here.row = (uint64_t)blockIdx.x * WARPS + threadIdx.x / KERNEL_WARP;
	here.thread = threadIdx.x % KERNEL_WARP;
	here.threads = KERNEL_WARP;
	return here;
}

DEVICE struct row_thread row_of_block(void)
{
	struct row_thread here;

	here.row = blockIdx.x;
	here.thread = threadIdx.x;
	here.threads = KERNEL_THREADS;
	return here;
}

/* Sum over the threads that handle the row. All of them must call it; all receive the sum. */
DEVICE float row_sum(float value, uint32_t threads)
{
	return threads == KERNEL_WARP ? reduce_warp<float>(value)
				      : (float)reduce_sum<double>(value);
}

/* Launches the instances with one warp per row, or those with one block per row. */
static int launch_rows(const struct kernel_device *device,
		       const struct gpu_kernel (&warps)[KERNEL_INSTANCES],
		       const struct gpu_kernel (&blocks)[KERNEL_INSTANCES],
		       const struct norm_arguments *a)
{
	uint32_t instance = kernel_instance(a->element, a->channels);

	if (a->rows > INT32_MAX)
		return -EINVAL;
	if (a->channels > LAYER_NORM_WARP_MAX)
		return launch(device, blocks[instance], (uint32_t)a->rows, a);
	return launch(device, warps[instance], divide_up(a->rows, WARPS), a);
}

/* Loads up to PACKS packs of a row, at `channel` and every `step` channels after it. */
template <typename V>
DEVICE void load_part(V *raw, const void *from, uint64_t row, uint32_t channels, uint32_t channel,
		      uint32_t step)
{
	EACH_IF(u, PACKS, channel + u * step < channels)
		raw[u] = load<V>(from, row * channels + channel + u * step);
}

template <typename V, uint32_t LANES = V::LANES>
DEVICE void layer_norm_row(const struct norm_arguments *a, struct row_thread here)
{
	const uint32_t step = here.threads * LANES, turn = step * PACKS;
	const uint32_t first = here.thread * LANES;
	/* true if the row does not fit in registers and must be read again */
	const bool again = a->channels > turn;
	V raw[PACKS];
	float v[LANES], gamma[LANES], beta[LANES], sum = 0, squares = 0, mean, deviation;

	for (uint32_t c = first; c < a->channels; c += turn) {
		load_part<V>(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			unpack(v, raw[u]);
			EACH(i, LANES)
				sum += v[i];
		}
	}
	mean = row_sum(sum, here.threads) / (float)a->channels;
	for (uint32_t c = first; c < a->channels; c += turn) {
		if (again)
			load_part<V>(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			unpack(v, raw[u]);
			EACH(i, LANES)
				squares += (v[i] - mean) * (v[i] - mean);
		}
	}
	squares = row_sum(squares, here.threads) / (float)a->channels;
	deviation = 1 / sqrtf(squares + a->epsilon);
	if (a->mean && here.thread == 0) {
		a->mean[here.row] = mean;
		a->deviation[here.row] = deviation;
	}
	for (uint32_t c = first; c < a->channels; c += turn) {
		if (again)
			load_part<V>(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			uint32_t channel = c + u * step;

			unpack(v, raw[u]);
			load_channels(gamma, a->gamma, channel, 1);
			load_channels(beta, a->beta, channel, 0);
			EACH(i, LANES)
				v[i] = (v[i] - mean) * deviation * gamma[i] + beta[i];
			store<V>(a->y, here.row * a->channels + channel, v);
		}
	}
}

/* WIDE: a block handles a row, else a warp. */
template <typename V, bool WIDE>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	layer_norm_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct row_thread here = WIDE ? row_of_block() : row_of_warp();

	if (WIDE || here.row < a.rows)
		layer_norm_row<V>(&a, here);
}

int layer_norm_forward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_rows(device, INSTANCES(layer_norm_kernel, false),
			   INSTANCES(layer_norm_kernel, true), arguments);
}

/* Computes g = dy gamma and xhat. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void layer_norm_terms(float *g, float *xhat, V dy, V x, const struct norm_arguments *a,
			     uint32_t channel, float mean, float deviation)
{
	float gamma[LANES];

	unpack(g, dy);
	unpack(xhat, x);
	load_channels(gamma, a->gamma, channel, 1);
	EACH(i, LANES) {
		g[i] *= gamma[i];
		xhat[i] = (xhat[i] - mean) * deviation;
	}
}

template <typename V, uint32_t LANES = V::LANES>
DEVICE void layer_norm_backward_row(const struct norm_arguments *a, struct row_thread here)
{
	const uint32_t step = here.threads * LANES, turn = step * PACKS;
	const uint32_t first = here.thread * LANES;
	const bool again = a->channels > turn;
	const float mean = a->mean[here.row], deviation = a->deviation[here.row];
	V dy[PACKS], x[PACKS];
	float g[LANES], xhat[LANES], sum = 0, products = 0;

	for (uint32_t c = first; c < a->channels; c += turn) {
		load_part<V>(dy, a->dy, here.row, a->channels, c, step);
		load_part<V>(x, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			layer_norm_terms<V>(g, xhat, dy[u], x[u], a, c + u * step, mean, deviation);
			EACH(i, LANES) {
				sum += g[i];
				products += g[i] * xhat[i];
			}
		}
	}
	sum = row_sum(sum, here.threads) / (float)a->channels;
	products = row_sum(products, here.threads) / (float)a->channels;
	for (uint32_t c = first; c < a->channels; c += turn) {
		if (again) {
			load_part<V>(dy, a->dy, here.row, a->channels, c, step);
			load_part<V>(x, a->x, here.row, a->channels, c, step);
		}
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			uint32_t channel = c + u * step;

			layer_norm_terms<V>(g, xhat, dy[u], x[u], a, channel, mean, deviation);
			EACH(i, LANES)
				g[i] = deviation * (g[i] - sum - xhat[i] * products);
			store<V>(a->dx, here.row * a->channels + channel, g);
		}
	}
}

/* WIDE: a block handles a row, else a warp. */
template <typename V, bool WIDE>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	layer_norm_backward_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct row_thread here = WIDE ? row_of_block() : row_of_warp();

	if (WIDE || here.row < a.rows)
		layer_norm_backward_row<V>(&a, here);
}

/* Sums dy and dy xhat over rows. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, LAYER_NORM_SUMS_RESIDENT)
	layer_norm_sums_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	float sum[LANES], products[LANES];

	fill(sum, 0);
	fill(products, 0);
	for (uint64_t first = here.first; first < a.rows; first += here.turn) {
		uint64_t at = first * a.channels + here.channel;
		V raw[ROW_GRID_UNROLL], raw_x[ROW_GRID_UNROLL];

		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows) {
			raw[u] = load<V>(a.dy, at + u * here.step);
			raw_x[u] = load<V>(a.x, at + u * here.step);
		}
		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows) {
			uint64_t row = first + u * a.grid.height;
			float dy[LANES], x[LANES], mean = a.mean[row], deviation = a.deviation[row];

			unpack(dy, raw[u]);
			unpack(x, raw_x[u]);
			EACH(i, LANES) {
				sum[i] += dy[i];
				products[i] += dy[i] * ((x[i] - mean) * deviation);
			}
		}
	}
	store_partial_sums(&a.grid, &here, sum, products, true, a.partial);
}

int layer_norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	struct row_reduce_combine combine = {
		.partial = a.partial,
		.sum = a.dbeta,
		.product = a.dgamma,
		.add = a.add_dbeta,
		.add_product = a.add_dgamma,
	};
	int r = 0;

	if (a.dx)
		r = launch_rows(device, INSTANCES(layer_norm_backward_kernel, false),
				INSTANCES(layer_norm_backward_kernel, true), &a);
	if (r < 0 || (!a.dgamma && !a.dbeta))
		return r;
	row_grid_init(&a.grid, device, a.rows, a.channels, a.element, LAYER_NORM_SUMS_RESIDENT);
	return launch_sums(device, INSTANCES(layer_norm_sums_kernel), &a, &combine);
}
