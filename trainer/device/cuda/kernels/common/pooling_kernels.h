/* Window pooling kernels of pooling.cu, for one instance. */

/* ---- maxima over windows ---- */

/* A group of LANES channels as 32-bit words: two channels per word for 16-bit vectors, else one. */
#if LANES == 8
#define WORDS    4
#define SPREAD   0x10001u /* replicates a number below 2^16 to each channel of a word */
#define LOWEST   (ELEMENT == CUDA_F16 ? 0xfc00fc00 : 0xff80ff80) /* minus infinity */
#define LOW_SIGN 0x8000u
#else
#define WORDS    LANES
#define SPREAD   1u
#define LOWEST   0xff800000
#define LOW_SIGN 0x80000000u
#endif

DEVICE uint32_t NAME(word)(const struct NAME(raw) * raw, int i)
{
#if LANES == 1
	return kernel_to_bits(raw->value);
#else
	return raw->pack.word[i];
#endif
}

DEVICE struct NAME(raw) NAME(of_words)(const uint32_t *words)
{
	struct NAME(raw) raw;

#if LANES == 1
	raw.value = kernel_from_bits(words[0]);
#else
	EACH(i, WORDS)
		raw.pack.word[i] = words[i];
#endif
	return raw;
}

DEVICE uint32_t NAME(larger)(uint32_t a, uint32_t b)
{
#if LANES == 8
	return ELEMENT == CUDA_F16 ? kernel_larger_f16x2(a, b) : kernel_larger_bf16x2(a, b);
#else
	return kernel_larger(a, b);
#endif
}

DEVICE uint32_t NAME(greater)(uint32_t a, uint32_t b)
{
#if LANES == 8
	return ELEMENT == CUDA_F16 ? kernel_greater_f16x2(a, b) : kernel_greater_bf16x2(a, b);
#else
	return kernel_greater(a, b);
#endif
}

/* Sets all bits of the channels whose numbers are equal. Numbers must be below 1024. */
DEVICE uint32_t NAME(equal)(uint32_t a, uint32_t b)
{
#if LANES == 8
	return kernel_equal_u16x2(a, b);
#else
	return a == b ? 0xffffffff : 0;
#endif
}

/* Extracts channel i from the words. */
DEVICE uint32_t NAME(of_channel)(const uint32_t *words, int i)
{
#if LANES == 8
	return words[i / 2] >> 16 * (i % 2) & 0xffff;
#else
	return words[i];
#endif
}

/* Index in the window of the part's position k, replicated to each channel of a word. */
DEVICE uint32_t NAME(part_place)(const struct pool_part *part, uint32_t side, uint32_t k,
				 const struct pool_shape *s)
{
	return (part->r * s->window + part->s) * SPREAD +
	       (k / side * s->window + k % side) * SPREAD;
}

/* Loads a part. `fill` replaces positions outside the part. */
DEVICE void NAME(load_part)(struct NAME(raw) * raw, const struct pool_part *part, uint32_t side,
			    const struct pool_window *window, const struct pool_shape *s,
			    const void *x, uint32_t channel, const uint32_t *fill)
{
	uint64_t at = pool_element(window, s, part->r, part->s, channel);

	EACH(k, side * side) {
		raw[k] = NAME(of_words)(fill);
		if (k / side < part->rows && k % side < part->columns)
			raw[k] = NAME(load)(x, at + (k / side * s->w + k % side) * s->channels);
	}
}

/* Finds the index of the first NaN of z, for channels that have one. */
DEVICE void NAME(find_nans)(uint32_t *index, const struct pool_window *window,
			    const struct pool_shape *s, const void *x, uint32_t channel,
			    const float *scale, const float *bias)
{
	/* backwards, so the first one is stored last */
	for (uint32_t place = s->window * s->window; place--;) {
		uint32_t r = place / s->window, column = place - r * s->window;
		float v[LANES];

		if (r < window->r_first || r >= window->r_last || column < window->s_first ||
		    column >= window->s_last)
			continue;
		NAME(unpack)(v, NAME(load)(x, pool_element(window, s, r, column, channel)));
		EACH(i, LANES) {
			float z = scale[i] * v[i] + bias[i];

			index[i] = z != z ? place : index[i];
		}
	}
}

/*
 * Scales the maximum and stores it with its index. `best` is the maximum of x, or of -x where scale
 * is negative; `place` is its index. If all values are equal after scale or ReLU, the window's
 * first position wins.
 */
