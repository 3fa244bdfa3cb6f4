/* Kernels and launchers of elementwise.h. */
extern "C" {
#include "trainer/device/cuda/kernels/elementwise.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/cuda/kernels/common/vector_types.h"

#include <errno.h>

#define FLAT_UNROLL 4
/* Packs per block of elementwise_copies(): FLAT_UNROLL per thread. */
#define ELEMENTWISE_BLOCK (FLAT_UNROLL * KERNEL_THREADS)

/* Elements per load: 16 bytes if all pointers are aligned to that. */
static uint32_t flat_lanes(enum cuda_element element, const void *a, const void *b, const void *c)
{
	bool aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;

	return aligned ? 16 / cuda_element_size(element) : 1;
}

template <typename A>
static int launch_packs(const struct kernel_device *device,
			const struct gpu_kernel (&instances)[KERNEL_INSTANCES],
			enum cuda_element element, uint32_t lanes, const A *arguments)
{
	/* also launch without a whole group: the kernel handles the remaining elements */
	return launch_strided(device, instances[(uint32_t)element * 2 + (lanes == 1)],
			      arguments->packs ? arguments->packs : 1, arguments);
}

/*
 * Kernels over flat arrays process `packs` groups of LANES elements, then the remaining elements
 * one by one.
 */

DEVICE uint64_t elementwise_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Stores a value in one element of `to`, or adds it. Storing preserves the sign of zero. */
DEVICE void elementwise_put(const struct elementwise_copy *a, uint64_t at, float value)
{
	kernel_store(a->to, at, a->to_element,
		     a->add ? value + kernel_load(a->to, at, a->to_element) : value);
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	elementwise_add_kernel(const __grid_constant__ struct elementwise_add a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		V left[FLAT_UNROLL], right[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			left[u] = load<V>(a.a, (first + u * threads) * LANES);
			right[u] = load<V>(a.b, (first + u * threads) * LANES);
		}
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			float v[LANES], w[LANES];

			unpack(v, left[u]);
			unpack(w, right[u]);
			add(v, w);
			store<V>(a.y, (first + u * threads) * LANES, v);
		}
	}
	for (uint64_t at = a.packs * LANES + thread; at < a.count; at += threads)
		kernel_store(a.y, at, V::ELEMENT,
			     kernel_load(a.a, at, V::ELEMENT) + kernel_load(a.b, at, V::ELEMENT));
}

int elementwise_add(const struct kernel_device *device, const struct elementwise_add *arguments)
{
	struct elementwise_add a = *arguments;
	uint32_t lanes = flat_lanes(a.element, a.a, a.b, a.y);

	a.packs = a.count / lanes;
	return launch_packs(device, INSTANCES(elementwise_add_kernel), a.element, lanes, &a);
}

template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 6)
	elementwise_check_kernel(const __grid_constant__ struct elementwise_check a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint64_t first_bad = ELEMENTWISE_FINITE;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		V raw[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			raw[u] = load<V>(a.x, (first + u * threads) * LANES);
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			float v[LANES];

			unpack(v, raw[u]);
			EACH(i, LANES) {
				uint64_t at = (first + u * threads) * LANES + i;

				if (!kernel_finite(v[i]))
					first_bad = elementwise_min(first_bad, at);
			}
		}
	}
	for (uint64_t at = a.packs * LANES + thread; at < a.count; at += threads)
		if (!kernel_finite(kernel_load(a.x, at, V::ELEMENT)))
			first_bad = elementwise_min(first_bad, at);
	if (first_bad != ELEMENTWISE_FINITE)
		kernel_atomic_min(a.first, (uint64_t)a.tensor << 40 | first_bad);
}

int elementwise_check(const struct kernel_device *device, const struct elementwise_check *arguments)
{
	struct elementwise_check a = *arguments;
	uint32_t lanes = flat_lanes(a.element, a.x, NULL, NULL);

	if (a.count >> 40 || a.tensor >= (1u << 24) - 1)
		return -EINVAL;
	a.packs = a.count / lanes;
	return launch_packs(device, INSTANCES(elementwise_check_kernel), a.element, lanes, &a);
}

/* Stores or adds LANES consecutive elements of `to`. */
template <typename V, uint32_t LANES = V::LANES>
DEVICE void copy_group(const struct elementwise_copy *a, uint64_t at, V raw)
{
	float v[LANES];

	unpack(v, raw);
	if (LANES > 1 && a->to_element == CUDA_F32) {
		UNROLL
		for (uint32_t i = 0; i < LANES; i += 4) {
			struct kernel_pack pack;

			if (a->add)
				pack = kernel_load16((const float *)a->to + at + i);
			EACH(j, 4) {
				if (a->add)
					v[i + j] += kernel_from_bits(pack.word[j]);
				pack.word[j] = kernel_to_bits(v[i + j]);
			}
			kernel_store16((float *)a->to + at + i, pack);
		}
		return;
	}
	if (LANES > 1 && !a->add) {
		UNROLL
		for (uint32_t i = 0; i < LANES; i += 4) {
			struct kernel_half_pack pack;

			EACH(j, 2) {
				float low = v[i + 2 * j], high = v[i + 2 * j + 1];

				pack.word[j] = a->to_element == CUDA_F16
						       ? kernel_to_f16x2(low, high)
						       : kernel_to_bf16x2(low, high);
			}
			kernel_store8((uint16_t *)a->to + at + i, pack);
		}
		return;
	}
	EACH(i, LANES)
		elementwise_put(a, at + i, v[i]);
}

