/* Launchers of ends.h. */
#include "trainer/device/cuda/kernels/ends.h"

#include "trainer/device/cuda/kernels/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

int step_store(const struct kernel_device *device, const struct step_store *arguments)
{
	return gpu_launch(&step_store_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}

int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments)
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
	return launch_strided(device, &input_normalize_kernel, pixels, &a, sizeof(a));
}

uint64_t loss_workspace(uint32_t n)
{
	return n * sizeof(struct loss_record);
}

int loss_softmax(const struct kernel_device *device, const struct loss_softmax *arguments)
{
	struct loss_softmax a = *arguments;
	int r;

	if (a.logits_stride < a.classes || (a.dlogits && a.dlogits_stride < a.classes))
		return -EINVAL;
	a.logit_scale = a.logit_scale == 0 ? 1 : a.logit_scale;
	r = gpu_launch(&loss_softmax_kernel, a.n, 1, LAUNCH_THREADS, &a, sizeof(a), device->stream);
	return r < 0 ? r
		     : gpu_launch(&loss_total_kernel, 1, 1, LAUNCH_THREADS, &a, sizeof(a),
				  device->stream);
}

int loss_count(const struct kernel_device *device, const struct loss_softmax *arguments)
{
	return gpu_launch(&loss_count_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}

int loss_share(const struct kernel_device *device, const struct loss_softmax *arguments)
{
	return gpu_launch(&loss_share_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}
