/* Kernels of pool.cu, of one instance. */

/* ---- maxima over windows ---- */

/* Some positions of a window, loaded together. */
struct NAME(batch) {
	struct NAME(raw) raw[POOL_AHEAD];
	uint32_t position[POOL_AHEAD]; /* in the window */
	uint32_t count;
};

/* Moves *walk on. */
DEVICE void NAME(load_batch)(struct NAME(batch) *batch, struct pool_walk *walk,
			     const struct pool_window *window, const struct pool_shape *s,
			     const void *x, uint32_t channel)
{
	batch->count = 0;
	UNROLL
	for (int k = 0; k < POOL_AHEAD; k++) {
		if (walk->r == window->r_last)
			continue;
		batch->position[k] = walk->r * s->window + walk->s;
		batch->raw[k] = NAME(load)(
			x, (walk->line + (window->w + walk->s)) * s->channels + channel);
		batch->count = k + 1;
		pool_walk_on(walk, window, s);
	}
}

KERNEL_RESIDENT(3, NAME(pool_max), struct pool_max, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;
	bool relu = a.scale && a.activation == DEVICE_RELU;
	float scale[LANES], bias[LANES];

	NAME(vector)(scale, a.scale, here.channel, 1);
	NAME(vector)(bias, a.bias, here.channel, 0);
	POOL_ROWS (row, here, a.columns) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		struct pool_walk walk = pool_walk_begin(&window, s);
		float largest[LANES];
		uint32_t index[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++) {
			largest[i] = -INFINITY;
			index[i] = window.first;
		}
		while (walk.r < window.r_last) {
			struct NAME(batch) batch;

			NAME(load_batch)(&batch, &walk, &window, s, a.x, here.channel);
			UNROLL
			for (uint32_t k = 0; k < POOL_AHEAD; k++) {
				float z[LANES];

				if (k >= batch.count)
					continue;
				NAME(unpack)(z, batch.raw[k]);
				UNROLL
				for (int i = 0; i < LANES; i++) {
					float value = scale[i] * z[i] + bias[i];
					bool better;

					value = relu ? slope_relu(value) : value;
					/* the first NaN stays */
					better = value > largest[i] ||
						 (value != value && largest[i] == largest[i]);
					largest[i] = better ? value : largest[i];
					index[i] = better ? batch.position[k] : index[i];
				}
			}
		}
		NAME(store)(a.y, row * s->channels + here.channel, largest);
		if (a.index)
			NAME(store_bytes)(a.index, row * s->channels + here.channel, index);
	}
}

/*
 * g = sum of dy (+ dy2) over the windows that hold the position and have their maximum there: four windows at once, two by two, which is all of them for
 * strides of at least half the window.
 */
DEVICE void NAME(pool_gather)(float *g, const struct pool_shape *s, uint32_t position,
			      uint32_t channel, const void *dy, const void *dy2,
			      const uint8_t *index)
{
	struct pool_cover cover = pool_cover_of_input(s, position);

	UNROLL
	for (int i = 0; i < LANES; i++)
		g[i] = 0;
	for (uint32_t p = cover.p_first; p < cover.p_last; p += 2) {
		for (uint32_t q = cover.q_first; q < cover.q_last; q += 2) {
			struct NAME(raw) raw[4];
			struct NAME(raw_bytes) places[4];

			UNROLL
			for (uint32_t k = 0; k < 4; k++) {
				uint64_t output = pool_output(&cover, p + k / 2, q + k % 2, s);
				uint64_t at = output * s->channels + channel;

				if (p + k / 2 >= cover.p_last || q + k % 2 >= cover.q_last)
					continue;
				places[k] = NAME(load_bytes)(index, at);
				raw[k] = NAME(load)(dy, at);
			}
			UNROLL
			for (uint32_t k = 0; k < 4; k++) {
				uint64_t output = pool_output(&cover, p + k / 2, q + k % 2, s);
				uint64_t at = output * s->channels + channel;
				uint32_t own = pool_place(&cover, p + k / 2, q + k % 2, s);
				float v[LANES], v2[LANES];

				if (p + k / 2 >= cover.p_last || q + k % 2 >= cover.q_last)
					continue;
				NAME(unpack)(v, raw[k]);
				if (dy2) {
					NAME(unpack)(v2, NAME(load)(dy2, at));
					UNROLL
					for (int i = 0; i < LANES; i++)
						v[i] += v2[i];
				}
				UNROLL
				for (int i = 0; i < LANES; i++)
					g[i] += NAME(byte)(&places[k], i) == own ? v[i] : 0;
			}
		}
	}
}

KERNEL_RESIDENT(3, NAME(pool_max_backward), struct pool_max_backward, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	POOL_ROWS (row, here, a.columns) {
		float g[LANES];

		NAME(pool_gather)(g, &a.shape, (uint32_t)row, here.channel, a.dy, a.dy2, a.index);
		NAME(store)(a.dx, row * a.shape.channels + here.channel, g);
	}
}

