/* Launchers of update.h. */
#include "trainer/device/cuda/kernels/update.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

/* Launches one block per chunk. */
static int launch(const struct kernel_device *device, const struct update *update,
		  const struct gpu_kernel *kernel)
{
	return update->chunk_count ? gpu_launch(kernel, update->chunk_count, 1, LAUNCH_THREADS,
						update, sizeof(*update), device->stream)
				   : 0;
}

int update_decide(const struct kernel_device *device, const struct update *update)
{
	int r = launch(device, update, &update_squares_kernel);

	return r < 0 ? r
		     : gpu_launch(&update_decide_kernel, 1, 1, LAUNCH_THREADS, update,
				  sizeof(*update), device->stream);
}

int update_prepare(const struct kernel_device *device, const struct update *update)
{
	int r = 0;

	if (gradients_change(&update->optimizer))
		r = launch(device, update, &update_condition_kernel);
	if (r == 0 && (DEVICE_OPTIMIZERS_BY_MATRIX >> update->optimizer.kind & 1)) {
		r = launch(device, update, &update_direct_kernel);
		if (r == 0)
			r = launch(device, update, &update_total_kernel);
	}
	return r;
}

const double *update_matrix_squares(const struct update *update, uint32_t first)
{
	return update->partial + (uint64_t)first * UPDATE_NORMS;
}

int update_apply(const struct kernel_device *device, const struct update *update)
{
	int r = 0;

	if ((DEVICE_OPTIMIZERS_BY_TENSOR >> update->optimizer.kind & 1)) {
		r = launch(device, update, &update_measure_kernel);
		if (r == 0)
			r = launch(device, update, &update_total_kernel);
	}
	return r < 0 ? r : launch(device, update, &update_apply_kernel);
}

int update_perturb(const struct kernel_device *device, const struct update *update)
{
	return launch(device, update, &update_perturb_kernel);
}

int update_restore(const struct kernel_device *device, const struct update *update)
{
	return launch(device, update, &update_restore_kernel);
}

int update_average(const struct kernel_device *device, const struct update *update)
{
	struct update own = *update;
	int r = 0;

#define FOLLOW(constant, ...)                                                                      \
	own.average = DEVICE_##constant;                                                           \
	if (r == 0 && own.slots[own.average])                                                      \
		r = launch(device, &own, &update_average_kernel);
	DEVICE_AVERAGES(FOLLOW)
#undef FOLLOW
	return r;
}
