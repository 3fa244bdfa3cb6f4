/* Launchers of layer_norm.h. */
#include "trainer/device/cuda/kernels/layer_norm.h"

#include "trainer/device/cuda/kernels/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

#define WARPS (LAUNCH_THREADS / 32)

/* A kernel that has a warp for each row, or that of whole blocks. */
static int launch_rows(const struct kernel_device *device, const struct gpu_kernel *warps,
		       const struct gpu_kernel *blocks, uint64_t rows, uint32_t channels,
		       enum cuda_element element, const void *arguments, size_t size)
{
	bool wide = channels > LAYER_NORM_WARP_MAX;
	const struct gpu_kernel *kernels = wide ? blocks : warps;

	if (rows > INT32_MAX)
		return -EINVAL;
	return gpu_launch(&kernels[columns_instance(element, channels)],
			  (uint32_t)(wide ? rows : (rows + WARPS - 1) / WARPS), 1, LAUNCH_THREADS,
			  arguments, size, device->stream);
}

int layer_norm_forward(const struct kernel_device *device, const struct layer_norm *arguments)
{
	return launch_rows(device, layer_norm_kernels, layer_norm_wide_kernels, arguments->rows,
			   arguments->channels, arguments->element, arguments, sizeof(*arguments));
}

int layer_norm_backward(const struct kernel_device *device,
			const struct layer_norm_backward *arguments)
{
	struct layer_norm_backward a = *arguments;
	struct columns_combine combine = {
		.partial = a.partial,
		.sum = a.dbeta,
		.product = a.dgamma,
		.add = a.add_dbeta,
		.add_product = a.add_dgamma,
	};
	int r = 0;

	if (a.dx)
		r = launch_rows(device, layer_norm_backward_kernels,
				layer_norm_backward_wide_kernels, a.rows, a.channels, a.element, &a,
				sizeof(a));
	if (r < 0 || (!a.dgamma && !a.dbeta))
		return r;
	columns_init(&a.columns, device, a.rows, a.channels, a.element, LAYER_NORM_SUMS_RESIDENT);
	return launch_sums(device, layer_norm_sums_kernels, &a.columns, &a, sizeof(a), &combine);
}
