#include "format/base/text/text.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* Unicode 15, table 3-7. */
size_t text_utf8_sequence(const uint8_t *text, size_t size)
{
	uint8_t lead = text[0], low = 0x80, high = 0xbf;
	size_t length;

	if (lead >= 0x01 && lead <= 0x7f)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		length = 2;
	else if (lead >= 0xe0 && lead <= 0xef)
		length = 3;
	else if (lead >= 0xf0 && lead <= 0xf4)
		length = 4;
	else
		return 0;
	if (size < length)
		return 0;
	if (lead == 0xe0)
		low = 0xa0;
	else if (lead == 0xed)
		high = 0x9f;
	else if (lead == 0xf0)
		low = 0x90;
	else if (lead == 0xf4)
		high = 0x8f;
	if (text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool text_is_utf8(const char *text, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)text;

	for (size_t i = 0; i < size;) {
		size_t length = text_utf8_sequence(bytes + i, size - i);
		if (length == 0)
			return false;
		i += length;
	}
	return true;
}

bool text_is_key(const char *text, size_t size, size_t max)
{
	if (size == 0 || size > max)
		return false;
	for (size_t i = 0; i < size; i++) {
		char c = text[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '-' || c == '.'))
			return false;
	}
	return true;
}

bool text_is_address(const char *text)
{
	size_t length = 0;

	while (isalnum((unsigned char)text[length]) ||
	       (length > 0 && text[length] != '\0' && strchr("+-.", text[length])))
		length++;
	return length > 0 && strncmp(text + length, "://", 3) == 0;
}

size_t text_shown_length(const char *address)
{
	return text_is_address(address) ? strcspn(address, "?") : strlen(address);
}
