/*
 * Numbers as text. The parsers are for options, configurations and tables: a number starts with a
 * digit, without leading blanks or sign, and ends the text, except where stated. Stateless, any
 * thread. Functions that return int return 0, or -EINVAL and leave the output unchanged.
 */
#pragma once

#include <stdint.h>

/* Parses a decimal integer from low to high, inclusive. */
int number_u64(const char *text, uint64_t low, uint64_t high, uint64_t *ret_value);
/* Accepts a leading sign. */
int number_i64(const char *text, int64_t *ret_value);
/* Parses a decimal number, optionally with sign and exponent. Accepts "nan" and "inf". */
int number_double(const char *text, double *ret_value);
/*
 * Parses a number of bytes: a decimal number, then optionally K, M, G or T (powers of 1024),
 * optionally followed by "iB" or "B".
 */
int number_bytes(const char *text, uint64_t *ret_bytes);

/* Parses an integer that other text may follow, at ret_end. */
int number_begin(const char *text, int base, uint64_t *ret_value, const char **ret_end);
/*
 * Returns the number of bits to shift for a unit K, M, G or T at *text, and advances *text past the
 * unit and an "i" after it. Returns 0 if there is no unit.
 */
unsigned number_unit(const char **text);

enum { NUMBER_SHORTEST = 32 }; /* bytes */
/*
 * Write the shortest decimal that reads back as the same number, in the form of printf's %g, to
 * ret_text and return it. A NaN is "nan" or "-nan", an infinity "inf" or "-inf".
 */
const char *number_shortest(double value, char ret_text[NUMBER_SHORTEST]);
const char *number_shortest_float(float value, char ret_text[NUMBER_SHORTEST]);

enum { NUMBER_GROUPED = 32 }; /* bytes */
/* Writes 1234567 as "1,234,567" to ret_text and returns it. */
const char *number_grouped(uint64_t value, char ret_text[NUMBER_GROUPED]);
