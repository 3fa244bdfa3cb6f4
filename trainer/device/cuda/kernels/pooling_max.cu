/* Maxima over windows: kernels and launchers of pooling.h. */
#include "trainer/device/cuda/kernels/common/activation_grad.h"
#include "trainer/device/cuda/kernels/common/pool_window.h"
#include "trainer/device/ops.h"

#define POOL_REDUCE_RESIDENT 2 /* blocks of the reducing kernel that fit on a multiprocessor */

/*
 * A thread loads `side` x `side` positions of a window before it uses the first one; most of them
 * are also loaded by neighbouring threads. `side` is a compile-time constant: 2 if no window is
 * larger, else POOL_SIDE.
 */
#define POOL_SIDE  3
#define POOL_AHEAD (POOL_SIDE * POOL_SIDE)

/*
 * Positions of a window that are loaded together: some columns of one row, or some whole rows. The
 * parts of a window follow in row-major order.
 */
struct pool_part {
	uint32_t r, s;          /* first position, relative to the window */
	uint32_t rows, columns; /* at most `side`; rows is 0 after the last part */
};

DEVICE struct pool_part pool_part_at(const struct pool_window *window, uint32_t side, uint32_t r,
				     uint32_t s)
{
	bool narrow = window->s_last - window->s_first <= side;
	uint32_t rows = window->r_last - r, columns = window->s_last - s, max = narrow ? side : 1;
	struct pool_part part;

	part.r = r;
	part.s = s;
	part.rows = rows < max ? rows : max;
	part.columns = columns < side ? columns : side;
	return part;
}

DEVICE struct pool_part pool_first_part(const struct pool_window *window, uint32_t side)
{
	return pool_part_at(window, side, window->r_first, window->s_first);
}

DEVICE struct pool_part pool_next_part(const struct pool_part *part,
				       const struct pool_window *window, uint32_t side)
{
	if (part->s + part->columns < window->s_last)
		return pool_part_at(window, side, part->r, part->s + part->columns);
	return pool_part_at(window, side, part->r + part->rows, window->s_first);
}

/* A group of channels as 32-bit words: two channels per word for 16-bit vectors, else one. */
template <typename V> struct word_layout {
	static constexpr uint32_t COUNT = V::LANES == 8 ? 4 : V::LANES;
	/* channels of a word */
	static constexpr uint32_t CHANNELS = V::LANES / COUNT;
	/* replicates a number below 2^16 to each channel of a word */
	static constexpr uint32_t SPREAD = CHANNELS == 2 ? 0x10001 : 1;
	/* minus infinity in each channel */
	static constexpr uint32_t LOWEST = CHANNELS == 1            ? 0xff800000
					   : V::ELEMENT == CUDA_F16 ? 0xfc00fc00
								    : 0xff80ff80;
	static constexpr uint32_t LOW_SIGN = CHANNELS == 2 ? 0x8000 : 0x80000000;
};

template <typename V> DEVICE uint32_t word(const V *raw, uint32_t i)
{
	if constexpr (V::LANES == 1)
		return kernel_to_bits(raw->value);
	else
		return raw->pack.word[i];
}

template <typename V> DEVICE V of_words(const uint32_t *words)
{
	V raw;

	if constexpr (V::LANES == 1) {
		raw.value = kernel_from_bits(words[0]);
	} else {
		EACH(i, 4)
			raw.pack.word[i] = words[i];
	}
	return raw;
}

template <typename V> DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
	if constexpr (V::LANES == 8)
		return V::ELEMENT == CUDA_F16 ? kernel_larger_f16x2(a, b)
					      : kernel_larger_bf16x2(a, b);
	else
		return kernel_larger(a, b);
}

template <typename V> DEVICE uint32_t greater(uint32_t a, uint32_t b)
{
	if constexpr (V::LANES == 8)
		return V::ELEMENT == CUDA_F16 ? kernel_greater_f16x2(a, b)
					      : kernel_greater_bf16x2(a, b);
	else
		return kernel_greater(a, b);
}