DEVICE void NAME(finish_max)(const struct pool_arguments *a, const struct pool_window *window,
			     uint64_t row, uint32_t channel, const uint32_t *best,
			     const uint32_t *place)
{
	bool relu = a->scale && a->activation == DEVICE_RELU, nan = false;
	uint64_t at = row * a->shape.channels + channel;
	float scale[LANES], bias[LANES], z[LANES];
	uint32_t index[LANES];

	NAME(vector)(scale, a->scale, channel, 1);
	NAME(vector)(bias, a->bias, channel, 0);
	NAME(unpack)(z, NAME(of_words)(best));
	EACH(i, LANES) {
		/* best is the maximum of x times the sign of scale */
		z[i] = fabsf(scale[i]) * z[i] + bias[i];
		index[i] = NAME(of_channel)(place, i);
		if (scale[i] == 0 || (relu && z[i] <= 0))
			index[i] = window->first;
		z[i] = relu ? slope_relu(z[i]) : z[i];
		nan = nan || z[i] != z[i];
	}
	if (nan)
		NAME(find_nans)(index, window, &a->shape, a->x, channel, scale, bias);
	NAME(store)(a->y, at, z);
	if (a->index)
		NAME(store_bytes)(a->index, at, index);
}

DEVICE void NAME(take_larger)(uint32_t *best, uint32_t *place, const struct NAME(raw) * raw,
			      const uint32_t *flip, uint32_t own)
{
	EACH(i, WORDS) {
		uint32_t x = NAME(word)(raw, i) ^ flip[i], better = NAME(greater)(x, best[i]);

		best[i] = NAME(larger)(x, best[i]);
		place[i] = (own & better) | (place[i] & ~better);
	}
}

