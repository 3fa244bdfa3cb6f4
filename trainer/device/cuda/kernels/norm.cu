/*
 * Batch norm: kernels and launchers of norm.h. Kernels over rows partition the matrix as in
 * row_reduce.h. The finalizing kernels use one thread per channel and double precision.
 */
extern "C" {
#include "trainer/device/cuda/kernels/norm.h"
}

#include "trainer/device/cuda/kernels/common/activation_grad.h"
#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/row_tile.h"

#include <errno.h>

/* Blocks of the reducing kernels that fit on a multiprocessor. */
#define NORM_STATISTICS_RESIDENT 4
#define NORM_BACKWARD_RESIDENT   2

/*
 * True for activations other than identity and ReLU. Kernels have separate instances for these
 * (CURVED), because they need additional registers.
 */
static bool is_curved(enum device_activation activation)
{
	return activation == DEVICE_GELU || activation == DEVICE_LOGISTIC;
}

/* ---- forward ---- */

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_STATISTICS_RESIDENT)
	norm_statistics_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	float sum[LANES], squares[LANES];

	fill(sum, 0);
	fill(squares, 0);
	for (uint64_t first = here.first; first < a.rows; first += here.turn) {
		uint64_t at = first * a.channels + here.channel;
		V raw[ROW_GRID_UNROLL];

		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows)
			raw[u] = load<V>(a.x, at + u * here.step);
		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows) {
			float x[LANES];

			unpack(x, raw[u]);
			EACH(i, LANES) {
				sum[i] += x[i];
				squares[i] += x[i] * x[i];
			}
		}
	}
	store_partial_sums(&a.grid, &here, sum, squares, true, a.partial);
}

int norm_statistics(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	struct row_reduce_combine combine = {
		.partial = a.partial, .sum = a.sum, .product = a.products};

	row_grid_init(&a.grid, device, a.rows, a.channels, a.element, NORM_STATISTICS_RESIDENT);
	return launch_sums(device, INSTANCES(norm_statistics_kernel), &a, &combine);
}

#define CHANNEL (blockIdx.x * KERNEL_THREADS + threadIdx.x)

DEVICE void store_affine(const struct norm_arguments *a, uint32_t channel, float s, float b)
{
	a->scale[channel] = s;
	a->bias[channel] = b;
	if (a->scale16) {
		kernel_store(a->scale16, channel, a->element, s);
		kernel_store(a->bias16, channel, a->element, b);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	norm_finalize_kernel(const __grid_constant__ struct norm_arguments a)
{
	uint32_t c = CHANNEL;
	double rows = (double)a.rows;

	if (c >= a.channels)
		return;
	double mean = (double)a.sum[c] / rows;
	double variance = (double)a.products[c] / rows - mean * mean;
	/* unlike fmax(), this propagates NaN */
	variance = variance < 0 ? 0 : variance;
	float deviation = (float)(1 / sqrt(variance + (double)a.epsilon));
	float scale = a.gamma[c] * deviation;
	a.mean[c] = (float)mean;
	a.deviation[c] = deviation;
	store_affine(&a, c, scale, a.beta[c] - (float)mean * scale);
	if (!a.running_mean)
		return;
	double unbiased = a.rows > 1 ? variance * rows / (rows - 1) : variance;
	a.running_mean[c] += a.momentum * ((float)mean - a.running_mean[c]);
	a.running_var[c] += a.momentum * ((float)unbiased - a.running_var[c]);
}

int norm_finalize(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_flat(device, KERNEL(norm_finalize_kernel), arguments->channels, arguments);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	norm_running_kernel(const __grid_constant__ struct norm_arguments a)
{
	uint32_t c = CHANNEL;

	if (c >= a.channels)
		return;
	float scale = a.gamma[c] / sqrtf(a.running_var[c] + a.epsilon);
	store_affine(&a, c, scale, a.beta[c] - a.running_mean[c] * scale);
	if (!a.mean)
		return;
	a.mean[c] = a.running_mean[c];
	a.deviation[c] = 1 / sqrtf(a.running_var[c] + a.epsilon);
}

int norm_running(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_flat(device, KERNEL(norm_running_kernel), arguments->channels, arguments);
}

template <typename V, bool CURVED, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, CURVED ? 2 : 3)
	norm_apply_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct thread_position here = place_from_end<V>(&a.grid);
	float scale[LANES], bias[LANES], scale2[LANES], bias2[LANES];

	load_channels(scale, a.scale, here.channel, 1);
	load_channels(bias, a.bias, here.channel, 0);
	load_channels(scale2, a.scale2, here.channel, 1);
	load_channels(bias2, a.bias2, here.channel, 0);
	add(bias, bias2);
	for (uint64_t first = here.first; first < a.rows; first += here.turn) {
		uint64_t at = first * a.channels + here.channel;
		V raw[ROW_GRID_UNROLL], added[ROW_GRID_UNROLL];

		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows) {
			raw[u] = load<V>(a.x, at + u * here.step);
			if (a.residual)
				added[u] = load<V>(a.residual, at + u * here.step);
		}
		EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.rows) {
			float z[LANES], residual[LANES];

			unpack(z, raw[u]);
			EACH(i, LANES)
				z[i] = scale[i] * z[i] + bias[i];
			if (a.residual) {
				unpack(residual, added[u]);
				EACH(i, LANES)
					z[i] += scale2[i] * residual[i];
			}
			activate(z, a.activation, CURVED);
			store<V>(a.y, at + u * here.step, z);
		}
	}
}