/*
 * Returns words with all bits set in channels where a equals b. Channel values must be below 1024.
 */
template <typename V> DEVICE uint32_t equal(uint32_t a, uint32_t b)
{
	if constexpr (V::LANES == 8)
		return kernel_equal_u16x2(a, b);
	else
		return a == b ? 0xffffffff : 0;
}

/* Extracts channel i from the words. */
template <typename V> DEVICE uint32_t of_channel(const uint32_t *words, uint32_t i)
{
	return V::LANES == 8 ? words[i / 2] >> 16 * (i % 2) & 0xffff : words[i];
}

/* Row-major index in the window of position k of the part, replicated to each channel of a word. */
template <typename V>
DEVICE uint32_t part_place(const struct pool_part *part, uint32_t side, uint32_t k,
			   const struct pool_shape *s)
{
	return (part->r * s->window + part->s) * word_layout<V>::SPREAD +
	       (k / side * s->window + k % side) * word_layout<V>::SPREAD;
}

/* Loads a part. `fill` replaces positions outside the part. */
template <typename V>
DEVICE void load_part(V *raw, const struct pool_part *part, uint32_t side,
		      const struct pool_window *window, const struct pool_shape *s, const void *x,
		      uint32_t channel, const uint32_t *fill)
{
	uint64_t at = pool_element(window, s, part->r, part->s, channel);

	EACH(k, side * side) {
		raw[k] = of_words<V>(fill);
		if (k / side < part->rows && k % side < part->columns)
			raw[k] = load<V>(x, at + (k / side * s->w + k % side) * s->channels);
	}
}

/* Finds the index of the first NaN of z, in channels that have one. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void find_nans(uint32_t *index, const struct pool_window *window, const struct pool_shape *s,
		      const void *x, uint32_t channel, const float *scale, const float *bias)
{
	/* iterate backward, so that the first NaN is stored last */
	for (uint32_t place = s->window * s->window; place--;) {
		uint32_t r = place / s->window, column = place - r * s->window;
		float v[LANES];

		if (r < window->r_first || r >= window->r_last || column < window->s_first ||
		    column >= window->s_last)
			continue;
		unpack(v, load<V>(x, pool_element(window, s, r, column, channel)));
		EACH(i, LANES) {
			float z = scale[i] * v[i] + bias[i];

			index[i] = z != z ? place : index[i];
		}
	}
}

/*
 * Applies scale and activation to the maximum, and stores it with its index. `best` is the maximum
 * of x, or of -x in channels with a negative scale; `place` is its index. If scale or ReLU makes
 * all values of a window equal, the index becomes that of the window's first position.
 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void finish_max(const struct pool_arguments *a, const struct pool_window *window,
		       uint64_t row, uint32_t channel, const uint32_t *best, const uint32_t *place)
{
	bool activated = a->scale && a->activation == DEVICE_RELU, nan = false;
	uint64_t at = row * a->shape.channels + channel;
	float scale[LANES], bias[LANES], z[LANES];
	uint32_t index[LANES];

	load_channels(scale, a->scale, channel, 1);
	load_channels(bias, a->bias, channel, 0);
	unpack(z, of_words<V>(best));
	EACH(i, LANES) {
		/* best is the maximum of x times the sign of scale */
		z[i] = fabsf(scale[i]) * z[i] + bias[i];
		index[i] = of_channel<V>(place, i);
		if (scale[i] == 0 || (activated && z[i] <= 0))
			index[i] = window->first;
		z[i] = activated ? relu(z[i]) : z[i];
		nan = nan || z[i] != z[i];
	}
	if (nan)
		find_nans<V>(index, window, &a->shape, a->x, channel, scale, bias);
	store<V>(a->y, at, z);
	if (a->index)
		store_bytes(a->index, at, index);
}

