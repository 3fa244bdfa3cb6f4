/* Kernels of pool.cu, of one instance. */

/* ---- maxima over windows ---- */

/* Per-channel operands of what comes before a pool. */
struct NAME(before) {
	float scale[LANES], bias[LANES];
};

/* z of LANES channels at a position of x. */
DEVICE void NAME(pool_before)(float *z, struct NAME(raw) raw, const struct NAME(before) *before, bool has_scale,
			      enum device_activation activation)
{
	NAME(unpack)(z, raw);
	if (!has_scale)
		return;
	UNROLL
	for (int i = 0; i < LANES; i++)
		z[i] = norm_activate(before->scale[i] * z[i] + before->bias[i], activation);
}

KERNEL(NAME(pool_max), struct pool_max, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;
	struct NAME(before) before;

	NAME(vector)(before.scale, a.scale, here.channel, 1);
	NAME(vector)(before.bias, a.bias, here.channel, 0);
	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		float largest[LANES];
		uint32_t index[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++) {
			largest[i] = -INFINITY;
			index[i] = window.first;
		}
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t from = window.s_first; from < window.s_last; from += POOL_AHEAD) {
				struct NAME(raw) raw[POOL_AHEAD];

				UNROLL
				for (uint32_t k = 0; k < POOL_AHEAD; k++)
					if (from + k < window.s_last)
						raw[k] = NAME(load)(a.x, (line + (window.w + from + k)) * s->channels +
										 here.channel);
				UNROLL
				for (uint32_t k = 0; k < POOL_AHEAD; k++) {
					float z[LANES];

					if (from + k >= window.s_last)
						continue;
					NAME(pool_before)(z, raw[k], &before, a.scale, a.activation);
					UNROLL
					for (int i = 0; i < LANES; i++) {
						/* the first NaN stays */
						bool better = z[i] > largest[i] || (z[i] != z[i] && largest[i] == largest[i]);

						largest[i] = better ? z[i] : largest[i];
						index[i] = better ? r * s->window + from + k : index[i];
					}
				}
			}
		}
		NAME(store)(a.y, row * s->channels + here.channel, largest);
		if (a.index)
			NAME(store_bytes)(a.index, row * s->channels + here.channel, index);
	}
}

/* g = sum of dy (+ dy2) over the windows that hold the position and have their maximum there. */
DEVICE void NAME(pool_gather)(float *g, const struct pool_shape *s, uint32_t position, uint32_t channel,
			      const void *dy, const void *dy2, const uint8_t *index)
{
	struct pool_cover cover = pool_cover_of_input(s, position);

	UNROLL
	for (int i = 0; i < LANES; i++)
		g[i] = 0;
	for (uint32_t p = cover.p_first; p < cover.p_last; p++) {
		for (uint32_t q = cover.q_first; q < cover.q_last; q++) {
			uint64_t at = (((uint64_t)cover.image * s->p + p) * s->q + q) * s->channels + channel;
			uint32_t own = (cover.h + s->pad - p * s->stride) * s->window + cover.w + s->pad - q * s->stride;
			uint32_t index_of[LANES];
			float v[LANES];

			NAME(load_bytes)(index_of, index, at);
			NAME(unpack)(v, NAME(load)(dy, at));
			UNROLL
			for (int i = 0; i < LANES; i++)
				g[i] += index_of[i] == own ? v[i] : 0;
			if (!dy2)
				continue;
			NAME(unpack)(v, NAME(load)(dy2, at));
			UNROLL
			for (int i = 0; i < LANES; i++)
				g[i] += index_of[i] == own ? v[i] : 0;
		}
	}
}

KERNEL(NAME(pool_max_backward), struct pool_max_backward, a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
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
	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		uint64_t at = row * s->channels + here.channel;
		float g[LANES], v[LANES], x[LANES];
		uint32_t index[LANES];

		NAME(load_bytes)(index, a.index, at);
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
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t from = window.s_first; from < window.s_last; from += POOL_AHEAD) {
				struct NAME(raw) raw[POOL_AHEAD];

				UNROLL
				for (uint32_t k = 0; k < POOL_AHEAD; k++)
					if (from + k < window.s_last)
						raw[k] = NAME(load)(a.x, (line + (window.w + from + k)) * s->channels +
										 here.channel);
				UNROLL
				for (uint32_t k = 0; k < POOL_AHEAD; k++) {
					if (from + k >= window.s_last)
						continue;
					NAME(unpack)(v, raw[k]);
					UNROLL
					for (int i = 0; i < LANES; i++)
						x[i] = index[i] == r * s->window + from + k ? v[i] : x[i];
				}
			}
		}
		UNROLL
		for (int i = 0; i < LANES; i++) {
			float dz = norm_through(g[i], scale[i] * x[i] + bias[i], a.activation);

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
	for (uint64_t row = here.first; row < k.columns.rows; row = pool_next(row, &here.first, here.turn, &k.columns)) {
		struct NAME(raw) raw = NAME(load)(k.x, row * k.shape.channels + here.channel);
		float g[LANES], x[LANES];

		NAME(pool_gather)(g, &k.shape, (uint32_t)row, here.channel, k.dy, k.dy2, k.index);
		NAME(unpack)(x, raw);
		UNROLL
		for (int i = 0; i < LANES; i++) {
			float dz = norm_through(g[i], scale[i] * x[i] + bias[i], k.activation);

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

	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
		struct pool_window window = pool_window_of_output(s, (uint32_t)row);
		float sum[LANES], v[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++)
			sum[i] = 0;
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t k = window.s_first; k < window.s_last; k++) {
				NAME(unpack)(v, NAME(load)(a.from, (line + (window.w + k)) * s->channels + here.channel));
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

	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
		struct pool_cover cover = pool_cover_of_input(s, (uint32_t)row);
		float sum[LANES], v[LANES];

		UNROLL
		for (int i = 0; i < LANES; i++)
			sum[i] = 0;
		for (uint32_t p = cover.p_first; p < cover.p_last; p++) {
			for (uint32_t q = cover.q_first; q < cover.q_last; q++) {
				uint64_t at = ((uint64_t)cover.image * s->p + p) * s->q + q;
				struct pool_window window = pool_window_of_output(s, (uint32_t)at);

				NAME(unpack)(v, NAME(load)(a.from, at * s->channels + here.channel));
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
		for (uint32_t first = here.line; first < a.positions; first += COLUMNS_UNROLL * a.columns.height) {
			struct NAME(raw) raw[COLUMNS_UNROLL];

			UNROLL
			for (int u = 0; u < COLUMNS_UNROLL; u++)
				if (first + u * a.columns.height < a.positions)
					raw[u] = NAME(load)(a.from, (base + first + u * a.columns.height) * a.channels +
									    here.channel);
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
		for (uint32_t position = here.line; position < a.positions; position += a.columns.height) {
			float v[LANES];

			NAME(unpack)(v, NAME(load)(a.from, (base + position) * a.channels + here.channel));
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

	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
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

	for (uint64_t row = here.first; row < a.columns.rows; row = pool_next(row, &here.first, here.turn, &a.columns)) {
		uint32_t image = (uint32_t)row / a.positions, position = (uint32_t)row - image * a.positions;
		uint64_t at = (uint64_t)image * a.channels + here.channel;
		float v[LANES];

		NAME(unpack)(v, NAME(load)(a.from, at));
		UNROLL
		for (int i = 0; i < LANES; i++)
			v[i] = a.index[at + i] == position ? v[i] : 0;
		NAME(store)(a.to, row * a.channels + here.channel, v);
	}
}