int norm_apply(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;

	row_grid_init(&a.grid, device, a.rows, a.channels, a.element, ROW_GRID_MAP);
	return is_curved(a.activation)
		       ? launch_grid(device, INSTANCES(norm_apply_kernel, true), &a)
		       : launch_grid(device, INSTANCES(norm_apply_kernel, false), &a);
}

/* ---- backward ---- */

/* Rows that a thread loads at once. `other` is y, or the residual if z is recomputed. */
template <typename V> struct backward_rows {
	V dy[ROW_GRID_UNROLL], dy2[ROW_GRID_UNROLL];
	V x[ROW_GRID_UNROLL], other[ROW_GRID_UNROLL];
};

/* z = scale x + bias + scale2 residual */
template <uint32_t LANES> struct affine_terms {
	float scale[LANES], bias[LANES], scale2[LANES];
};

template <bool CURVED, bool LEAN> DEVICE bool backward_from_y(const struct norm_arguments *a)
{
	return !LEAN && !CURVED && a->activation == DEVICE_RELU && a->y;
}

template <bool CURVED, bool LEAN> DEVICE bool backward_from_x(const struct norm_arguments *a)
{
	return CURVED || (a->activation == DEVICE_RELU && !backward_from_y<CURVED, LEAN>(a));
}

template <typename V, bool CURVED, bool LEAN>
DEVICE void backward_load(backward_rows<V> *rows, uint32_t u, const struct norm_arguments *a,
			  uint64_t at)
{
	rows->dy[u] = load<V>(a->dy, at);
	if (!LEAN && a->dy2)
		rows->dy2[u] = load<V>(a->dy2, at);
	if (a->products || backward_from_x<CURVED, LEAN>(a))
		rows->x[u] = load<V>(a->x, at);
	if (backward_from_y<CURVED, LEAN>(a))
		rows->other[u] = load<V>(a->y, at);
	else if (!LEAN && backward_from_x<CURVED, LEAN>(a) && a->residual)
		rows->other[u] = load<V>(a->residual, at);
}

