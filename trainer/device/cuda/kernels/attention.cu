/* Kernels and launchers of attention.h. */
extern "C" {
#include "trainer/device/cuda/kernels/attention.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"

#include <errno.h>

/*
 * ---- in fp32, for any element type and head dimension ----
 *
 * A tile in shared memory is stored by channel with a row stride of TILE + 1 floats. The 16 threads
 * of a row then read adjacent words, and threads that write consecutive channels use different
 * banks.
 *
 * A block of 16 x 16 threads computes the 32 x 32 scores of its tile of rows and a tile of columns.
 * Each thread holds 2 x 2 scores and, for its two rows, sums of 4 channels.
 */

#define TILE      32 /* rows or columns of the score matrix per block */
#define SIDE      (TILE + 1)
#define CHANNELS  ATTENTION_CHANNELS_MAX
#define ACROSS    16 /* threads along a row */
#define OWN       (TILE / ACROSS)
#define OWN_WIDE  (CHANNELS / ACROSS)
#define SCORE_MIN (-1e30f)
#define LOG2_E    1.44269504f
#define LN_2      0.69314718f

/* The work of the block, and the coordinates of the thread in its tile. */
struct tile_thread {
	uint32_t sample, head, first; /* `first`: first row of the tile */
	uint32_t x, y;
	uint32_t stride; /* stride of qkv: elements from one position to the next */
	uint32_t width;  /* stride of y */
	struct dropout_key key;
};

DEVICE struct tile_thread locate(const struct attention_arguments *a, uint32_t tile)
{
	uint32_t head = blockIdx.x / a->tiles;
	struct tile_thread here;

	here.first = blockIdx.x % a->tiles * tile;
	here.sample = head / a->heads;
	here.head = head % a->heads;
	here.x = threadIdx.x % ACROSS;
	here.y = threadIdx.x / ACROSS;
	here.width = a->heads * a->d;
	here.stride = 3 * here.width;
	here.key.key[0] = here.key.key[1] = 0;
	if (a->dropout.below)
		here.key = dropout_key(&a->step->draws, a->layer);
	return here;
}

/*
 * Index of the head's first channel at a position of qkv or its gradient. part: 0 for q, 1 for k, 2
 * for v.
 */
DEVICE uint64_t packed_at(const struct attention_arguments *a, const struct tile_thread *here,
			  uint32_t part, uint32_t position)
{
	return ((uint64_t)here->sample * a->t + position) * here->stride + part * here->width +
	       here->head * a->d;
}

/* As packed_at(), for y and its gradient. */
DEVICE uint64_t result_at(const struct attention_arguments *a, const struct tile_thread *here,
			  uint32_t position)
{
	return ((uint64_t)here->sample * a->t + position) * here->width + here->head * a->d;
}

/* Index of a query in log_sum and delta. */
DEVICE uint64_t query_at(const struct attention_arguments *a, const struct tile_thread *here,
			 uint32_t position)
{
	return ((uint64_t)here->sample * a->heads + here->head) * a->t + position;
}

/* Dropout factor of the attention weight of a query and a key. */
DEVICE float weight_dropout_factor(const struct attention_arguments *a,
				   const struct tile_thread *here, uint32_t query, uint32_t key)
{
	struct philox_block block =
		dropout_quad(here->key, a->step->draws.first + here->sample,
			     dropout_query(a->first_head + here->head, query, a->t) + key / 4);
	uint32_t low = key & 1 ? block.b : block.a, high = key & 1 ? block.d : block.c;

	return dropout_factor(a->dropout, key & 2 ? high : low);
}

/*
 * Loads TILE rows of d channels, `stride` elements apart, into to [CHANNELS][SIDE], transposed and
 * multiplied by `scale`. Missing rows and channels are 0.
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

DEVICE void load_packed(const struct attention_arguments *a, const struct tile_thread *here,
			float *to, uint32_t part, uint32_t first, float scale)
{
	load_tile(a, to, a->qkv, packed_at(a, here, part, first), here->stride, first, scale);
}

DEVICE void load_result(const struct attention_arguments *a, const struct tile_thread *here,
			float *to, const void *from, uint32_t first)
{
	load_tile(a, to, from, result_at(a, here, first), here->width, first, 1);
}

/* s = rows columns^T; both operands are [CHANNELS][SIDE]. */
DEVICE void multiply(float s[OWN][OWN], const struct tile_thread *here, const float *rows,
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
DEVICE void gather(float sums[OWN][OWN_WIDE], const struct tile_thread *here, const float *weights,
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

/* Stores the rows of the block's tile in y, or in the q, k or v part of dqkv. */
DEVICE void store_rows(const struct attention_arguments *a, const struct tile_thread *here,
		       void *to, uint64_t at, uint32_t stride, float sums[OWN][OWN_WIDE])
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
	attention_forward_any_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, p, TILE *SIDE);
	struct tile_thread here = locate(&a, TILE);
	float sums[OWN][OWN_WIDE], largest[OWN], total[OWN];

	clear(sums);
	EACH(i, OWN) {
		largest[i] = SCORE_MIN;
		total[i] = 0;
	}
	/* the factor LOG2_E allows exponentials to be powers of two */
	load_packed(&a, &here, q, 0, here.first, a.scale * LOG2_E);
	for (uint32_t first = 0; first < a.t; first += TILE) {
		float s[OWN][OWN];

		load_packed(&a, &here, k, 1, first, 1);
		load_packed(&a, &here, v, 2, first, 1);
		__syncthreads();
		multiply(s, &here, q, k, a.d);
		EACH(i, OWN) {
			float max = SCORE_MIN, sum = 0;

			EACH(j, OWN) {
				if (first + here.x + j * ACROSS >= a.t)
					s[i][j] = SCORE_MIN;
				max = s[i][j] > max ? s[i][j] : max;
			}
			max = row_largest(max);
			max = max > largest[i] ? max : largest[i];
			float shrink = kernel_exp2(largest[i] - max);
			largest[i] = max;
			EACH(j, OWN) {
				s[i][j] = kernel_exp2(s[i][j] - max);
				sum += s[i][j];
				if (a.dropout.below)
					s[i][j] *= weight_dropout_factor(
						&a, &here, here.first + here.y * OWN + i,
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

/* Returns the attention probability of a score. */
DEVICE float probability(float score, float log_sum)
{
	return kernel_exp2(score - log_sum * LOG2_E);
}

/*
 * Computes the gradients of a tile of queries, and delta, the sum of y dy over the channels of a
 * query, which the keys kernel reads.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	attention_queries_any_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, dy, CHANNELS *SIDE);
	SHARED(float, ds, TILE *SIDE);
	struct tile_thread here = locate(&a, TILE);
	float sums[OWN][OWN_WIDE], log_sum[OWN], delta[OWN];

	clear(sums);
	load_packed(&a, &here, q, 0, here.first, a.scale * LOG2_E);
	load_result(&a, &here, dy, a.dy, here.first);
	/* y shares a buffer with k, which is loaded later */
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
					dp[i][j] *= weight_dropout_factor(
						&a, &here, here.first + here.y * OWN + i,
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

/*
 * Computes the gradients of a tile of keys, which are the rows of the block, and of their values.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	attention_keys_any_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(float, k, CHANNELS *SIDE);
	SHARED(float, v, CHANNELS *SIDE);
	SHARED(float, q, CHANNELS *SIDE);
	SHARED(float, dy, CHANNELS *SIDE);
	SHARED(float, p, TILE *SIDE);
	SHARED(float, ds, TILE *SIDE);
	struct tile_thread here = locate(&a, TILE);
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
					factor = weight_dropout_factor(
						&a, &here, query, here.first + here.y * OWN + i);
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

/*
 * ---- on tensor cores, for 16-bit elements and head dimensions that are multiples of a pack (8
 * channels) ----
 *
 * A block handles MATRIX_TILE rows, 16 per warp, and iterates over tiles of the other operand. A
 * tile in shared memory has a row stride of ROW_PACKS packs, one more than the packs of a row, so
 * that the eight rows of a matrix load are in different groups of banks. Sums stay in registers in
 * the fragment layout of mma. Rounded to E, they have the layout of the left factor of the next
 * product.
 */

#define MATRIX_TILE    128 /* rows of a block */
#define MATRIX_COLUMNS 64  /* rows of a tile of the other operand */
#define ROW_PACKS      (CHANNELS / 8 + 1)

/* First of the 16 rows of the warp, relative to the tile. */
DEVICE uint32_t matrix_warp(void)
{
	return threadIdx.x / KERNEL_WARP * 16;
}

/*
 * Coordinates of a thread's sums: element [2 i + c] is in row matrix_row(i), i < 2, and in column
 * matrix_column() + c.
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

/*
 * Loads the same 16 rows of two packs transposed, as two right factors whose columns are the rows
 * of the tile.
 */
DEVICE void matrix_right(uint32_t to[4], const struct kernel_pack *tile, uint32_t row,
			 uint32_t pack)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;

	row += lane % 8 + lane / 16 * 8;
	kernel_load_matrices(to, tile + row * ROW_PACKS + pack + lane / 8 % 2);
}

/*
 * Loads the same 16 rows of two packs without transposing, as two right factors whose columns are
 * channels.
 */
DEVICE void matrix_right_turned(uint32_t to[4], const struct kernel_pack *tile, uint32_t row,
				uint32_t pack)
{
	uint32_t lane = threadIdx.x % KERNEL_WARP;

	row += lane % 16;
	kernel_load_turned(to, tile + row * ROW_PACKS + pack + lane / 16);
}

/*
 * Loads rows of 8 packs starting at element `at`, `stride` elements apart. Pads with zeros beyond t
 * rows and d channels.
 */
DEVICE void matrix_load_rows(const struct attention_arguments *a, struct kernel_pack *to,
			     const void *from, uint64_t at, uint32_t stride, uint32_t first,
			     uint32_t rows)
{
	for (uint32_t i = threadIdx.x; i < rows * 8; i += KERNEL_THREADS) {
		uint32_t row = i / 8, pack = i % 8;
		struct kernel_pack value;

		EACH(w, 4)
			value.word[w] = 0;
		if (first + row < a->t && pack * 8 < a->d)
			value = kernel_load16((const uint16_t *)from + at + (uint64_t)row * stride +
					      pack * 8);
		kernel_store16(to + row * ROW_PACKS + pack, value);
	}
}

DEVICE void matrix_load_packed(const struct attention_arguments *a, const struct tile_thread *here,
			       struct kernel_pack *to, uint32_t part, uint32_t first, uint32_t rows)
{
	matrix_load_rows(a, to, a->qkv, packed_at(a, here, part, first), here->stride, first, rows);
}

DEVICE void matrix_load_result(const struct attention_arguments *a, const struct tile_thread *here,
			       struct kernel_pack *to, const void *from, uint32_t first,
			       uint32_t rows)
{
	matrix_load_rows(a, to, from, result_at(a, here, first), here->width, first, rows);
}

template <enum cuda_element ELEMENT> DEVICE uint32_t matrix_pair(float first, float second)
{
	return ELEMENT == CUDA_F16 ? kernel_to_f16x2(first, second)
				   : kernel_to_bf16x2(first, second);
}

/* Rounds two adjacent 8-column tiles of sums to E, as a left factor. */
template <enum cuda_element ELEMENT> DEVICE void matrix_round(uint32_t to[4], float s[2][4])
{
	EACH(i, 4)
		to[i] = matrix_pair<ELEMENT>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
}

/*
 * s[2] += L T^T, where left[k] is the k-th left factor of L and T is the tile's 16 rows from `row`
 * on.
 */
template <enum cuda_element ELEMENT>
DEVICE void matrix_scores(float s[2][4], uint32_t left[4][4], const struct kernel_pack *tile,
			  uint32_t row, uint32_t d)
{
	EACH_IF(k, 4, k * 16 < d) {
		uint32_t right[4];

		matrix_right(right, tile, row, 2 * k);
		kernel_multiply(s[0], left[k], right, ELEMENT);
		kernel_multiply(s[1], left[k], right + 2, ELEMENT);
	}
}

/* As scores(), with the left factors read from a tile. */
template <enum cuda_element ELEMENT>
DEVICE void matrix_scores_of(float s[2][4], const struct kernel_pack *own, uint32_t own_row,
			     const struct kernel_pack *tile, uint32_t row, uint32_t d)
{
	EACH_IF(k, 4, k * 16 < d) {
		uint32_t left[4], right[4];

		matrix_left(left, own, own_row, 2 * k);
		matrix_right(right, tile, row, 2 * k);
		kernel_multiply(s[0], left, right, ELEMENT);
		kernel_multiply(s[1], left, right + 2, ELEMENT);
	}
}

/* sums += weights times 16 rows of a tile. */
template <enum cuda_element ELEMENT>
DEVICE void matrix_add(float sums[8][4], const uint32_t weights[4], const struct kernel_pack *tile,
		       uint32_t row, uint32_t d)
{
	EACH_IF(n, 4, n * 16 < d) {
		uint32_t right[4];

		matrix_right_turned(right, tile, row, 2 * n);
		kernel_multiply(sums[2 * n], weights, right, ELEMENT);
		kernel_multiply(sums[2 * n + 1], weights, right + 2, ELEMENT);
	}
}

/* Stores a warp's 16 rows of the block's tile. */
template <enum cuda_element ELEMENT>
DEVICE void matrix_store_rows(const struct attention_arguments *a, const struct tile_thread *here,
			      void *to, uint64_t at, uint32_t stride, float sums[8][4])
{
	EACH(n, 8) {
		EACH_IF(i, 2, n * 8 < a->d) {
			uint32_t row = matrix_row(i);

			if (here->first + row < a->t)
				kernel_store4(
					(uint16_t *)to + at + (uint64_t)row * stride + n * 8 +
						matrix_column(),
					matrix_pair<ELEMENT>(sums[n][2 * i], sums[n][2 * i + 1]));
		}
	}
}

/* DRAWS: instance with dropout, which may use twice the registers. */
template <enum cuda_element ELEMENT, bool DRAWS>
static __global__ void __launch_bounds__(KERNEL_THREADS, DRAWS ? 1 : 2)
	attention_forward_matrix_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, q, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, k, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_COLUMNS * ROW_PACKS);
	struct tile_thread here = locate(&a, MATRIX_TILE);
	float sums[8][4], largest[2], total[2], scale = a.scale * LOG2_E;
	uint32_t left[4][4];

	matrix_clear(sums);
	EACH(i, 2) {
		largest[i] = SCORE_MIN;
		total[i] = 0;
	}
	matrix_load_packed(&a, &here, q, 0, here.first, MATRIX_TILE);
	__syncthreads();
	EACH(j, 4)
		matrix_left(left[j], q, matrix_warp(), 2 * j);
	for (uint32_t first = 0; first < a.t; first += MATRIX_COLUMNS) {
		float s[8][4];

		__syncthreads();
		matrix_load_packed(&a, &here, k, 1, first, MATRIX_COLUMNS);
		matrix_load_packed(&a, &here, v, 2, first, MATRIX_COLUMNS);
		__syncthreads();
		/* warps without a valid row only help loading */
		if (here.first + matrix_warp() >= a.t)
			continue;
		matrix_clear(s);
		EACH_IF(j, 4, first + j * 16 < a.t)
			matrix_scores<ELEMENT>(s + 2 * j, left, k, j * 16, a.d);
		EACH(i, 2) {
			float max = SCORE_MIN, sum = 0;

			EACH(n, 8) {
				EACH(c, 2) {
					float *score = &s[n][2 * i + c];

					*score *= scale;
					if (first + n * 8 + matrix_column() + c >= a.t)
						*score = SCORE_MIN;
					max = *score > max ? *score : max;
				}
			}
			max = matrix_row_largest(max);
			max = max > largest[i] ? max : largest[i];
			float shrink = kernel_exp2(largest[i] - max);
			largest[i] = max;
			EACH(n, 8) {
				EACH(c, 2) {
					s[n][2 * i + c] = kernel_exp2(s[n][2 * i + c] - max);
					sum += s[n][2 * i + c];
					if (DRAWS)
						s[n][2 * i + c] *= weight_dropout_factor(
							&a, &here, here.first + matrix_row(i),
							first + n * 8 + matrix_column() + c);
				}
			}
			total[i] = total[i] * shrink + matrix_row_sum(sum);
			EACH(n, 8) {
				EACH(c, 2)
					sums[n][2 * i + c] *= shrink;
			}
		}
		EACH_IF(j, 4, first + j * 16 < a.t) {
			uint32_t p[4];

			matrix_round<ELEMENT>(p, s + 2 * j);
			matrix_add<ELEMENT>(sums, p, v, j * 16, a.d);
		}
	}
	EACH(i, 2) {
		uint32_t row = here.first + matrix_row(i);
		float share = 1 / total[i];

		EACH(n, 8) {
			EACH(c, 2)
				sums[n][2 * i + c] *= share;
		}
		if (a.log_sum && matrix_column() == 0 && row < a.t)
			a.log_sum[query_at(&a, &here, row)] = largest[i] * LN_2 + logf(total[i]);
	}
	matrix_store_rows<ELEMENT>(&a, &here, a.y, result_at(&a, &here, here.first), here.width,
				   sums);
}

/*
 * Computes delta, the sum of y dy over the channels of a query, for a tile of queries, with two
 * threads per query. Also stores it, for the keys kernel.
 */
template <enum cuda_element ELEMENT>
DEVICE void matrix_find_delta(const struct attention_arguments *a, const struct tile_thread *here,
			      float *delta)
{
	uint32_t row = threadIdx.x / 2, half = threadIdx.x % 2;
	bool exists = here->first + row < a->t;
	uint64_t at = result_at(a, here, here->first + row);
	float sum = 0;

	for (uint32_t c = half * 8; exists && c < a->d; c += 16) {
		struct kernel_pack y = kernel_load16((const uint16_t *)a->y + at + c);
		struct kernel_pack dy = kernel_load16((const uint16_t *)a->dy + at + c);

		EACH(w, 4) {
			sum += kernel_low(y.word[w], ELEMENT) * kernel_low(dy.word[w], ELEMENT) +
			       kernel_low(y.word[w] >> 16, ELEMENT) *
				       kernel_low(dy.word[w] >> 16, ELEMENT);
		}
	}
	sum += __shfl_xor_sync(KERNEL_LANES, sum, 1);
	if (half)
		return;
	delta[row] = sum;
	if (exists)
		a->delta[query_at(a, here, here->first + row)] = sum;
}

template <enum cuda_element ELEMENT, bool DRAWS>
static __global__ void __launch_bounds__(KERNEL_THREADS, DRAWS ? 1 : 2)
	attention_queries_matrix_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, rows, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, k, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(float, deltas, MATRIX_TILE);
	struct tile_thread here = locate(&a, MATRIX_TILE);
	float sums[8][4], log_sum[2], delta[2], scale = a.scale * LOG2_E;
	uint32_t q[4][4], dy[4][4];

	matrix_clear(sums);
	matrix_load_packed(&a, &here, rows, 0, here.first, MATRIX_TILE);
	matrix_find_delta<ELEMENT>(&a, &here, deltas);
	__syncthreads();
	EACH(j, 4)
		matrix_left(q[j], rows, matrix_warp(), 2 * j);
	__syncthreads();
	matrix_load_result(&a, &here, rows, a.dy, here.first, MATRIX_TILE);
	__syncthreads();
	EACH(j, 4)
		matrix_left(dy[j], rows, matrix_warp(), 2 * j);
	EACH(i, 2) {
		uint32_t row = here.first + matrix_row(i);

		log_sum[i] = row < a.t ? a.log_sum[query_at(&a, &here, row)] * LOG2_E : 0;
		delta[i] = deltas[matrix_row(i)];
	}
	for (uint32_t first = 0; first < a.t; first += MATRIX_COLUMNS) {
		__syncthreads();
		matrix_load_packed(&a, &here, k, 1, first, MATRIX_COLUMNS);
		matrix_load_packed(&a, &here, v, 2, first, MATRIX_COLUMNS);
		__syncthreads();
		if (here.first + matrix_warp() >= a.t)
			continue;
		for (uint32_t j = 0; j < MATRIX_COLUMNS && first + j < a.t; j += 16) {
			float s[2][4], dp[2][4];
			uint32_t ds[4];

			EACH(n, 2) {
				EACH(c, 4)
					s[n][c] = dp[n][c] = 0;
			}
			matrix_scores<ELEMENT>(s, q, k, j, a.d);
			matrix_scores<ELEMENT>(dp, dy, v, j, a.d);
			EACH(n, 2) {
				EACH(c, 4) {
					uint32_t key = first + j + n * 8 + matrix_column() + c % 2;
					float p = kernel_exp2(s[n][c] * scale - log_sum[c / 2]);

					if (DRAWS)
						dp[n][c] *= weight_dropout_factor(
							&a, &here, here.first + matrix_row(c / 2),
							key);
					s[n][c] = key < a.t ? p * (dp[n][c] - delta[c / 2]) : 0;
				}
			}
			matrix_round<ELEMENT>(ds, s);
			matrix_add<ELEMENT>(sums, ds, k, j, a.d);
		}
	}
	EACH(n, 8) {
		EACH(c, 4)
			sums[n][c] *= a.scale;
	}
	matrix_store_rows<ELEMENT>(&a, &here, a.dqkv, packed_at(&a, &here, 0, here.first),
				   here.stride, sums);
}

template <enum cuda_element ELEMENT, bool DRAWS>
static __global__ void __launch_bounds__(KERNEL_THREADS, DRAWS ? 1 : 2)
	attention_keys_matrix_kernel(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, k, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, q, MATRIX_COLUMNS / 2 * ROW_PACKS);
	SHARED(struct kernel_pack, dy, MATRIX_COLUMNS / 2 * ROW_PACKS);
	SHARED(float, log_sums, MATRIX_COLUMNS / 2);
	SHARED(float, deltas, MATRIX_COLUMNS / 2);
	struct tile_thread here = locate(&a, MATRIX_TILE);
	float dk[8][4], dv[8][4], scale = a.scale * LOG2_E;

	matrix_clear(dk);
	matrix_clear(dv);
	matrix_load_packed(&a, &here, k, 1, here.first, MATRIX_TILE);
	matrix_load_packed(&a, &here, v, 2, here.first, MATRIX_TILE);
	for (uint32_t first = 0; first < a.t; first += MATRIX_COLUMNS / 2) {
		uint32_t query = first + threadIdx.x;

		__syncthreads();
		matrix_load_packed(&a, &here, q, 0, first, MATRIX_COLUMNS / 2);
		matrix_load_result(&a, &here, dy, a.dy, first, MATRIX_COLUMNS / 2);
		if (threadIdx.x < MATRIX_COLUMNS / 2) {
			bool exists = query < a.t;

			/* queries beyond the last have zero gradient */
			log_sums[threadIdx.x] =
				exists ? a.log_sum[query_at(&a, &here, query)] * LOG2_E : 0;
			deltas[threadIdx.x] = exists ? a.delta[query_at(&a, &here, query)] : 0;
		}
		__syncthreads();
		if (here.first + matrix_warp() >= a.t)
			continue;
		for (uint32_t j = 0; j < MATRIX_COLUMNS / 2 && first + j < a.t; j += 16) {
			float s[2][4], dp[2][4];
			uint32_t p[4], ds[4];

			EACH(n, 2) {
				EACH(c, 4)
					s[n][c] = dp[n][c] = 0;
			}
			matrix_scores_of<ELEMENT>(s, k, matrix_warp(), q, j, a.d);
			matrix_scores_of<ELEMENT>(dp, v, matrix_warp(), dy, j, a.d);
			EACH(n, 2) {
				EACH(c, 4) {
					uint32_t at = j + n * 8 + matrix_column() + c % 2;
					float factor = 1;

					if (DRAWS)
						factor = weight_dropout_factor(
							&a, &here, first + at,
							here.first + matrix_row(c / 2));
					s[n][c] = kernel_exp2(s[n][c] * scale - log_sums[at]);
					dp[n][c] = s[n][c] * (dp[n][c] * factor - deltas[at]);
					s[n][c] *= factor;
				}
			}
			matrix_round<ELEMENT>(p, s);
			matrix_add<ELEMENT>(dv, p, dy, j, a.d);
			matrix_round<ELEMENT>(ds, dp);
			matrix_add<ELEMENT>(dk, ds, q, j, a.d);
		}
	}
	EACH(n, 8) {
		EACH(c, 4)
			dk[n][c] *= a.scale;
	}
	matrix_store_rows<ELEMENT>(&a, &here, a.dqkv, packed_at(&a, &here, 1, here.first),
				   here.stride, dk);
	matrix_store_rows<ELEMENT>(&a, &here, a.dqkv, packed_at(&a, &here, 2, here.first),
				   here.stride, dv);
}

/* ---- launchers ---- */

/* In order: any element; fp16; bf16; fp16 with dropout; bf16 with dropout. */
#define ATTENTION_INSTANCES 5
/* clang-format off */
#define ATTENTION(any, matrix)                                                                     \
	{                                                                                          \
		KERNEL(any), KERNEL(matrix<CUDA_F16, false>), KERNEL(matrix<CUDA_BF16, false>),    \
		KERNEL(matrix<CUDA_F16, true>), KERNEL(matrix<CUDA_BF16, true>)                    \
	}
/* clang-format on */

/*
 * Launches the instance for the element and the head dimension. Fails if there are too many blocks.
 */
static int launch_tiles(const struct kernel_device *device,
			const struct gpu_kernel (&instances)[ATTENTION_INSTANCES],
			const struct attention_arguments *arguments)
{
	struct attention_arguments a = *arguments;
	bool matrices = a.element != CUDA_F32 && a.d % 8 == 0;
	uint32_t tile = matrices ? MATRIX_TILE : TILE;

	static_assert(CUDA_F16 == 1 && CUDA_BF16 == 2, "the order of instances");
	a.tiles = (a.t + tile - 1) / tile;
	a.scale = 1 / sqrtf((float)a.d);
	uint64_t blocks = (uint64_t)a.n * a.heads * a.tiles;
	if (a.d > ATTENTION_CHANNELS_MAX || blocks > INT32_MAX)
		return -EINVAL;
	return launch(device, instances[matrices ? a.element + (a.dropout.below ? 2 : 0) : 0],
		      (uint32_t)blocks, &a);
}

int attention_forward(const struct kernel_device *device,
		      const struct attention_arguments *arguments)
{
	return launch_tiles(
		device, ATTENTION(attention_forward_any_kernel, attention_forward_matrix_kernel),
		arguments);
}

int attention_backward(const struct kernel_device *device,
		       const struct attention_arguments *arguments)
{
	int r = launch_tiles(
		device, ATTENTION(attention_queries_any_kernel, attention_queries_matrix_kernel),
		arguments);

	return r < 0 ? r
		     : launch_tiles(
			       device,
			       ATTENTION(attention_keys_any_kernel, attention_keys_matrix_kernel),
			       arguments);
}
