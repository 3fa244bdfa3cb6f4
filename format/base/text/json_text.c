#include "format/base/text/json_text.h"

#include "format/base/text/printable.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

json_t *json_text(const char *bytes, size_t size)
{
	static const char digits[] = "0123456789abcdef";

	json_t *json = json_stringn(bytes, size);
	if (json)
		return json;
	char *hex = malloc(2 * size + 1);
	if (!hex)
		return NULL;
	for (size_t i = 0; i < size; i++) {
		hex[2 * i] = digits[(uint8_t)bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	json = json_pack("{ss%}", "hex", hex, 2 * size);
	free(hex);
	return json;
}

json_t *json_sentence(const char *sentence)
{
	json_t *json = json_string(sentence);
	if (json)
		return json;
	char *shown = printable_copy(sentence, strlen(sentence));
	json = shown ? json_string(shown) : NULL;
	free(shown);
	return json;
}

enum { DEL = 0x7f };

/* Escapes DEL, which occurs only inside strings. */
static int print_piece(const char *text, size_t size, void *context)
{
	FILE *file = context;

	while (size > 0) {
		const char *del = memchr(text, DEL, size);
		size_t plain = del ? (size_t)(del - text) : size;

		if (fwrite(text, 1, plain, file) != plain || (del && fputs("\\u007f", file) < 0))
			return -1;
		plain += del != NULL;
		text += plain;
		size -= plain;
	}
	return 0;
}

int json_print(const json_t *json, FILE *file, size_t flags)
{
	return json_dump_callback(json, print_piece, file, flags | JSON_ENSURE_ASCII);
}
