/* How matrices are cut among threads, and the second stage of sums over rows: row_reduce.h. */
extern "C" {
#include "trainer/device/cuda/kernels/row_reduce.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"

#define TILE_CHANNELS 256 /* maximum width of a tile: 512 bytes of a row of 16-bit elements */
#define TILE_GROUPS   128
/*
 * Blocks per multiprocessor for kernels without sums: several times the number that is resident,
 * for load balance.
 */
#define BLOCKS_MAP 6

/* Channels per group: 16 bytes of elements if that divides the number of channels, else 1. */
static uint32_t row_grid_lanes(enum cuda_element element, uint32_t channels)
{
	uint32_t lanes = 16 / cuda_element_size(element);

	return channels % lanes ? 1 : lanes;
}

uint32_t kernel_instance(enum cuda_element element, uint32_t channels)
{
	return (uint32_t)element * 2 + (row_grid_lanes(element, channels) == 1);
}

void row_grid_init(struct row_grid *grid, const struct kernel_device *device, uint64_t rows,
		   uint32_t channels, enum cuda_element element, uint32_t resident)
{
	uint32_t lanes = row_grid_lanes(element, channels);
	uint32_t widest = lanes == 1 ? TILE_GROUPS : TILE_CHANNELS / lanes;

	grid->rows = rows;
	grid->channels = channels;
	grid->groups = channels / lanes;
	/* tiles of similar width instead of a narrow last one */
	grid->width = divide_up(grid->groups, divide_up(grid->groups, widest));
	grid->height = KERNEL_THREADS / grid->width;
	grid->blocks_y = divide_up(grid->groups, grid->width);
	grid->turns = divide_up(rows, grid->height * ROW_GRID_UNROLL);
	uint32_t wave =
		(resident ? resident : BLOCKS_MAP) * device->multiprocessors / grid->blocks_y;
	wave = wave ? wave : 1;
	grid->blocks_x = grid->turns < wave ? grid->turns : wave;
	grid->instance = kernel_instance(element, channels);
}

uint64_t row_reduce_workspace(uint32_t multiprocessors, uint64_t rows, uint32_t channels)
{
	struct kernel_device device = {.stream = NULL, .multiprocessors = multiprocessors};
	uint32_t blocks = 0;

	for (int element = CUDA_F32; element <= CUDA_BF16; element++) {
		struct row_grid grid;

		row_grid_init(&grid, &device, rows, channels, (enum cuda_element)element,
			      ROW_GRID_RESIDENT_MAX);
		blocks = grid.blocks_x > blocks ? grid.blocks_x : blocks;
	}
	return 2 * sizeof(float) * (uint64_t)blocks * channels;
}

#define CHANNELS 8 /* channels per block of the second stage: a 32-byte sector of fp32 */
#define LINES    (KERNEL_THREADS / CHANNELS)

/* Reads every partial sum once. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	row_reduce_combine_kernel(const __grid_constant__ struct row_reduce_combine a)
{
	SHARED(double, sums, 2 * KERNEL_THREADS);
	uint32_t thread = threadIdx.x, channel = blockIdx.x * CHANNELS + thread % CHANNELS;
	double sum = 0, product = 0;

	if (channel < a.channels) {
		for (uint64_t block = thread / CHANNELS; block < a.blocks; block += LINES) {
			sum += (double)a.partial[block * a.channels + channel];
			if (a.product)
				product +=
					(double)a
						.partial[(a.blocks + block) * a.channels + channel];
		}
	}
	sums[thread] = sum;
	sums[KERNEL_THREADS + thread] = product;
	__syncthreads();
	if (thread >= 2 * CHANNELS || channel >= a.channels)
		return;
	sum = 0;
	for (uint32_t line = 0; line < LINES; line++)
		sum += sums[thread / CHANNELS * KERNEL_THREADS + line * CHANNELS +
			    thread % CHANNELS];
	if (thread >= CHANNELS && a.product) {
		sum *= a.factor ? (double)a.factor[channel] : 1;
		a.product[channel] =
			(float)(a.add_product ? (double)a.product[channel] + sum : sum);
	} else if (thread < CHANNELS && a.sum) {
		a.sum[channel] = (float)((a.add ? (double)a.sum[channel] : 0) + sum);
	}
}

int row_reduce_combine(const struct kernel_device *device, const struct row_reduce_combine *combine)
{
	return launch(device, KERNEL(row_reduce_combine_kernel),
		      divide_up(combine->channels, CHANNELS), combine);
}
