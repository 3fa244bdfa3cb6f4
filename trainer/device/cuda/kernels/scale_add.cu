/*
 * Kernels of scale_add.h. A block sums a tile of channels over some or all of a sample's positions.
 * Later passes over [n][channels] turn these sums into the gradients of the gate and gamma.
 */
#include "trainer/device/cuda/kernels/scale_add.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

#define KERNEL_BODY "trainer/device/cuda/kernels/common/scale_add_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

/*
 * Computes the gates' gradients from the sums of dz x times drop-path, and replaces each sum by the
 * term that gamma's gradient adds up.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	scale_add_gates(const __grid_constant__ struct scale_add_arguments a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
	float product;

	if (at >= (uint64_t)a.n * a.channels)
		return;
	product = a.partial[at];
	kernel_store(a.dgate, at, a.element, product * (a.gamma ? a.gamma[at % a.channels] : 1));
	a.partial[at] = product * kernel_load(a.gate, at, a.element);
}

SCALE_ADD_KERNELS(INSTANCES)
KERNEL_TABLE scale_add_gates_kernel = KERNEL(scale_add_gates);
