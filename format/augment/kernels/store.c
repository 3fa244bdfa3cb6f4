/* Reference kernels of store; all other sets must equal them. And the driver. */
#include "format/augment/kernels/store.h"
#include "format/base/half.h"

#include <math.h>
#include <string.h>

void store_element(uint8_t *output, enum transform_element element, float value)
{
	uint16_t half;

	switch (element) {
	case TRANSFORM_F32:
		memcpy(output, &value, sizeof(value));
		break;
	case TRANSFORM_U8:
		value = rintf(value);
		*output = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
		break;
	default:
		half = element == TRANSFORM_F16 ? float_to_half(value) : float_to_bfloat(value);
		memcpy(output, &half, sizeof(half));
	}
}

static void store_put(const struct store *store, uint8_t *output, size_t at, uint8_t pixel,
		      uint32_t channel)
{
	enum transform_element element = store->shape.element;
	float value = (float)pixel * store->scale[channel];

	value += store->bias[channel];
	if (element == TRANSFORM_U8)
		output[at] = pixel;
	else
		store_element(output + at * (element == TRANSFORM_F32 ? 4 : 2), element, value);
}

static void store_convert(const struct store *store, const uint8_t *pixels,
			  uint8_t *const planes[4])
{
	uint32_t width = store->shape.width, channels = store->shape.channels;

	if (store->shape.layout == TRANSFORM_NHWC) {
		for (uint32_t i = 0; i < width * channels; i++)
			store_put(store, planes[0], i, pixels[i], i % channels);
		return;
	}
	for (uint32_t c = 0; c < channels; c++)
		for (uint32_t x = 0; x < width; x++)
			store_put(store, planes[c], x, c < 3 ? pixels[3 * x + c] : 0, c);
}

static void store_copy(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels,
		       bool reverse)
{
	if (!reverse && channels == 3) {
		memcpy(output, pixels, (size_t)3 * count);
		return;
	}
	for (uint32_t x = 0; x < count; x++, output += channels) {
		const uint8_t *pixel = pixels + (size_t)3 * (reverse ? count - 1 - x : x);

		output[0] = pixel[0];
		output[1] = pixel[1];
		output[2] = pixel[2];
		if (channels == 4)
			output[3] = 0;
	}
}

static void store_stream_lines(uint8_t *output, const uint8_t *bytes, size_t size)
{
	memcpy(output, bytes, size);
}

static void store_fence(void)
{
}

const struct store_kernels store_kernels_c = {.row = store_convert,
					      .copy = store_copy,
					      .stream = store_stream_lines,
					      .fence = store_fence};

const struct store_kernels *store_kernels_get(enum cpu_isa isa)
{
	static const struct store_kernels *const sets[CPU_ISA_COUNT] = CPU_ISA_EACH(store_kernels);

	return sets[isa];
}

uint32_t store_row_channels(const struct transform_shape *shape)
{
	return shape->layout == TRANSFORM_NCHW ? 3 : shape->channels;
}

void store_init(struct store *store, enum cpu_isa isa, const struct transform_shape *shape,
		const double mean[3], const double std[3], void *output)
{
	store->kernels = store_kernels_get(isa);
	store->output = output;
	store->streaming = false;
	store->shape = *shape;
	/* Bytes are not converted. */
	for (uint32_t i = 0; shape->element != TRANSFORM_U8 && i < STORE_PERIOD; i++) {
		uint32_t c = i % shape->channels;

		store->scale[i] = c < 3 ? (float)(1 / (255 * std[c])) : 0;
		store->bias[i] = c < 3 ? (float)(-mean[c] / std[c]) : 0;
	}
}

static uint32_t plane_count(const struct store *store)
{
	return store->shape.layout == TRANSFORM_NCHW ? store->shape.channels : 1;
}

static size_t row_size(const struct store *store)
{
	return store->shape.sample_size / plane_count(store) / store->shape.height;
}

static bool is_bytes(const struct store *store)
{
	return store->shape.element == TRANSFORM_U8 && plane_count(store) == 1;
}

void store_begin_stream(struct store *store, uint8_t *stage)
{
	size_t offset = (uintptr_t)store->output % STORE_LINE;

	if (store->shape.layout != TRANSFORM_NHWC || store->shape.sample_size < STORE_STREAM_MIN ||
	    row_size(store) % STORE_STREAM_UNIT != 0)
		return;
	store->streaming = true;
	store->stream = (struct store_stream){
		.stage = stage, .output = store->output - offset, .begin = offset, .end = offset};
}

/*
 * Accepts `size` bytes just written to the stage: stores whole cache lines and moves the rest to
 * the front.
 */
static void stream_add(const struct store_kernels *kernels, struct store_stream *stream,
		       size_t size)
{
	size_t lines = (stream->end + size) / STORE_LINE * STORE_LINE, sent = 0;

	stream->end += size;
	if (lines == 0)
		return;
	if (stream->begin > 0) {
		sent = STORE_LINE;
		memcpy(stream->output + stream->begin, stream->stage + stream->begin,
		       sent - stream->begin);
		stream->begin = 0;
	}
	kernels->stream(stream->output + sent, stream->stage + sent, lines - sent);
	stream->output += lines;
	stream->end -= lines;
	memcpy(stream->stage, stream->stage + lines, stream->end);
}

uint8_t *store_bypass(const struct store *store)
{
	if (!store->streaming || !is_bytes(store) ||
	    (uintptr_t)store->output % STORE_STREAM_UNIT != 0)
		return NULL;
	return store->output;
}

uint8_t *store_place(struct store *store, uint32_t row)
{
	if (!is_bytes(store))
		return NULL;
	return store->streaming ? store->stream.stage + store->stream.end
				: store->output + row * row_size(store);
}

void store_placed(struct store *store)
{
	if (store->streaming)
		stream_add(store->kernels, &store->stream, row_size(store));
}

void store_row(struct store *store, uint32_t row, const uint8_t *pixels)
{
	size_t size = row_size(store);
	uint8_t *outputs[4];

	for (uint32_t c = 0; c < plane_count(store); c++)
		outputs[c] = store->output + ((size_t)c * store->shape.height + row) * size;
	if (store->streaming)
		outputs[0] = store->stream.stage + store->stream.end;
	if (is_bytes(store))
		memcpy(outputs[0], pixels, size);
	else
		store->kernels->row(store, pixels, outputs);
	if (store->streaming)
		stream_add(store->kernels, &store->stream, size);
}

void store_rows(struct store *store, const uint8_t *pixels)
{
	size_t size = store->shape.sample_size, head = -(uintptr_t)store->output % STORE_LINE;

	if (!store->streaming) {
		memcpy(store->output, pixels, size);
		return;
	}
	size_t lines = (size - head) / STORE_LINE * STORE_LINE;

	memcpy(store->output, pixels, head);
	store->kernels->stream(store->output + head, pixels + head, lines);
	memcpy(store->output + head + lines, pixels + head + lines, size - head - lines);
	store->stream.begin = store->stream.end = 0;
}

void store_finish(struct store *store)
{
	struct store_stream *stream = &store->stream;

	if (!store->streaming)
		return;
	memcpy(stream->output + stream->begin, stream->stage + stream->begin,
	       stream->end - stream->begin);
	store->kernels->fence();
}
