#include "format/write/column.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int column_init(struct column *column, const char *name, enum packimg_field_type type)
{
	*column = (struct column){.name = strdup(name), .type = type};
	return column->name ? 0 : -ENOMEM;
}

void column_deinit(struct column *column)
{
	free(column->name);
	spool_stream_deinit(&column->present);
	spool_stream_deinit(&column->values);
	spool_stream_deinit(&column->bytes);
}

/* Appends the entry of the next sample. value is NULL if the sample has no value. */
static int column_append(struct column *column, struct spool *spool,
			 const struct packimg_value *value)
{
	uint64_t entry = 0;

	if (column->type >= PACKIMG_FIELD_BYTES)
		entry = column->bytes.size;
	else if (value && column->type == PACKIMG_FIELD_INT64)
		memcpy(&entry, &value->int64, sizeof(entry));
	else if (value)
		memcpy(&entry, &value->float64, sizeof(entry));
	int r = spool_append(spool, &column->values, &entry, sizeof(entry));
	if (r == 0 && value && column->type >= PACKIMG_FIELD_BYTES && value->size > 0)
		r = spool_append(spool, &column->bytes, value->bytes, value->size);
	if (r < 0)
		return r;
	if (value && column->type >= PACKIMG_FIELD_BYTES && value->size > column->longest)
		column->longest = value->size;
	if (value)
		column->bits |= (uint8_t)(1u << (column->filled % 8));
	column->filled++;
	if (column->filled % 8 == 0) {
		r = spool_append(spool, &column->present, &column->bits, 1);
		column->bits = 0;
	}
	return r;
}

static int column_fill(struct column *column, struct spool *spool, uint64_t sample_count)
{
	while (column->filled < sample_count) {
		int r = column_append(column, spool, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

int column_set(struct column *column, struct spool *spool, uint64_t sample,
	       const struct packimg_value *value)
{
	if (column->filled > sample)
		return -EEXIST;
	int r = column_fill(column, spool, sample);
	if (r < 0)
		return r;
	column->used = true;
	return column_append(column, spool, value);
}

static void column_reset(struct column *column)
{
	spool_stream_reset(&column->present);
	spool_stream_reset(&column->values);
	spool_stream_reset(&column->bytes);
	column->filled = 0;
	column->bits = 0;
	column->used = false;
}

/*
 * Completes the streams: pads the bitmap to a multiple of 8 bytes, and appends the end offset of
 * the last value.
 */
static int column_close(struct column *column, struct spool *spool, uint64_t sample_count)
{
	uint8_t tail[8] = {column->bits};
	uint64_t present_size = (sample_count + 63) / 64 * 8, end = column->bytes.size;

	int r = spool_append(spool, &column->present, tail, present_size - column->present.size);
	if (r == 0 && column->type >= PACKIMG_FIELD_BYTES)
		r = spool_append(spool, &column->values, &end, sizeof(end));
	return r;
}

static int column_write(struct column *column, struct spool *spool, uint64_t sample_count,
			struct output *output, struct pimg_section *ret_section)
{
	const struct spool_stream *const streams[] = {&column->present, &column->values,
						      &column->bytes};

	int r = column_fill(column, spool, sample_count);
	if (r < 0)
		return r;
	r = column_close(column, spool, sample_count);
	return r < 0 ? r : spool_write(spool, streams, 3, output, ret_section);
}

int column_finish(struct column *column, struct spool *spool, uint64_t sample_count,
		  struct output *output, struct pimg_column *ret_column)
{
	struct pimg_section section = {0};
	int r = column->used ? column_write(column, spool, sample_count, output, &section) : 0;

	column_reset(column);
	if (r < 0)
		return r;
	*ret_column = (struct pimg_column){
		.offset = section.offset, .size = section.size, .xxh3 = section.xxh3};
	return 0;
}
