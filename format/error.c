#include "format/error.h"

#include <stdarg.h>
#include <stdio.h>

void packimg_say(struct packimg_error *error, const char *format, ...)
{
	va_list arguments;

	if (!error)
		return;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
}
