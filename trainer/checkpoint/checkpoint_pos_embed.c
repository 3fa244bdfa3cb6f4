#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/device/params.h"
#include "trainer/device/pos_embed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of an image of 4096 x 4096 pixels in patches of 16 x 16, and a class token. */
enum { TOKENS_MAX = 256 * 256 + 1 };

/*
 * True if the number of tokens is a square, or a square plus a class token. Returns the side of the
 * square, and the index of its first token.
 */
static bool is_grid(uint64_t tokens, uint32_t *ret_side, uint32_t *ret_first)
{
	uint32_t side = (uint32_t)sqrt((double)tokens + 0.5);
	*ret_side = side;
	*ret_first = (uint32_t)(tokens - (uint64_t)side * side);
	return side > 0 && *ret_first <= 1;
}

static bool positions_fit(const struct safetensors_tensor *tensor,
			  const struct device_param_spec *spec, struct pos_embed_size *ret_size)
{
	struct pos_embed_size size = {.channels = spec->shape[1]};
	uint32_t first = 0;
	bool fits = spec->kind == DEVICE_EMBEDDING && tensor->rank == 3 && tensor->shape[0] == 1 &&
		    tensor->shape[1] <= TOKENS_MAX && tensor->shape[2] == size.channels &&
		    is_grid(tensor->shape[1], &size.side, &size.first) &&
		    is_grid(spec->shape[0], &size.h, &first) && size.first == first;
	size.w = size.h;
	if (fits)
		*ret_size = size;
	return fits;
}

struct positions_buffers {
	float *own, *narrow, *resized;
};

static int positions_read(const struct safetensors *source, const char *path,
			  const struct safetensors_tensor *tensor, struct device_param *param,
			  const struct pos_embed_size *size,
			  const struct positions_buffers *buffers, char *error)
{
	size_t count = (size_t)tensor->shape[1] * size->channels;
	int r = checkpoint_read_elements(source, tensor, count, buffers->narrow, buffers->own,
					 error);
	if (r < 0)
		return r;
	r = checkpoint_check_finite(path, tensor, buffers->own, count, error);
	if (r < 0)
		return r;
	pos_embed_resize(size, buffers->own, buffers->resized);
	r = device_param_write(param, DEVICE_VALUE, buffers->resized);
	if (r < 0)
		return checkpoint_fail(error, r, "%s: tensor %s: %s", path, tensor->name,
				       strerror(-r));
	return 0;
}

/* Reads the embeddings and resizes them to the model's grid. */
static int positions_import(const struct safetensors *source, const char *path,
			    const struct safetensors_tensor *tensor, struct device_param *param,
			    const struct pos_embed_size *size, char *error)
{
	size_t count = (size_t)tensor->shape[1] * size->channels;
	struct positions_buffers buffers = {
		.own = malloc(count * sizeof(float)),
		.narrow = malloc(count * sizeof(float)),
		.resized = malloc(device_param_elements(param) * sizeof(float)),
	};
	int r = buffers.own && buffers.narrow && buffers.resized
			? positions_read(source, path, tensor, param, size, &buffers, error)
			: checkpoint_fail(error, -ENOMEM, "out of memory");
	free(buffers.own);
	free(buffers.narrow);
	free(buffers.resized);
	return r;
}

int checkpoint_import_pos_embed(const struct safetensors *source, const char *path,
				const struct safetensors_tensor *tensor, struct device_param *param,
				char *error)
{
	struct pos_embed_size size;
	if (!positions_fit(tensor, device_param_spec(param), &size))
		return -ENOENT;
	return positions_import(source, path, tensor, param, &size, error);
}
