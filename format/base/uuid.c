#include "format/base/uuid.h"

#include <string.h>

void uuid_from_hash(XXH128_hash_t hash, uint8_t ret_uuid[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, hash);
	memcpy(ret_uuid, canonical.digest, 16);
	/* version 8: made by the application's own rule (RFC 9562, 5.8) */
	ret_uuid[6] = (uint8_t)((ret_uuid[6] & 0x0f) | 0x80);
	ret_uuid[8] = (uint8_t)((ret_uuid[8] & 0x3f) | 0x80);
}
