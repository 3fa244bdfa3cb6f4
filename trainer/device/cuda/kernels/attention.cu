/*
 * Kernels of attention.h in fp32, for any element type and head dimension. Tiles are stored in
 * shared memory by channel with a row stride of TILE + 1, so that the 16 threads along a row read
 * adjacent words and threads that write consecutive channels do not conflict in a bank.
 *
 * A block of 16 x 16 threads computes the 32 x 32 scores of its own tile of rows against a tile of
 * columns. Each thread holds 2 x 2 scores and, for its rows, sums of 4 channels.
 */
#include "trainer/device/cuda/kernels/attention.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

#define TILE        ATTENTION_TILE
#define SIDE        (TILE + 1)
#define CHANNELS    ATTENTION_CHANNELS_MAX
#define ACROSS      16 /* threads along a row */
#define OWN         (TILE / ACROSS)
#define OWN_WIDE    (CHANNELS / ACROSS)
#define LEAST_SCORE (-1e30f)
#define LOG2_E      1.44269504f
#define LN_2        0.69314718f

/* The block's work, and the thread's place in it. */
struct here {
	uint32_t sample, head, first; /* `first` is the first row of the block's tile */
	uint32_t x, y;
	uint32_t stride; /* stride of qkv: elements from one position to the next */
	uint32_t width;  /* stride of y */
	struct draws_key key;
};

DEVICE struct here where(const struct attention_arguments *a, uint32_t tile)
{
	uint32_t head = blockIdx.x / a->tiles;
	struct here here;

	here.first = blockIdx.x % a->tiles * tile;
	here.sample = head / a->heads;
	here.head = head % a->heads;
	here.x = threadIdx.x % ACROSS;
	here.y = threadIdx.x / ACROSS;
	here.width = a->heads * a->d;
	here.stride = 3 * here.width;
	here.key.key[0] = here.key.key[1] = 0;
	if (a->dropout.below)
		here.key = draws_key(&a->step->draws, a->layer);
	return here;
}

/*
 * Index of the head's first channel at a position of qkv or its gradient. part: 0 for q, 1 for k, 2
 * for v.
 */
DEVICE uint64_t packed_at(const struct attention_arguments *a, const struct here *here,
			  uint32_t part, uint32_t position)
{
	return ((uint64_t)here->sample * a->t + position) * here->stride + part * here->width +
	       here->head * a->d;
}

/* As packed_at(), for y and its gradient. */
DEVICE uint64_t result_at(const struct attention_arguments *a, const struct here *here,
			  uint32_t position)
{
	return ((uint64_t)here->sample * a->t + position) * here->width + here->head * a->d;
}

/* Index of a query in log_sum and delta. */
DEVICE uint64_t query_at(const struct attention_arguments *a, const struct here *here,
			 uint32_t position)
{
	return ((uint64_t)here->sample * a->heads + here->head) * a->t + position;
}

/* Dropout factor of a query and a key. */
DEVICE float drawn(const struct attention_arguments *a, const struct here *here, uint32_t query,
		   uint32_t key)
{
	struct philox_block block = draws_quad(here->key, a->step->draws.first + here->sample,
					       draws_query(here->head, query, a->t) + key / 4);
	uint32_t low = key & 1 ? block.b : block.a, high = key & 1 ? block.d : block.c;

	return draws_factor(a->dropout, key & 2 ? high : low);
}

/*
 * to [CHANNELS][SIDE] = scale times TILE rows of d channels, `stride` elements apart. Pads with
 * zeros.
 */
DEVICE void load_tile(const struct attention_arguments *a, float *to, const void *from, uint64_t at,
		      uint32_t stride, uint32_t first, float scale)
{
	for (uint32_t i = threadIdx.x; i < TILE * CHANNELS; i += KERNEL_THREADS) {
		uint32_t row = i / CHANNELS, c = i % CHANNELS;
		float value = 0;

		if (first + row < a->t && c < a->d)
			value = kernel_load(from, at + (uint64_t)row * stride + c, a->element);
		to[c * SIDE + row] = value * scale;
	}
}

DEVICE void load_packed(const struct attention_arguments *a, const struct here *here, float *to,
			uint32_t part, uint32_t first, float scale)
{
	load_tile(a, to, a->qkv, packed_at(a, here, part, first), here->stride, first, scale);
}

DEVICE void load_result(const struct attention_arguments *a, const struct here *here, float *to,
			const void *from, uint32_t first)
{
	load_tile(a, to, from, result_at(a, here, first), here->width, first, 1);
}

