/*
 * Texts for a sample's caption and list of values: class, key and fields, printable and at most
 * SAMPLE_TEXT_MAX bytes each. The texts are UTF-8 without control characters and direction marks;
 * they are not escaped for HTML. One thread.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

#include <stdint.h>

enum { SAMPLE_TEXT_MAX = 300 /* bytes of a value's text; longer ones end in "..." */ };

struct sample_text {
	uint32_t field; /* SAMPLE_TEXT_KEY, or SAMPLE_TEXT_FIELD and the number of the field */
	char *name, *text;
};
enum { SAMPLE_TEXT_KEY, SAMPLE_TEXT_FIELD };

struct sample_texts {
	char *class; /* name of the class, or "no class" and the like */
	struct sample_text list[SAMPLE_TEXT_FIELD + PACKIMG_FIELDS_MAX]; /* the key first */
	uint32_t count;
	const char *damaged; /* name of the first value that cannot be read; its text states this */
};

void sample_texts_free(struct sample_texts *texts);
/* texts must be zeroed. Call sample_texts_free() also after a failure. -ENOMEM. */
int sample_texts_make(const struct packimg *dataset, const struct packimg_sample *sample,
		      struct sample_texts *texts);
/*
 * Appends the complete text of a field, as stored and as packimg list prints it; nothing if the
 * sample has no value. -EBADMSG if the value is damaged, -ENOMEM.
 */
int sample_field_text(const struct packimg *dataset, uint64_t index, uint32_t field,
		      struct buffer *text);
/*
 * Returns the printable name of a class, or "label N"; the caller frees it. NULL if out of memory.
 */
char *sample_class_copy(const struct packimg *dataset, int64_t number);
/* Returns a printable copy of at most SAMPLE_TEXT_MAX bytes, which the caller frees, or NULL. */
char *sample_text_copy(const void *text, size_t size);
