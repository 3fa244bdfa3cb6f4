#include "format/base/text/printable.h"

#include "format/base/text/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint32_t code_point(const uint8_t *bytes, size_t length)
{
	uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

	for (size_t i = 1; i < length; i++)
		code = code << 6 | (bytes[i] & 0x3f);
	return code;
}

/* True for invisible characters, which change the display of others, end lines, or show nothing. */
static bool printable_is_hidden(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{0x80, 0x9f},     /* C1 controls */
		{0xad, 0xad},     /* soft hyphen */
		{0x61c, 0x61c},   /* Arabic letter mark */
		{0x200b, 0x200b}, /* zero width space */
		{0x200e, 0x200f}, /* direction marks */
		{0x2028,
		 0x202e}, /* line and paragraph separators; direction embeddings and overrides */
		{0x2060,
		 /* invisible operators, direction isolates, deprecated format characters */
		 0x206f},
		{0xfeff, 0xfeff},   /* byte order mark */
		{0xfff9, 0xfffb},   /* annotations */
		{0xfffe, 0xffff},   /* noncharacters, not allowed in XML */
		{0xe0000, 0xe0fff}, /* tags */
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (code >= ranges[i].first && code <= ranges[i].last)
			return true;
	return false;
}

/*
 * Returns the length of the UTF-8 character at text, at most size; 0 for a byte that is not part of
 * one.
 */
static size_t decode_character(const uint8_t *text, size_t size, uint32_t *ret_code,
			       bool *ret_plain)
{
	size_t length = text_utf8_sequence(text, size);
	uint32_t code = length ? code_point(text, length) : 0;

	*ret_code = code;
	*ret_plain = length && code >= 0x20 && code != 0x7f && !printable_is_hidden(code);
	return length;
}

size_t printable_span(const char *text, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)text;
	bool plain = true;
	uint32_t code;
	size_t span = 0;

	while (span < size) {
		size_t length = decode_character(bytes + span, size - span, &code, &plain);
		if (!plain)
			break;
		span += length;
	}
	return span;
}

enum { SHOWN_MAX = sizeof("\\U0010ffff") };

/*
 * Escapes the first character if necessary and returns the length of the result. *ret_taken is the
 * character's length in text.
 */
static size_t printable_show(const uint8_t *text, size_t size, char shown[SHOWN_MAX],
			     size_t *ret_taken)
{
	uint32_t code;
	bool plain;

	size_t length = decode_character(text, size, &code, &plain);
	*ret_taken = length ? length : 1;
	if (plain) {
		memcpy(shown, text, length);
		return length;
	}
	if (length == 0 || code < 0x80)
		return (size_t)snprintf(shown, SHOWN_MAX, "\\x%02x", text[0]);
	return (size_t)snprintf(shown, SHOWN_MAX, code > 0xffff ? "\\U%08x" : "\\u%04x", code);
}

void printable_put(FILE *file, const char *text, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)text;
	char shown[SHOWN_MAX];

	for (size_t i = 0, taken; i < size; i += taken) {
		size_t length = printable_show(bytes + i, size - i, shown, &taken);
		fwrite(shown, 1, length, file);
	}
}

size_t printable_write(char *to, size_t capacity, const char *text, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)text;
	char shown[SHOWN_MAX];
	size_t used = 0;

	for (size_t i = 0, taken; i < size; i += taken) {
		size_t length = printable_show(bytes + i, size - i, shown, &taken);
		if (length > capacity - used)
			break;
		memcpy(to + used, shown, length);
		used += length;
	}
	return used;
}

void printable_line(FILE *file, const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	int size = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (size < 0)
		return;
	const size_t capacity = (size_t)size * SHOWN_MAX;
	char *line = malloc(capacity + 1);
	if (line) {
		size_t length = printable_write(line, capacity, text, (size_t)size);
		line[length++] = '\n';
		fwrite(line, 1, length, file);
	}
	free(line);
	free(text);
}

char *printable_copy(const char *text, size_t size)
{
	char *copy = NULL;
	size_t copy_size;

	FILE *file = open_memstream(&copy, &copy_size);
	if (!file)
		return NULL;
	printable_put(file, text, size);
	if (fclose(file) == 0)
		return copy;
	free(copy);
	return NULL;
}