/* s = rows columns^T; both operands are [CHANNELS][SIDE]. */
DEVICE void multiply(float s[OWN][OWN], const struct here *here, const float *rows,
		     const float *columns, uint32_t d)
{
	EACH(i, OWN) {
		EACH(j, OWN)
			s[i][j] = 0;
	}
	for (uint32_t c = 0; c < d; c++) {
		EACH(i, OWN) {
			float own = rows[c * SIDE + here->y * OWN + i];

			EACH(j, OWN)
				s[i][j] += own * columns[c * SIDE + here->x + j * ACROSS];
		}
	}
}

/* sums += weights columns^T, with weights [TILE][SIDE], for channels x, x + 16 ... */
DEVICE void gather(float sums[OWN][OWN_WIDE], const struct here *here, const float *weights,
		   const float *columns)
{
	for (uint32_t k = 0; k < TILE; k++) {
		EACH(i, OWN) {
			float weight = weights[(here->y * OWN + i) * SIDE + k];

			EACH(j, OWN_WIDE)
				sums[i][j] += weight * columns[(here->x + j * ACROSS) * SIDE + k];
		}
	}
}

DEVICE void clear(float sums[OWN][OWN_WIDE])
{
	EACH(i, OWN) {
		EACH(j, OWN_WIDE)
			sums[i][j] = 0;
	}
}

/* Stores the block's rows of y or of a part of dqkv. */
DEVICE void store_rows(const struct attention_arguments *a, const struct here *here, void *to,
		       uint64_t at, uint32_t stride, float sums[OWN][OWN_WIDE])
{
	EACH(i, OWN) {
		uint32_t row = here->y * OWN + i;

		EACH(j, OWN_WIDE) {
			uint32_t c = here->x + j * ACROSS;

			if (here->first + row < a->t && c < a->d)
				kernel_store(to, at + (uint64_t)row * stride + c, a->element,
					     sums[i][j]);
		}
	}
}

/* Sum over the threads of a row. */
DEVICE float row_sum(float value)
{
	for (uint32_t mask = ACROSS / 2; mask; mask /= 2)
		value += __shfl_xor_sync(KERNEL_LANES, value, mask);
	return value;
}

DEVICE float row_largest(float value)
{
	for (uint32_t mask = ACROSS / 2; mask; mask /= 2) {
		float other = __shfl_xor_sync(KERNEL_LANES, value, mask);

		value = other > value ? other : value;
	}
	return value;
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	attention_forward_any(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, p, TILE *SIDE);
	struct here here = where(&a, TILE);
	float sums[OWN][OWN_WIDE], largest[OWN], total[OWN];

	clear(sums);
	EACH(i, OWN) {
		largest[i] = LEAST_SCORE;
		total[i] = 0;
	}
	/* includes LOG2_E because exponentials are computed as powers of two */
	load_packed(&a, &here, q, 0, here.first, a.scale * LOG2_E);
	for (uint32_t first = 0; first < a.t; first += TILE) {
		float s[OWN][OWN];

		load_packed(&a, &here, k, 1, first, 1);
		load_packed(&a, &here, v, 2, first, 1);
		__syncthreads();
		multiply(s, &here, q, k, a.d);
		EACH(i, OWN) {
			float most = LEAST_SCORE, sum = 0, shrink;

			EACH(j, OWN) {
				if (first + here.x + j * ACROSS >= a.t)
					s[i][j] = LEAST_SCORE;
				most = s[i][j] > most ? s[i][j] : most;
			}
			most = row_largest(most);
			most = most > largest[i] ? most : largest[i];
			shrink = kernel_exp2(largest[i] - most);
			largest[i] = most;
			EACH(j, OWN) {
				s[i][j] = kernel_exp2(s[i][j] - most);
				sum += s[i][j];
				if (a.dropout.below)
					s[i][j] *= drawn(&a, &here, here.first + here.y * OWN + i,
							 first + here.x + j * ACROSS);
				p[(here.y * OWN + i) * SIDE + here.x + j * ACROSS] = s[i][j];
			}
			total[i] = total[i] * shrink + row_sum(sum);
			EACH(j, OWN_WIDE)
				sums[i][j] *= shrink;
		}
		__syncthreads();
		gather(sums, &here, p, v);
		__syncthreads();
	}
	EACH(i, OWN) {
		uint32_t row = here.first + here.y * OWN + i;

		EACH(j, OWN_WIDE)
			sums[i][j] /= total[i];
		if (a.log_sum && here.x == 0 && row < a.t)
			a.log_sum[query_at(&a, &here, row)] = largest[i] * LN_2 + logf(total[i]);
	}
	store_rows(&a, &here, a.y, result_at(&a, &here, here.first), here.width, sums);
}