KERNEL(NAME(pool_max_norm_reduce), struct pool_max_norm_reduce, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;
	float scale[LANES], bias[LANES], mean[LANES], sum[LANES], products[LANES];

	NAME(vector)(scale, a.scale, here.channel, 1);
	NAME(vector)(bias, a.bias, here.channel, 0);
	NAME(vector)(mean, a.mean, here.channel, 0);
	UNROLL
	for (int i = 0; i < LANES; i++)
		sum[i] = products[i] = 0;
	POOL_ROWS (row, here, a.columns) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		struct pool_walk walk = pool_walk_begin(&window, s);
		uint64_t at = row * s->channels + here.channel;
		struct NAME(raw_bytes) places = NAME(load_bytes)(a.index, at);
		float g[LANES], v[LANES], x[LANES];

		NAME(unpack)(g, NAME(load)(a.dy, at));
		if (a.dy2) {
			NAME(unpack)(v, NAME(load)(a.dy2, at));
			UNROLL
			for (int i = 0; i < LANES; i++)
				g[i] += v[i];
		}
		UNROLL
		for (int i = 0; i < LANES; i++)
			x[i] = 0;
		/* whole vectors of every position, of which each channel takes its own: neighbours find them in the cache */
		while (walk.r < window.r_last) {
			struct NAME(batch) batch;

			NAME(load_batch)(&batch, &walk, &window, s, a.x, here.channel);
			UNROLL
			for (uint32_t k = 0; k < POOL_AHEAD; k++) {
				if (k >= batch.count)
					continue;
				NAME(unpack)(v, batch.raw[k]);
				UNROLL
				for (int i = 0; i < LANES; i++)
					if (NAME(byte)(&places, i) == batch.position[k])
						x[i] = v[i];
			}
		}
		UNROLL
		for (int i = 0; i < LANES; i++) {
			float z = scale[i] * x[i] + bias[i];
			float dz = pool_through(g[i], z, a.activation);

			sum[i] += dz;
			products[i] += dz * (x[i] - mean[i]);
		}
	}
	NAME(leave_sums)(&a.columns, &here, sum, products, true, a.partial);
}

KERNEL(NAME(pool_max_norm_apply), struct pool_max_norm_apply, k)
{
	struct NAME(place) here = NAME(place)(&k.columns);
	float scale[LANES], bias[LANES], a[LANES], b[LANES], c[LANES];

	NAME(vector)(scale, k.scale, here.channel, 1);
	NAME(vector)(bias, k.bias, here.channel, 0);
	NAME(vector)(a, k.a, here.channel, 0);
	NAME(vector)(b, k.b, here.channel, 0);
	NAME(vector)(c, k.c, here.channel, 0);
	POOL_ROWS (row, here, k.columns) {
		struct NAME(raw) raw = NAME(load)(k.x, row * k.shape.channels + here.channel);
		float g[LANES], x[LANES];

		NAME(pool_gather)(g, &k.shape, (uint32_t)row, here.channel, k.dy, k.dy2, k.index);
		NAME(unpack)(x, raw);
		UNROLL
		for (int i = 0; i < LANES; i++) {
			float z = scale[i] * x[i] + bias[i];
			float dz = pool_through(g[i], z, k.activation);

			g[i] = a[i] * dz + (b[i] * x[i] + c[i]);
		}
		NAME(store)(k.dx, row * k.shape.channels + here.channel, g);
	}
}

/* ---- means over windows ---- */

KERNEL(NAME(pool_average), struct pool_average, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS (row, here, a.columns) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		float sum[LANES], v[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++)
			sum[i] = 0;
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t k = window.s_first; k < window.s_last; k++) {
				uint64_t at = (line + (window.w + k)) * s->channels + here.channel;

				NAME(unpack)(v, NAME(load)(a.from, at));
				UNROLL
				for (int i = 0; i < LANES; i++)
					sum[i] += v[i];
			}
		}
		UNROLL
		for (int i = 0; i < LANES; i++)
			sum[i] /= (float)pool_window_count(&window);
		NAME(store)(a.to, row * s->channels + here.channel, sum);
	}
}

KERNEL(NAME(pool_average_backward), struct pool_average, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS (row, here, a.columns) {
		struct pool_cover cover = pool_cover_of_input(s, (uint32_t)row);
		float sum[LANES], v[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++)
			sum[i] = 0;
		for (uint32_t p = cover.p_first; p < cover.p_last; p++) {
			for (uint32_t q = cover.q_first; q < cover.q_last; q++) {
				uint64_t output = pool_output(&cover, p, q, s);
				uint64_t at = output * s->channels + here.channel;
				struct pool_window window =
					pool_window_of_output(s, (uint32_t)output);

				NAME(unpack)(v, NAME(load)(a.from, at));
				UNROLL
				for (int i = 0; i < LANES; i++)
					sum[i] += v[i] / (float)pool_window_count(&window);
			}
		}
		NAME(store)(a.to, row * s->channels + here.channel, sum);
	}
}

