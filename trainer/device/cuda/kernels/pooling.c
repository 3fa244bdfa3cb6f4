/* Launchers of pooling.h. */
#include "trainer/device/cuda/kernels/pooling.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

static uint64_t input_rows(const struct pool_shape *shape)
{
	return (uint64_t)shape->n * shape->h * shape->w;
}

static uint64_t output_rows(const struct pool_shape *shape)
{
	return (uint64_t)shape->n * shape->p * shape->q;
}

static bool fits(const struct pool_shape *shape)
{
	return shape->pad < shape->window && input_rows(shape) <= INT32_MAX &&
	       output_rows(shape) <= INT32_MAX;
}

/* Windows of ResNet's stem, whose backward kernels work on tiles. */
static bool has_tiles(const struct pool_shape *shape)
{
	return shape->window == 3 && shape->stride == 2 && shape->pad == 1 &&
	       shape->p == (shape->h + 1) / 2 && shape->q == (shape->w + 1) / 2;
}

/* Adjacent 2 x 2 windows, whose backward kernels also work on tiles. */
static bool has_pairs(const struct pool_shape *shape)
{
	return shape->window == 2 && shape->stride == 2 && shape->pad == 0 &&
	       shape->p == shape->h / 2 && shape->q == shape->w / 2;
}

static void cut(struct pool_arguments *a, const struct kernel_device *device, uint64_t rows,
		uint32_t resident)
{
	const struct pool_shape *shape = &a->shape;

	columns_init(&a->columns, device, rows, shape->channels, shape->element, resident);
	a->by = (struct pool_dividers){
		.h = divider_of(shape->h),
		.w = divider_of(shape->w),
		.p = divider_of(shape->p),
		.q = divider_of(shape->q),
		.stride = divider_of(shape->stride),
	};
}

/* Kernels without sums. */
static int launch_windows(const struct kernel_device *device, const struct gpu_kernel *kernels,
			  struct pool_arguments a, uint64_t rows)
{
	if (!fits(&a.shape))
		return -EINVAL;
	cut(&a, device, rows, COLUMNS_MAP);
	return launch_columns(device, kernels, &a.columns, &a, sizeof(a));
}

static bool has_maxima(const struct pool_arguments *a)
{
	return a->shape.window <= POOL_WINDOW_MAX &&
	       (a->activation == DEVICE_IDENTITY || a->activation == DEVICE_RELU);
}

int pool_max(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	const struct pool_shape *shape = &arguments->shape;

	if (!has_maxima(arguments))
		return -EINVAL;
	return launch_windows(device,
			      shape->window <= 2 ? pool_max_pairs_kernels : pool_max_kernels,
			      *arguments, output_rows(shape));
}

static int backward_pairs(const struct kernel_device *device, struct pool_arguments a)
{
	uint32_t tiles_h = (a.shape.h + 1) / 2, tiles_w = (a.shape.w + 1) / 2;

	if (!fits(&a.shape))
		return -EINVAL;
	cut(&a, device, (uint64_t)a.shape.n * tiles_h * tiles_w, COLUMNS_MAP);
	a.by.p = divider_of(tiles_h);
	a.by.q = divider_of(tiles_w);
	return launch_columns(device, pool_max_backward_pairs_kernels, &a.columns, &a, sizeof(a));
}

/* By tiles for the stem's windows, else by positions of x. */
static int backward(const struct kernel_device *device, const struct gpu_kernel *kernels,
		    const struct gpu_kernel *tiles, const struct pool_arguments *arguments)
{
	const struct pool_shape *shape = &arguments->shape;

	if (!has_maxima(arguments))
		return -EINVAL;
	if (has_tiles(shape))
		return launch_windows(device, tiles, *arguments, output_rows(shape));
	return launch_windows(device, kernels, *arguments, input_rows(shape));
}

int pool_max_backward(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	if (has_pairs(&arguments->shape))
		return backward_pairs(device, *arguments);
	return backward(device, pool_max_backward_kernels, pool_max_backward_tiles_kernels,
			arguments);
}

int pool_max_norm_reduce(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	struct pool_arguments a = *arguments;
	struct columns_combine combine = {
		.partial = a.partial,
		.sum = a.sum,
		.product = a.products,
		.factor = a.deviation,
	};

	if (!fits(&a.shape) || !has_maxima(&a))
		return -EINVAL;
	cut(&a, device, output_rows(&a.shape), POOL_REDUCE_RESIDENT);
	return launch_sums(device, pool_max_norm_reduce_kernels, &a.columns, &a, sizeof(a),
			   &combine);
}

int pool_max_norm_apply(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	return backward(device, pool_max_norm_apply_kernels, pool_max_norm_apply_tiles_kernels,
			arguments);
}

int pool_average(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	return launch_windows(device, pool_average_kernels, *arguments,
			      output_rows(&arguments->shape));
}

int pool_average_backward(const struct kernel_device *device,
			  const struct pool_arguments *arguments)
{
	return launch_windows(device, pool_average_backward_kernels, *arguments,
			      input_rows(&arguments->shape));
}

/* Forward: a block per image; backward: plain rows. */
static int global(const struct kernel_device *device, const struct gpu_kernel *kernels,
		  struct pool_global a, bool backward)
{
	uint64_t rows = (uint64_t)a.n * a.positions;

	if (rows > INT32_MAX)
		return -EINVAL;
	columns_init(&a.columns, device, rows, a.channels, a.element, COLUMNS_MAP);
	a.by = divider_of(a.positions);
	if (!backward)
		a.columns.blocks_x = a.n;
	return launch_columns(device, kernels, &a.columns, &a, sizeof(a));
}

int pool_global_average(const struct kernel_device *device, const struct pool_global *arguments)
{
	return global(device, pool_global_average_kernels, *arguments, false);
}

int pool_global_average_backward(const struct kernel_device *device,
				 const struct pool_global *arguments)
{
	return global(device, pool_global_average_backward_kernels, *arguments, true);
}

int pool_global_max(const struct kernel_device *device, const struct pool_global *arguments)
{
	return global(device, pool_global_max_kernels, *arguments, false);
}

int pool_global_max_backward(const struct kernel_device *device,
			     const struct pool_global *arguments)
{
	return arguments->index ? global(device, pool_global_max_backward_kernels, *arguments, true)
				: -EINVAL;
}
