#include "loaderd/io/io_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ALIGNMENT = 64, /* alignment of stored bytes and side data in memory, as in the files */
	TAIL = 64,      /* readable bytes that decoders need after stored bytes, or side data */
	GAP_MAX = 4096, /* read side data together with the stored bytes if the gap is no larger */
	GRAIN = 64 << 10,  /* a buffer's size is a multiple of this */
	USUAL = 1024 << 10 /* larger buffers are freed once a sample needs no more than this */
};

/* Positions of a sample's bytes in a buffer. */
struct layout {
	uint64_t side;       /* offset of the side data */
	uint64_t size;       /* size of the whole layout */
	uint64_t first_read; /* bytes in the first read, from the first stored byte on */
};

static uint64_t round_up(uint64_t size, uint64_t to)
{
	return (size + to - 1) / to * to;
}

/*
 * Computes the layout from the distance of the sample's pointers. In an unmapped dataset they
 * cannot be dereferenced, but their distance is that in the file.
 */
static struct layout layout_of(const struct packimg_sample *sample)
{
	struct layout layout = {.first_read = sample->data_size};
	uint64_t gap = 0;
	if (!sample->side) {
		layout.size = sample->data_size + (uint64_t)TAIL;
		return layout;
	}
	if (sample->side > sample->data)
		gap = (uint64_t)(sample->side - sample->data) - sample->data_size;
	if (sample->side > sample->data && gap <= GAP_MAX) {
		layout.side = (uint64_t)(sample->side - sample->data);
		layout.first_read = layout.side + sample->side_size;
	} else {
		layout.side = round_up(sample->data_size + (uint64_t)TAIL, ALIGNMENT);
	}
	layout.size = layout.side + sample->side_size + TAIL;
	return layout;
}

uint8_t *io_buffer_take(struct io_buffer *buffer, uint64_t size)
{
	if (size <= buffer->size && (size > USUAL || buffer->size <= USUAL))
		return buffer->bytes;
	io_buffer_deinit(buffer);
	uint64_t rounded = round_up(size, GRAIN);
	buffer->bytes = aligned_alloc(ALIGNMENT, rounded);
	buffer->size = buffer->bytes ? rounded : 0;
	return buffer->bytes;
}

void io_buffer_deinit(struct io_buffer *buffer)
{
	free(buffer->bytes);
	buffer->bytes = NULL;
	buffer->size = 0;
}

static int io_copy_to(struct dataset *dataset, const struct packimg_sample *sample,
		      const struct layout *layout, uint8_t *bytes)
{
	int r = packimg_read(dataset->image, sample->index, sample->data, bytes,
			     layout->first_read);
	if (r < 0 || !sample->side || layout->first_read > layout->side)
		return r;
	memset(bytes + layout->first_read, 0, layout->side - layout->first_read);
	return packimg_read(dataset->image, sample->index, sample->side, bytes + layout->side,
			    sample->side_size);
}

int io_copy_sample(struct dataset *dataset, struct packimg_sample *sample, struct io_buffer *buffer,
		   struct packimg_error *error)
{
	const uint64_t number = dataset_number(dataset, sample->index);
	const struct layout layout = layout_of(sample);
	if (buffer->limit != 0 && layout.size > buffer->limit) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its stored bytes need %llu bytes of memory, but the limit "
			 "is %llu; raise the limit, or store a smaller image",
			 (unsigned long long)number, (unsigned long long)layout.size,
			 (unsigned long long)buffer->limit);
		return -E2BIG;
	}
	uint8_t *bytes = io_buffer_take(buffer, layout.size);
	if (!bytes) {
		snprintf(error->text, sizeof(error->text), "sample %llu: out of memory",
			 (unsigned long long)number);
		return -ENOMEM;
	}
	if (io_copy_to(dataset, sample, &layout, bytes) < 0) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: the file ends before it or cannot be read",
			 (unsigned long long)number);
		return -EBADMSG;
	}
	memset(bytes + layout.size - TAIL, 0, TAIL);
	sample->data = bytes;
	sample->side = sample->side ? bytes + layout.side : NULL;
	return IO_READ;
}

int io_copy(struct dataset *dataset, uint64_t index, struct io_buffer *buffer,
	    struct packimg_sample *ret_sample, struct packimg_error *error)
{
	struct packimg_sample sample;
	int r = dataset_sample(dataset, index, false, &sample, error);
	if (r == 0)
		r = io_copy_sample(dataset, &sample, buffer, error);
	if (r == IO_READ)
		*ret_sample = sample;
	return r;
}
