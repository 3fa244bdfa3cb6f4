/*
 * UUIDs that are derived from content (RFC 9562, version 8), so that equal input gives equal bytes.
 * Pure functions.
 */
#pragma once

#include <stdint.h>
#include <xxhash.h>

void uuid_from_hash(XXH128_hash_t hash, uint8_t ret_uuid[16]);
