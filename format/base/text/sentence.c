#include "format/base/text/sentence.h"

#include <stdarg.h>
#include <stdio.h>

/* What was taken from a file or a request is not to command the terminal that it is shown on. */
static void sentence_calm(char *text)
{
	for (; *text; text++)
		if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') || *text == 0x7f)
			*text = '?';
}

int sentence_fail(char *text, size_t size, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (text && size > 0) {
		vsnprintf(text, size, format, arguments);
		sentence_calm(text);
	}
	va_end(arguments);
	return code;
}
