/*
 * Numbers as people write them, in options, configurations and tables: digits first, so that
 * neither blanks nor a sign are taken for part of one, and nothing behind. Functions without state,
 * any thread; those that return int: 0, or -EINVAL and nothing is written.
 */
#pragma once

#include <stdint.h>

/* One value of at least low and at most high. */
int number_u64(const char *text, uint64_t low, uint64_t high, uint64_t *ret_value);
/* A sign may stand in front. */
int number_i64(const char *text, int64_t *ret_value);
/* Decimal, also with an exponent; "nan" and "inf" are numbers, too. */
int number_double(const char *text, double *ret_value);
/*
 * Bytes: a decimal number, then optionally K, M, G or T (powers of 1024), with "iB" or "B" after it
 * allowed.
 */
int number_bytes(const char *text, uint64_t *ret_bytes);

/* A whole number that something may follow, at ret_end. */
int number_begin(const char *text, int base, uint64_t *ret_value, const char **ret_end);
/*
 * The bits that K, M, G or T at *text shifts a number by, after which *text is moved, and beyond
 * "i", too. 0: it is none of these.
 */
unsigned number_unit(const char **text);

enum { NUMBER_GROUPED = 32 }; /* bytes */
/* 1234567 as "1,234,567", into the text, which is returned. */
const char *number_grouped(uint64_t value, char ret_text[NUMBER_GROUPED]);
