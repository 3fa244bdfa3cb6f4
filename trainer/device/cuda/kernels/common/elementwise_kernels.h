/*
 * Kernels of elementwise.cu over flat arrays, for one instance: `packs` groups of LANES elements,
 * then the remaining elements one by one.
 */

#define FLAT_UNROLL 4

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(elementwise_add)(const __grid_constant__ struct elementwise_add a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		struct NAME(raw) left[FLAT_UNROLL], right[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			left[u] = NAME(load)(a.a, (first + u * threads) * LANES);
			right[u] = NAME(load)(a.b, (first + u * threads) * LANES);
		}
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			float v[LANES], w[LANES];

			NAME(unpack)(v, left[u]);
			NAME(unpack)(w, right[u]);
			NAME(add)(v, w);
			NAME(store)(a.y, (first + u * threads) * LANES, v);
		}
	}
	for (uint64_t at = a.packs * LANES + thread; at < a.count; at += threads)
		kernel_store(a.y, at, ELEMENT,
			     kernel_load(a.a, at, ELEMENT) + kernel_load(a.b, at, ELEMENT));
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 6)
	NAME(elementwise_check)(const __grid_constant__ struct elementwise_check a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint64_t first_bad = ELEMENTWISE_FINITE;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		struct NAME(raw) raw[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			raw[u] = NAME(load)(a.x, (first + u * threads) * LANES);
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs) {
			float v[LANES];

			NAME(unpack)(v, raw[u]);
			EACH(i, LANES) {
				uint64_t at = (first + u * threads) * LANES + i;

				if (!kernel_finite(v[i]))
					first_bad = elementwise_least(first_bad, at);
			}
		}
	}
	for (uint64_t at = a.packs * LANES + thread; at < a.count; at += threads)
		if (!kernel_finite(kernel_load(a.x, at, ELEMENT)))
			first_bad = elementwise_least(first_bad, at);
	if (first_bad != ELEMENTWISE_FINITE)
		kernel_atomic_min(a.first, (uint64_t)a.tensor << 40 | first_bad);
}

/* Writes LANES consecutive elements of `to`. */
DEVICE void NAME(copy_group)(const struct elementwise_copy *a, uint64_t at, struct NAME(raw) raw)
{
	float v[LANES];

	NAME(unpack)(v, raw);
#if LANES > 1
	if (a->to_element == CUDA_F32) {
		UNROLL
		for (int i = 0; i < LANES; i += 4) {
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
	if (!a->add) {
		UNROLL
		for (int i = 0; i < LANES; i += 4) {
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
#endif
	EACH(i, LANES)
		elementwise_put(a, at + i, v[i]);
}

/* Copies between matrices with the same number of columns. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(elementwise_copy)(const __grid_constant__ struct elementwise_copy a)
{
	uint64_t threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint64_t count = a.rows * a.to_columns;

	for (uint64_t first = thread; first < a.packs; first += threads * FLAT_UNROLL) {
		struct NAME(raw) raw[FLAT_UNROLL];

		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			raw[u] = NAME(load)(a.from, (first + u * threads) * LANES);
		EACH_IF(u, FLAT_UNROLL, first + u * threads < a.packs)
			NAME(copy_group)(&a, (first + u * threads) * LANES, raw[u]);
	}
	for (uint64_t at = a.packs * LANES + thread; at < count; at += threads)
		elementwise_put(&a, at, kernel_load(a.from, at, ELEMENT));
}

/*
 * Blocks are assigned copy by copy. Each block handles ELEMENTWISE_BLOCK packs; the last block of a
 * copy also handles the remaining elements.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	NAME(elementwise_copies)(const __grid_constant__ struct elementwise_copies a)
{
	const struct elementwise_copy *copy = a.list;
	struct NAME(raw) raw[FLAT_UNROLL];
	uint64_t block, first;
	uint32_t i = 0;

	while (i + 1 < a.count && a.blocks[i + 1] <= blockIdx.x)
		i++;
	copy += i;
	block = blockIdx.x - a.blocks[i];
	first = block * ELEMENTWISE_BLOCK + threadIdx.x;
	EACH_IF(u, FLAT_UNROLL, first + u * KERNEL_THREADS < copy->packs)
		raw[u] = NAME(load)(copy->from, (first + u * KERNEL_THREADS) * LANES);
	EACH_IF(u, FLAT_UNROLL, first + u * KERNEL_THREADS < copy->packs)
		NAME(copy_group)(copy, (first + u * KERNEL_THREADS) * LANES, raw[u]);
	if (block < copy->packs / ELEMENTWISE_BLOCK)
		return;
	for (uint64_t at = copy->packs * LANES + threadIdx.x; at < copy->rows * copy->to_columns;
	     at += KERNEL_THREADS)
		elementwise_put(copy, at, kernel_load(copy->from, at, ELEMENT));
}

#undef FLAT_UNROLL