/* Computes dz of one row, and unpacks x if it is read. */
template <typename V, bool CURVED, bool LEAN, uint32_t LANES = V::LANES>
DEVICE void backward_row(float (&dz)[LANES], float (&x)[LANES], const backward_rows<V> *rows,
			 uint32_t u, const struct norm_arguments *a,
			 const affine_terms<LANES> *affine)
{
	float v[LANES];

	unpack(dz, rows->dy[u]);
	if (!LEAN && a->dy2) {
		unpack(v, rows->dy2[u]);
		add(dz, v);
	}
	fill(x, 0);
	if (a->products || backward_from_x<CURVED, LEAN>(a))
		unpack(x, rows->x[u]);
	if (backward_from_y<CURVED, LEAN>(a)) {
		unpack(v, rows->other[u]);
		EACH(i, LANES)
			dz[i] = v[i] > 0 ? dz[i] : 0;
	} else if (backward_from_x<CURVED, LEAN>(a)) {
		float z[LANES];

		EACH(i, LANES)
			z[i] = affine->scale[i] * x[i] + affine->bias[i];
		if (!LEAN && a->residual) {
			unpack(v, rows->other[u]);
			EACH(i, LANES)
				z[i] += affine->scale2[i] * v[i];
		}
		activate_backward(dz, z, a->activation, CURVED);
	}
}

/*
 * LEAN: the kernel reads dy and at most x, and writes only sums. The registers of the other
 * operands are free to load more rows at once.
 */
template <typename V, bool CURVED, bool LEAN, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, NORM_BACKWARD_RESIDENT)
	norm_backward_kernel(const __grid_constant__ struct norm_arguments a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	const uint32_t at_once = LEAN ? ROW_GRID_UNROLL : ROW_GRID_UNROLL / 2;
	affine_terms<LANES> affine;
	float bias2[LANES], mean[LANES], sum[LANES], products[LANES];

	load_channels(affine.scale, a.scale, here.channel, 1);
	load_channels(affine.bias, a.bias, here.channel, 0);
	load_channels(affine.scale2, a.scale2, here.channel, 1);
	load_channels(bias2, a.bias2, here.channel, 0);
	load_channels(mean, a.mean, here.channel, 0);
	add(affine.bias, bias2);
	fill(sum, 0);
	fill(products, 0);
	for (uint64_t turn = here.first; turn < a.rows; turn += here.turn) {
		for (uint32_t line = 0; line < ROW_GRID_UNROLL; line += at_once) {
			uint64_t first = turn + line * a.grid.height;
			uint64_t at = first * a.channels + here.channel;
			backward_rows<V> rows;

			EACH_IF(u, at_once, first + u * a.grid.height < a.rows)
				backward_load<V, CURVED, LEAN>(&rows, u, &a, at + u * here.step);
			EACH_IF(u, at_once, first + u * a.grid.height < a.rows) {
				float dz[LANES], x[LANES];

				backward_row<V, CURVED, LEAN>(dz, x, &rows, u, &a, &affine);
				if (!LEAN && a.dz)
					store<V>(a.dz, at + u * here.step, dz);
				EACH(i, LANES) {
					sum[i] += dz[i];
					products[i] += a.products ? dz[i] * (x[i] - mean[i]) : 0;
				}
			}
		}
	}
	if (a.sum)
		store_partial_sums(&a.grid, &here, sum, products, a.products, a.partial);
}

/* True if all operands of the activation and the sums are present. */
static bool is_complete(const struct norm_arguments *a)
{
	bool from_x = is_curved(a->activation) || (a->activation == DEVICE_RELU && !a->y);

	return a->dy && (a->dz || a->sum) && (a->x || (!from_x && !a->products)) &&
	       (!a->products || (a->sum && a->mean && a->deviation)) && (a->partial || !a->sum);
}

static int launch_backward(const struct kernel_device *device, const struct norm_arguments *a,
			   const struct gpu_kernel (&instances)[KERNEL_INSTANCES])
{
	struct row_reduce_combine combine = {
		.partial = a->partial,
		.sum = a->sum,
		.product = a->products,
		.factor = a->deviation,
		.add = a->add_sum,
	};

	return a->sum ? launch_sums(device, instances, a, &combine)
		      : launch_grid(device, instances, a);
}

