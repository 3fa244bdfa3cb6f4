#include "format/augment/kernels/effect_kernels.h"
#include "format/base/portable_math.h"

#include <math.h>
#include <string.h>

static uint8_t to_byte(float value)
{
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void effect_tables_spread(struct effect_table *table)
{
	memcpy(table->of[1], table->of[0], 256);
	memcpy(table->of[2], table->of[0], 256);
}

void effect_blend(double factor, float *ret_factor, float *ret_rest)
{
	bool one = fabs(1 - factor) < 0x1p-20;

	*ret_factor = one ? 1 : (float)factor;
	*ret_rest = one ? 0 : (float)(1 - factor);
}

void effect_table_brightness(const struct effect_picture *picture, double factor,
			     struct effect_table *ret_table)
{
	for (int i = 0; i < 256; i++)
		ret_table->of[0][i] = to_byte((float)i * (float)factor);
	effect_tables_spread(ret_table);
}

void effect_table_contrast(const struct effect_picture *picture, double factor,
			   struct effect_table *ret_table)
{
	uint64_t luma_sum = picture->kernels->luma_sum(picture->pixels, picture->count);
	float luma_mean = (float)luma_sum / (float)picture->count, own, rest;

	effect_blend(factor, &own, &rest);
	for (int i = 0; i < 256; i++)
		ret_table->of[0][i] = to_byte(fmaf(luma_mean, rest, (float)i * own));
	effect_tables_spread(ret_table);
}

void effect_table_invert(const struct effect_picture *picture, double factor,
			 struct effect_table *ret_table)
{
	for (int i = 0; i < 256; i++)
		ret_table->of[0][i] = (uint8_t)(255 - i);
	effect_tables_spread(ret_table);
}

void effect_table_solarize(const struct effect_picture *picture, double factor,
			   struct effect_table *ret_table)
{
	for (int i = 0; i < 256; i++)
		ret_table->of[0][i] = (uint8_t)((float)i >= (float)factor ? 255 - i : i);
	effect_tables_spread(ret_table);
}

void effect_table_posterize(const struct effect_picture *picture, double factor,
			    struct effect_table *ret_table)
{
	for (int i = 0; i < 256; i++)
		ret_table->of[0][i] = (uint8_t)(i & 0xff << (8 - (unsigned)factor));
	effect_tables_spread(ret_table);
}

/* Stretches the range of each channel to 0 .. 255. */
void effect_table_autocontrast(const struct effect_picture *picture, double factor,
			       struct effect_table *ret_table)
{
	uint32_t histogram[3][256];

	picture->kernels->histogram(picture->pixels, picture->count, histogram);
	for (int c = 0; c < 3; c++) {
		int low = 0, high = 255;

		while (low < 255 && histogram[c][low] == 0)
			low++;
		while (high > low && histogram[c][high] == 0)
			high--;
		float scale = (float)(high - low) * (float)(1.0 / 255);

		for (int i = 0; i < 256; i++)
			ret_table->of[c][i] =
				high == low ? (uint8_t)i : to_byte((float)(i - low) / scale);
	}
}

/*
 * Pillow's rule: value v maps to the number of pixels below v divided by `step`, rounded to
 * nearest. `step` is 1/255 of the number of pixels below the highest value.
 */
void effect_table_equalize(const struct effect_picture *picture, double factor,
			   struct effect_table *ret_table)
{
	uint32_t histogram[3][256];

	picture->kernels->histogram(picture->pixels, picture->count, histogram);
	for (int c = 0; c < 3; c++) {
		uint64_t total = 0, below = 0;
		int high = 255;

		while (high > 0 && histogram[c][high] == 0)
			high--;
		for (int i = 0; i < high; i++)
			total += histogram[c][i];
		uint64_t step = total / 255;

		for (int i = 0; i < 256; i++) {
			uint64_t level = step ? (below + step / 2) / step : (uint64_t)i;

			ret_table->of[c][i] = (uint8_t)(level < 255 ? level : 255);
			below += histogram[c][i];
		}
	}
}

void effect_gauss_weights(double sigma, unsigned taps, int16_t weights[])
{
	double values[EFFECT_BLUR_TAPS_MAX], sum = 1;

	for (unsigned k = 0; k < taps; k++) {
		double distance = (k + 1) / sigma, power = -0.5 * distance * distance;

		values[k] = power > -700 ? portable_exp(power) : 0;
		sum += 2 * values[k];
	}
	for (unsigned k = 0; k < taps; k++)
		weights[k] = (int16_t)rint(values[k] / sum * 32768);
}
