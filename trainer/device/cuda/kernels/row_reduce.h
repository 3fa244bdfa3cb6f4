/*
 * How kernels with per-channel operands distribute a matrix [rows][channels] (an NHWC tensor with
 * one row per position) over the threads of a grid.
 *
 * A thread handles one group of `lanes` adjacent channels: 16 bytes if the number of channels is a
 * multiple of that, else one channel. It keeps per-channel operands in registers while it iterates
 * over rows. A block covers a tile of `width` groups and `height` rows. The grid has blocks_y tiles
 * across the channels. For each of them blocks_x blocks, a number derived from that of
 * multiprocessors, stride over the rows by `height * ROW_GRID_UNROLL`, so that warps read whole
 * cache lines and each thread has several loads in flight.
 *
 * Sums over rows have two stages, both in a fixed order: each block stores its sums in `partial`
 * [2][blocks_x][channels], and row_reduce_combine() adds these in double precision. The result is
 * bitwise reproducible on devices with the same number of multiprocessors.
 *
 * All launchers in this folder return 0 or a negative errno: -EINVAL for arguments that their
 * comments exclude, or an error of gpu_launch(). They may be captured.
 */
#ifndef TRAINER_DEVICE_CUDA_ROW_REDUCE_H
#define TRAINER_DEVICE_CUDA_ROW_REDUCE_H

#include "trainer/device/cuda/conv.h"
#include "trainer/device/cuda/gpu.h"

#define ROW_GRID_UNROLL 4

/*
 * A kernel has an instance per element and group size (16 bytes or a single channel); index with
 * kernel_instance().
 */
#define KERNEL_INSTANCES 6

/* Stream for kernels, and the properties that determine grid sizes. */
struct kernel_device {
	gpu_stream stream;
	uint32_t multiprocessors;
};

struct row_grid {
	uint64_t rows;
	uint32_t channels;
	uint32_t groups; /* number of channel groups: channels / lanes */
	uint32_t width;  /* groups of a block's tile */
	uint32_t height; /* rows of a block's tile */
	uint32_t turns;  /* iterations of height * ROW_GRID_UNROLL rows that cover all rows */
	uint32_t blocks_x, blocks_y;
	uint32_t instance; /* index into a kernel table */
};

uint32_t kernel_instance(enum cuda_element element, uint32_t channels);
/*
 * Requires at least one row and one channel. `resident` is the number of blocks of the kernel that
 * fit on a multiprocessor (1..ROW_GRID_RESIDENT_MAX) for a kernel that is the first stage of sums,
 * or ROW_GRID_MAP for a kernel without sums. With sums, the grid is at most one wave of blocks:
 * more blocks would mean more partial sums, and a second wave takes as long as the first even if it
 * is a single block.
 */
#define ROW_GRID_RESIDENT_MAX 4
#define ROW_GRID_MAP          0
void row_grid_init(struct row_grid *grid, const struct kernel_device *device, uint64_t rows,
		   uint32_t channels, enum cuda_element element, uint32_t resident);
/* Bytes of `partial` for a matrix of at most `rows` rows, of any element type. */
uint64_t row_reduce_workspace(uint32_t multiprocessors, uint64_t rows, uint32_t channels);

struct row_reduce_combine {
	const float *partial; /* [2][blocks][channels] */
	uint32_t blocks, channels;
	float *sum;                /* [channels], or NULL */
	float *product;            /* [channels]: sums of the second half of partial, or NULL */
	const float *factor;       /* [channels]: factor on `product`, or NULL */
	uint32_t add, add_product; /* accumulate (+=) instead of storing */
};
int row_reduce_combine(const struct kernel_device *device,
		       const struct row_reduce_combine *combine);

#endif
