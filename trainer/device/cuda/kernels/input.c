/* Launchers of input.h. */
#include "trainer/device/cuda/kernels/input.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

int step_store(const struct kernel_device *device, const struct step_store *arguments)
{
	return gpu_launch(&step_store_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}

static int launch_input(const struct kernel_device *device, const struct gpu_kernel *kernel,
			const struct input_normalize *arguments)
{
	struct input_normalize a = *arguments;
	uint64_t pixels = (uint64_t)a.n * a.h * a.w;

	if (a.padded < a.channels || pixels > INT32_MAX)
		return -EINVAL;
	a.by_h = divider_of(a.h);
	a.by_w = divider_of(a.w);
	for (uint32_t c = 0; c < 4; c++) {
		a.scale[c] = c < a.channels ? 1 / a.std[c] : 0;
		a.bias[c] = c < a.channels ? -a.mean[c] / a.std[c] : 0;
	}
	return launch_strided(device, kernel, pixels, &a, sizeof(a));
}

int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments)
{
	return launch_input(device, &input_normalize_kernel, arguments);
}

int input_resample(const struct kernel_device *device, const struct input_normalize *arguments)
{
	return launch_input(device, &input_resample_kernel, arguments);
}