/* Finds the maximum of the raw x, two channels at a time, and scales it afterwards. */
DEVICE void NAME(pool_max_rows)(const struct pool_arguments *a, uint32_t side)
{
	struct NAME(place) here = NAME(place)(&a->columns);
	const struct pool_shape *s = &a->shape;
	uint32_t flip[WORDS], lowest[WORDS];
	float scale[LANES];

	NAME(vector)(scale, a->scale, here.channel, 1);
	EACH(i, WORDS)
		flip[i] = 0;
	EACH(i, LANES)
		flip[i * WORDS / LANES] |=
			scale[i] < 0 ? LOW_SIGN << 16 * (i % (LANES / WORDS)) : 0;
	EACH(i, WORDS)
		lowest[i] = LOWEST ^ flip[i];
	POOL_ROWS(row, here, a->columns) {
		struct pool_window window = pool_window_of_output(s, &a->by, (uint32_t)row);
		struct pool_part part = pool_first_part(&window, side);
		uint32_t best[WORDS], place[WORDS];

		EACH(i, WORDS) {
			best[i] = LOWEST;
			place[i] = window.first * SPREAD;
		}
		for (; part.rows; part = pool_next_part(&part, &window, side)) {
			struct NAME(raw) raw[POOL_AHEAD];

			NAME(load_part)(raw, &part, side, &window, s, a->x, here.channel, lowest);
			EACH(k, side * side)
				NAME(take_larger)
			(best, place, &raw[k], flip, NAME(part_place)(&part, side, k, s));
		}
		NAME(finish_max)(a, &window, row, here.channel, best, place);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_max)(const __grid_constant__ struct pool_arguments a)
{
	NAME(pool_max_rows)(&a, POOL_SIDE);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 3)
	NAME(pool_max_pairs)(const __grid_constant__ struct pool_arguments a)
{
	NAME(pool_max_rows)(&a, 2);
}

/* g += v in channels whose maximum in that window is at index `own`. */
DEVICE void NAME(add_where)(float *g, const float *v, const struct NAME(raw_bytes) * places,
			    uint32_t own)
{
	struct NAME(raw_bytes) differ = *places;

	/* bytes are zero where equal, which one instruction can test */
#if LANES == 8
	differ.pack.word[0] ^= own * 0x01010101;
	differ.pack.word[1] ^= own * 0x01010101;
#else
	differ.word ^= own * 0x01010101;
#endif
	EACH_IF(i, LANES, !NAME(byte)(&differ, i))
		g[i] += v[i];
}

/* dy + dy2 */
DEVICE void NAME(sum_of_both)(float *v, struct NAME(raw) dy, struct NAME(raw) dy2, bool two)
{
	float w[LANES];

	NAME(unpack)(v, dy);
	if (!two)
		return;
	NAME(unpack)(w, dy2);
	NAME(add)(v, w);
}

/* Windows (p, q), (p, q + 1), (p + 1, q), (p + 1, q + 1), where they exist. */
struct NAME(windows) {
	struct NAME(raw) dy[4], dy2[4];
	struct NAME(raw_bytes) places[4];
	bool there[4];
};

/*
 * `at` is the element of dy for window (p, q). `rows` and `columns` count the existing windows from
 * p and q on.
 */
DEVICE void NAME(load_windows)(struct NAME(windows) * w, const struct pool_shape *s, uint64_t at,
			       uint32_t rows, uint32_t columns, const void *dy, const void *dy2,
			       const uint8_t *index)
{
	EACH(k, 4) {
		uint64_t own = at + (k / 2 * s->q + k % 2) * s->channels;

		w->there[k] = k / 2 < rows && k % 2 < columns;
		if (!w->there[k])
			continue;
		w->places[k] = NAME(load_bytes)(index, own);
		w->dy[k] = NAME(load)(dy, own);
		if (dy2)
			w->dy2[k] = NAME(load)(dy2, own);
	}
}

/*
 * g = sum of dy (+ dy2) over the windows that contain the position and have their maximum there.
 * Handles four windows at once, which is all of them if the stride is at least half the window.
 */
DEVICE void NAME(pool_gather)(float *g, const struct pool_shape *s, const struct pool_dividers *by,
			      uint32_t position, uint32_t channel, const void *dy, const void *dy2,
			      const uint8_t *index)
{
	struct pool_cover cover = pool_cover_of_input(s, by, position);

	NAME(fill)(g, 0);
	for (uint32_t p = cover.p_first; p < cover.p_last; p += 2) {
		for (uint32_t q = cover.q_first; q < cover.q_last; q += 2) {
			uint64_t at = pool_output(&cover, p, q, s) * s->channels + channel;
			uint32_t own = pool_place(&cover, p, q, s);
			struct NAME(windows) w;

			NAME(load_windows)
			(&w, s, at, cover.p_last - p, cover.q_last - q, dy, dy2, index);
			EACH_IF(k, 4, w.there[k]) {
				float v[LANES];

				NAME(sum_of_both)(v, w.dy[k], w.dy2[k], dy2);
				NAME(add_where)
				(g, v, &w.places[k], own - (k / 2 * s->window + k % 2) * s->stride);
			}
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 3)
	NAME(pool_max_backward)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);

	POOL_ROWS(row, here, a.columns) {
		float g[LANES];

		NAME(pool_gather)
		(g, &a.shape, &a.by, (uint32_t)row, here.channel, a.dy, a.dy2, a.index);
		NAME(store)(a.dx, row * a.shape.channels + here.channel, g);
	}
}

/*
 * Loads the four windows of a tile; `first` is the element of dy for the tile's first window. A
 * missing window loads the first one instead and is marked as missing.
 */
DEVICE void NAME(load_tile)(struct NAME(windows) * w, const struct pool_shape *s,
			    const struct pool_tile *t, uint64_t first, const void *dy,
			    const void *dy2, const uint8_t *index)
{
	EACH(k, 4) {
		bool there = t->p + k / 2 < s->p && t->q + k % 2 < s->q;
		uint64_t own = first + (there ? (k / 2 * s->q + k % 2) * s->channels : 0);

		w->places[k] = NAME(load_bytes)(index, own);
		w->dy[k] = NAME(load)(dy, own);
		if (dy2)
			w->dy2[k] = NAME(load)(dy2, own);
		w->there[k] = there;
	}
}

/* Computes g for a tile's four positions. */
DEVICE void NAME(tile_gather)(float g[4][LANES], const struct NAME(windows) * w, bool two)
{
	EACH(k, 4)
		NAME(fill)(g[k], 0);
	EACH(j, 4) {
		float v[LANES];

		NAME(sum_of_both)(v, w->dy[j], w->dy2[j], two);
		EACH_IF(k, 4, j / 2 <= k / 2 && j % 2 <= k % 2)
			NAME(add_where)
		(g[k], v, &w->places[j],
		 w->there[j] ? (k / 2 + 1 - j / 2 * 2) * 3 + k % 2 + 1 - j % 2 * 2 : 0xff);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_max_backward_tiles)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.columns) {
		struct pool_tile t = pool_tile_of(s, &a.by, (uint32_t)row, here.channel);
		struct NAME(windows) w;
		float g[4][LANES];

		NAME(load_tile)(&w, s, &t, row * s->channels + here.channel, a.dy, a.dy2, a.index);
		NAME(tile_gather)(g, &w, a.dy2);
		EACH_IF(k, 4, pool_tile_has(&t, k, s))
			NAME(store)(a.dx, pool_tile_element(&t, k, s), g[k]);
	}
}

