/* Launchers of update.h. */
#include "trainer/device/cuda/kernels/update.h"

#include "trainer/device/cuda/kernels/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

int update_decide(const struct kernel_device *device, const struct update *update)
{
	int r = 0;

	if (update->chunk_count)
		r = gpu_launch(&update_squares_kernel, update->chunk_count, 1, LAUNCH_THREADS,
			       update, sizeof(*update), device->stream);
	return r < 0 ? r
		     : gpu_launch(&update_decide_kernel, 1, 1, LAUNCH_THREADS, update,
				  sizeof(*update), device->stream);
}

int update_apply(const struct kernel_device *device, const struct update *update)
{
	return !update->chunk_count
		       ? 0
		       : gpu_launch(&update_apply_kernel, update->chunk_count, 1, LAUNCH_THREADS,
				    update, sizeof(*update), device->stream);
}