int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	bool curved = is_curved(a.activation);
	bool lean = !a.dy2 && !a.dz &&
		    (a.activation == DEVICE_IDENTITY || (!a.residual && (curved || !a.y)));

	if (!is_complete(&a))
		return -EINVAL;
	row_grid_init(&a.grid, device, a.rows, a.channels, a.element,
		      a.sum ? NORM_BACKWARD_RESIDENT : ROW_GRID_MAP);
	if (curved && lean)
		return launch_backward(device, &a, INSTANCES(norm_backward_kernel, true, true));
	if (curved)
		return launch_backward(device, &a, INSTANCES(norm_backward_kernel, true, false));
	if (lean)
		return launch_backward(device, &a, INSTANCES(norm_backward_kernel, false, true));
	return launch_backward(device, &a, INSTANCES(norm_backward_kernel, false, false));
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	norm_backward_finalize_kernel(const __grid_constant__ struct norm_arguments k)
{
	uint32_t c = CHANNEL;
	double rows = (double)k.rows;

	if (c >= k.channels)
		return;
	if (k.dgamma)
		k.dgamma[c] = k.products[c] + (k.add_dgamma ? k.dgamma[c] : 0);
	if (k.dbeta)
		k.dbeta[c] = k.sum[c] + (k.add_dbeta ? k.dbeta[c] : 0);
	if (!k.a)
		return;
	double a = (double)k.gamma[c] * (double)k.deviation[c];
	double b = -a * (double)k.deviation[c] * (double)k.products[c] / rows;
	k.a[c] = (float)a;
	k.b[c] = k.fixed ? 0 : (float)b;
	k.c[c] = k.fixed ? 0 : (float)(-a * (double)k.sum[c] / rows - b * (double)k.mean[c]);
}

int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments)
{
	return launch_flat(device, KERNEL(norm_backward_finalize_kernel), arguments->channels,
			   arguments);
}

template <typename V, bool CURVED, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	norm_backward_apply_kernel(const __grid_constant__ struct norm_arguments k)
{
	const struct thread_position here = place_from_end<V>(&k.grid);
	float scale[LANES], bias[LANES], a[LANES], b[LANES], c[LANES];

	load_channels(scale, k.scale, here.channel, 1);
	load_channels(bias, k.bias, here.channel, 0);
	load_channels(a, k.a, here.channel, 0);
	load_channels(b, k.b, here.channel, 0);
	load_channels(c, k.c, here.channel, 0);
	for (uint64_t first = here.first; first < k.rows; first += here.turn) {
		uint64_t at = first * k.channels + here.channel;
		V raw[ROW_GRID_UNROLL], raw_x[ROW_GRID_UNROLL];

		EACH_IF(u, ROW_GRID_UNROLL, first + u * k.grid.height < k.rows) {
			raw[u] = load<V>(k.dz, at + u * here.step);
			raw_x[u] = load<V>(k.x, at + u * here.step);
		}
		EACH_IF(u, ROW_GRID_UNROLL, first + u * k.grid.height < k.rows) {
			float dz[LANES], x[LANES], z[LANES];

			unpack(dz, raw[u]);
			unpack(x, raw_x[u]);
			if (k.scale) {
				EACH(i, LANES)
					z[i] = scale[i] * x[i] + bias[i];
				activate_backward(dz, z, k.activation, CURVED);
			}
			EACH(i, LANES)
				dz[i] = a[i] * dz[i] + (b[i] * x[i] + c[i]);
			store<V>(k.dx, at + u * here.step, dz);
		}
	}
}

int norm_backward_apply(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	bool curved = a.scale && is_curved(a.activation);

	row_grid_init(&a.grid, device, a.rows, a.channels, a.element, ROW_GRID_MAP);
	return curved ? launch_grid(device, INSTANCES(norm_backward_apply_kernel, true), &a)
		      : launch_grid(device, INSTANCES(norm_backward_apply_kernel, false), &a);
}
