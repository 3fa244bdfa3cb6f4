/*
 * Tensor core kernels of attention.h, for 16-bit elements and head dimensions that are multiples of
 * a pack (8 channels). Included once per element, with ELEMENT and NAME defined.
 *
 * A block owns MATRIX_TILE rows, 16 per warp, and loops over tiles of the other operand. A tile in
 * shared memory has a row stride of ROW_PACKS packs, one more than the row's length, so the eight
 * rows that a matrix load reads fall into eight different groups of banks. Sums stay in registers
 * in the fragment layout of mma; rounded to E, they are directly the left factor of the next
 * product.
 */

/*
 * Loads rows of 8 packs starting at element `at`, `stride` elements apart. Pads with zeros beyond t
 * rows and d channels.
 */
DEVICE void NAME(load_rows)(const struct attention_arguments *a, struct kernel_pack *to,
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

DEVICE void NAME(load_packed)(const struct attention_arguments *a, const struct here *here,
			      struct kernel_pack *to, uint32_t part, uint32_t first, uint32_t rows)
{
	NAME(load_rows)(a, to, a->qkv, packed_at(a, here, part, first), here->stride, first, rows);
}

DEVICE void NAME(load_result)(const struct attention_arguments *a, const struct here *here,
			      struct kernel_pack *to, const void *from, uint32_t first,
			      uint32_t rows)
{
	NAME(load_rows)(a, to, from, result_at(a, here, first), here->width, first, rows);
}

DEVICE uint32_t NAME(pair)(float first, float second)
{
	return ELEMENT == CUDA_F16 ? kernel_to_f16x2(first, second)
				   : kernel_to_bf16x2(first, second);
}

/* Rounds two adjacent 8-column tiles of sums to E, as a left factor. */
DEVICE void NAME(round)(uint32_t to[4], float s[2][4])
{
	EACH(i, 4)
		to[i] = NAME(pair)(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
}

/*
 * s[2] += L T^T, where left[k] is the k-th left factor of L and T is the tile's 16 rows from `row`
 * on.
 */
DEVICE void NAME(scores)(float s[2][4], uint32_t left[4][4], const struct kernel_pack *tile,
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
DEVICE void NAME(scores_of)(float s[2][4], const struct kernel_pack *own, uint32_t own_row,
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
DEVICE void NAME(add)(float sums[8][4], const uint32_t weights[4], const struct kernel_pack *tile,
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
DEVICE void NAME(store_rows)(const struct attention_arguments *a, const struct here *here, void *to,
			     uint64_t at, uint32_t stride, float sums[8][4])
{
	EACH(n, 8) {
		EACH_IF(i, 2, n * 8 < a->d) {
			uint32_t row = matrix_row(i);

			if (here->first + row < a->t)
				kernel_store4((uint16_t *)to + at + (uint64_t)row * stride + n * 8 +
						      matrix_column(),
					      NAME(pair)(sums[n][2 * i], sums[n][2 * i + 1]));
		}
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, RESIDENT)
	NAME(attention_forward_matrix)(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, q, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, k, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_COLUMNS * ROW_PACKS);
	struct here here = where(&a, MATRIX_TILE);
	float sums[8][4], largest[2], total[2], scale = a.scale * LOG2_E;
	uint32_t left[4][4];

	matrix_clear(sums);
	EACH(i, 2) {
		largest[i] = LEAST_SCORE;
		total[i] = 0;
	}
	NAME(load_packed)(&a, &here, q, 0, here.first, MATRIX_TILE);
	__syncthreads();
	EACH(j, 4)
		matrix_left(left[j], q, matrix_warp(), 2 * j);
	for (uint32_t first = 0; first < a.t; first += MATRIX_COLUMNS) {
		float s[8][4];

		__syncthreads();
		NAME(load_packed)(&a, &here, k, 1, first, MATRIX_COLUMNS);
		NAME(load_packed)(&a, &here, v, 2, first, MATRIX_COLUMNS);
		__syncthreads();
		/* warps without a valid row only help loading */
		if (here.first + matrix_warp() >= a.t)
			continue;
		matrix_clear(s);
		EACH_IF(j, 4, first + j * 16 < a.t)
			NAME(scores)(s + 2 * j, left, k, j * 16, a.d);
		EACH(i, 2) {
			float most = LEAST_SCORE, sum = 0, shrink;

			EACH(n, 8) {
				EACH(c, 2) {
					float *score = &s[n][2 * i + c];

					*score *= scale;
					if (first + n * 8 + matrix_column() + c >= a.t)
						*score = LEAST_SCORE;
					most = *score > most ? *score : most;
				}
			}
			most = matrix_row_largest(most);
			most = most > largest[i] ? most : largest[i];
			shrink = kernel_exp2(largest[i] - most);
			largest[i] = most;
			EACH(n, 8) {
				EACH(c, 2) {
					s[n][2 * i + c] = kernel_exp2(s[n][2 * i + c] - most);
					sum += s[n][2 * i + c];
					if (DRAWS)
						s[n][2 * i + c] *=
							drawn(&a, &here, here.first + matrix_row(i),
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

			NAME(round)(p, s + 2 * j);
			NAME(add)(sums, p, v, j * 16, a.d);
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
	NAME(store_rows)(&a, &here, a.y, result_at(&a, &here, here.first), here.width, sums);
}

/*
 * Computes delta, the sum of y dy, for a tile of queries, with two threads per query. Also stores
 * it for the keys kernel.
 */
DEVICE void NAME(find_delta)(const struct attention_arguments *a, const struct here *here,
			     float *delta)
{
	uint32_t row = threadIdx.x / 2, half = threadIdx.x % 2;
	bool given = here->first + row < a->t;
	uint64_t at = result_at(a, here, here->first + row);
	float sum = 0;

	for (uint32_t c = half * 8; given && c < a->d; c += 16) {
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
	if (given)
		a->delta[query_at(a, here, here->first + row)] = sum;
}

static __global__ void __launch_bounds__(KERNEL_THREADS, RESIDENT)
	NAME(attention_queries_matrix)(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, rows, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, k, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_COLUMNS * ROW_PACKS);
	SHARED(float, deltas, MATRIX_TILE);
	struct here here = where(&a, MATRIX_TILE);
	float sums[8][4], log_sum[2], delta[2], scale = a.scale * LOG2_E;
	uint32_t q[4][4], dy[4][4];

	matrix_clear(sums);
	NAME(load_packed)(&a, &here, rows, 0, here.first, MATRIX_TILE);
	NAME(find_delta)(&a, &here, deltas);
	__syncthreads();
	EACH(j, 4)
		matrix_left(q[j], rows, matrix_warp(), 2 * j);
	__syncthreads();
	NAME(load_result)(&a, &here, rows, a.dy, here.first, MATRIX_TILE);
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
		NAME(load_packed)(&a, &here, k, 1, first, MATRIX_COLUMNS);
		NAME(load_packed)(&a, &here, v, 2, first, MATRIX_COLUMNS);
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
			NAME(scores)(s, q, k, j, a.d);
			NAME(scores)(dp, dy, v, j, a.d);
			EACH(n, 2) {
				EACH(c, 4) {
					uint32_t key = first + j + n * 8 + matrix_column() + c % 2;
					float p = kernel_exp2(s[n][c] * scale - log_sum[c / 2]);

					if (DRAWS)
						dp[n][c] *=
							drawn(&a, &here,
							      here.first + matrix_row(c / 2), key);
					s[n][c] = key < a.t ? p * (dp[n][c] - delta[c / 2]) : 0;
				}
			}
			NAME(round)(ds, s);
			NAME(add)(sums, ds, k, j, a.d);
		}
	}
	EACH(n, 8) {
		EACH(c, 4)
			sums[n][c] *= a.scale;
	}
	NAME(store_rows)(&a, &here, a.dqkv, packed_at(&a, &here, 0, here.first), here.stride, sums);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, RESIDENT)
	NAME(attention_keys_matrix)(const __grid_constant__ struct attention_arguments a)
{
	SHARED(struct kernel_pack, k, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, v, MATRIX_TILE * ROW_PACKS);
	SHARED(struct kernel_pack, q, MATRIX_COLUMNS / 2 * ROW_PACKS);
	SHARED(struct kernel_pack, dy, MATRIX_COLUMNS / 2 * ROW_PACKS);
	SHARED(float, log_sums, MATRIX_COLUMNS / 2);
	SHARED(float, deltas, MATRIX_COLUMNS / 2);
	struct here here = where(&a, MATRIX_TILE);
	float dk[8][4], dv[8][4], scale = a.scale * LOG2_E;

	matrix_clear(dk);
	matrix_clear(dv);
	NAME(load_packed)(&a, &here, k, 1, here.first, MATRIX_TILE);
	NAME(load_packed)(&a, &here, v, 2, here.first, MATRIX_TILE);
	for (uint32_t first = 0; first < a.t; first += MATRIX_COLUMNS / 2) {
		uint32_t query = first + threadIdx.x;

		__syncthreads();
		NAME(load_packed)(&a, &here, q, 0, first, MATRIX_COLUMNS / 2);
		NAME(load_result)(&a, &here, dy, a.dy, first, MATRIX_COLUMNS / 2);
		if (threadIdx.x < MATRIX_COLUMNS / 2) {
			bool given = query < a.t;

			/* queries beyond the last have zero gradient */
			log_sums[threadIdx.x] =
				given ? a.log_sum[query_at(&a, &here, query)] * LOG2_E : 0;
			deltas[threadIdx.x] = given ? a.delta[query_at(&a, &here, query)] : 0;
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
			NAME(scores_of)(s, k, matrix_warp(), q, j, a.d);
			NAME(scores_of)(dp, v, matrix_warp(), dy, j, a.d);
			EACH(n, 2) {
				EACH(c, 4) {
					uint32_t at = j + n * 8 + matrix_column() + c % 2;
					float factor = 1;

					if (DRAWS)
						factor = drawn(&a, &here, first + at,
							       here.first + matrix_row(c / 2));
					s[n][c] = kernel_exp2(s[n][c] * scale - log_sums[at]);
					dp[n][c] = s[n][c] * (dp[n][c] * factor - deltas[at]);
					s[n][c] *= factor;
				}
			}
			NAME(round)(p, s);
			NAME(add)(dv, p, dy, j, a.d);
			NAME(round)(ds, dp);
			NAME(add)(dk, ds, q, j, a.d);
		}
	}
	EACH(n, 8) {
		EACH(c, 4)
			dk[n][c] *= a.scale;
	}
	NAME(store_rows)(&a, &here, a.dqkv, packed_at(&a, &here, 1, here.first), here.stride, dk);
	NAME(store_rows)(&a, &here, a.dqkv, packed_at(&a, &here, 2, here.first), here.stride, dv);
}
