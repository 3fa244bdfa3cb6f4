/* Launchers of norm.h. */
#include "trainer/device/cuda/kernels/norm.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

int norm_statistics(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	struct columns_combine combine = {
		.partial = a.partial, .sum = a.sum, .product = a.products};

	columns_init(&a.columns, device, a.rows, a.channels, a.element, NORM_STATISTICS_RESIDENT);
	return launch_sums(device, norm_statistics_kernels, &a.columns, &a, sizeof(a), &combine);
}

int norm_finalize(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_flat(device, &norm_finalize_kernel, arguments->channels, arguments,
			   sizeof(*arguments));
}

int norm_running(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_flat(device, &norm_running_kernel, arguments->channels, arguments,
			   sizeof(*arguments));
}

/* Neither identity nor ReLU; has separate kernels. */
static bool is_curved(enum device_activation activation)
{
	return activation == DEVICE_GELU || activation == DEVICE_LOGISTIC;
}

int norm_apply(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;

	columns_init(&a.columns, device, a.rows, a.channels, a.element, COLUMNS_MAP);
	return launch_columns(
		device, is_curved(a.activation) ? norm_apply_curved_kernels : norm_apply_kernels,
		&a.columns, &a, sizeof(a));
}

/* True if all operands of the activation and the sums are present. */
static bool is_complete(const struct norm_arguments *a)
{
	bool from_x = is_curved(a->activation) || (a->activation == DEVICE_RELU && !a->y);

	return a->dy && (a->dz || a->sum) && (a->x || (!from_x && !a->products)) &&
	       (!a->products || (a->sum && a->mean && a->deviation)) && (a->partial || !a->sum);
}

static const struct gpu_kernel *backward_kernels(const struct norm_arguments *a)
{
	bool curved = is_curved(a->activation);
	bool lean = !a->dy2 && !a->dz &&
		    (a->activation == DEVICE_IDENTITY || (!a->residual && (curved || !a->y)));

	if (curved)
		return lean ? norm_backward_curved_lean_kernels : norm_backward_curved_kernels;
	return lean ? norm_backward_lean_kernels : norm_backward_kernels;
}

int norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	struct columns_combine combine = {
		.partial = a.partial,
		.sum = a.sum,
		.product = a.products,
		.factor = a.deviation,
		.add = a.add_sum,
	};

	if (!is_complete(&a))
		return -EINVAL;
	columns_init(&a.columns, device, a.rows, a.channels, a.element,
		     a.sum ? NORM_BACKWARD_RESIDENT : COLUMNS_MAP);
	if (!a.sum)
		return launch_columns(device, backward_kernels(&a), &a.columns, &a, sizeof(a));
	return launch_sums(device, backward_kernels(&a), &a.columns, &a, sizeof(a), &combine);
}

int norm_backward_finalize(const struct kernel_device *device,
			   const struct norm_arguments *arguments)
{
	return launch_flat(device, &norm_backward_finalize_kernel, arguments->channels, arguments,
			   sizeof(*arguments));
}

int norm_backward_apply(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
	bool curved = a.scale && is_curved(a.activation);

	columns_init(&a.columns, device, a.rows, a.channels, a.element, COLUMNS_MAP);
	return launch_columns(
		device, curved ? norm_backward_apply_curved_kernels : norm_backward_apply_kernels,
		&a.columns, &a, sizeof(a));
}

/* ---- layer norm ---- */

#define WARPS (LAUNCH_THREADS / 32)

/* Launches the kernel with a warp per row, or the one with a block per row. */
static int launch_rows(const struct kernel_device *device, const struct gpu_kernel *warps,
		       const struct gpu_kernel *blocks, const struct norm_arguments *a)
{
	bool wide = a->channels > LAYER_NORM_WARP_MAX;
	const struct gpu_kernel *kernels = wide ? blocks : warps;

	if (a->rows > INT32_MAX)
		return -EINVAL;
	return gpu_launch(&kernels[columns_instance(a->element, a->channels)],
			  (uint32_t)(wide ? a->rows : (a->rows + WARPS - 1) / WARPS), 1,
			  LAUNCH_THREADS, a, sizeof(*a), device->stream);
}

int layer_norm_forward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	return launch_rows(device, layer_norm_kernels, layer_norm_wide_kernels, arguments);
}

int layer_norm_backward(const struct kernel_device *device, const struct norm_arguments *arguments)
{
	struct norm_arguments a = *arguments;
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
				layer_norm_backward_wide_kernels, &a);
	if (r < 0 || (!a.dgamma && !a.dbeta))
		return r;
	columns_init(&a.columns, device, a.rows, a.channels, a.element, LAYER_NORM_SUMS_RESIDENT);
	return launch_sums(device, layer_norm_sums_kernels, &a.columns, &a, sizeof(a), &combine);
}
