/*
 * How kernels that work per channel cut a matrix [rows][channels] (positions of an NHWC tensor)
 * among the threads of a grid.
 *
 * A thread has one group of `lanes` neighbouring channels, 16 bytes if their number allows it, else
 * one channel; so its per-channel operands stay in registers while it walks down the rows. A block
 * covers a tile `width` groups wide and `height` rows high. blocks_y tiles cover the channels; the
 * blocks_x blocks of one column of tiles (their number follows from the multiprocessors) stride
 * over the rows, each taking `height * COLUMNS_UNROLL` at a time, so that a warp reads whole lines
 * and every thread has several loads in flight.
 *
 * Sums over rows take two stages in a fixed order: each block leaves its sums in `partial`
 * [2][blocks_x][channels], and columns_combine() adds those up in double precision. They repeat bit
 * for bit on devices with the same number of multiprocessors.
 *
 * Launchers of all families return 0 or a negative errno: -EINVAL for what they cannot do (named in
 * their comments), or gpu_launch()'s. They may be captured.
 */
#ifndef TRAINER_DEVICE_CUDA_COLUMNS_H
#define TRAINER_DEVICE_CUDA_COLUMNS_H

#include "trainer/device/cuda/conv.h"
#include "trainer/device/cuda/gpu.h"

#define COLUMNS_UNROLL 4

/*
 * One kernel for every element, with 16-byte groups and with single channels: index by
 * columns_instance().
 */
#define KERNEL_INSTANCES 6

/* Where kernels are queued, and what grids are sized for. */
struct kernel_device {
	gpu_stream stream;
	uint32_t multiprocessors;
};

struct columns {
	uint64_t rows;
	uint32_t channels;
	uint32_t groups; /* of channels: channels / lanes */
	uint32_t width;  /* groups of a block's tile */
	uint32_t height; /* rows of a block's tile */
	uint32_t turns;  /* of height * COLUMNS_UNROLL rows, to cover all */
	uint32_t blocks_x, blocks_y;
	uint32_t instance; /* of a table of kernels */
};

uint32_t columns_instance(enum cuda_element element, uint32_t channels);
/*
 * rows and channels from 1. resident: for the first stage of sums, how many blocks of the kernel
 * fit on a multiprocessor, 1..COLUMNS_RESIDENT_MAX. The grid is at most one wave of them: more
 * would leave more partial sums, and a second wave of one block takes as long as the first.
 * COLUMNS_MAP: no sums.
 */
#define COLUMNS_RESIDENT_MAX 4
#define COLUMNS_MAP          0
void columns_init(struct columns *columns, const struct kernel_device *device, uint64_t rows,
		  uint32_t channels, enum cuda_element element, uint32_t resident);
/* Bytes of `partial` for sums over a matrix of at most that many rows, of any element. */
uint64_t columns_workspace(uint32_t multiprocessors, uint64_t rows, uint32_t channels);

struct columns_combine {
	const float *partial; /* [2][blocks][channels] */
	uint32_t blocks, channels;
	float *sum;                /* [channels], or NULL */
	float *product;            /* [channels]: sums of partial's second half, or NULL */
	const float *factor;       /* [channels]: multiplies product, or NULL */
	uint32_t add, add_product; /* sum, product += instead of = */
};
int columns_combine(const struct kernel_device *device, const struct columns_combine *combine);

#endif
