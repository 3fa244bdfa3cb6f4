#include "trainer/estimate/estimate.h"

#include <string.h>

/*
 * Parses a size, "N" or "NxN", with optional blanks around it. Returns N, or 0 for anything else,
 * such as unequal sides. Sets *ret_both to true for NxN.
 */
static uint32_t read_side(const char *text, size_t length, bool *ret_both)
{
	uint32_t sides[2] = {0};
	int count = 0;
	while (length && strchr(" \t", text[length - 1]))
		length--;
	for (size_t i = strspn(text, " \t"); i < length; i++) {
		if (text[i] == 'x' && count == 0 && sides[0])
			count++;
		else if (text[i] >= '0' && text[i] <= '9' && sides[count] < ESTIMATE_SIDE_MAX)
			sides[count] = 10 * sides[count] + (uint32_t)(text[i] - '0');
		else
			return 0;
	}
	*ret_both = count;
	return sides[0] <= ESTIMATE_SIDE_MAX && (!count || sides[0] == sides[1]) ? sides[0] : 0;
}

/*
 * Finds the size among a transform's arguments: the first argument if it is unnamed, otherwise the
 * one named "size".
 */
static uint32_t size_argument(const char *text, size_t length, bool *ret_both)
{
	static const char key[] = "size=";
	const char *end = text + length;
	for (bool first = true; text < end; first = false) {
		text += strspn(text, " \t");
		size_t argument = strcspn(text, ",)");
		if (strncmp(text, key, strlen(key)) == 0)
			return read_side(text + strlen(key), argument - strlen(key), ret_both);
		if (first && !memchr(text, '=', argument))
			return read_side(text, argument, ret_both);
		text += argument + 1;
	}
	return 0;
}

static bool is(const char *text, size_t length, const char *name)
{
	return strlen(name) == length && memcmp(text, name, length) == 0;
}

uint32_t pipeline_side(const char *pipeline)
{
	static const char blanks[] = " \t\r\n";
	uint32_t side = 0;
	for (const char *at = pipeline + strspn(pipeline, blanks); *at; at += strspn(at, blanks)) {
		const char *name = at, *arguments = "";
		size_t length = strcspn(at, " \t\r\n("), size = 0;
		bool both = false;
		at += length;
		at += strspn(at, blanks);
		if (*at == '(') {
			arguments = at + 1;
			size = strcspn(arguments, ")");
			if (!arguments[size])
				return 0;
			at = arguments + size + 1;
		}
		if (is(name, length, "random_resized_crop") || is(name, length, "random_crop") ||
		    is(name, length, "center_crop")) {
			side = size_argument(arguments, size, &both);
		} else if (is(name, length, "resize")) {
			side = size_argument(arguments, size, &both);
			side = both ? side : 0;
		} else if (is(name, length, "pad") || is(name, length, "random_zoom_out") ||
			   is(name, length, "random_iou_crop")) {
			side = 0;
		}
	}
	return side;
}
