/*
 * How per-channel kernels distribute a matrix [rows][channels] (positions of an NHWC tensor) over
 * the threads of a grid.
 *
 * A thread has one group of `lanes` neighbouring channels, 16 bytes if the number of channels
 * allows it, else one channel, so per-channel operands stay in registers while it walks down the
 * rows. A block covers a tile `width` groups wide and `height` rows high. blocks_y tiles cover the
 * channels; the blocks_x blocks of a tile column (their number depends on the multiprocessors)
 * stride over the rows, `height * ROW_GRID_UNROLL` at a time, so that warps read whole lines and
 * threads have several loads in flight.
 *
 * Sums over rows have two stages in a fixed order: each block stores its sums in `partial`
 * [2][blocks_x][channels], and row_reduce_combine() adds them in double precision. They are bitwise
 * reproducible on devices with the same number of multiprocessors.
 *
 * All launchers in this folder return 0 or a negative errno: -EINVAL for unsupported arguments (see
 * their comments), or gpu_launch()'s. They may be captured.
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
	uint32_t groups; /* of channels: channels / lanes */
	uint32_t width;  /* groups of a block's tile */
	uint32_t height; /* rows of a block's tile */
	uint32_t turns;  /* iterations of height * ROW_GRID_UNROLL rows that cover all rows */
	uint32_t blocks_x, blocks_y;
	uint32_t instance; /* index into a kernel table */
};

uint32_t kernel_instance(enum cuda_element element, uint32_t channels);
/*
 * rows and channels are at least 1. resident: for the first stage of sums, blocks of the kernel
 * that fit a multiprocessor, 1..ROW_GRID_RESIDENT_MAX. The grid is at most one wave of them: more
 * blocks mean more partial sums, and a second wave of one block takes as long as the first.
 * ROW_GRID_MAP if there are no sums.
 */
#define ROW_GRID_RESIDENT_MAX 4
#define ROW_GRID_MAP          0
void row_grid_init(struct row_grid *grid, const struct kernel_device *device, uint64_t rows,
		   uint32_t channels, enum cuda_element element, uint32_t resident);
/* Bytes of `partial` for sums over a matrix of at most this many rows, of any element. */
uint64_t row_reduce_workspace(uint32_t multiprocessors, uint64_t rows, uint32_t channels);

struct row_reduce_combine {
	const float *partial; /* [2][blocks][channels] */
	uint32_t blocks, channels;
	float *sum;                /* [channels], or NULL */
	float *product;            /* [channels]: sums of partial's second half, or NULL */
	const float *factor;       /* [channels]: multiplies product, or NULL */
	uint32_t add, add_product; /* sum, product += instead of = */
};
int row_reduce_combine(const struct kernel_device *device,
		       const struct row_reduce_combine *combine);

#endif
