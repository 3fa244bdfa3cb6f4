/* Validates text that the format stores: class names, field names, metadata. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the UTF-8 sequence at text, at most size; 0 if it is malformed. */
size_t text_utf8_sequence(const uint8_t *text, size_t size);
/* True for well-formed UTF-8 (no overlong forms, surrogates or NUL). */
bool text_is_utf8(const char *text, size_t size);
/* True for a valid metadata key: 1 to max bytes of letters, digits, '_', '-' and '.'. */
bool text_is_key(const char *text, size_t size, size_t max);
/* True for an address, which begins with a scheme: NAME://. Other text is a path. */
bool text_is_address(const char *text);
/*
 * Returns how many bytes of an address may be shown: those before its query, which may hold a
 * signature that lets everybody read the dataset. Of a path, all.
 */
size_t text_shown_length(const char *address);
