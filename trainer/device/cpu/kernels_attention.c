/*
 * Attention of one head of one sample, forward and backward; compiled once per instruction set, as
 * kernels.c.
 *
 * A head's data fits a core's L2 cache: q, k and v are gathered as fp32, whatever their element
 * type, and the scores of a block of queries against all keys stay in cache from the first product
 * to the last, so that little more than qkv and the result moves through memory. Backward
 * recomputes the scores: storing them would save a seventh of the arithmetic, but needs T x T
 * numbers per head, layer and sample, more memory than all other saved tensors of a transformer.
 */
#include "trainer/device/cpu/rows.h"
#include "trainer/device/cpu/tile.h"

#include <math.h>

#define INNER_BLOCK 128 /* rows of the right factor that stay in the first-level cache */
#define SCORE_MIN   (-1e30f)

typedef float quad __attribute__((vector_size(4 * sizeof(float)), aligned(4)));

_Static_assert(ATTENTION_ROWS % TILE_ROWS == 0, "blocks are whole tiles");
_Static_assert(ATTENTION_PADDING % LANES == 0, "rows are whole vectors");

static void tile_column(struct factor a, size_t rows, const float *b, size_t b_row, size_t inner,
			float *c, size_t c_row, int vectors, bool add)
{
	const struct factor right = {b, LANES, b_row};

	for (size_t i = 0; i < rows; i += TILE_ROWS) {
		struct factor part = {a.v + i * a.row, a.row, a.step};
		size_t count = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
		float *to = c + i * c_row;

		switch (vectors) {
		case 1:
			tile(part, count, right, inner, to, c_row, 1, add);
			break;
		case 2:
			tile(part, count, right, inner, to, c_row, 2, add);
			break;
#if TILE_VECTORS > 2
		case 3:
			tile(part, count, right, inner, to, c_row, 3, add);
			break;
		default:
			tile(part, count, right, inner, to, c_row, 4, add);
			break;
#endif
		}
	}
}

/* c [rows][columns] (+)= a b; b [inner][b_row] and c [rows][c_row] with `columns` padded. */
static void product(struct factor a, size_t rows, const float *b, size_t b_row, size_t inner,
		    float *c, size_t c_row, size_t columns, bool add)
{
	size_t vectors = (columns + LANES - 1) / LANES;

	for (size_t k = 0; k < inner; k += INNER_BLOCK) {
		size_t depth = inner - k < INNER_BLOCK ? inner - k : INNER_BLOCK;
		struct factor part = {a.v + k * a.step, a.row, a.step};

		/*
		 * column tiles of about equal width; a narrow one would have too few independent
		 * sums to hide their latency
		 */
		for (size_t at = 0, left = vectors; left;) {
			size_t tiles = (left + TILE_VECTORS - 1) / TILE_VECTORS;
			size_t width = (left + tiles - 1) / tiles;

			tile_column(part, rows, b + k * b_row + at * LANES, b_row, depth,
				    c + at * LANES, c_row, (int)width, add || k);
			at += width;
			left -= width;
		}
	}
}

/* Gathers rows of a head, of either element type, into [rows][padded]. */
static void gather(float *restrict to, const void *from, enum element element, size_t rows,
		   size_t stride, size_t width, float scale)
{
	size_t padded = ATTENTION_PADDED(width);

	for (size_t i = 0; i < rows; i++, to += padded) {
		load_row(to, from, element, i * stride, width);
		for (size_t c = 0; c < width; c++)
			to[c] *= scale;
		for (size_t c = width; c < padded; c++)
			to[c] = 0;
	}
}

/* Reverse of gather(), after scaling `from` in place. */
static void scatter(void *to, enum element element, float *restrict from, size_t rows,
		    size_t stride, size_t width, float scale)
{
	size_t padded = ATTENTION_PADDED(width);

	for (size_t i = 0; i < rows; i++, from += padded) {
		for (size_t c = 0; c < width; c++)
			from[c] *= scale;
		store_row(to, from, element, i * stride, width);
	}
}

