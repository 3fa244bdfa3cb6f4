/*
 * Kernels of pool.h. Forward and reductions go over outputs, backward over inputs; a thread has one group of channels and walks down positions in
 * the order of memory, so that windows that overlap meet in the caches.
 */
#include "kernels/pool.h"

#include "kernels/kernel.h"
#include "kernels/tables.h"

/* Positions of a window that are loaded before the first is used: 3 x 3 are two batches. */
#define POOL_AHEAD 5

/* The part of an output's window that lies inside x: rows h + r_first .. h + r_last - 1; h and w may be "negative", modulo 2^32. */
struct pool_window {
	uint32_t image, h, w;
	uint32_t r_first, r_last, s_first, s_last;
	uint32_t first; /* position in the window of its first element */
};

DEVICE struct pool_window pool_window_of_output(const struct pool_shape *s, uint32_t output)
{
	struct pool_window window;
	uint32_t line = output / s->q, q = output - line * s->q, h, w;

	window.image = line / s->p;
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

/* Goes over a window row by row; r is r_last at the end. */
struct pool_walk {
	uint32_t r, s;
	uint64_t line; /* of x, in positions */
};

DEVICE struct pool_walk pool_walk_begin(const struct pool_window *window,
					const struct pool_shape *s)
{
	struct pool_walk walk;

	walk.r = window->r_first;
	walk.s = window->s_first;
	walk.line = ((uint64_t)window->image * s->h + (window->h + walk.r)) * s->w;
	return walk;
}

DEVICE void pool_walk_on(struct pool_walk *walk, const struct pool_window *window,
			 const struct pool_shape *s)
{
	walk->s++;
	if (walk->s < window->s_last)
		return;
	walk->s = window->s_first;
	walk->r++;
	walk->line += s->w;
}

/* The windows that hold a position of x: p_first .. p_last - 1, q likewise. */
struct pool_cover {
	uint32_t image, h, w;
	uint32_t p_first, p_last, q_first, q_last;
};

DEVICE uint32_t cover_first(uint32_t at, const struct pool_shape *s)
{
	return at + s->pad < s->window ? 0 : (at + s->pad - s->window) / s->stride + 1;
}

DEVICE uint32_t cover_last(uint32_t at, uint32_t outputs, const struct pool_shape *s)
{
	uint32_t last = (at + s->pad) / s->stride + 1;

	return last < outputs ? last : outputs;
}

DEVICE struct pool_cover pool_cover_of_input(const struct pool_shape *s, uint32_t position)
{
	struct pool_cover cover;
	uint32_t line = position / s->w;

	cover.w = position - line * s->w;
	cover.image = line / s->h;
	cover.h = line - cover.image * s->h;
	cover.p_first = cover_first(cover.h, s);
	cover.p_last = cover_last(cover.h, s->p, s);
	cover.q_first = cover_first(cover.w, s);
	cover.q_last = cover_last(cover.w, s->q, s);
	return cover;
}

DEVICE uint64_t pool_output(const struct pool_cover *cover, uint32_t p, uint32_t q,
			    const struct pool_shape *s)
{
	return ((uint64_t)cover->image * s->p + p) * s->q + q;
}

/* Where the position lies in the window of (p, q). */
DEVICE uint32_t pool_place(const struct pool_cover *cover, uint32_t p, uint32_t q,
			   const struct pool_shape *s)
{
	return (cover->h + s->pad - p * s->stride) * s->window + cover->w + s->pad - q * s->stride;
}

/* The thread's next row: COLUMNS_UNROLL of a turn, then those of the next turn, of which *first is moved to the first. */
DEVICE uint64_t pool_next(uint64_t row, uint64_t *first, uint64_t turn, const struct columns *c)
{
	row += c->height;
	if (row < *first + COLUMNS_UNROLL * c->height)
		return row;
	*first += turn;
	return *first;
}

/* All rows of a thread; here.first moves. */
#define POOL_ROWS(row, here, columns)                                                              \
	for (uint64_t row = (here).first; row < (columns).rows;                                    \
	     row = pool_next(row, &(here).first, (here).turn, &(columns)))

/* The larger, a NaN before any number; of equals the one with the lower position. */
DEVICE void pool_take(float *largest, uint32_t *index, float value, uint32_t position)
{
	bool nan = value != value, nan_before = *largest != *largest;
	bool equal = (nan && nan_before) || value == *largest;

	if (equal ? position < *index : nan || (!nan_before && value > *largest)) {
		*largest = value;
		*index = position;
	}
}

/* dz = g, or, where a ReLU of z is shut, 0. */
DEVICE float pool_through(float g, float z, enum device_activation activation)
{
	return activation != DEVICE_RELU || z > 0 ? g : 0;
}

#define KERNEL_BODY "kernels/pool_kernels.h"
#include "kernels/instances.h"

KERNEL_TABLE pool_max_kernels[KERNEL_INSTANCES] = INSTANCES(pool_max);
KERNEL_TABLE pool_max_backward_kernels[KERNEL_INSTANCES] = INSTANCES(pool_max_backward);
KERNEL_TABLE pool_max_norm_reduce_kernels[KERNEL_INSTANCES] = INSTANCES(pool_max_norm_reduce);
KERNEL_TABLE pool_max_norm_apply_kernels[KERNEL_INSTANCES] = INSTANCES(pool_max_norm_apply);
KERNEL_TABLE pool_average_kernels[KERNEL_INSTANCES] = INSTANCES(pool_average);
KERNEL_TABLE pool_average_backward_kernels[KERNEL_INSTANCES] = INSTANCES(pool_average_backward);
KERNEL_TABLE pool_global_average_kernels[KERNEL_INSTANCES] = INSTANCES(pool_global_average);
KERNEL_TABLE pool_global_max_kernels[KERNEL_INSTANCES] = INSTANCES(pool_global_max);
KERNEL_TABLE pool_global_average_backward_kernels[KERNEL_INSTANCES] =
	INSTANCES(pool_global_average_backward);
KERNEL_TABLE pool_global_max_backward_kernels[KERNEL_INSTANCES] =
	INSTANCES(pool_global_max_backward);
