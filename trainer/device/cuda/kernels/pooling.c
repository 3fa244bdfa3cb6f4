/* Launchers of pool.h. */
#include "trainer/device/cuda/kernels/pooling.h"

#include "trainer/device/cuda/kernels/launch.h"
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

static bool fits(const struct pool_shape *shape, bool maximum)
{
	return (!maximum || shape->window <= POOL_WINDOW_MAX) && shape->pad < shape->window &&
	       input_rows(shape) <= INT32_MAX && output_rows(shape) <= INT32_MAX;
}

/* Windows of ResNet's stem, whose backward kernels go by tiles. */
static bool has_tiles(const struct pool_shape *shape)
{
	return shape->window == 3 && shape->stride == 2 && shape->pad == 1 &&
	       shape->p == (shape->h + 1) / 2 && shape->q == (shape->w + 1) / 2;
}

/* Windows of 2 x 2 side by side, which go backward by tiles, too. */
static bool has_pairs(const struct pool_shape *shape)
{
	return shape->window == 2 && shape->stride == 2 && shape->pad == 0 &&
	       shape->p == shape->h / 2 && shape->q == shape->w / 2;
}

static uint64_t backward_rows(const struct pool_shape *shape)
{
	return has_tiles(shape) ? output_rows(shape) : input_rows(shape);
}

static struct pool_dividers cut(struct columns *columns, const struct kernel_device *device,
				const struct pool_shape *shape, uint64_t rows, uint32_t resident)
{
	columns_init(columns, device, rows, shape->channels, shape->element, resident);
	return (struct pool_dividers){
		.h = divider_of(shape->h),
		.w = divider_of(shape->w),
		.p = divider_of(shape->p),
		.q = divider_of(shape->q),
		.stride = divider_of(shape->stride),
	};
}

int pool_max(const struct kernel_device *device, const struct pool_max *arguments)
{
	struct pool_max a = *arguments;

	if (!fits(&a.shape, true) || (a.scale && a.activation == DEVICE_GELU))
		return -EINVAL;
	a.by = cut(&a.columns, device, &a.shape, output_rows(&a.shape), COLUMNS_MAP);
	return launch_columns(device,
			      a.shape.window <= 2 ? pool_max_pairs_kernels : pool_max_kernels,
			      &a.columns, &a, sizeof(a));
}

static int backward_pairs(const struct kernel_device *device, struct pool_max_backward a)
{
	uint32_t tiles_h = (a.shape.h + 1) / 2, tiles_w = (a.shape.w + 1) / 2;

	a.by = cut(&a.columns, device, &a.shape, (uint64_t)a.shape.n * tiles_h * tiles_w,
		   COLUMNS_MAP);
	a.by.p = divider_of(tiles_h);
	a.by.q = divider_of(tiles_w);
	return launch_columns(device, pool_max_backward_pairs_kernels, &a.columns, &a, sizeof(a));
}

int pool_max_backward(const struct kernel_device *device, const struct pool_max_backward *arguments)
{
	struct pool_max_backward a = *arguments;

	if (!fits(&a.shape, true))
		return -EINVAL;
	if (has_pairs(&a.shape))
		return backward_pairs(device, a);
	a.by = cut(&a.columns, device, &a.shape, backward_rows(&a.shape), COLUMNS_MAP);
	return launch_columns(device,
			      has_tiles(&a.shape) ? pool_max_backward_tiles_kernels
						  : pool_max_backward_kernels,
			      &a.columns, &a, sizeof(a));
}

int pool_max_norm_reduce(const struct kernel_device *device,
			 const struct pool_max_norm_reduce *arguments)
{
	struct pool_max_norm_reduce a = *arguments;
	int r;

	if (!fits(&a.shape, true) || a.activation == DEVICE_GELU)
		return -EINVAL;
	a.by = cut(&a.columns, device, &a.shape, output_rows(&a.shape), POOL_REDUCE_RESIDENT);
	r = launch_columns(device, pool_max_norm_reduce_kernels, &a.columns, &a, sizeof(a));
	return r < 0 ? r
		     : columns_combine(device, &(struct columns_combine){
						       .partial = a.partial,
						       .blocks = a.columns.blocks_x,
						       .channels = a.shape.channels,
						       .sum = a.sum,
						       .product = a.products,
						       .factor = a.deviation,
					       });
}

int pool_max_norm_apply(const struct kernel_device *device,
			const struct pool_max_norm_apply *arguments)
{
	struct pool_max_norm_apply a = *arguments;

	if (!fits(&a.shape, true) || a.activation == DEVICE_GELU)
		return -EINVAL;
	a.by = cut(&a.columns, device, &a.shape, backward_rows(&a.shape), COLUMNS_MAP);
	return launch_columns(device,
			      has_tiles(&a.shape) ? pool_max_norm_apply_tiles_kernels
						  : pool_max_norm_apply_kernels,
			      &a.columns, &a, sizeof(a));
}

static int average(const struct kernel_device *device, const struct gpu_kernel *kernels,
		   struct pool_average a, uint64_t rows)
{
	if (!fits(&a.shape, false))
		return -EINVAL;
	a.by = cut(&a.columns, device, &a.shape, rows, COLUMNS_MAP);
	return launch_columns(device, kernels, &a.columns, &a, sizeof(a));
}

int pool_average(const struct kernel_device *device, const struct pool_average *arguments)
{
	return average(device, pool_average_kernels, *arguments, output_rows(&arguments->shape));
}

int pool_average_backward(const struct kernel_device *device, const struct pool_average *arguments)
{
	return average(device, pool_average_backward_kernels, *arguments,
		       input_rows(&arguments->shape));
}

/* Forward: an image for each block; backward: rows as they come. */
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
