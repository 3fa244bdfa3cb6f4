/*
 * Mean and standard deviation of R, G and B over many images. Sums are integers, so the result does
 * not depend on the order in which threads add them. Embedded in other structures; one thread. Add
 * the results of several threads.
 */
#pragma once

#include "tools/packimg/image/image.h"

struct statistics {
	uint64_t images;
	uint64_t pixels;
	uint64_t sum[3];
	uint64_t square_sum[3];
};

/* Adds every row_step-th row of an image. */
void statistics_add_pixels(struct statistics *statistics, const struct resize_picture *pixels,
			   uint32_t row_step);
void statistics_add(struct statistics *statistics, const struct statistics *other);
/* Adds the statistics recorded in a dataset. */
void statistics_add_summary(struct statistics *statistics, const double mean[3],
			    const double std[3], uint64_t images, uint64_t pixels);
/* Extrapolates from a fraction (0 .. 1) of the images to all of them. */
void statistics_scale(struct statistics *statistics, double share);
/*
 * Records mean and deviation in a dataset, and the numbers of images and pixels on which they are
 * based, unless there were no pixels.
 */
int statistics_write(const struct statistics *statistics, struct packimg_writer *writer,
		     struct packimg_error *error);
/* Returns -ENODATA if there are no pixels. */
int statistics_result(const struct statistics *statistics, double ret_mean[3], double ret_std[3]);
