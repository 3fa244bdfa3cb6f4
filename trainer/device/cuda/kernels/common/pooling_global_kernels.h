/*
 * Global pooling kernels of pooling.cu, for one instance. In the forward pass a block handles a
 * tile of channels of one image.
 */

/*
 * Loads up to COLUMNS_UNROLL positions of the block's image: `first` and every columns.height after
 * it.
 */
DEVICE void NAME(load_positions)(struct NAME(raw) * raw, const struct pool_global *a,
				 uint32_t channel, uint32_t first)
{
	uint64_t base = (uint64_t)blockIdx.x * a->positions;

	EACH_IF(u, COLUMNS_UNROLL, first + u * a->columns.height < a->positions) {
		uint32_t position = first + u * a->columns.height;

		raw[u] = NAME(load)(a->from, (base + position) * a->channels + channel);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_global_average)(const __grid_constant__ struct pool_global a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	SHARED(float, sums, KERNEL_THREADS *LANES);
	uint32_t line = a.columns.width * LANES;
	float sum[LANES];

	NAME(fill)(sum, 0);
	if (here.active) {
		for (uint32_t first = here.line; first < a.positions;
		     first += COLUMNS_UNROLL * a.columns.height) {
			struct NAME(raw) raw[COLUMNS_UNROLL];

			NAME(load_positions)(raw, &a, here.channel, first);
			EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.positions) {
				float v[LANES];

				NAME(unpack)(v, raw[u]);
				NAME(add)(sum, v);
			}
		}
	}
	if (here.line < a.columns.height) {
		EACH(i, LANES)
			sums[here.line * line + here.column * LANES + i] = sum[i];
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < line; i += KERNEL_THREADS) {
		uint32_t channel = blockIdx.y * line + i;
		float total = 0;

		if (channel >= a.channels)
			continue;
		for (uint32_t row = 0; row < a.columns.height; row++)
			total += sums[row * line + i];
		kernel_store(a.to, (uint64_t)blockIdx.x * a.channels + channel, ELEMENT,
			     total / (float)a.positions);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_global_max)(const __grid_constant__ struct pool_global a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	SHARED(float, values, KERNEL_THREADS *LANES);
	SHARED(uint32_t, indices, KERNEL_THREADS * LANES);
	uint32_t line = a.columns.width * LANES;
	float largest[LANES];
	uint32_t index[LANES];

	EACH(i, LANES) {
		largest[i] = -INFINITY;
		index[i] = UINT32_MAX;
	}
	if (here.active) {
		for (uint32_t first = here.line; first < a.positions;
		     first += COLUMNS_UNROLL * a.columns.height) {
			struct NAME(raw) raw[COLUMNS_UNROLL];

			NAME(load_positions)(raw, &a, here.channel, first);
			EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.positions) {
				uint32_t position = first + u * a.columns.height;
				float v[LANES];

				NAME(unpack)(v, raw[u]);
				EACH(i, LANES)
					pool_take(&largest[i], &index[i], v[i], position);
			}
		}
	}
	if (here.line < a.columns.height) {
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
		for (uint32_t row = 0; row < a.columns.height; row++)
			pool_take(&value, &first, values[row * line + i], indices[row * line + i]);
		kernel_store(a.to, at, ELEMENT, value);
		if (a.index)
			a.index[at] = first;
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_global_average_backward)(const __grid_constant__ struct pool_global a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	float share = 1 / (float)a.positions;

	POOL_ROWS(row, here, a.columns) {
		uint32_t image = kernel_divide((uint32_t)row, a.by);
		float v[LANES];

		NAME(unpack)(v, NAME(load)(a.from, (uint64_t)image * a.channels + here.channel));
		EACH(i, LANES)
			v[i] *= share;
		NAME(store)(a.to, row * a.channels + here.channel, v);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_global_max_backward)(const __grid_constant__ struct pool_global a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	POOL_ROWS(row, here, a.columns) {
		uint32_t image = kernel_divide((uint32_t)row, a.by);
		uint32_t position = (uint32_t)row - image * a.positions;
		uint64_t at = (uint64_t)image * a.channels + here.channel;
		float v[LANES];

		NAME(unpack)(v, NAME(load)(a.from, at));
		EACH(i, LANES)
			v[i] = a.index[at + i] == position ? v[i] : 0;
		NAME(store)(a.to, row * a.channels + here.channel, v);
	}
}