/* Transposes a 4 x 4 block. */
INLINE void transpose_4x4(float *to, size_t to_row, const float *from, size_t from_row)
{
	quad a = *(const quad *)from, b = *(const quad *)(from + from_row);
	quad c = *(const quad *)(from + 2 * from_row), d = *(const quad *)(from + 3 * from_row);
	quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
	quad cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);

	*(quad *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
	*(quad *)(to + to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
	ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
	cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
	*(quad *)(to + 2 * to_row) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
	*(quad *)(to + 3 * to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* from [rows][padded width], to [padded width][padded rows], zero-filled beyond rows */
static void transpose(float *restrict to, const float *restrict from, size_t rows, size_t width)
{
	size_t columns = ATTENTION_PADDED(width), padded = ATTENTION_PADDED(rows),
	       whole = rows & ~(size_t)3;

	for (size_t i = 0; i < whole; i += 4)
		for (size_t c = 0; c < columns; c += 4)
			transpose_4x4(to + c * padded + i, padded, from + i * columns + c, columns);
	for (size_t c = 0; c < columns; c++)
		for (size_t i = whole; i < padded; i++)
			to[c * padded + i] = i < rows ? from[i * columns + c] : 0;
}

INLINE float largest_of(const float *row, size_t count)
{
	float max[LANES];

	memcpy(max, row, sizeof(max));
	for (size_t j = LANES; j < count; j += LANES)
		for (size_t i = 0; i < LANES; i++)
			max[i] = row[j + i] > max[i] ? row[j + i] : max[i];
	float largest = max[0];
	for (size_t i = 1; i < LANES; i++)
		largest = max[i] > largest ? max[i] : largest;
	return largest;
}

INLINE float sum_of(const float *row, size_t count)
{
	lanes sums = {0};
	float sum = 0;

	for (size_t j = 0; j < count; j += LANES)
		sums += *(const lanes *)(row + j);
	for (size_t i = 0; i < LANES; i++)
		sum += sums[i];
	return sum;
}

/* Replaces scores with e^(score - shift), in whole vectors. */
INLINE void exponentials(float *restrict row, float shift, size_t count)
{
	for (size_t j = 0; j < count; j++)
		row[j] = exp_fast(row[j] - shift);
}

/* Draws the dropout factors of a query for each key; padded. */
static void draw_keys(float *to, const struct attention_args *a, size_t query)
{
	uint32_t t = (uint32_t)a->t;

	draw_quads(to, a->dropout, a->key, a->sample, dropout_query(a->head, (uint32_t)query, t),
		   (a->t + 3) / 4);
}

/* Allocator for arrays in a head's scratch. */
struct head_arena {
	float *next;
};

static float *take(struct head_arena *arena, size_t count)
{
	float *taken = arena->next;

	arena->next += ATTENTION_PADDED(count);
	return taken;
}

void KERNELS_NAMED(attention)(const struct attention_args *a)
{
	size_t t = a->t, d = a->d, columns = ATTENTION_PADDED(t), width = ATTENTION_PADDED(d);
	struct head_arena arena = {a->scratch};
	float *v = take(&arena, t * width), *transposed_k = take(&arena, columns * width);
	float *k = take(&arena, t * width), *q = take(&arena, ATTENTION_ROWS * width);
	float *scores = take(&arena, ATTENTION_ROWS * columns),
	      *y = take(&arena, ATTENTION_ROWS * width);
	float *drawn = take(&arena, columns);
	size_t size = element_size(a->element);

	gather(v, a->v, a->element, t, a->stride, d, 1);
	gather(k, a->k, a->element, t, a->stride, d, 1);
	transpose(transposed_k, k, t, d);
	for (size_t first = 0; first < t; first += ATTENTION_ROWS) {
		size_t rows = t - first < ATTENTION_ROWS ? t - first : ATTENTION_ROWS;

		gather(q, (const char *)a->q + first * a->stride * size, a->element, rows,
		       a->stride, d, a->scale);
		product((struct factor){q, width, 1}, rows, transposed_k, columns, d, scores,
			columns, columns, false);
		for (size_t i = 0; i < rows; i++) {
			float *row = scores + i * columns;

			for (size_t j = t; j < columns; j++)
				row[j] = SCORE_MIN;
			float largest = largest_of(row, columns);
			exponentials(row, largest, columns);
			float sum = sum_of(row, columns);
			if (a->log_sum)
				a->log_sum[first + i] = largest + logf(sum);
			for (size_t j = 0; j < columns; j++)
				row[j] *= 1 / sum;
			if (a->dropout.below) {
				draw_keys(drawn, a, first + i);
				multiply_row(row, drawn, t);
			}
		}
		product((struct factor){scores, columns, 1}, rows, v, width, t, y, width, d, false);
		scatter((char *)a->y + first * a->y_stride * size, a->element, y, rows, a->y_stride,
			d, 1);
	}
}

/* Overwrites y [rows][padded width]. */
static float row_product(float *restrict y, const float *restrict dy, size_t padded)
{
	for (size_t c = 0; c < padded; c++)
		y[c] *= dy[c];
	return sum_of(y, padded);
}

void KERNELS_NAMED(attention_backward)(const struct attention_args *a)
{
	size_t t = a->t, d = a->d, columns = ATTENTION_PADDED(t), width = ATTENTION_PADDED(d);
	struct head_arena arena = {a->scratch};
	float *k = take(&arena, t * width), *transposed_k = take(&arena, columns * width);
	float *v = take(&arena, t * width), *transposed_v = take(&arena, columns * width);
	float *dk = take(&arena, t * width), *dv = v; /* v is already transposed by then */
	float *q = take(&arena, ATTENTION_ROWS * width), *dy = take(&arena, ATTENTION_ROWS * width);
	float *p = take(&arena, ATTENTION_ROWS * columns),
	      *dp = take(&arena, ATTENTION_ROWS * columns);
	float *y = take(&arena, ATTENTION_ROWS * width), *dq = y; /* dq is written last */
	float *drawn = take(&arena, columns);
	size_t size = element_size(a->element);

	gather(k, a->k, a->element, t, a->stride, d, 1);
	gather(v, a->v, a->element, t, a->stride, d, 1);
	transpose(transposed_k, k, t, d);
	transpose(transposed_v, v, t, d);
	for (size_t first = 0; first < t; first += ATTENTION_ROWS) {
		size_t rows = t - first < ATTENTION_ROWS ? t - first : ATTENTION_ROWS;

		gather(q, (const char *)a->q + first * a->stride * size, a->element, rows,
		       a->stride, d, a->scale);
		gather(dy, (const char *)a->gradient + first * a->y_stride * size, a->element, rows,
		       a->y_stride, d, 1);
		gather(y, (const char *)a->y + first * a->y_stride * size, a->element, rows,
		       a->y_stride, d, 1);
		product((struct factor){q, width, 1}, rows, transposed_k, columns, d, p, columns,
			columns, false);
		product((struct factor){dy, width, 1}, rows, transposed_v, columns, d, dp, columns,
			columns, false);
		for (size_t i = 0; i < rows; i++) {
			float *restrict row = p + i * columns, *restrict drow = dp + i * columns;
			/* equals the sum of p_ij dp_ij over j */
			float delta = row_product(y + i * width, dy + i * width, width);

			exponentials(row, a->log_sum[first + i], columns);
			if (a->dropout.below) {
				draw_keys(drawn, a, first + i);
				multiply_row(drow, drawn, t);
			}
			for (size_t j = 0; j < columns; j++)
				drow[j] = row[j] * (drow[j] - delta);
			if (a->dropout.below)
				multiply_row(row, drawn, t);
		}
		product((struct factor){p, 1, columns}, t, dy, width, rows, dv, width, d, first);
		product((struct factor){dp, 1, columns}, t, q, width, rows, dk, width, d, first);
		product((struct factor){dp, columns, 1}, rows, k, width, t, dq, width, d, false);
		scatter((char *)a->dq + first * a->stride * size, a->element, dq, rows, a->stride,
			d, a->scale);
	}
	scatter(a->dk, a->element, dk, t, a->stride, d, 1);
	scatter(a->dv, a->element, dv, t, a->stride, d, 1);
}
