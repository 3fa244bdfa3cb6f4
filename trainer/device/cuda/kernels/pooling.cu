/*
 * Kernels of pooling.h. Forward and reduction kernels iterate over outputs, the other backward
 * kernels over inputs. A thread handles one group of channels and visits positions in memory order,
 * so that overlapping windows hit the caches.
 */
#include "trainer/device/cuda/kernels/pooling.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

/*
 * A thread loads `side` x `side` positions of a window before it uses the first; neighbouring
 * threads share most of them. `side` is a compile-time constant: POOL_SIDE, or 2 if no window is
 * larger.
 */
#define POOL_SIDE  3
#define POOL_AHEAD (POOL_SIDE * POOL_SIDE)

/*
 * The part of an output's window inside x: rows h + r_first .. h + r_last - 1, columns likewise. h
 * and w are modulo 2^32, since padding can make them negative.
 */
struct pool_window {
	uint32_t image, h, w;
	uint32_t r_first, r_last, s_first, s_last;
	uint32_t first; /* index in the window of the first position inside x */
};

DEVICE struct pool_window pool_window_of_output(const struct pool_shape *s,
						const struct pool_dividers *by, uint32_t output)
{
	struct pool_window window;
	uint32_t line = kernel_divide(output, by->q), q = output - line * s->q, h, w;

	window.image = kernel_divide(line, by->p);
	h = (line - window.image * s->p) * s->stride;
	w = q * s->stride;
	window.h = h - s->pad;
	window.w = w - s->pad;
	window.r_first = h < s->pad ? s->pad - h : 0;
	window.s_first = w < s->pad ? s->pad - w : 0;
	window.r_last = h + s->window > s->h + s->pad ? s->h + s->pad - h : s->window;
	window.s_last = w + s->window > s->w + s->pad ? s->w + s->pad - w : s->window;
	window.first = window.r_first * s->window + window.s_first;
	return window;
}

DEVICE uint32_t pool_window_count(const struct pool_window *window)
{
	return (window->r_last - window->r_first) * (window->s_last - window->s_first);
}

/*
 * Positions of a window that are loaded together: part of one row, or whole rows. Parts cover a
 * window in row-major order.
 */
struct pool_part {
	uint32_t r, s;          /* first position, relative to the window */
	uint32_t rows, columns; /* at most `side`; rows is 0 at the end */
};

DEVICE struct pool_part pool_part_at(const struct pool_window *window, uint32_t side, uint32_t r,
				     uint32_t s)
{
	bool narrow = window->s_last - window->s_first <= side;
	uint32_t rows = window->r_last - r, columns = window->s_last - s, most = narrow ? side : 1;
	struct pool_part part;

	part.r = r;
	part.s = s;
	part.rows = rows < most ? rows : most;
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

/* Index of the element of x at position (r, s) of the window. */
DEVICE uint64_t pool_element(const struct pool_window *window, const struct pool_shape *shape,
			     uint32_t r, uint32_t s, uint32_t channel)
{
	uint64_t line = (uint64_t)window->image * shape->h + (window->h + r);

	return (line * shape->w + (window->w + s)) * shape->channels + channel;
}

/* The windows that contain a position of x: p_first .. p_last - 1, q likewise. */
struct pool_cover {
	uint32_t image, h, w;
	uint32_t p_first, p_last, q_first, q_last;
};

DEVICE uint32_t cover_first(uint32_t at, const struct pool_shape *s, const struct pool_dividers *by)
{
	return at + s->pad < s->window ? 0 : kernel_divide(at + s->pad - s->window, by->stride) + 1;
}

DEVICE uint32_t cover_last(uint32_t at, uint32_t outputs, const struct pool_shape *s,
			   const struct pool_dividers *by)
{
	uint32_t last = kernel_divide(at + s->pad, by->stride) + 1;

	return last < outputs ? last : outputs;
}

DEVICE struct pool_cover pool_cover_of_input(const struct pool_shape *s,
					     const struct pool_dividers *by, uint32_t position)
{
	struct pool_cover cover;
	uint32_t line = kernel_divide(position, by->w);

	cover.w = position - line * s->w;
	cover.image = kernel_divide(line, by->h);
	cover.h = line - cover.image * s->h;
	cover.p_first = cover_first(cover.h, s, by);
	cover.p_last = cover_last(cover.h, s->p, s, by);
	cover.q_first = cover_first(cover.w, s, by);
	cover.q_last = cover_last(cover.w, s->q, s, by);
	return cover;
}

DEVICE uint64_t pool_output(const struct pool_cover *cover, uint32_t p, uint32_t q,
			    const struct pool_shape *s)
{
	return ((uint64_t)cover->image * s->p + p) * s->q + q;
}

/* Index of the position within window (p, q). */
DEVICE uint32_t pool_place(const struct pool_cover *cover, uint32_t p, uint32_t q,
			   const struct pool_shape *s)
{
	return (cover->h + s->pad - p * s->stride) * s->window + cover->w + s->pad - q * s->stride;
}

/*
 * For stride 2: x is split into tiles of 2 x 2 positions, numbered like the windows. With 3 x 3
 * windows and pad 1, window (p, q) contains all of tile (p, q); windows (p, q + 1), (p + 1, q) and
 * (p + 1, q + 1) contain two, two and one of its positions. With 2 x 2 windows without pad, windows
 * and tiles coincide, but a last row or column that no window reaches has tiles as well. by->p and
 * by->q hold the number of tiles down and across.
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

/* False for positions outside x, in tiles cut off by its last row or column. */
DEVICE bool pool_tile_has(const struct pool_tile *t, uint32_t k, const struct pool_shape *s)
{
	return 2 * t->p + k / 2 < s->h && 2 * t->q + k % 2 < s->w;
}

/* Index of position k in x; that of the first position if k is outside x. */
DEVICE uint64_t pool_tile_element(const struct pool_tile *t, uint32_t k, const struct pool_shape *s)
{
	return t->at + (pool_tile_has(t, k, s) ? (k / 2 * s->w + k % 2) * s->channels : 0);
}

/*
 * Advances to the thread's next row. A turn has COLUMNS_UNROLL rows, starting at *first; after the
 * last one moves *first to the next turn.
 */
DEVICE uint64_t pool_next(uint64_t row, uint64_t *first, uint64_t turn, const struct columns *c)
{
	row += c->height;
	if (row < *first + COLUMNS_UNROLL * c->height)
		return row;
	*first += turn;
	return *first;
}

/* Iterates over all rows of a thread. Modifies here.first. */
#define POOL_ROWS(row, here, columns)                                                              \
	for (uint64_t row = (here).first; row < (columns).rows;                                    \
	     row = pool_next(row, &(here).first, (here).turn, &(columns)))

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

/* dz = g, or 0 where ReLU of z is inactive. */
DEVICE float pool_through(float g, float z, enum device_activation activation)
{
	return activation != DEVICE_RELU || z > 0 ? g : 0;
}

#define KERNEL_BODY "trainer/device/cuda/kernels/common/pooling_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

POOL_KERNELS(INSTANCES)