/* Attention probability of a score. */
DEVICE float probability(float score, float log_sum)
{
	return kernel_exp2(score - log_sum * LOG2_E);
}

/*
 * Computes the gradients of a tile of queries, and delta (the sum of y dy per query) for the keys
 * kernel.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	attention_queries_any(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, dy, CHANNELS *SIDE);
	SHARED(float, ds, TILE *SIDE);
	struct here here = where(&a, TILE);
	float sums[OWN][OWN_WIDE], log_sum[OWN], delta[OWN];

	clear(sums);
	load_packed(&a, &here, q, 0, here.first, a.scale * LOG2_E);
	load_result(&a, &here, dy, a.dy, here.first);
	/* y, in the buffer of k until k is loaded */
	load_result(&a, &here, k, a.y, here.first);
	__syncthreads();
	EACH(i, OWN) {
		uint32_t row = here.y * OWN + i;
		float sum = 0;

		EACH(j, OWN_WIDE) {
			uint32_t at = (here.x + j * ACROSS) * SIDE + row;

			sum += k[at] * dy[at];
		}
		delta[i] = row_sum(sum);
		log_sum[i] = 0;
		if (here.first + row < a.t) {
			log_sum[i] = a.log_sum[query_at(&a, &here, here.first + row)];
			if (here.x == 0)
				a.delta[query_at(&a, &here, here.first + row)] = delta[i];
		}
	}
	for (uint32_t first = 0; first < a.t; first += TILE) {
		float s[OWN][OWN], dp[OWN][OWN];

		__syncthreads();
		load_packed(&a, &here, k, 1, first, 1);
		load_packed(&a, &here, v, 2, first, 1);
		__syncthreads();
		multiply(s, &here, q, k, a.d);
		multiply(dp, &here, dy, v, a.d);
		EACH(i, OWN) {
			EACH(j, OWN) {
				uint32_t x = here.x + j * ACROSS;
				float p = probability(s[i][j], log_sum[i]);

				if (a.dropout.below)
					dp[i][j] *= drawn(&a, &here, here.first + here.y * OWN + i,
							  first + x);
				ds[(here.y * OWN + i) * SIDE + x] =
					first + x < a.t ? p * (dp[i][j] - delta[i]) : 0;
			}
		}
		__syncthreads();
		gather(sums, &here, ds, k);
	}
	EACH(i, OWN) {
		EACH(j, OWN_WIDE)
			sums[i][j] *= a.scale;
	}
	store_rows(&a, &here, a.dqkv, packed_at(&a, &here, 0, here.first), here.stride, sums);
}

/* Computes the gradients of a tile of keys, which are the rows here, and of their values. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	attention_keys_any(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, dy, CHANNELS *SIDE);
	SHARED(float, p, TILE *SIDE);
	SHARED(float, ds, TILE *SIDE);
	struct here here = where(&a, TILE);
	float dk[OWN][OWN_WIDE], dv[OWN][OWN_WIDE];

	clear(dk);
	clear(dv);
	load_packed(&a, &here, k, 1, here.first, a.scale * LOG2_E);
	load_packed(&a, &here, v, 2, here.first, 1);
	for (uint32_t first = 0; first < a.t; first += TILE) {
		float s[OWN][OWN], dp[OWN][OWN];

		__syncthreads();
		load_packed(&a, &here, q, 0, first, 1);
		load_result(&a, &here, dy, a.dy, first);
		__syncthreads();
		multiply(s, &here, k, q, a.d);
		multiply(dp, &here, v, dy, a.d);
		EACH(j, OWN) {
			uint32_t query = first + here.x + j * ACROSS;
			float log_sum = 0, delta = 0;

			/* queries beyond the last are zeros with a zero gradient */
			if (query < a.t) {
				log_sum = a.log_sum[query_at(&a, &here, query)];
				delta = a.delta[query_at(&a, &here, query)];
			}
			EACH(i, OWN) {
				uint32_t at = (here.y * OWN + i) * SIDE + here.x + j * ACROSS;
				float value = probability(s[i][j], log_sum), factor = 1;

				if (a.dropout.below)
					factor = drawn(&a, &here, query,
						       here.first + here.y * OWN + i);
				p[at] = value * factor;
				ds[at] = value * (dp[i][j] * factor - delta);
			}
		}
		__syncthreads();
		gather(dv, &here, p, dy);
		gather(dk, &here, ds, q);
	}
	EACH(i, OWN) {
		EACH(j, OWN_WIDE)
			dk[i][j] *= a.scale;
	}
	store_rows(&a, &here, a.dqkv, packed_at(&a, &here, 1, here.first), here.stride, dk);
	store_rows(&a, &here, a.dqkv, packed_at(&a, &here, 2, here.first), here.stride, dv);
}