/*
 * For adjacent 2 x 2 windows: each position is in exactly one window, or in none if x ends with
 * half a tile.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 6)
	NAME(pool_max_backward_pairs)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.columns) {
		struct pool_tile t = pool_tile_of(s, &a.by, (uint32_t)row, here.channel);
		bool there = t.p < s->p && t.q < s->q;
		uint64_t line = (uint64_t)t.image * s->p + (there ? t.p : 0);
		uint64_t own = (line * s->q + (there ? t.q : 0)) * s->channels + here.channel;
		struct NAME(raw_bytes) places = NAME(load_bytes)(a.index, own);
		struct NAME(raw) dy = NAME(load)(a.dy, own), dy2 = dy;
		float v[LANES];

		if (a.dy2)
			dy2 = NAME(load)(a.dy2, own);
		NAME(sum_of_both)(v, dy, dy2, a.dy2);
		EACH_IF(k, 4, pool_tile_has(&t, k, s)) {
			float g[LANES];

			NAME(fill)(g, 0);
			NAME(add_where)(g, v, &places, there ? k : 0xff);
			NAME(store)(a.dx, pool_tile_element(&t, k, s), g);
		}
	}
}

/*
 * Loads x at each channel's maximum by scanning all positions of the window; neighbouring threads
 * share the cache lines. A position outside the part is never a maximum, or is covered by a later
 * part.
 */
DEVICE void NAME(load_places)(float *x, const struct pool_arguments *a,
			      const struct pool_window *window, uint32_t channel,
			      const struct NAME(raw_bytes) * places)
{
	struct pool_part part = pool_first_part(window, POOL_SIDE);
	uint32_t words[WORDS], own[WORDS], zero[WORDS];

	EACH(i, WORDS)
		words[i] = own[i] = zero[i] = 0;
	EACH(i, LANES)
		own[i * WORDS / LANES] |= NAME(byte)(places, i) << 16 * (i % (LANES / WORDS));
	for (; part.rows; part = pool_next_part(&part, window, POOL_SIDE)) {
		struct NAME(raw) raw[POOL_AHEAD];

		NAME(load_part)(raw, &part, POOL_SIDE, window, &a->shape, a->x, channel, zero);
		EACH(k, POOL_AHEAD) {
			uint32_t place = NAME(part_place)(&part, POOL_SIDE, k, &a->shape);

			EACH(i, WORDS) {
				uint32_t here = NAME(equal)(own[i], place);

				words[i] = (NAME(word)(&raw[k], i) & here) | (words[i] & ~here);
			}
		}
	}
	NAME(unpack)(x, NAME(of_words)(words));
}

static __global__ void __launch_bounds__(KERNEL_THREADS, POOL_REDUCE_RESIDENT)
	NAME(pool_max_norm_reduce)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;
	float sum[LANES], products[LANES];

	NAME(fill)(sum, 0);
	NAME(fill)(products, 0);
	POOL_ROWS(row, here, a.columns) {
		struct pool_window window = pool_window_of_output(s, &a.by, (uint32_t)row);
		uint64_t at = row * s->channels + here.channel;
		struct NAME(raw_bytes) places = NAME(load_bytes)(a.index, at);
		struct NAME(raw) dy = NAME(load)(a.dy, at), dy2 = dy;
		float scale[LANES], bias[LANES], mean[LANES], g[LANES], x[LANES];

		if (a.dy2)
			dy2 = NAME(load)(a.dy2, at);
		NAME(load_places)(x, &a, &window, here.channel, &places);
		NAME(sum_of_both)(g, dy, dy2, a.dy2);
		/* reload for each window: no registers are free while the window is loaded */
		NAME(vector)(scale, a.scale, here.channel, 1);
		NAME(vector)(bias, a.bias, here.channel, 0);
		NAME(vector)(mean, a.mean, here.channel, 0);
		EACH(i, LANES) {
			float z = scale[i] * x[i] + bias[i];
			float dz = pool_through(g[i], z, a.activation);

			sum[i] += dz;
			products[i] += dz * (x[i] - mean[i]);
		}
	}
	NAME(leave_sums)(&a.columns, &here, sum, products, true, a.partial);
}

/* Per-channel vectors for computing dx = a dz + b x + c from g and x. */
struct NAME(pool_affine) {
	float scale[LANES], bias[LANES], a[LANES], b[LANES], c[LANES];
};

