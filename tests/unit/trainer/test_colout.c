/* ColOut: the number of rows and columns kept, and which ones. */
#include "tests/test.h"
#include "trainer/algorithms/colout.h"

#include <math.h>

/* Composer computes int((1 - p) * size). */
TEST(kept)
{
	static const struct {
		double share;
		uint32_t size, kept;
	} cases[] = {{0.15, 224, 190}, {0.15, 32, 27}, {0.5, 7, 3}, {0, 9, 9}, {0.9, 3, 1}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(colout_kept(cases[i].share, cases[i].size), cases[i].kept);
}

/*
 * Kept indices are ascending and equally frequent. Each step draws others, and rows differ from
 * columns.
 */
TEST(draws)
{
	enum { SIZE = 10, KEPT = 7, STEPS = 4000 };
	unsigned rows_kept[SIZE] = {0}, columns_kept[SIZE] = {0}, alike = 0, again = 0;
	uint32_t rows[KEPT], columns[KEPT], before[KEPT] = {0}, twice[KEPT];
	for (uint64_t step = 1; step <= STEPS; step++) {
		colout_draw(0.3, 5, step, SIZE, SIZE, rows, columns);
		for (unsigned i = 0; i < KEPT; i++) {
			assert_true(rows[i] < SIZE && (!i || rows[i] > rows[i - 1]));
			rows_kept[rows[i]]++;
			columns_kept[columns[i]]++;
		}
		alike += memcmp(rows, columns, sizeof(rows)) == 0;
		again += memcmp(rows, before, sizeof(rows)) == 0;
		memcpy(before, rows, sizeof(rows));
	}
	/* few of 120 possible choices are equal; counts are within five standard deviations */
	assert_true(alike < STEPS / 60 && again < STEPS / 60);
	for (unsigned i = 0; i < SIZE; i++) {
		assert_true(fabs(rows_kept[i] - 0.7 * STEPS) < 5 * sqrt(0.21 * STEPS));
		assert_true(fabs(columns_kept[i] - 0.7 * STEPS) < 5 * sqrt(0.21 * STEPS));
	}
	colout_draw(0.3, 5, STEPS, SIZE, SIZE, twice, columns);
	assert_memory_equal(rows, twice, sizeof(rows));
}