/* Copies between matrices with the same number of columns. */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	elementwise_copy_kernel(const __grid_constant__ struct elementwise_copy a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint64_t count = a.rows * a.to_columns;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		V raw[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			raw[u] = load<V>(a.from, (first + u * threads) * LANES);
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			copy_group<V>(&a, (first + u * threads) * LANES, raw[u]);
	}
	for (uint64_t at = a.packs * LANES + thread; at < count; at += threads)
		elementwise_put(&a, at, kernel_load(a.from, at, V::ELEMENT));
}

/* One thread per element of `to`. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	elementwise_copy_columns_kernel(const __grid_constant__ struct elementwise_copy a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x, row = at / a.to_columns;
	uint32_t column = (uint32_t)(at - row * a.to_columns);
	float value = 0;

	if (row >= a.rows)
		return;
	if (column < a.from_columns)
		value = kernel_load(a.from, row * a.from_columns + column, a.from_element);
	elementwise_put(&a, at, value);
}

int elementwise_copy(const struct kernel_device *device, const struct elementwise_copy *arguments)
{
	struct elementwise_copy a = *arguments;
	uint32_t lanes = flat_lanes(a.from_element, a.from, a.to, NULL);

	if (a.from_columns != a.to_columns)
		return launch_flat(device, KERNEL(elementwise_copy_columns_kernel),
				   a.rows * a.to_columns, &a);
	a.packs = a.rows * a.to_columns / lanes;
	return launch_packs(device, INSTANCES(elementwise_copy_kernel), a.from_element, lanes, &a);
}

/*
 * Consecutive ranges of blocks handle consecutive copies. A block handles ELEMENTWISE_BLOCK packs;
 * the last block of a copy also handles the elements after its last whole pack.
 */
template <typename V, uint32_t LANES = V::LANES>
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	elementwise_copies_kernel(const __grid_constant__ struct elementwise_copies a)
{
	const struct elementwise_copy *copy = a.list;
	V raw[FLAT_UNROLL];
	uint32_t i = 0;

	while (i + 1 < a.count && a.blocks[i + 1] <= blockIdx.x)
		i++;
	copy += i;
	uint64_t block = blockIdx.x - a.blocks[i];
	uint64_t first = block * ELEMENTWISE_BLOCK + threadIdx.x;
	EACH_IF(u, FLAT_UNROLL, first + u * KERNEL_THREADS < copy->packs)
		raw[u] = load<V>(copy->from, (first + u * KERNEL_THREADS) * LANES);
	EACH_IF(u, FLAT_UNROLL, first + u * KERNEL_THREADS < copy->packs)
		copy_group<V>(copy, (first + u * KERNEL_THREADS) * LANES, raw[u]);
	if (block < copy->packs / ELEMENTWISE_BLOCK)
		return;
	for (uint64_t at = copy->packs * LANES + threadIdx.x; at < copy->rows * copy->to_columns;
	     at += KERNEL_THREADS)
		elementwise_put(copy, at, kernel_load(copy->from, at, V::ELEMENT));
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
	static const struct gpu_kernel instances[] = INSTANCES(elementwise_copies_kernel);
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
	return launch(device, instances[element * 2 + (lanes == 1)], (uint32_t)blocks, &a);
}

/* One thread per element of `to`, but at least one per k, for the bias. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	elementwise_fold_kernel(const __grid_constant__ struct elementwise_fold a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x, row = at / a.to_columns;
	uint32_t column = (uint32_t)(at - row * a.to_columns), k = (uint32_t)(row / a.positions);

	if (k >= a.k)
		return;
	float scale = a.gamma[k] / sqrtf(a.running_var[k] + a.epsilon);
	if (row == (uint64_t)k * a.positions && column == 0)
		kernel_store(a.bias, k, a.bias_element, a.beta[k] - a.running_mean[k] * scale);
	kernel_store(a.to, at, a.to_element,
		     column < a.from_columns
			     ? kernel_load(a.w, row * a.from_columns + column, a.w_element) * scale
			     : 0);
}

int elementwise_fold(const struct kernel_device *device, const struct elementwise_fold *arguments)
{
	return launch_flat(device, KERNEL(elementwise_fold_kernel),
			   (uint64_t)arguments->k * arguments->positions * arguments->to_columns,
			   arguments);
}
