/* Grid layout of kernels over columns, and the second stage of sums over rows. */
#include "trainer/device/cuda/kernels/row_reduce.h"

#include "trainer/device/cuda/kernels/tables.h"

#define THREADS       256
#define TILE_CHANNELS 256 /* maximum width of a tile: 512 bytes of a row of 16-bit elements */
#define TILE_GROUPS   128
/*
 * Blocks per multiprocessor for kernels without sums: several times the resident number, to balance
 * load.
 */
#define BLOCKS_MAP 6

#define COMBINE_CHANNELS 8 /* channels per block of the second stage: a 32-byte sector of fp32 */

static uint32_t divide_up(uint64_t a, uint64_t b)
{
	return (uint32_t)((a + b - 1) / b);
}

/* Channels of a group: 16 bytes of the element if the channels are a multiple of that, else 1. */
static uint32_t columns_lanes(enum cuda_element element, uint32_t channels)
{
	uint32_t lanes = 16 / cuda_element_size(element);

	return channels % lanes ? 1 : lanes;
}

uint32_t columns_instance(enum cuda_element element, uint32_t channels)
{
	return (uint32_t)element * 2 + (columns_lanes(element, channels) == 1);
}

void columns_init(struct columns *columns, const struct kernel_device *device, uint64_t rows,
		  uint32_t channels, enum cuda_element element, uint32_t resident)
{
	uint32_t lanes = columns_lanes(element, channels);
	uint32_t widest = lanes == 1 ? TILE_GROUPS : TILE_CHANNELS / lanes, wave;

	columns->rows = rows;
	columns->channels = channels;
	columns->groups = channels / lanes;
	/* tiles of similar width instead of a narrow last one */
	columns->width = divide_up(columns->groups, divide_up(columns->groups, widest));
	columns->height = THREADS / columns->width;
	columns->blocks_y = divide_up(columns->groups, columns->width);
	columns->turns = divide_up(rows, columns->height * COLUMNS_UNROLL);
	wave = (resident ? resident : BLOCKS_MAP) * device->multiprocessors / columns->blocks_y;
	wave = wave ? wave : 1;
	columns->blocks_x = columns->turns < wave ? columns->turns : wave;
	columns->instance = columns_instance(element, channels);
}

uint64_t columns_workspace(uint32_t multiprocessors, uint64_t rows, uint32_t channels)
{
	struct kernel_device device = {.multiprocessors = multiprocessors};
	uint32_t blocks = 0;

	for (int element = CUDA_F32; element <= CUDA_BF16; element++) {
		struct columns columns;

		columns_init(&columns, &device, rows, channels, (enum cuda_element)element,
			     COLUMNS_RESIDENT_MAX);
		blocks = columns.blocks_x > blocks ? columns.blocks_x : blocks;
	}
	return 2 * sizeof(float) * (uint64_t)blocks * channels;
}

int columns_combine(const struct kernel_device *device, const struct columns_combine *combine)
{
	return gpu_launch(&columns_combine_kernel, divide_up(combine->channels, COMBINE_CHANNELS),
			  1, THREADS, combine, sizeof(*combine), device->stream);
}
