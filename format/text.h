/* Checks on text that the format stores: class names, field names, metadata. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8 (no overlong forms, surrogates or NUL). */
bool text_is_utf8(const char *text, size_t size);
/* Letters, digits, '_', '-' and '.', 1 to PIMG_NAME_MAX bytes: what a metadata key may be. */
bool text_is_key(const char *text, size_t size);
