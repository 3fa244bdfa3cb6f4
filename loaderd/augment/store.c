/* Reference kernels of store; what the others must equal. */
#include "store.h"

#include <string.h>

uint16_t store_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t store_f16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;

	if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x38800000) { /* under 2^-14: a multiple of 2^-24 */
		float scaled;

		memcpy(&scaled, &magnitude, sizeof(scaled));
		/* Beside 0.5 the unit in the last place is 2^-24, so the addition itself rounds. */
		scaled += 0.5f;
		memcpy(&magnitude, &scaled, sizeof(magnitude));
		return (uint16_t)(sign | (magnitude - 0x3f000000));
	}
	magnitude += 0xfff + (magnitude >> 13 & 1);
	return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}

static void put(const struct store *store, size_t at, uint8_t pixel, uint32_t channel)
{
	float value = (float)pixel * store->scale[channel];
	uint16_t half;

	value += store->bias[channel];
	switch (store->shape.element) {
	case TRANSFORM_U8:
		store->output[at] = pixel;
		break;
	case TRANSFORM_F16:
		half = store_f16(value);
		memcpy(store->output + 2 * at, &half, sizeof(half));
		break;
	case TRANSFORM_BF16:
		half = store_bf16(value);
		memcpy(store->output + 2 * at, &half, sizeof(half));
		break;
	case TRANSFORM_F32:
		memcpy(store->output + 4 * at, &value, sizeof(value));
		break;
	}
}

static void row(const struct store *store, uint32_t row, const uint8_t *pixels)
{
	uint32_t width = store->shape.width, channels = store->shape.channels;
	size_t plane = (size_t)width * store->shape.height;

	if (store->shape.layout == TRANSFORM_NHWC) {
		for (uint32_t i = 0; i < width * channels; i++)
			put(store, (size_t)row * width * channels + i, pixels[i], i % channels);
		return;
	}
	for (uint32_t c = 0; c < channels; c++)
		for (uint32_t x = 0; x < width; x++)
			put(store, c * plane + (size_t)row * width + x,
			    c < 3 ? pixels[3 * x + c] : 0, c);
}

static void copy(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels,
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

const struct store_kernels store_kernels_c = {.row = row, .copy = copy};

const struct store_kernels *store_kernels_get(enum augment_isa isa)
{
#ifdef AUGMENT_HAVE_AVX512
	if (isa >= AUGMENT_ISA_AVX512)
		return &store_kernels_avx512;
#endif
#ifdef AUGMENT_HAVE_AVX2
	if (isa >= AUGMENT_ISA_AVX2)
		return &store_kernels_avx2;
#endif
	return &store_kernels_c;
}

uint32_t store_row_channels(const struct transform_shape *shape)
{
	return shape->layout == TRANSFORM_NCHW ? 3 : shape->channels;
}

void store_init(struct store *store, enum augment_isa isa, const struct transform_shape *shape,
		const double mean[3], const double std[3], void *output)
{
	store->kernels = store_kernels_get(isa);
	store->output = output;
	store->shape = *shape;
	for (uint32_t i = 0; i < STORE_PERIOD; i++) {
		uint32_t c = i % shape->channels;

		store->scale[i] = c < 3 ? (float)(1 / (255 * std[c])) : 0;
		store->bias[i] = c < 3 ? (float)(-mean[c] / std[c]) : 0;
	}
}
