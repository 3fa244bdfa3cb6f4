/* Means over windows: kernels and launchers of pooling.h. */
#include "trainer/device/cuda/kernels/common/pool_window.h"

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_average_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.grid) {
		struct pool_window window = pool_window_of_output(s, &a.by, (uint32_t)row);
		float sum[LANES], v[LANES];

		fill(sum, 0);
		for (uint32_t r = window.r_first; r < window.r_last; r++) {
			uint64_t line = ((uint64_t)window.image * s->h + (window.h + r)) * s->w;

			for (uint32_t k = window.s_first; k < window.s_last; k++) {
				uint64_t at = (line + (window.w + k)) * s->channels + here.channel;

				unpack(v, load<V>(a.x, at));
				add(sum, v);
			}
		}
		EACH(i, LANES)
			sum[i] /= (float)pool_window_count(&window);
		store<V>(a.y, row * s->channels + here.channel, sum);
	}
}

int pool_average(const struct kernel_device *device, const struct pool_arguments *arguments)
{
	return launch_windows(device, INSTANCES(pool_average_kernel), *arguments,
			      pool_output_rows(&arguments->shape));
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	pool_average_backward_kernel(const __grid_constant__ struct pool_arguments a)
{
	struct thread_position here = thread_position_of<V>(&a.grid);
	const struct pool_shape *s = &a.shape;

	POOL_ROWS(row, here, a.grid) {
		struct pool_cover cover = pool_cover_of_input(s, &a.by, (uint32_t)row);
		float sum[LANES], v[LANES];

		fill(sum, 0);
		for (uint32_t p = cover.p_first; p < cover.p_last; p++) {
			for (uint32_t q = cover.q_first; q < cover.q_last; q++) {
				uint64_t output = pool_output(&cover, p, q, s);
				uint64_t at = output * s->channels + here.channel;
				struct pool_window window =
					pool_window_of_output(s, &a.by, (uint32_t)output);

				unpack(v, load<V>(a.dy, at));
				EACH(i, LANES)
					sum[i] += v[i] / (float)pool_window_count(&window);
			}
		}
		store<V>(a.dx, row * s->channels + here.channel, sum);
	}
}

int pool_average_backward(const struct kernel_device *device,
			  const struct pool_arguments *arguments)
{
	return launch_windows(device, INSTANCES(pool_average_backward_kernel), *arguments,
			      pool_input_rows(&arguments->shape));
}
