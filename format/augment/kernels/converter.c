/*
 * Converter driver, and reference kernels; the kernels of all other instruction sets must equal
 * them.
 */
#include "format/augment/kernels/converter.h"
#include "format/base/half.h"

#include <math.h>
#include <string.h>

void converter_element(uint8_t *output, enum pipeline_element element, float value)
{
	uint16_t half;

	switch (element) {
	case PIPELINE_F32:
		memcpy(output, &value, sizeof(value));
		break;
	case PIPELINE_U8:
		value = rintf(value);
		*output = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
		break;
	default:
		half = element == PIPELINE_F16 ? float_to_half(value) : float_to_bfloat(value);
		memcpy(output, &half, sizeof(half));
	}
}

static void converter_put(const struct converter *converter, uint8_t *output, size_t at,
			  uint8_t pixel, uint32_t channel)
{
	enum pipeline_element element = converter->shape.element;
	float value = (float)pixel * converter->scale[channel];

	value += converter->bias[channel];
	if (element == PIPELINE_U8)
		output[at] = pixel;
	else
		converter_element(output + at * (element == PIPELINE_F32 ? 4 : 2), element, value);
}

static void converter_convert(const struct converter *converter, const uint8_t *pixels,
			      uint8_t *const planes[4])
{
	uint32_t width = converter->shape.width, channels = converter->shape.channels;

	if (converter->shape.layout == PIPELINE_NHWC) {
		for (uint32_t i = 0; i < width * channels; i++)
			converter_put(converter, planes[0], i, pixels[i], i % channels);
		return;
	}
	for (uint32_t c = 0; c < channels; c++)
		for (uint32_t x = 0; x < width; x++)
			converter_put(converter, planes[c], x, c < 3 ? pixels[3 * x + c] : 0, c);
}

static void converter_copy(uint8_t *output, const uint8_t *pixels, uint32_t count,
			   uint32_t channels, bool reverse)
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

static void converter_stream_lines(uint8_t *output, const uint8_t *bytes, size_t size)
{
	memcpy(output, bytes, size);
}

static void converter_fence(void)
{
}

const struct converter_kernels converter_kernels_c = {.row = converter_convert,
						      .copy = converter_copy,
						      .stream = converter_stream_lines,
						      .fence = converter_fence};

const struct converter_kernels *converter_kernels_get(enum cpu_isa isa)
{
	static const struct converter_kernels *const sets[CPU_ISA_COUNT] =
		CPU_ISA_EACH(converter_kernels);

	return sets[isa];
}

uint32_t converter_row_channels(const struct pipeline_shape *shape)
{
	return shape->layout == PIPELINE_NCHW ? 3 : shape->channels;
}

void converter_init(struct converter *converter, enum cpu_isa isa,
		    const struct pipeline_shape *shape, const double mean[3], const double std[3],
		    void *output)
{
	converter->kernels = converter_kernels_get(isa);
	converter->output = output;
	converter->streaming = false;
	converter->read_again = false;
	converter->shape = *shape;
	/* Output bytes are copied, not converted. */
	for (uint32_t i = 0; shape->element != PIPELINE_U8 && i < CONVERTER_PERIOD; i++) {
		uint32_t c = i % shape->channels;

		converter->scale[i] = c < 3 ? (float)(1 / (255 * std[c])) : 0;
		converter->bias[i] = c < 3 ? (float)(-mean[c] / std[c]) : 0;
	}
}

static uint32_t plane_count(const struct converter *converter)
{
	return converter->shape.layout == PIPELINE_NCHW ? converter->shape.channels : 1;
}

static size_t row_size(const struct converter *converter)
{
	return converter->shape.sample_size / plane_count(converter) / converter->shape.height;
}

static bool is_bytes(const struct converter *converter)
{
	return converter->shape.element == PIPELINE_U8 && plane_count(converter) == 1;
}

void converter_begin_stream(struct converter *converter, uint8_t *stage)
{
	size_t offset = (uintptr_t)converter->output % CONVERTER_LINE;

	if (converter->read_again || converter->shape.layout != PIPELINE_NHWC ||
	    converter->shape.sample_size < CONVERTER_STREAM_MIN ||
	    row_size(converter) % CONVERTER_STREAM_UNIT != 0)
		return;
	converter->streaming = true;
	converter->stream = (struct converter_stream){.stage = stage,
						      .output = converter->output - offset,
						      .begin = offset,
						      .end = offset};
}

/*
 * Processes `size` bytes just written to the stage: stores whole cache lines and moves the rest to
 * the front.
 */
static void stream_add(const struct converter_kernels *kernels, struct converter_stream *stream,
		       size_t size)
{
	size_t lines = (stream->end + size) / CONVERTER_LINE * CONVERTER_LINE, sent = 0;

	stream->end += size;
	if (lines == 0)
		return;
	if (stream->begin > 0) {
		sent = CONVERTER_LINE;
		memcpy(stream->output + stream->begin, stream->stage + stream->begin,
		       sent - stream->begin);
		stream->begin = 0;
	}
	kernels->stream(stream->output + sent, stream->stage + sent, lines - sent);
	stream->output += lines;
	stream->end -= lines;
	memcpy(stream->stage, stream->stage + lines, stream->end);
}

uint8_t *converter_bypass(const struct converter *converter)
{
	if (!converter->streaming || !is_bytes(converter) ||
	    (uintptr_t)converter->output % CONVERTER_STREAM_UNIT != 0)
		return NULL;
	return converter->output;
}

uint8_t *converter_row_address(struct converter *converter, uint32_t row)
{
	if (!is_bytes(converter))
		return NULL;
	return converter->streaming ? converter->stream.stage + converter->stream.end
				    : converter->output + row * row_size(converter);
}

void converter_row_written(struct converter *converter)
{
	if (converter->streaming)
		stream_add(converter->kernels, &converter->stream, row_size(converter));
}

void converter_row(struct converter *converter, uint32_t row, const uint8_t *pixels)
{
	size_t size = row_size(converter);
	uint8_t *outputs[4];

	for (uint32_t c = 0; c < plane_count(converter); c++)
		outputs[c] = converter->output + ((size_t)c * converter->shape.height + row) * size;
	if (converter->streaming)
		outputs[0] = converter->stream.stage + converter->stream.end;
	if (is_bytes(converter))
		memcpy(outputs[0], pixels, size);
	else
		converter->kernels->row(converter, pixels, outputs);
	if (converter->streaming)
		stream_add(converter->kernels, &converter->stream, size);
}

void converter_rows(struct converter *converter, const uint8_t *pixels)
{
	size_t size = converter->shape.sample_size,
	       head = -(uintptr_t)converter->output % CONVERTER_LINE;

	if (!converter->streaming) {
		memcpy(converter->output, pixels, size);
		return;
	}
	size_t lines = (size - head) / CONVERTER_LINE * CONVERTER_LINE;

	memcpy(converter->output, pixels, head);
	converter->kernels->stream(converter->output + head, pixels + head, lines);
	memcpy(converter->output + head + lines, pixels + head + lines, size - head - lines);
	converter->stream.begin = converter->stream.end = 0;
}

void converter_finish(struct converter *converter)
{
	struct converter_stream *stream = &converter->stream;

	if (!converter->streaming)
		return;
	memcpy(stream->output + stream->begin, stream->stage + stream->begin,
	       stream->end - stream->begin);
	converter->kernels->fence();
}
