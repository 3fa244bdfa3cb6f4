#include "format/where/where_number.h"

#include <math.h>

struct where_operand where_integer(int64_t number)
{
	return (struct where_operand){.kind = WHERE_INTEGER, .integer = number};
}

struct where_operand where_unsigned(uint64_t number)
{
	if (number <= INT64_MAX)
		return where_integer((int64_t)number);
	return (struct where_operand){.kind = WHERE_LARGE, .large = number};
}

struct where_operand where_real(double number)
{
	if (isnan(number))
		return (struct where_operand){.kind = WHERE_ABSENT};
	return (struct where_operand){.kind = WHERE_REAL, .real = number};
}

static int compare_integer_real(int64_t integer, double real)
{
	if (real >= 0x1p63)
		return -1;
	if (real < -0x1p63)
		return 1;
	int64_t whole = (int64_t)real;
	if (integer != whole)
		return integer < whole ? -1 : 1;
	double rest = real - (double)whole; /* exact: zero unless |real| < 2^53 */
	return (rest < 0) - (rest > 0);
}

static int compare_large_real(uint64_t large, double real)
{
	if (real >= 0x1p64)
		return -1;
	if (real < 0x1p63)
		return 1;
	uint64_t whole = (uint64_t)real; /* doubles of this size are integers */
	return (large > whole) - (large < whole);
}

int where_number_compare(const struct where_operand *a, const struct where_operand *b)
{
	if (a->kind == WHERE_INTEGER && b->kind == WHERE_INTEGER)
		return (a->integer > b->integer) - (a->integer < b->integer);
	if (a->kind == WHERE_REAL && b->kind == WHERE_REAL)
		return (a->real > b->real) - (a->real < b->real);
	if (a->kind == WHERE_REAL)
		return -where_number_compare(b, a);
	if (b->kind == WHERE_REAL)
		return a->kind == WHERE_LARGE ? compare_large_real(a->large, b->real)
					      : compare_integer_real(a->integer, b->real);
	if (a->kind == WHERE_LARGE && b->kind == WHERE_LARGE)
		return (a->large > b->large) - (a->large < b->large);
	return a->kind == WHERE_LARGE ? 1 : -1;
}

static double as_real(const struct where_operand *number)
{
	if (number->kind == WHERE_REAL)
		return number->real;
	return number->kind == WHERE_LARGE ? (double)number->large : (double)number->integer;
}

static bool compute_integer(enum where_code code, int64_t a, int64_t b, int64_t *ret_result)
{
	switch (code) {
	case WHERE_OP_ADD:
		return !__builtin_add_overflow(a, b, ret_result);
	case WHERE_OP_SUBTRACT:
		return !__builtin_sub_overflow(a, b, ret_result);
	case WHERE_OP_MULTIPLY:
		return !__builtin_mul_overflow(a, b, ret_result);
	default:
		return false;
	}
}

static double compute_real(enum where_code code, double a, double b)
{
	switch (code) {
	case WHERE_OP_ADD:
		return a + b;
	case WHERE_OP_SUBTRACT:
		return a - b;
	case WHERE_OP_MULTIPLY:
		return a * b;
	default:
		return a / b;
	}
}

struct where_operand where_number_compute(enum where_code code, const struct where_operand *a,
					  const struct where_operand *b)
{
	int64_t result;

	if (a->kind == WHERE_ABSENT || b->kind == WHERE_ABSENT)
		return (struct where_operand){.kind = WHERE_ABSENT};
	if (a->kind == WHERE_INTEGER && b->kind == WHERE_INTEGER &&
	    compute_integer(code, a->integer, b->integer, &result))
		return where_integer(result);
	return where_real(compute_real(code, as_real(a), as_real(b)));
}

struct where_operand where_number_negate(const struct where_operand *a)
{
	static const struct where_operand zero = {.kind = WHERE_INTEGER};

	if (a->kind == WHERE_LARGE && a->large == (uint64_t)INT64_MAX + 1)
		return where_integer(INT64_MIN);
	if (a->kind == WHERE_REAL)
		return where_real(-a->real);
	return where_number_compute(WHERE_OP_SUBTRACT, &zero, a);
}

bool where_number_in(const struct where_operand *number, const struct where_operand *list,
		     size_t count)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = where_number_compare(number, &list[middle]);

		if (order == 0)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}
