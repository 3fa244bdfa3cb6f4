#include "tools/packimg/common/file_name.h"

#include "format/base/text/printable.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* At a '%': returns true if unescaping would treat it as the start of an escape. */
static bool is_escape(const char *text, size_t size)
{
	return size >= 3 && isxdigit((unsigned char)text[1]) && isxdigit((unsigned char)text[2]);
}

static int append_escaped(struct buffer *path, uint8_t byte)
{
	static const char digits[] = "0123456789ABCDEF";
	const char text[] = {'%', digits[byte >> 4], digits[byte & 15]};

	return buffer_append(path, text, sizeof(text));
}

int file_name_append(struct buffer *path, const char *name, size_t size)
{
	size_t plain = 0; /* number of bytes from here on that need no escape */

	for (size_t i = 0; i < size; i++) {
		if (plain == 0)
			plain = printable_span(name + i, size - i);
		bool escape = plain == 0 || name[i] == '/' ||
			      (name[i] == '%' && is_escape(name + i, size - i));
		if (escape ? append_escaped(path, (uint8_t)name[i])
			   : buffer_append(path, name + i, 1))
			return -ENOMEM;
		if (plain > 0)
			plain--;
	}
	return 0;
}