template <typename V>
DEVICE void take_larger(uint32_t *best, uint32_t *place, const V *raw, const uint32_t *flip,
			uint32_t own)
{
	EACH(i, word_layout<V>::COUNT) {
		uint32_t x = word<V>(raw, i) ^ flip[i], better = greater<V>(x, best[i]);

		best[i] = larger<V>(x, best[i]);
		place[i] = (own & better) | (place[i] & ~better);
	}
}

/*
 * Finds the maximum of x before scale and activation, for two channels at a time, and then applies
 * these to the maximum.
 */
template <typename V, uint32_t SIDE, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, SIDE == 2 ? 3 : 2)
	pool_max_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;
	uint32_t flip[word_layout<V>::COUNT], lowest[word_layout<V>::COUNT];
	float scale[LANES];

	load_channels(scale, a.scale, here.channel, 1);
	EACH(i, word_layout<V>::COUNT)
		flip[i] = 0;
	EACH(i, LANES)
		flip[i / word_layout<V>::CHANNELS] |=
			scale[i] < 0
				? word_layout<V>::LOW_SIGN << 16 * (i % word_layout<V>::CHANNELS)
				: 0;
	EACH(i, word_layout<V>::COUNT)
		lowest[i] = word_layout<V>::LOWEST ^ flip[i];
	POOL_ROWS(row, here, a.grid) {
		struct pool_window window = pool_window_of_output(s, &a.by, (uint32_t)row);
		struct pool_part part = pool_first_part(&window, SIDE);
		uint32_t best[word_layout<V>::COUNT], place[word_layout<V>::COUNT];

		EACH(i, word_layout<V>::COUNT) {
			best[i] = word_layout<V>::LOWEST;
			place[i] = window.first * word_layout<V>::SPREAD;
		}
		for (; part.rows; part = pool_next_part(&part, &window, SIDE)) {
			V raw[POOL_AHEAD];

			load_part<V>(raw, &part, SIDE, &window, s, a.x, here.channel, lowest);
			EACH(k, SIDE * SIDE)
				take_larger<V>(best, place, &raw[k], flip,
					       part_place<V>(&part, SIDE, k, s));
		}
		finish_max<V>(&a, &window, row, here.channel, best, place);
	}
}

static bool has_maxima(const struct pool_arguments *a)
{
	return a->shape.window <= POOL_WINDOW_MAX &&
	       (a->activation == DEVICE_IDENTITY || a->activation == DEVICE_RELU);
}

int pool_max(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	const struct pool_shape *shape = &arguments->shape;
	uint64_t rows = pool_output_rows(shape);

	if (!has_maxima(arguments))
		return -EINVAL;
	return shape->window <= 2
		       ? launch_windows(device, INSTANCES(pool_max_kernel, 2), *arguments, rows)
		       : launch_windows(device, INSTANCES(pool_max_kernel, POOL_SIDE), *arguments,
					rows);
}

/* Returns dz: g, or 0 if the activation is ReLU and z <= 0. */
DEVICE float pool_through(float g, float z, enum device_activation activation)
{
	return activation != DEVICE_RELU || z > 0 ? g : 0;
}

/*
 * For stride 2, x is divided into tiles of 2 x 2 positions, numbered like the windows.
 * - 3 x 3 windows with pad 1: window (p, q) contains all of tile (p, q). Windows (p, q + 1), (p +
 *   1, q) and (p + 1, q + 1) contain two, two and one of its positions.
 * - 2 x 2 windows without pad: windows and tiles coincide. Rows and columns after the last window
 *   also have tiles.
 * by->p and by->q are the numbers of tiles along height and width.
 */
struct pool_tile {
	uint32_t image, p, q;
	uint64_t at; /* index in x of the tile's first position */
};

DEVICE struct pool_tile pool_tile_of(const struct pool_shape *s, const struct pool_dividers *by,
				     uint32_t tile, uint32_t channel)
{
	uint32_t line = kernel_divide(tile, by->q);
	struct pool_tile t;

	t.image = kernel_divide(line, by->p);
	t.p = line - t.image * by->p.divisor;
	t.q = tile - line * by->q.divisor;
	t.at = (((uint64_t)t.image * s->h + 2 * t.p) * s->w + 2 * t.q) * s->channels + channel;
	return t;
}

