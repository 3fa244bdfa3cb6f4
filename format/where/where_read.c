#include "format/where/where_read.h"

#include "format/where/where_number.h"

#include <errno.h>
#include <string.h>

static const struct where_operand absent = {.kind = WHERE_ABSENT};

static struct where_operand condition(bool holds)
{
	return (struct where_operand){.kind = holds ? WHERE_TRUE : WHERE_FALSE};
}

static struct where_operand stored_text(const void *bytes, size_t size)
{
	return (struct where_operand){.kind = WHERE_STORED, .text = {bytes, size}};
}

static struct where_operand class_name(const struct packimg *dataset, int64_t number)
{
	if (number < 0 || number >= packimg_class_count(dataset))
		return absent;
	const char *name = packimg_class_name(dataset, (uint32_t)number);
	return (struct where_operand){.kind = WHERE_HELD, .text = {name, strlen(name)}};
}

static int read_record(struct where_view *view)
{
	if (view->has_record)
		return 0;
	int r = packimg_sample(view->sample.dataset, view->sample.index, &view->record);
	view->has_record = r == 0;
	return r;
}

static int read_label(struct where_view *view, const struct where_read *read,
		      struct where_operand *ret_operand)
{
	int r = read_record(view);
	if (r < 0)
		return r;
	int32_t label = view->record.label;
	if (read->function == WHERE_HAS)
		*ret_operand = condition(label != PACKIMG_LABEL_NONE);
	else if (read->function == WHERE_CLASS)
		*ret_operand = class_name(view->sample.dataset, label);
	else
		*ret_operand = label == PACKIMG_LABEL_NONE ? absent : where_integer(label);
	return 0;
}

static struct where_operand image_operand(enum where_function function,
					  const struct packimg_sample *image)
{
	if (function == WHERE_HAS)
		return condition(image != NULL);
	if (!image)
		return absent;
	return where_integer(function == WHERE_WIDTH ? image->width : image->height);
}

static int read_image(struct where_view *view, const struct where_read *read,
		      struct where_operand *ret_operand)
{
	struct packimg_sample image;

	if (read->store == SCHEMA_IN_INDEX) {
		int r = read_record(view);
		if (r == 0)
			*ret_operand = image_operand(read->function, &view->record);
		return r;
	}
	int r = packimg_image(view->sample.dataset, view->sample.index, read->number, &image);
	if (r < 0 && r != -ENODATA)
		return r;
	*ret_operand = image_operand(read->function, r < 0 ? NULL : &image);
	return 0;
}

static int read_source(const struct where_view *view, const struct where_read *read,
		       struct where_operand *ret_operand)
{
	const char *name;
	size_t size;

	int r = packimg_source(view->sample.dataset, view->sample.index, &name, &size);
	if (r < 0)
		return r;
	if (read->function == WHERE_HAS)
		*ret_operand = condition(size > 0);
	else if (size == 0)
		*ret_operand = absent;
	else if (read->function == WHERE_COUNT)
		*ret_operand = where_unsigned(size);
	else
		*ret_operand = stored_text(name, size);
	return 0;
}

static int count_rows(const struct where_view *view, const struct where_read *read,
		      const struct packimg_value *value, struct where_operand *ret_operand)
{
	uint64_t rows = value->size / read->row_size;

	if (read->has_objects) {
		int r = where_count_objects(&view->sample, value->bytes, rows, &rows);
		if (r < 0)
			return r;
	}
	*ret_operand = where_unsigned(rows);
	return 0;
}

static struct where_operand column_value(const struct where_read *read,
					 const struct packimg_value *value)
{
	if (read->is_text)
		return stored_text(value->bytes, value->size);
	if (read->is_real)
		return where_real(value->float64);
	return read->is_unsigned ? where_unsigned((uint64_t)value->int64)
				 : where_integer(value->int64);
}

static int read_column(const struct where_view *view, const struct where_read *read,
		       struct where_operand *ret_operand)
{
	const struct packimg *dataset = view->sample.dataset;
	struct packimg_value value;

	int r = packimg_value(dataset, view->sample.index, read->number, &value);
	if (r < 0)
		return r;
	if (read->function == WHERE_HAS)
		*ret_operand = condition(value.present);
	else if (!value.present)
		*ret_operand = absent;
	else if (read->function == WHERE_COUNT)
		return count_rows(view, read, &value, ret_operand);
	else if (read->function == WHERE_CLASS)
		*ret_operand = class_name(dataset, value.int64);
	else
		*ret_operand = column_value(read, &value);
	return 0;
}

int where_read_value(struct where_view *view, const struct where_read *read,
		     struct where_operand *ret_operand)
{
	switch (read->store) {
	case SCHEMA_IN_INDEX:
	case SCHEMA_IN_IMAGES:
		return read_image(view, read, ret_operand);
	case SCHEMA_IN_COLUMN:
		return read_column(view, read, ret_operand);
	case SCHEMA_IN_LABEL:
		return read_label(view, read, ret_operand);
	case SCHEMA_IN_SOURCE:
		return read_source(view, read, ret_operand);
	default: /* SCHEMA_IN_NUMBER */
		*ret_operand = read->function == WHERE_HAS ? condition(true)
							   : where_unsigned(view->sample.index);
		return 0;
	}
}
