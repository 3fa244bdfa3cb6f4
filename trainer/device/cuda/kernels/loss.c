/* Launchers of loss.h. */
#include "trainer/device/cuda/kernels/loss.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

uint64_t loss_workspace(uint32_t n)
{
	return n * sizeof(struct loss_record);
}

int loss_forward(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	struct loss_arguments a = *arguments;
	bool plain;
	int r;

	if (a.logits_stride < a.classes || (a.dlogits && a.dlogits_stride < a.classes))
		return -EINVAL;
	a.logit_scale = a.logit_scale == 0 ? 1 : a.logit_scale;
	a.temperature = a.temperature == 0 ? 1 : a.temperature;
	a.teacher_temperature = a.teacher_temperature == 0 ? 1 : a.teacher_temperature;
	plain = a.kind == DEVICE_SOFTMAX && a.targets == DEVICE_LABELS && !a.class_weights &&
		!(a.teacher_weight > 0);
	r = gpu_launch(plain ? &loss_softmax_kernel : &loss_any_kernel, a.n, 1, LAUNCH_THREADS, &a,
		       sizeof(a), device->stream);
	return r < 0 ? r
		     : gpu_launch(&loss_total_kernel, 1, 1, LAUNCH_THREADS, &a, sizeof(a),
				  device->stream);
}

int loss_count(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	return gpu_launch(&loss_count_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}

int loss_share(const struct kernel_device *device, const struct loss_arguments *arguments)
{
	return gpu_launch(&loss_share_kernel, 1, 1, LAUNCH_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}