/* ---- over whole images: a block has one image's tile ---- */

KERNEL(NAME(pool_global_average), struct pool_global, a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	SHARED(float, sums, KERNEL_THREADS * LANES);
	uint32_t line = a.columns.width * LANES;
	uint64_t base = (uint64_t)kernel_block_x() * a.positions;
	float sum[LANES];

	UNROLL
	for (int i = 0; i < LANES; i++)
		sum[i] = 0;
	if (here.active) {
		for (uint32_t first = here.line; first < a.positions;
		     first += COLUMNS_UNROLL * a.columns.height) {
			struct NAME(raw) raw[COLUMNS_UNROLL];

			UNROLL
			for (int u = 0; u < COLUMNS_UNROLL; u++) {
				uint32_t position = first + u * a.columns.height;
				uint64_t at = (base + position) * a.channels + here.channel;

				if (position < a.positions)
					raw[u] = NAME(load)(a.from, at);
			}
			UNROLL
			for (int u = 0; u < COLUMNS_UNROLL; u++) {
				float v[LANES];

				if (first + u * a.columns.height >= a.positions)
					continue;
				NAME(unpack)(v, raw[u]);
				UNROLL
				for (int i = 0; i < LANES; i++)
					sum[i] += v[i];
			}
		}
	}
	if (here.line < a.columns.height) {
		UNROLL
		for (int i = 0; i < LANES; i++)
			sums[here.line * line + here.column * LANES + i] = sum[i];
	}
	KERNEL_BARRIER();
	for (uint32_t i = kernel_thread(); i < line; i += KERNEL_THREADS) {
		uint32_t channel = kernel_block_y() * line + i;
		float total = 0;

		if (channel >= a.channels)
			continue;
		for (uint32_t row = 0; row < a.columns.height; row++)
			total += sums[row * line + i];
		kernel_store(a.to, (uint64_t)kernel_block_x() * a.channels + channel, ELEMENT,
			     total / (float)a.positions);
	}
}

KERNEL(NAME(pool_global_max), struct pool_global, a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	SHARED(float, values, KERNEL_THREADS * LANES);
	SHARED(uint32_t, indices, KERNEL_THREADS * LANES);
	uint32_t line = a.columns.width * LANES;
	uint64_t base = (uint64_t)kernel_block_x() * a.positions;
	float largest[LANES];
	uint32_t index[LANES];

	UNROLL
	for (int i = 0; i < LANES; i++) {
		largest[i] = -INFINITY;
		index[i] = UINT32_MAX;
	}
	if (here.active) {
		for (uint32_t position = here.line; position < a.positions;
		     position += a.columns.height) {
			uint64_t at = (base + position) * a.channels + here.channel;
			float v[LANES];

			NAME(unpack)(v, NAME(load)(a.from, at));
			UNROLL
			for (int i = 0; i < LANES; i++)
				pool_take(&largest[i], &index[i], v[i], position);
		}
	}
	if (here.line < a.columns.height) {
		UNROLL
		for (int i = 0; i < LANES; i++) {
			values[here.line * line + here.column * LANES + i] = largest[i];
			indices[here.line * line + here.column * LANES + i] = index[i];
		}
	}
	KERNEL_BARRIER();
	for (uint32_t i = kernel_thread(); i < line; i += KERNEL_THREADS) {
		uint32_t channel = kernel_block_y() * line + i, first = UINT32_MAX;
		uint64_t at = (uint64_t)kernel_block_x() * a.channels + channel;
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

KERNEL(NAME(pool_global_average_backward), struct pool_global, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	POOL_ROWS (row, here, a.columns) {
		uint32_t image = (uint32_t)row / a.positions;
		float v[LANES];

		NAME(unpack)(v, NAME(load)(a.from, (uint64_t)image * a.channels + here.channel));
		UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] /= (float)a.positions;
		NAME(store)(a.to, row * a.channels + here.channel, v);
	}
}

KERNEL(NAME(pool_global_max_backward), struct pool_global, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	POOL_ROWS (row, here, a.columns) {
		uint32_t image = (uint32_t)row / a.positions;
		uint32_t position = (uint32_t)row - image * a.positions;
		uint64_t at = (uint64_t)image * a.channels + here.channel;
		float v[LANES];

		NAME(unpack)(v, NAME(load)(a.from, at));
		UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] = a.index[at + i] == position ? v[i] : 0;
		NAME(store)(a.to, row * a.channels + here.channel, v);
	}
}
