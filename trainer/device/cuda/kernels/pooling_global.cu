/*
 * Pooling over whole images: kernels and launchers of pooling.h. In the forward pass a block
 * handles a tile of channels of one image.
 */
#include "trainer/device/cuda/kernels/common/pool_window.h"

/* Forward: a block per image; backward: plain rows. */
static int launch_global(const struct kernel_device *device,
			 const struct gpu_kernel (&instances)[KERNEL_INSTANCES],
			 struct pool_global a, bool backward)
{
	uint64_t rows = (uint64_t)a.n * a.positions;

	if (rows > INT32_MAX)
		return -EINVAL;
	row_grid_init(&a.grid, device, rows, a.channels, a.element, ROW_GRID_MAP);
	a.by = divider_of(a.positions);
	if (!backward)
		a.grid.blocks_x = a.n;
	return launch_grid(device, instances, &a);
}

/*
 * Loads up to ROW_GRID_UNROLL positions of the block's image: `first` and every columns.height
 * after it.
 */
template <typename V>
DEVICE void load_positions(V *raw, const struct pool_global *a, uint32_t channel, uint32_t first)
{
	uint64_t base = (uint64_t)blockIdx.x * a->positions;

	EACH_IF(u, ROW_GRID_UNROLL, first + u * a->grid.height < a->positions) {
		uint32_t position = first + u * a->grid.height;

		raw[u] = load<V>(a->from, (base + position) * a->channels + channel);
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_global_average_kernel(const __grid_constant__ struct pool_global a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	SHARED(float, sums, KERNEL_THREADS *LANES);
	uint32_t line = a.grid.width * LANES;
	float sum[LANES];

	fill(sum, 0);
	if (here.active) {
		for (uint32_t first = here.line; first < a.positions;
		     first += ROW_GRID_UNROLL * a.grid.height) {
			V raw[ROW_GRID_UNROLL];

			load_positions<V>(raw, &a, here.channel, first);
			EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.positions) {
				float v[LANES];

				unpack(v, raw[u]);
				add(sum, v);
			}
		}
	}
	if (here.line < a.grid.height) {
		EACH(i, LANES)
			sums[here.line * line + here.column * LANES + i] = sum[i];
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < line; i += KERNEL_THREADS) {
		uint32_t channel = blockIdx.y * line + i;
		float total = 0;

		if (channel >= a.channels)
			continue;
		for (uint32_t row = 0; row < a.grid.height; row++)
			total += sums[row * line + i];
		kernel_store(a.to, (uint64_t)blockIdx.x * a.channels + channel, V::ELEMENT,
			     total / (float)a.positions);
	}
}

int pool_global_average(const struct kernel_device *device, const struct pool_global *arguments)
{
	return launch_global(device, INSTANCES(pool_global_average_kernel), *arguments, false);
}

/*
 * Keeps the larger value. NaN is larger than any number; of equal values the lower position wins.
 */
DEVICE void pool_take(float *largest, uint32_t *index, float value, uint32_t position)
{
	bool nan = value != value, nan_before = *largest != *largest;
	bool equal = (nan && nan_before) || value == *largest;

	if (equal ? position < *index : nan || (!nan_before && value > *largest)) {
		*largest = value;
		*index = position;
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_global_max_kernel(const __grid_constant__ struct pool_global a)
{
	const struct thread_position here = thread_position_of<V>(&a.grid);
	SHARED(float, values, KERNEL_THREADS *LANES);
	SHARED(uint32_t, indices, KERNEL_THREADS * LANES);
	uint32_t line = a.grid.width * LANES;
	float largest[LANES];
	uint32_t index[LANES];

	EACH(i, LANES) {
		largest[i] = -INFINITY;
		index[i] = UINT32_MAX;
	}
	if (here.active) {
		for (uint32_t first = here.line; first < a.positions;
		     first += ROW_GRID_UNROLL * a.grid.height) {
			V raw[ROW_GRID_UNROLL];

			load_positions<V>(raw, &a, here.channel, first);
			EACH_IF(u, ROW_GRID_UNROLL, first + u * a.grid.height < a.positions) {
				uint32_t position = first + u * a.grid.height;
				float v[LANES];

				unpack(v, raw[u]);
				EACH(i, LANES)
					pool_take(&largest[i], &index[i], v[i], position);
			}
		}
	}
	if (here.line < a.grid.height) {
		EACH(i, LANES) {
			values[here.line * line + here.column * LANES + i] = largest[i];
			indices[here.line * line + here.column * LANES + i] = index[i];
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < line; i += KERNEL_THREADS) {
		uint32_t channel = blockIdx.y * line + i, first = UINT32_MAX;
		uint64_t at = (uint64_t)blockIdx.x * a.channels + channel;
		float value = -INFINITY;

		if (channel >= a.channels)
			continue;
		for (uint32_t row = 0; row < a.grid.height; row++)
			pool_take(&value, &first, values[row * line + i], indices[row * line + i]);
		kernel_store(a.to, at, V::ELEMENT, value);
		if (a.index)
			a.index[at] = first;
	}
}

int pool_global_max(const struct kernel_device *device, const struct pool_global *arguments)
{
	return launch_global(device, INSTANCES(pool_global_max_kernel), *arguments, false);
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_global_average_backward_kernel(const __grid_constant__ struct pool_global a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	float share = 1 / (float)a.positions;

	POOL_ROWS(row, here, a.grid) {
		uint32_t image = kernel_divide((uint32_t)row, a.by);
		float v[LANES];

		unpack(v, load<V>(a.from, (uint64_t)image * a.channels + here.channel));
		EACH(i, LANES)
			v[i] *= share;
		store<V>(a.to, row * a.channels + here.channel, v);
	}
}

int pool_global_average_backward(const struct kernel_device *device,
				 const struct pool_global *arguments)
{
	return launch_global(device, INSTANCES(pool_global_average_backward_kernel), *arguments,
			     true);
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_global_max_backward_kernel(const __grid_constant__ struct pool_global a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);

	POOL_ROWS(row, here, a.grid) {
		uint32_t image = kernel_divide((uint32_t)row, a.by);
		uint32_t position = (uint32_t)row - image * a.positions;
		uint64_t at = (uint64_t)image * a.channels + here.channel;
		float v[LANES];

		unpack(v, load<V>(a.from, at));
		EACH(i, LANES)
			v[i] = a.index[at + i] == position ? v[i] : 0;
		store<V>(a.to, row * a.channels + here.channel, v);
	}
}

int pool_global_max_backward(const struct kernel_device *device,
			     const struct pool_global *arguments)
{
	return arguments->index ? launch_global(device, INSTANCES(pool_global_max_backward_kernel),
						*arguments, true)
				: -EINVAL;
}
