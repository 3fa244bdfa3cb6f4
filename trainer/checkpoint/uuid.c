#include "trainer/checkpoint/uuid.h"

#include <stdio.h>
#include <string.h>

/* Bytes that a dash comes before. */
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

void uuid_write(const struct uuid *uuid, char ret_text[UUID_TEXT])
{
	for (unsigned i = 0; i < sizeof(uuid->bytes); i++)
		ret_text += sprintf(ret_text, "%s%02x", dash_before(i) ? "-" : "", uuid->bytes[i]);
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
	/* sscanf takes signs, blanks and capitals, which are not to be found here */
	uuid_write(&uuid, again);
	if (strcmp(again, text))
		return false;
	*ret_uuid = uuid;
	return true;
}