/* Returns false if position k of the tile is outside x. */
DEVICE bool pool_tile_has(const struct pool_tile *t, uint32_t k, const struct pool_shape *s)
{
	return 2 * t->p + k / 2 < s->h && 2 * t->q + k % 2 < s->w;
}

/* Index in x of position k of the tile; of its first position if k is outside x. */
DEVICE uint64_t pool_tile_element(const struct pool_tile *t, uint32_t k, const struct pool_shape *s)
{
	return t->at + (pool_tile_has(t, k, s) ? (k / 2 * s->w + k % 2) * s->channels : 0);
}

/* g += v in channels whose maximum in that window has index `own`. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void add_where(float (&g)[LANES], const float (&v)[LANES], const byte_vector<LANES> *places,
		      uint32_t own)
{
	byte_vector<LANES> differ = *places;

	/* XOR: a byte is zero if the indices are equal, which one instruction can test */
	EACH(w, (LANES + 3) / 4)
		differ.word[w] ^= own * 0x01010101;
	EACH_IF(i, LANES, !byte_at(differ, i))
		g[i] += v[i];
}

/* dy + dy2 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void sum_of_both(float (&v)[LANES], V dy, V dy2, bool two)
{
	float w[LANES];

	unpack(v, dy);
	if (!two)
		return;
	unpack(w, dy2);
	add(v, w);
}

/* Windows (p, q), (p, q + 1), (p + 1, q), (p + 1, q + 1), where they exist. */
template <typename V, uint32_t LANES = V::LANES> struct windows {
	V dy[4], dy2[4];
	byte_vector<LANES> places[4];
	bool there[4];
};

