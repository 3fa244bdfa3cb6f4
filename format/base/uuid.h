/*
 * UUIDs of datasets: 16 bytes derived from the content (RFC 9562, version 8), so that equal input
 * gives equal bytes, and their text form. All zero means unknown. Pure functions on plain values.
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
/* True if both are known and different. */
bool uuid_differ(const struct uuid *a, const struct uuid *b);
/* "00112233-4455-6677-8899-aabbccddeeff". */
void uuid_write(const uint8_t uuid[UUID_SIZE], char ret_text[UUID_TEXT]);
/* Returns false if text is not a UUID in that form. */
bool uuid_read(const char *text, struct uuid *ret_uuid);
