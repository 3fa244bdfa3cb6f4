/*
 * Mosaic (Bochkovskiy, Wang, Liao 2020, "YOLOv4: Optimal Speed and Accuracy of Object Detection",
 * 3.3): four samples meet at a random point of one picture. As in Ultralytics' YOLOv5 (Mosaic, then
 * RandomPerspective's scale and crop), each sample is resized to fit the size of the finished
 * picture, the four meet at a random point of the middle of a picture of twice that size, all is
 * scaled about the middle by one factor, and the middle is shown. Here each sample is resized once,
 * and only the part that the finished picture shows is decoded.
 *
 * The caller draws a mosaic, chooses the other samples by its random bits, and places each sample's
 * image and rasters in pictures, and moves its coordinates, with pipeline_scratch_tile(). The steps
 * after mosaic then act on the joined pictures. Everything depends only on (seed, epoch, sample)
 * and the sizes of the samples.
 *
 * Pictures are the caller's memory, rows without padding: of images 3 bytes a pixel, of rasters
 * their stored elements, aligned to them. Samples of a mosaic touch different pixels.
 */
#pragma once

#include "format/augment/frame.h"

enum { MOSAIC_OTHERS = 3 };

/* What is drawn for a sample. */
struct mosaic {
	uint32_t width, height;         /* of the joined picture */
	uint32_t count;                 /* of samples: 1 + MOSAIC_OTHERS, or 1 */
	uint64_t others[MOSAIC_OTHERS]; /* random bits that choose samples 1 to 3 */
	uint32_t quarter;               /* of sample 0; sample i has (quarter + i) % 4 */
	int64_t x, y;                   /* where the samples meet, may be outside the picture */
	double factor;
};

/* The part of a sample that a mosaic shows. */
struct mosaic_tile {
	uint32_t whole_width, whole_height; /* of the resized sample */
	uint32_t from_x, from_y;            /* its first pixel that is shown */
	uint32_t x, y;                      /* where that is in the joined picture */
	uint32_t width, height;             /* pixels that are shown; not 0 */
};

/* Returns true if the pipeline joins samples. */
bool pipeline_joins(const struct pipeline *pipeline);
/* Draws the mosaic of sample `index`, for a pipeline that joins samples. */
void mosaic_draw(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t index,
		 struct mosaic *ret_mosaic);
/*
 * Places sample `number` of a mosaic, of width x height pixels. Returns false if nothing of it is
 * shown: it then contributes nothing.
 */
bool mosaic_place(const struct mosaic *mosaic, uint32_t number, uint32_t width, uint32_t height,
		  struct mosaic_tile *ret_tile);

/* Fills a picture of the mosaic's size, or the tile's part of it if tile is not NULL. */
void mosaic_fill_image(const struct pipeline *pipeline, const struct mosaic *mosaic,
		       const struct mosaic_tile *tile, uint8_t *picture);
void mosaic_fill_raster(const struct frame_raster *form, const struct mosaic *mosaic,
			const struct mosaic_tile *tile, uint8_t *picture);
/* Puts a sample's image into its tile. Errors as of pipeline_apply(). */
int mosaic_put_image(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		     const struct packimg_sample *sample, const struct mosaic *mosaic,
		     const struct mosaic_tile *tile, uint8_t *picture, struct pipeline_times *times,
		     struct packimg_error *error);
/* Puts a sample's mask or raster into its tile. Errors as of pipeline_apply_raster(). */
int mosaic_put_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
		      const struct packimg_sample *raster, const struct frame_raster *form,
		      const struct mosaic *mosaic, const struct mosaic_tile *tile, uint8_t *picture,
		      struct pipeline_times *times, struct packimg_error *error);

/*
 * Makes the finished image from the joined picture, by the steps after mosaic. index: of sample 0.
 * As pipeline_apply() otherwise.
 */
int mosaic_finish_image(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			const struct mosaic *mosaic, const uint8_t *picture, uint64_t index,
			uint64_t seed, uint64_t epoch, void *output, struct pipeline_times *times,
			struct packimg_error *error);
/* Makes the finished raster. form: its size is not used. As pipeline_apply_raster() otherwise. */
int mosaic_finish_raster(const struct pipeline *pipeline, struct pipeline_scratch *scratch,
			 const struct mosaic *mosaic, const struct frame_raster *form,
			 const uint8_t *picture, uint64_t index, uint64_t seed, uint64_t epoch,
			 void *output, struct pipeline_times *times, struct packimg_error *error);

/*
 * Says that the coordinates that are moved next are those of a sample in this tile: they move to
 * the joined picture and through the steps after mosaic, as if they were of the sample `index` of
 * the mosaic. pipeline_apply_coordinates() drops boxes of which too little is shown. NULL for none.
 * The tile lives until the next call.
 */
void pipeline_scratch_tile(struct pipeline_scratch *scratch, const struct mosaic_tile *tile);
