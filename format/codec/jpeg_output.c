#include "format/codec/jpeg_output.h"

#include <errno.h>
#include <stdlib.h>

enum { OUTPUT_SIZE_FIRST = 64 << 10 };

static void output_begin(j_compress_ptr cinfo)
{
	struct jpeg_output *output = (struct jpeg_output *)cinfo->dest;

	output->manager.next_output_byte = output->data;
	output->manager.free_in_buffer = output->size;
}

static boolean output_grow(j_compress_ptr cinfo)
{
	struct jpeg_output *output = (struct jpeg_output *)cinfo->dest;
	size_t used = output->size;

	uint8_t *data = realloc(output->data, used * 2);
	if (!data)
		jpeg_trap_raise((j_common_ptr)cinfo, -ENOMEM, "out of memory for JPEG data");
	output->data = data;
	output->size = used * 2;
	output->manager.next_output_byte = data + used;
	output->manager.free_in_buffer = used;
	return TRUE;
}

static void output_end(j_compress_ptr cinfo)
{
}

int jpeg_output_init(struct jpeg_output *output)
{
	*output = (struct jpeg_output){
		.manager =
			{
				.init_destination = output_begin,
				.empty_output_buffer = output_grow,
				.term_destination = output_end,
			},
		.data = malloc(OUTPUT_SIZE_FIRST),
		.size = OUTPUT_SIZE_FIRST,
	};
	return output->data ? 0 : -ENOMEM;
}

void jpeg_output_deinit(struct jpeg_output *output)
{
	free(output->data);
	*output = (struct jpeg_output){0};
}

size_t jpeg_output_used(const struct jpeg_output *output)
{
	return output->size - output->manager.free_in_buffer;
}
