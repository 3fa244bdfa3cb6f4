/* Launchers of tokens.h. */
#include "trainer/device/cuda/kernels/tokens.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

/* Launches one thread per group of channels in `rows` rows. */
static int tokens_launch(const struct kernel_device *device, const struct gpu_kernel *kernels,
			 const struct tokens_arguments *arguments, uint64_t rows)
{
	struct tokens_arguments a = *arguments;
	uint32_t instance = columns_instance(a.element, a.channels);
	uint64_t tokens = a.tokens > a.places ? a.tokens : a.places;

	if (a.n * tokens * a.channels > INT32_MAX)
		return -EINVAL;
	a.groups = instance % 2 ? a.channels : a.channels * cuda_element_size(a.element) / 16;
	a.by_groups = divider_of(a.groups);
	a.by_tokens = divider_of(a.tokens);
	a.by_places = divider_of(a.places);
	return launch_flat(device, &kernels[instance], rows * a.groups, &a, sizeof(a));
}

int tokens_forward(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, tokens_forward_kernels, arguments,
			     (uint64_t)arguments->n * arguments->tokens);
}

int tokens_backward(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, tokens_backward_kernels, arguments, arguments->tokens);
}

/* Launches one thread per output element. The tensor is small, and this runs once per step. */
static int tokens_launch_resize(const struct kernel_device *device, const struct gpu_kernel *kernel,
				const struct tokens_resize *arguments, uint64_t places)
{
	struct tokens_resize a = *arguments;
	uint64_t count = (a.size.first + places) * a.size.channels;

	if (count > INT32_MAX)
		return -EINVAL;
	a.by_channels = divider_of(a.size.channels);
	return launch_flat(device, kernel, count, &a, sizeof(a));
}

int tokens_resize(const struct kernel_device *device, const struct tokens_resize *arguments)
{
	return tokens_launch_resize(device, &tokens_resize_kernel, arguments,
				    (uint64_t)arguments->size.h * arguments->size.w);
}

int tokens_resize_backward(const struct kernel_device *device,
			   const struct tokens_resize *arguments)
{
	return tokens_launch_resize(device, &tokens_resize_backward_kernel, arguments,
				    (uint64_t)arguments->size.side * arguments->size.side);
}

int tokens_take(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, tokens_take_kernels, arguments, arguments->n);
}

int tokens_take_backward(const struct kernel_device *device,
			 const struct tokens_arguments *arguments)
{
	return tokens_launch(device, tokens_take_backward_kernels, arguments,
			     (uint64_t)arguments->n * arguments->places);
}
