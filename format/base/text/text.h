/* Checks on text that the format stores: class names, field names, metadata. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the sequence at text, of at most size; 0 when it is malformed. */
size_t text_utf8_sequence(const uint8_t *text, size_t size);
/* Well-formed UTF-8 (no overlong forms, surrogates or NUL). */
bool text_is_utf8(const char *text, size_t size);
/* Letters, digits, '_', '-' and '.', 1 to most bytes: what a metadata key may be. */
bool text_is_key(const char *text, size_t size, size_t max);
