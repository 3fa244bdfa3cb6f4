/* Second stage of sums over rows. Reads every partial sum once. */
#include "trainer/device/cuda/kernels/common/kernel.h"

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/kernels/tables.h"

#define CHANNELS 8 /* per block */
#define LINES    (KERNEL_THREADS / CHANNELS)

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	columns_combine_partial(const __grid_constant__ struct columns_combine a)
{
	SHARED(double, sums, 2 * KERNEL_THREADS);
	uint32_t thread = threadIdx.x, channel = blockIdx.x * CHANNELS + thread % CHANNELS;
	double sum = 0, product = 0;

	if (channel < a.channels) {
		for (uint64_t block = thread / CHANNELS; block < a.blocks; block += LINES) {
			sum += (double)a.partial[block * a.channels + channel];
			if (a.product)
				product +=
					(double)a
						.partial[(a.blocks + block) * a.channels + channel];
		}
	}
	sums[thread] = sum;
	sums[KERNEL_THREADS + thread] = product;
	__syncthreads();
	if (thread >= 2 * CHANNELS || channel >= a.channels)
		return;
	sum = 0;
	for (uint32_t line = 0; line < LINES; line++)
		sum += sums[thread / CHANNELS * KERNEL_THREADS + line * CHANNELS +
			    thread % CHANNELS];
	if (thread >= CHANNELS && a.product) {
		sum *= a.factor ? (double)a.factor[channel] : 1;
		a.product[channel] =
			(float)(a.add_product ? (double)a.product[channel] + sum : sum);
	} else if (thread < CHANNELS && a.sum) {
		a.sum[channel] = (float)((a.add ? (double)a.sum[channel] : 0) + sum);
	}
}

KERNEL_TABLE columns_combine_kernel = KERNEL(columns_combine_partial);
