/* Kernels and launchers of tokens.h. */
extern "C" {
#include "trainer/device/cuda/kernels/tokens.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/vector_types.h"

#include <errno.h>

#define SAMPLES 4 /* samples that a thread loads at once */

/* A thread's row and group of channels. */
struct tokens_place {
	uint32_t row, group;
};

DEVICE struct tokens_place tokens_here(const struct tokens_arguments *a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	struct tokens_place here;

	here.row = kernel_divide(at, a->by_groups);
	here.group = at - here.row * a->groups;
	return here;
}

/* Launches one thread per group of channels in `rows` rows. */
static int tokens_launch(const struct kernel_device *device,
			 const struct gpu_kernel (&instances)[KERNEL_INSTANCES],
			 const struct tokens_arguments *arguments, uint64_t rows)
{
	struct tokens_arguments a = *arguments;
	uint32_t instance = kernel_instance(a.element, a.channels);
	uint64_t tokens = a.tokens > a.places ? a.tokens : a.places;

	if (a.n * tokens * a.channels > INT32_MAX)
		return -EINVAL;
	a.groups = instance % 2 ? a.channels : a.channels * cuda_element_size(a.element) / 16;
	a.by_groups = divider_of(a.groups);
	a.by_tokens = divider_of(a.tokens);
	a.by_places = divider_of(a.places);
	return launch_flat(device, instances[instance], rows * a.groups, &a);
}

/* One thread per group of channels of y. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_forward_kernel(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES, first = a.tokens - a.places;
	float v[LANES], position[LANES];

	if (here.row >= a.n * a.tokens)
		return;
	uint32_t sample = kernel_divide(here.row, a.by_tokens);
	uint32_t token = here.row - sample * a.tokens;
	if (token < first) {
		load_channels(v, a.class_token, channel, 0);
	} else {
		uint64_t place = (uint64_t)sample * a.places + token - first;

		unpack(v, load<V>(a.x, place * a.channels + channel));
	}
	load_channels(position, a.positions + (uint64_t)token * a.channels, channel, 0);
	add(v, position);
	store<V>(a.y, (uint64_t)here.row * a.channels + channel, v);
}

int tokens_forward(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, INSTANCES(tokens_forward_kernel), arguments,
			     (uint64_t)arguments->n * arguments->tokens);
}

template <typename V, uint32_t LANES = V::LANES>
DEVICE void tokens_gradient(float *to, uint64_t at, const float *sum, uint32_t add)
{
	EACH(i, LANES)
		to[at + i] = add ? to[at + i] + sum[i] : sum[i];
}

/* One thread per group of channels of a token; it loops over all samples. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_backward_kernel(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES, first = a.tokens - a.places;
	const uint64_t at = (uint64_t)here.row * a.channels + channel;
	const uint64_t step = (uint64_t)a.tokens * a.channels;
	const uint64_t step_x = (uint64_t)a.places * a.channels;
	float sum[LANES];

	if (here.row >= a.tokens)
		return;
	fill(sum, 0);
	for (uint32_t n = 0; n < a.n; n += SAMPLES) {
		V raw[SAMPLES];

		EACH_IF(u, SAMPLES, n + u < a.n)
			raw[u] = load<V>(a.dy, at + (n + u) * step);
		EACH_IF(u, SAMPLES, n + u < a.n) {
			float v[LANES];

			unpack(v, raw[u]);
			add(sum, v);
			if (a.dx && here.row >= first) {
				uint64_t to = at - (uint64_t)first * a.channels + (n + u) * step_x;

				store<V>(a.dx, to, v);
			}
		}
	}
	if (a.dpositions)
		tokens_gradient<V>(a.dpositions, at, sum, a.add_positions);
	if (a.dclass_token && here.row < first)
		tokens_gradient<V>(a.dclass_token, channel, sum, a.add_class_token);
}

int tokens_backward(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, INSTANCES(tokens_backward_kernel), arguments,
			     arguments->tokens);
}

/* One thread per group of channels of y. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_take_kernel(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES;
	float v[LANES];

	if (here.row >= a.n)
		return;
	uint64_t from = ((uint64_t)here.row * a.places + a.taken) * a.channels + channel;
	unpack(v, load<V>(a.x, from));
	store<V>(a.y, (uint64_t)here.row * a.channels + channel, v);
}

int tokens_take(const struct kernel_device *device, const struct tokens_arguments *arguments)
{
	return tokens_launch(device, INSTANCES(tokens_take_kernel), arguments, arguments->n);
}

/* One thread per group of channels of dx. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_take_backward_kernel(const __grid_constant__ struct tokens_arguments a)
{
	const struct tokens_place here = tokens_here(&a);
	const uint32_t channel = here.group * LANES;
	float v[LANES];

	if (here.row >= a.n * a.places)
		return;
	uint32_t sample = kernel_divide(here.row, a.by_places);
	fill(v, 0);
	if (here.row - sample * a.places == a.taken)
		unpack(v, load<V>(a.dy, (uint64_t)sample * a.channels + channel));
	store<V>(a.dx, (uint64_t)here.row * a.channels + channel, v);
}

int tokens_take_backward(const struct kernel_device *device,
			 const struct tokens_arguments *arguments)
{
	return tokens_launch(device, INSTANCES(tokens_take_backward_kernel), arguments,
			     (uint64_t)arguments->n * arguments->places);
}

/* ---- resizing position embeddings ---- */

/* Value at a position of the new size: the weighted mean of positions of the old size. */
DEVICE float tokens_resized(const struct tokens_resize *a, uint32_t place, uint32_t channel)
{
	const uint32_t row = place / a->size.w;
	const struct pos_embed_window y = pos_embed_window(row, a->size.side, a->size.h);
	const struct pos_embed_window x =
		pos_embed_window(place - row * a->size.w, a->size.side, a->size.w);
	float sum = 0;

	for (uint32_t i = y.first; i < y.first + y.count; i++)
		for (uint32_t j = x.first; j < x.first + x.count; j++) {
			uint64_t from = a->size.first + i * a->size.side + j;

			sum += pos_embed_weight(&y, i) * pos_embed_weight(&x, j) *
			       a->from[from * a->size.channels + channel];
		}
	return sum / (y.sum * x.sum);
}

/* Weight of old row or column `at` in new row or column `place`. */
DEVICE float tokens_weight(uint32_t at, uint32_t place, uint32_t from, uint32_t to)
{
	const struct pos_embed_window window = pos_embed_window(place, from, to);

	if (at < window.first || at >= window.first + window.count)
		return 0;
	return pos_embed_weight(&window, at) / window.sum;
}

/*
 * Gradient at a position of the old size: the weighted sum over the positions of the new size that
 * read it.
 */
DEVICE float tokens_unsized(const struct tokens_resize *a, uint32_t place, uint32_t channel)
{
	const uint32_t row = place / a->size.side, column = place - row * a->size.side;
	float sum = 0;

	for (uint32_t i = 0; i < a->size.h; i++) {
		const float y = tokens_weight(row, i, a->size.side, a->size.h);

		for (uint32_t j = 0; j < a->size.w && y != 0; j++) {
			const float x = tokens_weight(column, j, a->size.side, a->size.w);
			uint64_t from = a->size.first + i * a->size.w + j;

			if (x != 0)
				sum += y * x * a->from[from * a->size.channels + channel];
		}
	}
	return sum;
}

/* Launches one thread per output element. The tensor is small, and this runs once per step. */
static int tokens_launch_resize(const struct kernel_device *device, const struct gpu_kernel &kernel,
				const struct tokens_resize *arguments, uint64_t places)
{
	struct tokens_resize a = *arguments;
	uint64_t count = (a.size.first + places) * a.size.channels;

	if (count > INT32_MAX)
		return -EINVAL;
	a.by_channels = divider_of(a.size.channels);
	return launch_flat(device, kernel, count, &a);
}

/* One thread per element of `to`. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_resize_kernel(const __grid_constant__ struct tokens_resize a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint32_t token = kernel_divide(at, a.by_channels);
	uint32_t channel = at - token * a.size.channels;

	if (token < a.size.first + a.size.h * a.size.w)
		a.to[at] = token < a.size.first ? a.from[at]
						: tokens_resized(&a, token - a.size.first, channel);
}

int tokens_resize(const struct kernel_device *device, const struct tokens_resize *arguments)
{
	return tokens_launch_resize(device, KERNEL(tokens_resize_kernel), arguments,
				    (uint64_t)arguments->size.h * arguments->size.w);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_resize_backward_kernel(const __grid_constant__ struct tokens_resize a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint32_t token = kernel_divide(at, a.by_channels);
	uint32_t channel = at - token * a.size.channels;

	if (token >= a.size.first + a.size.side * a.size.side)
		return;
	float sum = token < a.size.first ? a.from[at]
					 : tokens_unsized(&a, token - a.size.first, channel);
	a.to[at] = a.add ? a.to[at] + sum : sum;
}

int tokens_resize_backward(const struct kernel_device *device,
			   const struct tokens_resize *arguments)
{
	return tokens_launch_resize(device, KERNEL(tokens_resize_backward_kernel), arguments,
				    (uint64_t)arguments->size.side * arguments->size.side);
}