/* ---- on tensor cores ---- */

#define MATRIX_TILE    ATTENTION_MATRIX_TILE
#define MATRIX_COLUMNS 64 /* rows of a tile of the other operand */
#define ROW_PACKS      (CHANNELS / 8 + 1)

/* First of the warp's rows in the block's tile. */
DEVICE uint32_t matrix_warp(void)
{
	return threadIdx.x / KERNEL_WARP * 16;
}

/*
 * Positions of a thread's sums: element [2 i + c] belongs to row matrix_row(i), i < 2, and to
 * column matrix_column() + c.
 */
DEVICE uint32_t matrix_row(uint32_t i)
{
	return matrix_warp() + threadIdx.x % KERNEL_WARP / 4 + 8 * i;
}

DEVICE uint32_t matrix_column(void)
{
	return threadIdx.x % 4 * 2;
}

DEVICE float matrix_row_sum(float value)
{
	value += __shfl_xor_sync(KERNEL_LANES, value, 1);
	value += __shfl_xor_sync(KERNEL_LANES, value, 2);
	return value;
}

DEVICE float matrix_row_largest(float value)
{
	float other = __shfl_xor_sync(KERNEL_LANES, value, 1);

	value = other > value ? other : value;
	other = __shfl_xor_sync(KERNEL_LANES, value, 2);
	return other > value ? other : value;
}

DEVICE void matrix_clear(float sums[8][4])
{
	EACH(n, 8) {
		EACH(c, 4)
			sums[n][c] = 0;
	}
}

/* Loads 16 rows of two packs each as the left factor of a product. */
DEVICE void matrix_left(uint32_t to[4], const struct kernel_pack *tile, uint32_t row, uint32_t pack)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;

	row += lane % 16;
	kernel_load_matrices(to, tile + row * ROW_PACKS + pack + lane / 16);
}

/* Loads the same block transposed, as two right factors: their columns are the tile's rows. */
DEVICE void matrix_right(uint32_t to[4], const struct kernel_pack *tile, uint32_t row,
			 uint32_t pack)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;

	row += lane % 8 + lane / 16 * 8;
	kernel_load_matrices(to, tile + row * ROW_PACKS + pack + lane / 8 % 2);
}

/* Loads the block without transposing it, as two right factors: their columns are channels. */
DEVICE void matrix_right_turned(uint32_t to[4], const struct kernel_pack *tile, uint32_t row,
				uint32_t pack)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;

	row += lane % 16;
	kernel_load_turned(to, tile + row * ROW_PACKS + pack + lane / 16);
}

/*
 * Kernels with dropout may use twice the registers. Separate kernels keep that cost away from those
 * without.
 */
#define ELEMENT  CUDA_F16
#define NAME(x)  x##_f16
#define DRAWS    0
#define RESIDENT 2
#include "trainer/device/cuda/kernels/common/attention_matrix_kernels.h"
#undef ELEMENT
#undef NAME
#define ELEMENT CUDA_BF16
#define NAME(x) x##_bf16
#include "trainer/device/cuda/kernels/common/attention_matrix_kernels.h"
#undef NAME
#undef DRAWS
#undef RESIDENT
#define NAME(x)  x##_bf16_drawn
#define DRAWS    1
#define RESIDENT 1
#include "trainer/device/cuda/kernels/common/attention_matrix_kernels.h"
#undef ELEMENT
#undef NAME
#define ELEMENT CUDA_F16
#define NAME(x) x##_f16_drawn
#include "trainer/device/cuda/kernels/common/attention_matrix_kernels.h"

#define ENTRIES(pass)                                                                              \
	{                                                                                          \
		KERNEL(attention_##pass##_any), KERNEL(attention_##pass##_matrix_f16),             \
			KERNEL(attention_##pass##_matrix_bf16),                                    \
			KERNEL(attention_##pass##_matrix_f16_drawn),                               \
			KERNEL(attention_##pass##_matrix_bf16_drawn)                               \
	}
KERNEL_TABLE attention_forward_kernels[] = ENTRIES(forward);
KERNEL_TABLE attention_queries_kernels[] = ENTRIES(queries);
KERNEL_TABLE attention_keys_kernels[] = ENTRIES(keys);
