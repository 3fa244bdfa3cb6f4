#include "tools/packimg/image/statistics.h"

#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The sums of one row fit in 32 bits: 65535 pixels of at most 255 squared. */
static void statistics_add_row(struct statistics *statistics, const uint8_t *row, uint32_t width,
			       uint32_t channels)
{
	uint32_t sum[3] = {0}, square[3] = {0};

	if (channels == 1) {
		for (uint32_t x = 0; x < width; x++) {
			uint32_t v = row[x];

			sum[0] += v;
			square[0] += v * v;
		}
		sum[1] = sum[2] = sum[0];
		square[1] = square[2] = square[0];
	} else {
		for (uint32_t x = 0; x < width; x++) {
			uint32_t r = row[3 * (size_t)x], g = row[3 * (size_t)x + 1],
				 b = row[3 * (size_t)x + 2];

			sum[0] += r;
			sum[1] += g;
			sum[2] += b;
			square[0] += r * r;
			square[1] += g * g;
			square[2] += b * b;
		}
	}
	for (int c = 0; c < 3; c++) {
		statistics->sum[c] += sum[c];
		statistics->square_sum[c] += square[c];
	}
	statistics->pixels += width;
}

void statistics_add_pixels(struct statistics *statistics, const struct resize_picture *pixels,
			   uint32_t row_step)
{
	for (uint32_t y = row_step / 2 < pixels->height ? row_step / 2 : 0; y < pixels->height;
	     y += row_step)
		statistics_add_row(statistics, pixels->data + y * pixels->stride, pixels->width,
				   pixels->channels);
	statistics->images++;
}

void statistics_add(struct statistics *statistics, const struct statistics *other)
{
	statistics->images += other->images;
	statistics->pixels += other->pixels;
	for (int c = 0; c < 3; c++) {
		statistics->sum[c] += other->sum[c];
		statistics->square_sum[c] += other->square_sum[c];
	}
}

void statistics_add_summary(struct statistics *statistics, const double mean[3],
			    const double std[3], uint64_t images, uint64_t pixels)
{
	statistics->images += images;
	statistics->pixels += pixels;
	for (int c = 0; c < 3; c++) {
		statistics->sum[c] += (uint64_t)llround(mean[c] * (double)pixels);
		statistics->square_sum[c] +=
			(uint64_t)llround((std[c] * std[c] + mean[c] * mean[c]) * (double)pixels);
	}
}

static uint64_t statistics_channel_scale(uint64_t value, double share)
{
	return (uint64_t)llround((double)value * share);
}

void statistics_scale(struct statistics *statistics, double share)
{
	statistics->images = statistics_channel_scale(statistics->images, share);
	statistics->pixels = statistics_channel_scale(statistics->pixels, share);
	for (int c = 0; c < 3; c++) {
		statistics->sum[c] = statistics_channel_scale(statistics->sum[c], share);
		statistics->square_sum[c] =
			statistics_channel_scale(statistics->square_sum[c], share);
	}
}

int statistics_result(const struct statistics *statistics, double ret_mean[3], double ret_std[3])
{
	double n = (double)statistics->pixels;

	if (!statistics->pixels)
		return -ENODATA;
	for (int c = 0; c < 3; c++) {
		double mean = (double)statistics->sum[c] / n;
		double variance = (double)statistics->square_sum[c] / n - mean * mean;

		ret_mean[c] = mean;
		ret_std[c] = variance > 0 ? sqrt(variance) : 0;
	}
	return 0;
}

int statistics_write(const struct statistics *statistics, struct packimg_writer *writer,
		     struct packimg_error *error)
{
	double mean[3], std[3];
	char number[32];

	if (statistics_result(statistics, mean, std))
		return 0;
	int r = packimg_writer_statistics(writer, mean, std);
	if (r)
		return packimg_fail(error, r, "statistics: %s", strerror(-r));
	snprintf(number, sizeof(number), "%" PRIu64, statistics->images);
	r = packimg_writer_metadata(writer, "statistics.images", number, error);
	snprintf(number, sizeof(number), "%" PRIu64, statistics->pixels);
	return r ? r : packimg_writer_metadata(writer, "statistics.pixels", number, error);
}
