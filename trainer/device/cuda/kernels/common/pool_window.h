/*
 * Geometry of window pools: the part of x that a window covers, the windows that contain a
 * position, and the grid of a launch. Forward and reduction kernels iterate over outputs, the other
 * backward kernels over inputs. A thread handles one group of channels and visits positions in
 * memory order, so that overlapping windows hit the caches.
 */
#ifndef TRAINER_DEVICE_CUDA_POOL_WINDOW_H
#define TRAINER_DEVICE_CUDA_POOL_WINDOW_H

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/row_tile.h"

extern "C" {
#include "trainer/device/cuda/kernels/pooling.h"
}

#include <errno.h>

/*
 * The part of an output's window that lies inside x: rows h + r_first .. h + r_last - 1, and
 * columns w + s_first .. w + s_last - 1. h and w are the window's first row and column modulo 2^32;
 * padding can make them negative.
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
	uint32_t line = kernel_divide(output, by->q), q = output - line * s->q;

	window.image = kernel_divide(line, by->p);
	uint32_t h = (line - window.image * s->p) * s->stride;
	uint32_t w = q * s->stride;
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

/* Index of the position within window (p, q), in row-major order. */
DEVICE uint32_t pool_place(const struct pool_cover *cover, uint32_t p, uint32_t q,
			   const struct pool_shape *s)
{
	return (cover->h + s->pad - p * s->stride) * s->window + cover->w + s->pad - q * s->stride;
}

/*
 * Returns the next row of the thread. A thread's turn is ROW_GRID_UNROLL rows that start at *first,
 * c->height rows apart; after the last of them, moves *first to the start of the next turn.
 */
DEVICE uint64_t pool_next(uint64_t row, uint64_t *first, uint64_t turn, const struct row_grid *c)
{
	row += c->height;
	if (row < *first + ROW_GRID_UNROLL * c->height)
		return row;
	*first += turn;
	return *first;
}

/* Iterates over all rows of a thread. Modifies here.first. */
#define POOL_ROWS(row, here, grid)                                                                 \
	for (uint64_t row = (here).first; row < (grid).rows;                                       \
	     row = pool_next(row, &(here).first, (here).turn, &(grid)))

static inline uint64_t pool_input_rows(const struct pool_shape *shape)
{
	return (uint64_t)shape->n * shape->h * shape->w;
}

static inline uint64_t pool_output_rows(const struct pool_shape *shape)
{
	return (uint64_t)shape->n * shape->p * shape->q;
}

static inline bool pool_fits(const struct pool_shape *shape)
{
	return shape->pad < shape->window && pool_input_rows(shape) <= INT32_MAX &&
	       pool_output_rows(shape) <= INT32_MAX;
}

static inline void pool_cut(struct pool_arguments *a, const struct kernel_device *device,
			    uint64_t rows, uint32_t resident)
{
	const struct pool_shape *shape = &a->shape;

	row_grid_init(&a->grid, device, rows, shape->channels, shape->element, resident);
	a->by = {
		.h = divider_of(shape->h),
		.w = divider_of(shape->w),
		.p = divider_of(shape->p),
		.q = divider_of(shape->q),
		.stride = divider_of(shape->stride),
	};
}

/* Kernels without sums. */
static inline int launch_windows(const struct kernel_device *device,
				 const struct gpu_kernel (&instances)[KERNEL_INSTANCES],
				 struct pool_arguments a, uint64_t rows)
{
	if (!pool_fits(&a.shape))
		return -EINVAL;
	pool_cut(&a, device, rows, ROW_GRID_MAP);
	return launch_grid(device, instances, &a);
}

#endif