DEVICE void NAME(load_affine)(struct NAME(pool_affine) * v, const struct pool_arguments *k,
			      uint32_t channel)
{
	NAME(vector)(v->scale, k->scale, channel, 1);
	NAME(vector)(v->bias, k->bias, channel, 0);
	NAME(vector)(v->a, k->a, channel, 0);
	NAME(vector)(v->b, k->b, channel, 0);
	NAME(vector)(v->c, k->c, channel, 0);
}

DEVICE void NAME(store_through)(const struct pool_arguments *k, uint64_t at, float *g,
				struct NAME(raw) raw, const struct NAME(pool_affine) * v)
{
	float x[LANES];

	NAME(unpack)(x, raw);
	EACH(i, LANES) {
		float z = v->scale[i] * x[i] + v->bias[i];
		float dz = pool_through(g[i], z, k->activation);

		g[i] = v->a[i] * dz + (v->b[i] * x[i] + v->c[i]);
	}
	NAME(store)(k->dx, at, g);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_max_norm_apply)(const __grid_constant__ struct pool_arguments k)
{
	struct NAME(place) here = NAME(place)(&k.columns);
	struct NAME(pool_affine) affine;

	NAME(load_affine)(&affine, &k, here.channel);
	POOL_ROWS(row, here, k.columns) {
		uint64_t at = row * k.shape.channels + here.channel;
		struct NAME(raw) raw = NAME(load)(k.x, at);
		float g[LANES];

		NAME(pool_gather)
		(g, &k.shape, &k.by, (uint32_t)row, here.channel, k.dy, k.dy2, k.index);
		NAME(store_through)(&k, at, g, raw, &affine);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_max_norm_apply_tiles)(const __grid_constant__ struct pool_arguments k)
{
	struct NAME(place) here = NAME(place)(&k.columns);
	const struct pool_shape *s = &k.shape;

	POOL_ROWS(row, here, k.columns) {
		struct pool_tile t = pool_tile_of(s, &k.by, (uint32_t)row, here.channel);
		struct NAME(pool_affine) affine;
		struct NAME(raw) raw[4];
		struct NAME(windows) w;
		float g[4][LANES];

		EACH(j, 4)
			raw[j] = NAME(load)(k.x, pool_tile_element(&t, j, s));
		NAME(load_tile)(&w, s, &t, row * s->channels + here.channel, k.dy, k.dy2, k.index);
		NAME(tile_gather)(g, &w, k.dy2);
		/* reload for each tile: no registers are free while the windows are loaded */
		NAME(load_affine)(&affine, &k, here.channel);
		EACH_IF(j, 4, pool_tile_has(&t, j, s))
			NAME(store_through)
		(&k, pool_tile_element(&t, j, s), g[j], raw[j], &affine);
	}
}

#undef WORDS
#undef SPREAD
#undef LOWEST
#undef LOW_SIGN

/* ---- means over windows ---- */

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_average)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.columns) {
		struct pool_window window = pool_window_of_output(s, &a.by, (uint32_t)row);
		float sum[LANES], v[LANES];

		NAME(fill)(sum, 0);
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t k = window.s_first; k < window.s_last; k++) {
				uint64_t at = (line + (window.w + k)) * s->channels + here.channel;

				NAME(unpack)(v, NAME(load)(a.x, at));
				NAME(add)(sum, v);
			}
		}
		EACH(i, LANES)
			sum[i] /= (float)pool_window_count(&window);
		NAME(store)(a.y, row * s->channels + here.channel, sum);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(pool_average_backward)(const __grid_constant__ struct pool_arguments a)
{
	struct NAME(place) here = NAME(place)(&a.columns);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.columns) {
		struct pool_cover cover = pool_cover_of_input(s, &a.by, (uint32_t)row);
		float sum[LANES], v[LANES];

		NAME(fill)(sum, 0);
		for (uint32_t p = cover.p_first; p < cover.p_last; p++) {
			for (uint32_t q = cover.q_first; q < cover.q_last; q++) {
				uint64_t output = pool_output(&cover, p, q, s);
				uint64_t at = output * s->channels + here.channel;
				struct pool_window window =
					pool_window_of_output(s, &a.by, (uint32_t)output);

				NAME(unpack)(v, NAME(load)(a.dy, at));
				EACH(i, LANES)
					sum[i] += v[i] / (float)pool_window_count(&window);
			}
		}
		NAME(store)(a.dx, row * s->channels + here.channel, sum);
	}
}

#include "trainer/device/cuda/kernels/common/pooling_global_kernels.h"
