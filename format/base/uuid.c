#include "format/base/uuid.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

void uuid_from_hash(XXH128_hash_t hash, uint8_t ret_uuid[UUID_SIZE])
{
	/* hashes are written big-endian */
	uint64_t halves[] = {htobe64(hash.high64), htobe64(hash.low64)};

	memcpy(ret_uuid, halves, UUID_SIZE);
	/* version 8: application-specific (RFC 9562, 5.8) */
	ret_uuid[6] = (uint8_t)((ret_uuid[6] & 0x0f) | 0x80);
	ret_uuid[8] = (uint8_t)((ret_uuid[8] & 0x3f) | 0x80);
}

/* True if a dash precedes byte i in the text form. */
static bool dash_before(unsigned i)
{
	return i == 4 || i == 6 || i == 8 || i == 10;
}

bool uuid_known(const struct uuid *uuid)
{
	static const struct uuid zero;
	return memcmp(uuid, &zero, sizeof(zero)) != 0;
}

bool uuid_differ(const struct uuid *a, const struct uuid *b)
{
	return uuid_known(a) && uuid_known(b) && memcmp(a, b, sizeof(*a)) != 0;
}

void uuid_write(const uint8_t uuid[UUID_SIZE], char ret_text[UUID_TEXT])
{
	for (unsigned i = 0; i < UUID_SIZE; i++)
		ret_text += sprintf(ret_text, "%s%02x", dash_before(i) ? "-" : "", uuid[i]);
}

bool uuid_read(const char *text, struct uuid *ret_uuid)
{
	struct uuid uuid;
	char again[UUID_TEXT];
	const char *at = text;
	for (unsigned i = 0; i < sizeof(uuid.bytes); i++, at += 2) {
		at += dash_before(i) && *at == '-';
		if (sscanf(at, "%2hhx", &uuid.bytes[i]) != 1 || !at[1])
			return false;
	}
	/* Compare the text, because sscanf accepts signs, blanks and capitals. */
	uuid_write(uuid.bytes, again);
	if (strcmp(again, text) != 0)
		return false;
	*ret_uuid = uuid;
	return true;
}
