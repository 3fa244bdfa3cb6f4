#include "format/base/text/sentence.h"

#include <stdarg.h>
#include <stdio.h>

int sentence_fail(char *text, size_t size, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (text)
		vsnprintf(text, size, format, arguments);
	va_end(arguments);
	return code;
}