/*
 * Loads four windows. `at` is the index in dy of window (p, q); `rows` and `columns` are the
 * numbers of windows from p and q on that exist.
 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void load_windows(windows<V> *w, const struct pool_shape *s, uint64_t at, uint32_t rows,
			 uint32_t columns, const void *dy, const void *dy2, const uint8_t *index)
{
	EACH(k, 4) {
		uint64_t own = at + (k / 2 * s->q + k % 2) * s->channels;

		w->there[k] = k / 2 < rows && k % 2 < columns;
		if (!w->there[k])
			continue;
		w->places[k] = load_bytes<LANES>(index, own);
		w->dy[k] = load<V>(dy, own);
		if (dy2)
			w->dy2[k] = load<V>(dy2, own);
	}
}

/*
 * g = sum of dy (+ dy2) over the windows that contain the position and have their maximum there.
 * Handles four windows at once, which is all of them if the stride is at least half the window.
 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void pool_gather(float (&g)[LANES], const struct pool_shape *s,
			const struct pool_dividers *by, uint32_t position, uint32_t channel,
			const void *dy, const void *dy2, const uint8_t *index)
{
	struct pool_cover cover = pool_cover_of_input(s, by, position);

	fill(g, 0);
	for (uint32_t p = cover.p_first; p < cover.p_last; p += 2) {
		for (uint32_t q = cover.q_first; q < cover.q_last; q += 2) {
			uint64_t at = pool_output(&cover, p, q, s) * s->channels + channel;
			uint32_t own = pool_place(&cover, p, q, s);
			windows<V> w;

			load_windows<V>(&w, s, at, cover.p_last - p, cover.q_last - q, dy, dy2,
					index);
			EACH_IF(k, 4, w.there[k]) {
				float v[LANES];

				sum_of_both<V>(v, w.dy[k], w.dy2[k], dy2);
				add_where<V>(g, v, &w.places[k],
					     own - (k / 2 * s->window + k % 2) * s->stride);
			}
		}
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 3)
	pool_max_backward_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);

	POOL_ROWS(row, here, a.grid) {
		float g[LANES];

		pool_gather<V>(g, &a.shape, &a.by, (uint32_t)row, here.channel, a.dy, a.dy2,
			       a.index);
		store<V>(a.dx, row * a.shape.channels + here.channel, g);
	}
}

/*
 * Loads the four windows of a tile; `first` is the index in dy of the first one. In place of a
 * window that does not exist, loads the first one and marks it as missing.
 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void load_tile(windows<V> *w, const struct pool_shape *s, const struct pool_tile *t,
		      uint64_t first, const void *dy, const void *dy2, const uint8_t *index)
{
	EACH(k, 4) {
		bool there = t->p + k / 2 < s->p && t->q + k % 2 < s->q;
		uint64_t own = first + (there ? (k / 2 * s->q + k % 2) * s->channels : 0);

		w->places[k] = load_bytes<LANES>(index, own);
		w->dy[k] = load<V>(dy, own);
		if (dy2)
			w->dy2[k] = load<V>(dy2, own);
		w->there[k] = there;
	}
}

/* Computes g for a tile's four positions. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void tile_gather(float g[4][LANES], const windows<V> *w, bool two)
{
	EACH(k, 4)
		fill(g[k], 0);
	EACH(j, 4) {
		float v[LANES];

		sum_of_both<V>(v, w->dy[j], w->dy2[j], two);
		EACH_IF(k, 4, j / 2 <= k / 2 && j % 2 <= k % 2)
			add_where<V>(g[k], v, &w->places[j],
				     w->there[j]
					     ? (k / 2 + 1 - j / 2 * 2) * 3 + k % 2 + 1 - j % 2 * 2
					     : 0xff);
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_max_backward_tiles_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.grid) {
		struct pool_tile t = pool_tile_of(s, &a.by, (uint32_t)row, here.channel);
		windows<V> w;
		float g[4][LANES];

		load_tile<V>(&w, s, &t, row * s->channels + here.channel, a.dy, a.dy2, a.index);
		tile_gather<V>(g, &w, a.dy2);
		EACH_IF(k, 4, pool_tile_has(&t, k, s))
			store<V>(a.dx, pool_tile_element(&t, k, s), g[k]);
	}
}

/*
 * For adjacent 2 x 2 windows: each position is in exactly one window, or in none if x ends with
 * half a tile.
 */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 6)
	pool_max_backward_pairs_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.grid) {
		struct pool_tile t = pool_tile_of(s, &a.by, (uint32_t)row, here.channel);
		bool there = t.p < s->p && t.q < s->q;
		uint64_t line = (uint64_t)t.image * s->p + (there ? t.p : 0);
		uint64_t own = (line * s->q + (there ? t.q : 0)) * s->channels + here.channel;
		byte_vector<LANES> places = load_bytes<LANES>(a.index, own);
		V dy = load<V>(a.dy, own), dy2 = dy;
		float v[LANES];

		if (a.dy2)
			dy2 = load<V>(a.dy2, own);
		sum_of_both<V>(v, dy, dy2, a.dy2);
		EACH_IF(k, 4, pool_tile_has(&t, k, s)) {
			float g[LANES];

			fill(g, 0);
			add_where<V>(g, v, &places, there ? k : 0xff);
			store<V>(a.dx, pool_tile_element(&t, k, s), g);
		}
	}
}

/*
 * True for the windows of ResNet's stem (3 x 3, stride 2, pad 1), whose backward kernels iterate
 * over tiles.
 */
static bool has_tiles(const struct pool_shape *shape)
{
	return shape->window == 3 && shape->stride == 2 && shape->pad == 1 &&
	       shape->p == (shape->h + 1) / 2 && shape->q == (shape->w + 1) / 2;
}

/* True for adjacent 2 x 2 windows, whose backward kernels also iterate over tiles. */
static bool has_pairs(const struct pool_shape *shape)
{
	return shape->window == 2 && shape->stride == 2 && shape->pad == 0 &&
	       shape->p == shape->h / 2 && shape->q == shape->w / 2;
}

