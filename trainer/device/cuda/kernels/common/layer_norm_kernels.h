/* Kernels of layer_norm.cu, for one instance. */

/* Loads up to PACKS packs of a row, at `channel` and every `step` channels after it. */
DEVICE void NAME(load_part)(struct NAME(raw) * raw, const void *from, uint64_t row,
			    uint32_t channels, uint32_t channel, uint32_t step)
{
	EACH_IF(u, PACKS, channel + u * step < channels)
		raw[u] = NAME(load)(from, row * channels + channel + u * step);
}

DEVICE void NAME(layer_norm_row)(const struct norm_arguments *a, struct row_place here)
{
	const uint32_t step = here.threads * LANES, turn = step * PACKS;
	const uint32_t first = here.thread * LANES;
	/* the row exceeds the registers and must be reread */
	const bool again = a->channels > turn;
	struct NAME(raw) raw[PACKS];
	float v[LANES], gamma[LANES], beta[LANES], sum = 0, squares = 0, mean, deviation;

	for (uint32_t c = first; c < a->channels; c += turn) {
		NAME(load_part)(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			NAME(unpack)(v, raw[u]);
			EACH(i, LANES)
				sum += v[i];
		}
	}
	mean = row_sum(sum, here.threads) / (float)a->channels;
	for (uint32_t c = first; c < a->channels; c += turn) {
		if (again)
			NAME(load_part)(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			NAME(unpack)(v, raw[u]);
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
			NAME(load_part)(raw, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			uint32_t channel = c + u * step;

			NAME(unpack)(v, raw[u]);
			NAME(vector)(gamma, a->gamma, channel, 1);
			NAME(vector)(beta, a->beta, channel, 0);
			EACH(i, LANES)
				v[i] = (v[i] - mean) * deviation * gamma[i] + beta[i];
			NAME(store)(a->y, here.row * a->channels + channel, v);
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(layer_norm)(const __grid_constant__ struct norm_arguments a)
{
	const struct row_place here = row_of_warp();

	if (here.row < a.rows)
		NAME(layer_norm_row)(&a, here);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(layer_norm_wide)(const __grid_constant__ struct norm_arguments a)
{
	NAME(layer_norm_row)(&a, row_of_block());
}

/* Computes g = dy gamma and xhat. */
DEVICE void NAME(layer_norm_terms)(float *g, float *xhat, struct NAME(raw) dy, struct NAME(raw) x,
				   const struct norm_arguments *a, uint32_t channel, float mean,
				   float deviation)
{
	float gamma[LANES];

	NAME(unpack)(g, dy);
	NAME(unpack)(xhat, x);
	NAME(vector)(gamma, a->gamma, channel, 1);
	EACH(i, LANES) {
		g[i] *= gamma[i];
		xhat[i] = (xhat[i] - mean) * deviation;
	}
}

DEVICE void NAME(layer_norm_backward_row)(const struct norm_arguments *a, struct row_place here)
{
	const uint32_t step = here.threads * LANES, turn = step * PACKS;
	const uint32_t first = here.thread * LANES;
	const bool again = a->channels > turn;
	const float mean = a->mean[here.row], deviation = a->deviation[here.row];
	struct NAME(raw) dy[PACKS], x[PACKS];
	float g[LANES], xhat[LANES], sum = 0, products = 0;

	for (uint32_t c = first; c < a->channels; c += turn) {
		NAME(load_part)(dy, a->dy, here.row, a->channels, c, step);
		NAME(load_part)(x, a->x, here.row, a->channels, c, step);
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			NAME(layer_norm_terms)
			(g, xhat, dy[u], x[u], a, c + u * step, mean, deviation);
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
			NAME(load_part)(dy, a->dy, here.row, a->channels, c, step);
			NAME(load_part)(x, a->x, here.row, a->channels, c, step);
		}
		EACH_IF(u, PACKS, c + u * step < a->channels) {
			uint32_t channel = c + u * step;

			NAME(layer_norm_terms)(g, xhat, dy[u], x[u], a, channel, mean, deviation);
			EACH(i, LANES)
				g[i] = deviation * (g[i] - sum - xhat[i] * products);
			NAME(store)(a->dx, here.row * a->channels + channel, g);
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(layer_norm_backward)(const __grid_constant__ struct norm_arguments a)
{
	const struct row_place here = row_of_warp();

	if (here.row < a.rows)
		NAME(layer_norm_backward_row)(&a, here);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(layer_norm_backward_wide)(const __grid_constant__ struct norm_arguments a)
{
	NAME(layer_norm_backward_row)(&a, row_of_block());
}

/* Sums dy and dy xhat over rows. */
static __global__ void __launch_bounds__(KERNEL_THREADS, LAYER_NORM_SUMS_RESIDENT)
	NAME(layer_norm_sums)(const __grid_constant__ struct norm_arguments a)
{
	const struct NAME(place) here = NAME(place)(&a.columns);
	float sum[LANES], products[LANES];

	NAME(fill)(sum, 0);
	NAME(fill)(products, 0);
	for (uint64_t first = here.first; first < a.rows; first += here.turn) {
		uint64_t at = first * a.channels + here.channel;
		struct NAME(raw) raw[COLUMNS_UNROLL], raw_x[COLUMNS_UNROLL];

		EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.rows) {
			raw[u] = NAME(load)(a.dy, at + u * here.step);
			raw_x[u] = NAME(load)(a.x, at + u * here.step);
		}
		EACH_IF(u, COLUMNS_UNROLL, first + u * a.columns.height < a.rows) {
			uint64_t row = first + u * a.columns.height;
			float dy[LANES], x[LANES], mean = a.mean[row], deviation = a.deviation[row];

			NAME(unpack)(dy, raw[u]);
			NAME(unpack)(x, raw_x[u]);
			EACH(i, LANES) {
				sum[i] += dy[i];
				products[i] += dy[i] * ((x[i] - mean) * deviation);
			}
		}
	}
	NAME(leave_sums)(&a.columns, &here, sum, products, true, a.partial);
}
