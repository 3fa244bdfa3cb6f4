#include "tools/packimg/view/sample_text.h"

#include "format/base/text/number.h"
#include "format/base/text/printable.h"
#include "format/base/text/text.h"
#include "tools/packimg/common/typed_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *sample_text_copy(const void *text, size_t size)
{
	static const char dots[] = "...";
	/* Each byte gives at least one character. */
	char *copy = printable_copy(text, size < SAMPLE_TEXT_MAX ? size : SAMPLE_TEXT_MAX);
	size_t length = copy ? strlen(copy) : 0;

	if (!copy || (size <= SAMPLE_TEXT_MAX && length <= SAMPLE_TEXT_MAX))
		return copy;
	char *cut = realloc(copy, length + sizeof(dots));
	if (!cut) {
		free(copy);
		return NULL;
	}
	if (length > SAMPLE_TEXT_MAX - strlen(dots))
		length = SAMPLE_TEXT_MAX - strlen(dots);
	while (length > 0 && ((unsigned char)cut[length] & 0xc0) == 0x80)
		length--;
	strcpy(cut + length, dots);
	return cut;
}

static int append_scalar(const struct packimg_field *field, const struct packimg_value *value,
			 struct buffer *text)
{
	char number[NUMBER_SHORTEST];

	if (field->type == PACKIMG_FIELD_INT64)
		snprintf(number, sizeof(number), "%" PRId64, value->int64);
	else if (field->type == PACKIMG_FIELD_FLOAT64)
		number_shortest(value->float64, number);
	else if (text_is_utf8(value->bytes, value->size))
		return buffer_append(text, value->bytes, value->size);
	else
		snprintf(number, sizeof(number), "(%zu bytes)", value->size);
	return buffer_append(text, number, strlen(number));
}

int sample_field_text(const struct packimg *dataset, uint64_t index, uint32_t field,
		      struct buffer *text)
{
	const struct schema_value *typed = typed_value(dataset, field);
	struct packimg_field about;
	struct packimg_value value;
	int r = packimg_field(dataset, field, &about);

	r = r ?: packimg_value(dataset, index, field, &value);
	if (r || !value.present)
		return r;
	return typed ? typed_text_append(typed, &value, text) : append_scalar(&about, &value, text);
}

static int add_text(struct sample_texts *texts, uint32_t field, const char *name, const void *text,
		    size_t size)
{
	struct sample_text *added = &texts->list[texts->count++];

	*added = (struct sample_text){.field = field,
				      .name = sample_text_copy(name, strlen(name)),
				      .text = sample_text_copy(text, size)};
	return added->name && added->text ? 0 : -ENOMEM;
}

static int add_damaged(struct sample_texts *texts, uint32_t field, const char *name)
{
	static const char damaged[] = "damaged";

	int r = add_text(texts, field, name, damaged, strlen(damaged));
	if (!r && !texts->damaged)
		texts->damaged = texts->list[texts->count - 1].name;
	return r;
}

static int add_key(const struct packimg *dataset, uint64_t index, struct sample_texts *texts)
{
	const char *name;
	size_t size;

	if (packimg_source(dataset, index, &name, &size))
		return add_damaged(texts, SAMPLE_TEXT_KEY, "key");
	return size ? add_text(texts, SAMPLE_TEXT_KEY, "key", name, size) : 0;
}

static int add_field(const struct packimg *dataset, uint64_t index, uint32_t number,
		     struct buffer *text, struct sample_texts *texts)
{
	struct packimg_field field;

	if (packimg_field(dataset, number, &field))
		return 0;
	text->size = 0;
	int r = sample_field_text(dataset, index, number, text);
	if (r == -ENOMEM)
		return r;
	if (r)
		return add_damaged(texts, SAMPLE_TEXT_FIELD + number, field.name);
	return text->size ? add_text(texts, SAMPLE_TEXT_FIELD + number, field.name, text->data,
				     text->size)
			  : 0;
}

char *sample_class_copy(const struct packimg *dataset, int64_t number)
{
	const char *name = number >= 0 && number < packimg_class_count(dataset)
				   ? packimg_class_name(dataset, (uint32_t)number)
				   : NULL;
	char text[32] = "no label";

	if (!name && number >= 0)
		snprintf(text, sizeof(text), "label %" PRId64, number);
	if (!name)
		name = text;
	return sample_text_copy(name, strlen(name));
}

int sample_texts_make(const struct packimg *dataset, const struct packimg_sample *sample,
		      struct sample_texts *texts)
{
	struct buffer text = {0};

	texts->class = sample_class_copy(dataset, sample->label);
	int r = texts->class ? add_key(dataset, sample->index, texts) : -ENOMEM;
	for (uint32_t i = 0; !r && i < packimg_field_count(dataset); i++)
		r = add_field(dataset, sample->index, i, &text, texts);
	buffer_deinit(&text);
	return r;
}

void sample_texts_free(struct sample_texts *texts)
{
	free(texts->class);
	for (uint32_t i = 0; i < texts->count; i++) {
		free(texts->list[i].name);
		free(texts->list[i].text);
	}
}
