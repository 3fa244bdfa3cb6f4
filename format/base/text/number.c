#include "format/base/text/number.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int number_begin(const char *text, int base, uint64_t *ret_value, const char **ret_end)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, base);
	if (errno)
		return -EINVAL;
	*ret_value = value;
	*ret_end = end;
	return 0;
}

int number_u64(const char *text, uint64_t low, uint64_t high, uint64_t *ret_value)
{
	const char *end;
	uint64_t value;

	if (number_begin(text, 10, &value, &end) || *end || value < low || value > high)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

int number_i64(const char *text, int64_t *ret_value)
{
	const bool minus = text[0] == '-';
	const char *end;
	uint64_t value;

	if (number_begin(text + (minus || text[0] == '+'), 10, &value, &end) || *end ||
	    value > (uint64_t)INT64_MAX + minus)
		return -EINVAL;
	*ret_value = (int64_t)(minus ? -value : value);
	return 0;
}

int number_double(const char *text, double *ret_value)
{
	const char *first = text[0] == '-' || text[0] == '+' ? text + 1 : text;
	char *end;

	/* Reject hexadecimal floats: they are a mistake in a table. */
	if (!isdigit((unsigned char)first[0]) && first[0] != '.' && strcasecmp(first, "nan") != 0 &&
	    strcasecmp(first, "inf") != 0)
		return -EINVAL;
	if (first[0] == '0' && (first[1] | 0x20) == 'x')
		return -EINVAL;
	double value = strtod(text, &end);
	if (end == text || *end)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

unsigned number_unit(const char **text)
{
	static const char units[] = "KMGT";
	const char *unit = **text ? strchr(units, toupper((unsigned char)**text)) : NULL;

	if (!unit)
		return 0;
	*text += (*text)[1] == 'i' ? 2 : 1;
	return 10 * (unsigned)(unit - units + 1);
}

int number_bytes(const char *text, uint64_t *ret_bytes)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	double value = strtod(text, &end);
	if (errno)
		return -EINVAL;
	const char *rest = end;
	value = ldexp(value, (int)number_unit(&rest));
	if (*rest == 'B')
		rest++;
	if (*rest || value >= 0x1p63)
		return -EINVAL;
	*ret_bytes = (uint64_t)value;
	return 0;
}

/*
 * Significant digits. A decimal of FLT_DIG digits survives in either type and %g drops the zeros at
 * its end, so fewer need not be tried; the others always suffice (C17, 5.2.4.2.2).
 */
enum { DIGITS_MIN = FLT_DIG, DIGITS_FLOAT = FLT_DECIMAL_DIG, DIGITS_DOUBLE = DBL_DECIMAL_DIG };

const char *number_shortest(double value, char ret_text[NUMBER_SHORTEST])
{
	for (int digits = DIGITS_MIN; digits <= DIGITS_DOUBLE; digits++) {
		snprintf(ret_text, NUMBER_SHORTEST, "%.*g", digits, value);
		if (strtod(ret_text, NULL) == value)
			break;
	}
	return ret_text;
}

const char *number_shortest_float(float value, char ret_text[NUMBER_SHORTEST])
{
	for (int digits = DIGITS_MIN; digits <= DIGITS_FLOAT; digits++) {
		snprintf(ret_text, NUMBER_SHORTEST, "%.*g", digits, (double)value);
		if (strtof(ret_text, NULL) == value)
			break;
	}
	return ret_text;
}

const char *number_grouped(uint64_t value, char ret_text[NUMBER_GROUPED])
{
	char digits[NUMBER_GROUPED];
	int length = snprintf(digits, sizeof(digits), "%" PRIu64, value), used = 0;

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			ret_text[used++] = ',';
		ret_text[used++] = digits[i];
	}
	ret_text[used] = '\0';
	return ret_text;
}
