/*
 * Numbers of filters: integers of int64 and uint64, and doubles. Comparisons are exact, also of an
 * integer with a double, so all numbers have one order. Pure functions, any thread.
 */
#pragma once

#include "format/where/where_code.h"

/* Each returns an operand; where_real() of NaN is absent. */
struct where_operand where_integer(int64_t number);
struct where_operand where_unsigned(uint64_t number);
struct where_operand where_real(double number);

/* Returns -1, 0 or 1 as a is less than, equal to or greater than b. Both are numbers. */
int where_number_compare(const struct where_operand *a, const struct where_operand *b);
/*
 * Computes a number, or is absent if an operand is. Sums, differences and products of int64 are
 * exact, or become a double if they overflow; everything else is a double. code is one of
 * WHERE_OP_ADD to WHERE_OP_DIVIDE.
 */
struct where_operand where_number_compute(enum where_code code, const struct where_operand *a,
					  const struct where_operand *b);
struct where_operand where_number_negate(const struct where_operand *a);
/* Searches a list in ascending order. */
bool where_number_in(const struct where_operand *number, const struct where_operand *list,
		     size_t count);