static int backward_pairs(const struct kernel_device *device, struct pool_arguments a)
{
	uint32_t tiles_h = (a.shape.h + 1) / 2, tiles_w = (a.shape.w + 1) / 2;

	if (!pool_fits(&a.shape))
		return -EINVAL;
	pool_cut(&a, device, (uint64_t)a.shape.n * tiles_h * tiles_w, ROW_GRID_MAP);
	a.by.p = divider_of(tiles_h);
	a.by.q = divider_of(tiles_w);
	return launch_grid(device, INSTANCES(pool_max_backward_pairs_kernel), &a);
}

/* By tiles for the stem's windows, else by positions of x. */
static int backward(const struct kernel_device *device,
		    const struct gpu_kernel (&instances)[KERNEL_INSTANCES],
		    const struct gpu_kernel (&tiles)[KERNEL_INSTANCES],
		    const struct pool_arguments *arguments)
{
	const struct pool_shape *shape = &arguments->shape;

	if (!has_maxima(arguments))
		return -EINVAL;
	if (has_tiles(shape))
		return launch_windows(device, tiles, *arguments, pool_output_rows(shape));
	return launch_windows(device, instances, *arguments, pool_input_rows(shape));
}

int pool_max_backward(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	if (has_pairs(&arguments->shape))
		return backward_pairs(device, *arguments);
	return backward(device, INSTANCES(pool_max_backward_kernel),
			INSTANCES(pool_max_backward_tiles_kernel), arguments);
}

/*
 * Loads x at the maximum of each channel by scanning all positions of the window, since
 * neighbouring threads share the cache lines. Positions outside the part are never maxima, or
 * belong to a later part.
 */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void load_places(float *x, const struct pool_arguments *a, const struct pool_window *window,
			uint32_t channel, const byte_vector<LANES> *places)
{
	struct pool_part part = pool_first_part(window, POOL_SIDE);
	uint32_t words[word_layout<V>::COUNT], own[word_layout<V>::COUNT],
		zero[word_layout<V>::COUNT];

	EACH(i, word_layout<V>::COUNT)
		words[i] = own[i] = zero[i] = 0;
	EACH(i, LANES)
		own[i / word_layout<V>::CHANNELS] |= byte_at(*places, i)
						     << 16 * (i % word_layout<V>::CHANNELS);
	for (; part.rows; part = pool_next_part(&part, window, POOL_SIDE)) {
		V raw[POOL_AHEAD];

		load_part<V>(raw, &part, POOL_SIDE, window, &a->shape, a->x, channel, zero);
		EACH(k, POOL_AHEAD) {
			uint32_t place = part_place<V>(&part, POOL_SIDE, k, &a->shape);

			EACH(i, word_layout<V>::COUNT) {
				uint32_t here = equal<V>(own[i], place);

				words[i] = (word<V>(&raw[k], i) & here) | (words[i] & ~here);
			}
		}
	}
	unpack(x, of_words<V>(words));
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, POOL_REDUCE_RESIDENT)
	pool_max_norm_reduce_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;
	float sum[LANES], products[LANES];

	fill(sum, 0);
	fill(products, 0);
	POOL_ROWS(row, here, a.grid) {
		struct pool_window window = pool_window_of_output(s, &a.by, (uint32_t)row);
		uint64_t at = row * s->channels + here.channel;
		byte_vector<LANES> places = load_bytes<LANES>(a.index, at);
		V dy = load<V>(a.dy, at), dy2 = dy;
		float scale[LANES], bias[LANES], mean[LANES], g[LANES], x[LANES];

		if (a.dy2)
			dy2 = load<V>(a.dy2, at);
		load_places<V>(x, &a, &window, here.channel, &places);
		sum_of_both<V>(g, dy, dy2, a.dy2);
		/* reload for each window: no registers are free while the window is loaded */
		load_channels(scale, a.scale, here.channel, 1);
		load_channels(bias, a.bias, here.channel, 0);
		load_channels(mean, a.mean, here.channel, 0);
		EACH(i, LANES) {
			float z = scale[i] * x[i] + bias[i];
			float dz = pool_through(g[i], z, a.activation);

			sum[i] += dz;
			products[i] += dz * (x[i] - mean[i]);
		}
	}
	store_partial_sums(&a.grid, &here, sum, products, true, a.partial);
}

