#include "format/base/text/json_text.h"

#include <string.h>

enum { DEL = 0x7f };

/* Outside of strings there is no DEL. */
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
