#include "tests/unit/augment/golden_file.h"

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

uint8_t *golden_read(const char *path, size_t *ret_size)
{
	FILE *file = fopen(path, "rb");
	size_t room = 64 << 20;
	uint8_t *packed = malloc(room), *data = malloc(room);

	assert_non_null(file);
	size_t size = fread(packed, 1, room, file);

	fclose(file);
	*ret_size = ZSTD_decompress(data, room, packed, size);
	assert_false(ZSTD_isError(*ret_size));
	free(packed);
	return data;
}

const void *golden_take(struct golden *golden, size_t size)
{
	const uint8_t *at = golden->at;

	assert_true((size_t)(golden->end - at) >= size);
	golden->at += size;
	return at;
}

uint64_t golden_take_number(struct golden *golden, size_t size)
{
	uint64_t number = 0;

	memcpy(&number, golden_take(golden, size), size);
	return number;
}

struct pipeline *golden_pipeline(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}
