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

/* Appends the entry of the next sample; value NULL: it has none. */
static int column_append(struct column *column, struct spool *spool, const char *directory,
			 const struct packimg_value *value)
{
	uint64_t entry = 0;

	if (column->type >= PACKIMG_FIELD_BYTES)
		entry = column->bytes.size;
	else if (value && column->type == PACKIMG_FIELD_INT64)
		memcpy(&entry, &value->int64, sizeof(entry));
	else if (value)
		memcpy(&entry, &value->float64, sizeof(entry));
	int r = spool_append(spool, directory, &column->values, &entry, sizeof(entry));
	if (r == 0 && value && column->type >= PACKIMG_FIELD_BYTES && value->size > 0)
		r = spool_append(spool, directory, &column->bytes, value->bytes, value->size);
	if (r < 0)
		return r;
	if (value && column->type >= PACKIMG_FIELD_BYTES && value->size > column->longest)
		column->longest = value->size;
	if (value)
		column->bits |= (uint8_t)(1u << (column->filled % 8));
	column->filled++;
	if (column->filled % 8 == 0) {
		r = spool_append(spool, directory, &column->present, &column->bits, 1);
		column->bits = 0;
	}
	return r;
}

static int column_fill(struct column *column, struct spool *spool, const char *directory,
		       uint64_t sample_count)
{
	while (column->filled < sample_count) {
		int r = column_append(column, spool, directory, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

int column_set(struct column *column, struct spool *spool, const char *directory, uint64_t sample,
	       const struct packimg_value *value)
{
	if (column->filled > sample)
		return -EEXIST;
	int r = column_fill(column, spool, directory, sample);
	if (r < 0)
		return r;
	column->used = true;
	return column_append(column, spool, directory, value);
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

/* Ends the streams: bitmap to a multiple of 8 bytes, and the offset that ends the last value. */
static int column_close(struct column *column, struct spool *spool, const char *directory,
			uint64_t sample_count)
{
	uint8_t tail[8] = {column->bits};
	uint64_t present_size = (sample_count + 63) / 64 * 8, end = column->bytes.size;

	int r = spool_append(spool, directory, &column->present, tail,
			     present_size - column->present.size);
	if (r == 0 && column->type >= PACKIMG_FIELD_BYTES)
		r = spool_append(spool, directory, &column->values, &end, sizeof(end));
	return r;
}

int column_finish(struct column *column, struct spool *spool, const char *directory,
		  uint64_t sample_count, struct output *output, struct pimg_column *ret_column)
{
	if (!column->used) {
		*ret_column = (struct pimg_column){0};
		return 0;
	}
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return -ENOMEM;
	XXH3_64bits_reset(state);
	int r = column_fill(column, spool, directory, sample_count);
	if (r == 0)
		r = column_close(column, spool, directory, sample_count);
	if (r == 0)
		r = output_align(output, PIMG_ALIGN);
	uint64_t offset = output->offset;
	if (r == 0)
		r = spool_copy(spool, &column->present, output, state);
	if (r == 0)
		r = spool_copy(spool, &column->values, output, state);
	if (r == 0)
		r = spool_copy(spool, &column->bytes, output, state);
	if (r == 0)
		*ret_column = (struct pimg_column){
			.offset = offset,
			.size = output->offset - offset,
			.xxh3 = XXH3_64bits_digest(state),
		};
	XXH3_freeState(state);
	column_reset(column);
	return r;
}
