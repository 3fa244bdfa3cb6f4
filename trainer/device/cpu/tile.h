/*
 * Vector types of an instruction set, and matrix products in registers: TILE_ROWS rows by up to
 * TILE_VECTORS vectors of columns. Included by sources compiled once per instruction set.
 */
#pragma once

#include "trainer/device/cpu/rows.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX512F__)
#define LANES        16
#define TILE_VECTORS 4
#elif defined(__AVX2__)
#define LANES        8
#define TILE_VECTORS 2
#else
#define LANES        4
#define TILE_VECTORS 2
#endif
#define TILE_ROWS 6

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float lanes_anywhere __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

INLINE lanes load(const float *from)
{
	return *(const lanes_anywhere *)from;
}

INLINE void store(float *to, lanes values)
{
	*(lanes_anywhere *)to = values;
}

/*
 * A factor of a matrix product a b with summation index k. As a: element (i, k) is v[i * row + k *
 * step]. As b: vector (k, j) begins at v[j * row + k * step], aligned.
 */
struct factor {
	const float *v;
	size_t row, step;
};

/*
 * Computes c = a b, or c += a b with `add`: c is [rows][vectors * LANES], with rows c_row apart;
 * `inner` is the summed dimension.
 */
INLINE void tile(struct factor a, size_t rows, struct factor b, size_t inner, float *c,
		 size_t c_row, const int vectors, bool add)
{
	const float *from[TILE_ROWS];
	lanes sum[TILE_ROWS][TILE_VECTORS];

	/* rows beyond `rows` repeat the last one and are not stored */
	for (size_t i = 0; i < TILE_ROWS; i++)
		from[i] = a.v + (i < rows ? i : rows - 1) * a.row;
#pragma GCC unroll 6
	for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
		for (int j = 0; j < vectors; j++)
			sum[i][j] = (lanes){0};
	for (size_t k = 0; k < inner; k++) {
		lanes right[TILE_VECTORS];

#pragma GCC unroll 4
		for (int j = 0; j < vectors; j++)
			right[j] = *(const lanes *)(b.v + (size_t)j * b.row + k * b.step);
#pragma GCC unroll 6
		for (int i = 0; i < TILE_ROWS; i++) {
			float left = from[i][k * a.step];
#pragma GCC unroll 4
			for (int j = 0; j < vectors; j++)
				sum[i][j] += left * right[j];
		}
	}
#pragma GCC unroll 6
	for (int i = 0; i < TILE_ROWS; i++) {
		if ((size_t)i >= rows)
			break;
#pragma GCC unroll 4
		for (int j = 0; j < vectors; j++) {
			lanes *to = (lanes *)(c + (size_t)i * c_row + (size_t)j * LANES);

			*to = add ? *to + sum[i][j] : sum[i][j];
		}
	}
}
