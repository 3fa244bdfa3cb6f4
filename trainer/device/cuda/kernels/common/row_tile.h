/*
 * The tile coordinates of a thread in a matrix that is divided as row_reduce.h describes, and the
 * first stage of sums over rows.
 */
#ifndef TRAINER_DEVICE_CUDA_ROW_TILE_H
#define TRAINER_DEVICE_CUDA_ROW_TILE_H

#include "trainer/device/cuda/kernels/common/vector_types.h"

extern "C" {
#include "trainer/device/cuda/kernels/row_reduce.h"
}

/*
 * Coordinates of a thread. An inactive thread (beyond the last channel or the height of the tile)
 * starts past the last row.
 */
struct thread_position {
	bool active;
	uint32_t column;  /* column in the tile, in groups of V::LANES channels */
	uint32_t line;    /* row in the tile */
	uint32_t channel; /* first channel of the group */
	uint64_t first;   /* first row */
	uint64_t turn;    /* stride in rows between turns */
	uint32_t step;    /* stride in elements between the thread's rows of one turn */
};

template <typename V> DEVICE struct thread_position thread_position_of(const struct row_grid *c)
{
	struct thread_position here;

	here.line = threadIdx.x / c->width;
	here.column = threadIdx.x - here.line * c->width;
	uint32_t group = blockIdx.y * c->width + here.column;
	here.channel = group * V::LANES;
	here.first = (uint64_t)blockIdx.x * c->height * ROW_GRID_UNROLL + here.line;
	here.turn = (uint64_t)c->blocks_x * c->height * ROW_GRID_UNROLL;
	here.step = c->height * c->channels;
	here.active = here.line < c->height && group < c->groups;
	if (!here.active) {
		here.first = c->rows;
		here.channel = 0;
	}
	return here;
}

/*
 * As thread_position_of(), but iterates from the last turn to the first. For kernels without sums:
 * the previous operation writes in memory order, so the end of its data may still be in the L2
 * cache, and the next operation starts with the part that this kernel writes last.
 */
template <typename V> DEVICE struct thread_position place_from_end(const struct row_grid *c)
{
	struct thread_position here = thread_position_of<V>(c);

	/* modulo 2^64, so stepping below row 0 yields a number above all rows */
	here.turn = 0 - here.turn;
	if (!here.active)
		return here;
	here.first =
		(uint64_t)(c->turns - 1 - blockIdx.x) * c->height * ROW_GRID_UNROLL + here.line;
	if (here.first >= c->rows)
		here.first += here.turn;
	return here;
}

/*
 * Sums the values of the threads over the rows of the tile and stores them in partial
 * [2][blocks_x][channels]. With `two`, also sums `product`, into the second half. All threads of
 * the block must call this function; inactive ones pass zeros.
 */
template <uint32_t LANES>
DEVICE void store_partial_sums(const struct row_grid *c, const struct thread_position *here,
			       const float (&sum)[LANES], const float (&product)[LANES], bool two,
			       float *partial)
{
	SHARED(float, sums, KERNEL_THREADS *LANES);
	SHARED(float, products, KERNEL_THREADS *LANES);
	uint32_t line = c->width * LANES, at = here->line * line + here->column * LANES;

	if (here->line < c->height) {
		EACH(i, LANES)
			sums[at + i] = sum[i];
		if (two) {
			EACH(i, LANES)
				products[at + i] = product[i];
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < line; i += KERNEL_THREADS) {
		uint32_t channel = blockIdx.y * line + i;
		uint64_t block = blockIdx.x;
		float s = 0, p = 0;

		if (channel >= c->channels)
			continue;
		for (uint32_t row = 0; row < c->height; row++) {
			s += sums[row * line + i];
			p += two ? products[row * line + i] : 0;
		}
		partial[block * c->channels + channel] = s;
		if (two)
			partial[(c->blocks_x + block) * c->channels + channel] = p;
	}
}

#endif
