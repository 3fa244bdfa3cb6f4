/* Launchers of scale_add.h. */
#include "trainer/device/cuda/kernels/scale_add.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

/* Blocks per multiprocessor, to balance load. */
#define BLOCKS 4

static uint32_t divide_up(uint64_t a, uint64_t b)
{
	return (uint32_t)((a + b - 1) / b);
}

/* A gate's gradient must be the sum of a single block. */
static void cut(struct scale_add_arguments *a, const struct kernel_device *device)
{
	uint32_t wanted, most;

	columns_init(&a->columns, device, (uint64_t)a->n * a->positions, a->channels, a->element,
		     COLUMNS_MAP);
	wanted = divide_up((uint64_t)BLOCKS * device->multiprocessors,
			   (uint64_t)a->n * a->columns.blocks_y);
	most = divide_up(a->positions, a->columns.height * COLUMNS_UNROLL);
	a->parts = a->dgate ? 1 : wanted < most ? wanted : most;
	a->share = divide_up(a->positions, a->parts);
	a->parts = divide_up(a->positions, a->share);
	a->columns.blocks_x = a->n * a->parts;
}

uint64_t scale_add_workspace(uint32_t multiprocessors, uint32_t n, uint32_t channels)
{
	/* as many parts as cut() makes at most, which is without a second tile of channels */
	uint64_t blocks = (uint64_t)n + (uint64_t)BLOCKS * multiprocessors;

	return sizeof(float) * blocks * channels;
}

int scale_add_forward(const struct kernel_device *device,
		      const struct scale_add_arguments *arguments)
{
	struct scale_add_arguments a = *arguments;

	cut(&a, device);
	return launch_columns(device, scale_add_kernels, &a.columns, &a, sizeof(a));
}

int scale_add_backward(const struct kernel_device *device,
		       const struct scale_add_arguments *arguments)
{
	struct scale_add_arguments a = *arguments;
	struct columns_combine combine = {
		.partial = a.partial, .sum = a.dgamma, .add = a.add_dgamma};
	bool sums = a.dgate || a.dgamma;
	int r;

	if (!sums)
		a.partial = NULL;
	if ((!sums && !a.dz && !a.dx) || (sums && (!a.x || !a.partial)))
		return -EINVAL;
	cut(&a, device);
	combine.blocks = a.columns.blocks_x;
	combine.channels = a.channels;
	r = launch_columns(device, scale_add_backward_kernels, &a.columns, &a, sizeof(a));
	if (r == 0 && a.dgate)
		r = launch_flat(device, &scale_add_gates_kernel, (uint64_t)a.n * a.channels, &a,
				sizeof(a));
	return r == 0 && a.dgamma ? columns_combine(device, &combine) : r;
}
