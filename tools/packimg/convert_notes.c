/* What a conversion decided that may have been meant otherwise, in sentences with the options that decide so. */
#include "convert.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 2, 3))) static int add_note(struct convert *convert, const char *format, ...)
{
	va_list arguments;
	char *text;
	int r;

	va_start(arguments, format);
	r = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (r < 0)
		return -ENOMEM;
	r = word_list_add(&convert->notes, text);
	free(text);
	return r;
}

static int note_patterns(struct convert *convert)
{
	const struct filter *filter = &convert->options.filter;
	int r = 0;

	for (size_t i = 0; !r && i < filter->count; i++)
		if (!filter->patterns[i].used)
			r = add_note(convert, "no name matches --%s %s",
					 filter->patterns[i].exclude ? "exclude" : "include",
					 filter->patterns[i].text);
	return r;
}

int convert_note_listing(struct convert *convert)
{
	return note_patterns(convert);
}

/* Pixels of kinds that may keep every one, in files of a kind that does not. */
static int note_loss(struct convert *convert)
{
	struct text_buffer count;
	char list[IMAGE_LIST_SIZE] = "";
	size_t size = 0;

	for (int kind = 0; kind < IMAGE_KINDS; kind++)
		if (convert->lossy[kind])
			size += (size_t)snprintf(list + size, sizeof(list) - size, "%s%s %s",
						 size ? ", " : "",
						 text_count(&count, convert->lossy[kind]),
						 image_formats[kind].name);
	if (!size)
		return 0;
	return add_note(convert,
			"%s became JPEG of quality %d, which loses a little; --non-jpeg zstd keeps "
			"their pixels",
			list, convert->options.render.quality);
}

int convert_note_writing(struct convert *convert)
{
	return convert->options.render.verbatim ? note_loss(convert) : 0;
}
