/* Launchers of orthogonalize.h. */
#include "trainer/device/cuda/kernels/orthogonalize.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

int orthogonalize_begin(const struct kernel_device *device,
			const struct orthogonalize_matrix *arguments)
{
	return launch_flat(device, &orthogonalize_begin_kernel,
			   (uint64_t)arguments->x_rows * arguments->x_columns, arguments,
			   sizeof(*arguments));
}

int orthogonalize_end(const struct kernel_device *device,
		      const struct orthogonalize_matrix *arguments)
{
	return launch_flat(device, &orthogonalize_end_kernel,
			   (uint64_t)arguments->rows * arguments->columns, arguments,
			   sizeof(*arguments));
}

int orthogonalize_combine(const struct kernel_device *device,
			  const struct orthogonalize_combine *arguments)
{
	return launch_flat(device, &orthogonalize_combine_kernel,
			   (uint64_t)arguments->side * arguments->side, arguments,
			   sizeof(*arguments));
}
