/*
 * What names a dataset's content: 16 bytes that are derived from it (RFC 9562, version 8), so that
 * equal input gives equal bytes; and the same as text. All zero: not known. Plain values; pure
 * functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

enum {
	UUID_SIZE = 16,
	UUID_TEXT = 37, /* bytes, terminator included */
};

struct uuid {
	uint8_t bytes[UUID_SIZE];
};

void uuid_from_hash(XXH128_hash_t hash, uint8_t ret_uuid[UUID_SIZE]);
bool uuid_known(const struct uuid *uuid);
/* Two that are known, and not the same. */
bool uuid_differ(const struct uuid *a, const struct uuid *b);
/* "00112233-4455-6677-8899-aabbccddeeff". */
void uuid_write(const uint8_t uuid[UUID_SIZE], char ret_text[UUID_TEXT]);
/* False: not such a text. */
bool uuid_read(const char *text, struct uuid *ret_uuid);
