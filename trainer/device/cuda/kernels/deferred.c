/* Launcher of deferred.h. */
#include "trainer/device/cuda/kernels/deferred.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

int deferred_finish(const struct kernel_device *device, const struct deferred_finish *arguments)
{
	return gpu_launch(&deferred_finish_kernel, arguments->count, 1, LAUNCH_THREADS, arguments,
			  sizeof(*arguments), device->stream);
}
