/*
 * What names a dataset's content: its 16 bytes as feeds tell them, and as text. All zero: not
 * known. Plain values; pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { UUID_TEXT = 37 /* bytes, terminator included */ };

struct uuid {
	uint8_t bytes[16];
};

bool uuid_known(const struct uuid *uuid);
/* Two that are known, and not the same. */
bool uuid_differ(const struct uuid *a, const struct uuid *b);
/* "00112233-4455-6677-8899-aabbccddeeff", as packimg and loaderctl write it. */
void uuid_write(const struct uuid *uuid, char ret_text[UUID_TEXT]);
/* False: not such a text. */
bool uuid_read(const char *text, struct uuid *ret_uuid);
