/* Launchers of attention.h. */
#include "trainer/device/cuda/kernels/attention.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>
#include <math.h>

_Static_assert(CUDA_F16 == 1 && CUDA_BF16 == 2, "the order of tables");

static int launch_tiles(const struct kernel_device *device, const struct gpu_kernel *kernels,
			const struct attention_arguments *arguments)
{
	struct attention_arguments a = *arguments;
	bool matrices = a.element != CUDA_F32 && a.d % 8 == 0;
	uint32_t tile = matrices ? ATTENTION_MATRIX_TILE : ATTENTION_TILE;
	uint64_t blocks;

	a.tiles = (a.t + tile - 1) / tile;
	a.scale = 1 / sqrtf((float)a.d);
	blocks = (uint64_t)a.n * a.heads * a.tiles;
	if (a.d > ATTENTION_CHANNELS_MAX || blocks > INT32_MAX)
		return -EINVAL;
	return gpu_launch(&kernels[matrices ? a.element + (a.dropout.below ? 2 : 0) : 0],
			  (uint32_t)blocks, 1, LAUNCH_THREADS, &a, sizeof(a), device->stream);
}

int attention_forward(const struct kernel_device *device,
		      const struct attention_arguments *arguments)
{
	return launch_tiles(device, attention_forward_kernels, arguments);
}

int attention_backward(const struct kernel_device *device,
		       const struct attention_arguments *arguments)
{
	int r = launch_tiles(device, attention_queries_kernels, arguments);

	return r < 0 ? r : launch_tiles(device, attention_keys_kernels, arguments);
}