int pool_max_norm_reduce(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	struct pool_arguments a = *arguments;
	struct row_reduce_combine combine = {
		.partial = a.partial,
		.sum = a.sum,
		.product = a.products,
		.factor = a.deviation,
	};

	if (!pool_fits(&a.shape) || !has_maxima(&a))
		return -EINVAL;
	pool_cut(&a, device, pool_output_rows(&a.shape), POOL_REDUCE_RESIDENT);
	return launch_sums(device, INSTANCES(pool_max_norm_reduce_kernel), &a, &combine);
}

/* Per-channel vectors for computing dx = a dz + b x + c from g and x. */
template <uint32_t LANES> struct pool_affine {
	float scale[LANES], bias[LANES], a[LANES], b[LANES], c[LANES];
};

template <typename V, uint32_t LANES = V::LANES>
DEVICE void load_affine(pool_affine<LANES> *v, const struct pool_arguments *k, uint32_t channel)
{
	load_channels(v->scale, k->scale, channel, 1);
	load_channels(v->bias, k->bias, channel, 0);
	load_channels(v->a, k->a, channel, 0);
	load_channels(v->b, k->b, channel, 0);
	load_channels(v->c, k->c, channel, 0);
}

template <typename V, uint32_t LANES = V::LANES>
DEVICE void store_through(const struct pool_arguments *k, uint64_t at, float *g, V raw,
			  const pool_affine<LANES> *v)
{
	float x[LANES];

	unpack(x, raw);
	EACH(i, LANES) {
		float z = v->scale[i] * x[i] + v->bias[i];
		float dz = pool_through(g[i], z, k->activation);

		g[i] = v->a[i] * dz + (v->b[i] * x[i] + v->c[i]);
	}
	store<V>(k->dx, at, g);
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_max_norm_apply_kernel(const __grid_constant__ struct pool_arguments k)
{
	struct thread_position here = thread_position_of<V>(&k.grid);
	pool_affine<LANES> affine;

	load_affine<V>(&affine, &k, here.channel);
	POOL_ROWS(row, here, k.grid) {
		uint64_t at = row * k.shape.channels + here.channel;
		V raw = load<V>(k.x, at);
		float g[LANES];

		pool_gather<V>(g, &k.shape, &k.by, (uint32_t)row, here.channel, k.dy, k.dy2,
			       k.index);
		store_through<V>(&k, at, g, raw, &affine);
	}
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_max_norm_apply_tiles_kernel(const __grid_constant__ struct pool_arguments k)
{
	struct thread_position here = thread_position_of<V>(&k.grid);
	const struct pool_shape *s = &k.shape;

	POOL_ROWS(row, here, k.grid) {
		struct pool_tile t = pool_tile_of(s, &k.by, (uint32_t)row, here.channel);
		pool_affine<LANES> affine;
		V raw[4];
		windows<V> w;
		float g[4][LANES];

		EACH(j, 4)
			raw[j] = load<V>(k.x, pool_tile_element(&t, j, s));
		load_tile<V>(&w, s, &t, row * s->channels + here.channel, k.dy, k.dy2, k.index);
		tile_gather<V>(g, &w, k.dy2);
		/* reload for each tile: no registers are free while the windows are loaded */
		load_affine<V>(&affine, &k, here.channel);
		EACH_IF(j, 4, pool_tile_has(&t, j, s))
			store_through<V>(&k, pool_tile_element(&t, j, s), g[j], raw[j], &affine);
	}
}

int pool_max_norm_apply(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	return backward(device, INSTANCES(pool_max_norm_apply_kernel),
			INSTANCES(pool_max_norm_apply_tiles_kernel), arguments);
}
