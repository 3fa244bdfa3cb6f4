/* Launchers of elementwise.h. */
#include "trainer/device/cuda/kernels/elementwise.h"

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/tables.h"

#include <errno.h>

/* Elements per load: 16 bytes if all pointers are aligned to that. */
static uint32_t flat_lanes(enum cuda_element element, const void *a, const void *b, const void *c)
{
	bool aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;

	return aligned ? 16 / cuda_element_size(element) : 1;
}

static int launch_packs(const struct kernel_device *device, const struct gpu_kernel *kernels,
			enum cuda_element element, uint32_t lanes, uint64_t packs,
			const void *arguments, size_t size)
{
	/* single elements, too, if there is no whole group */
	return launch_strided(device, &kernels[(uint32_t)element * 2 + (lanes == 1)],
			      packs ? packs : 1, arguments, size);
}

int elementwise_add(const struct kernel_device *device, const struct elementwise_add *arguments)
{
	struct elementwise_add a = *arguments;
	uint32_t lanes = flat_lanes(a.element, a.a, a.b, a.y);

	a.packs = a.count / lanes;
	return launch_packs(device, elementwise_add_kernels, a.element, lanes, a.packs, &a,
			    sizeof(a));
}

int elementwise_check(const struct kernel_device *device, const struct elementwise_check *arguments)
{
	struct elementwise_check a = *arguments;
	uint32_t lanes = flat_lanes(a.element, a.x, NULL, NULL);

	if (a.count >> 40 || a.tensor >= (1u << 24) - 1)
		return -EINVAL;
	a.packs = a.count / lanes;
	return launch_packs(device, elementwise_check_kernels, a.element, lanes, a.packs, &a,
			    sizeof(a));
}

int elementwise_copy(const struct kernel_device *device, const struct elementwise_copy *arguments)
{
	struct elementwise_copy a = *arguments;
	uint32_t lanes = flat_lanes(a.from_element, a.from, a.to, NULL);

	if (a.from_columns != a.to_columns)
		return launch_flat(device, &elementwise_copy_columns_kernel, a.rows * a.to_columns,
				   &a, sizeof(a));
	a.packs = a.rows * a.to_columns / lanes;
	return launch_packs(device, elementwise_copy_kernels, a.from_element, lanes, a.packs, &a,
			    sizeof(a));
}

static uint32_t copies_lanes(const struct elementwise_copies *copies)
{
	uint32_t lanes = 16;

	for (uint32_t i = 0; i < copies->count; i++) {
		const struct elementwise_copy *copy = &copies->list[i];
		uint32_t own = flat_lanes(copy->from_element, copy->from, copy->to, NULL);

		lanes = own < lanes ? own : lanes;
	}
	return lanes;
}

int elementwise_copies(const struct kernel_device *device,
		       const struct elementwise_copies *arguments)
{
	struct elementwise_copies a = *arguments;
	uint32_t lanes = copies_lanes(&a), element = a.list[0].from_element;
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < a.count; i++) {
		struct elementwise_copy *copy = &a.list[i];

		if (copy->from_columns != copy->to_columns || copy->from_element != element)
			return -EINVAL;
		copy->packs = copy->rows * copy->to_columns / lanes;
		a.blocks[i] = (uint32_t)blocks;
		blocks += copy->packs / ELEMENTWISE_BLOCK + 1;
	}
	return gpu_launch(&elementwise_copies_kernels[element * 2 + (lanes == 1)], (uint32_t)blocks,
			  1, LAUNCH_THREADS, &a, sizeof(a), device->stream);
}

int elementwise_fold(const struct kernel_device *device, const struct elementwise_fold *arguments)
{
	return launch_flat(device, &elementwise_fold_kernel,
			   (uint64_t)arguments->k * arguments->positions * arguments->to_columns,
			   arguments, sizeof(*arguments));
}
