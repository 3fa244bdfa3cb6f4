/*
 * Masks and rasters: shows the pixels of a raster where the pipeline shows those of the image to
 * which it belongs, by the nearest pixel. Values are copied, never computed. Resizing is that of
 * torchvision 0.29's resize_mask(): source = min(floor(i * (float)in / out), in - 1) in f32, step
 * by step; rotation and affine are rotate_mask() and affine_mask(), with the positions of the
 * image's own nearest warp. Unlike torchvision's center_crop(), everything from outside is `fill`.
 *
 * Rasters of measurements, such as depth, may ask for antialiased resizes instead (resize_float.h);
 * then values are computed in f32, at the size of each resize, and only those that the steps after
 * it show. Numbers of i32 above 2^24 then lose low bits, as in torchvision.
 *
 * A struct raster_resampler is the scratch memory of one thread; it allocates only when a job is
 * larger than all before, at most 8 bytes for each value of a picture that is warped or computed.
 * Call raster_resampler_begin(), decode the region, and call raster_resampler_run().
 */
#pragma once

#include "format/augment/apply/raster_segments.h"

struct raster_resampler {
	enum cpu_isa isa;
	/* From begin to run. */
	const struct geometry *geometry;
	enum pipeline_filter filter;
	struct raster_segments segments;
	struct block parts;     /* the source columns as blocks of bytes */
	struct block planes[2]; /* channels, before and after a step: plane.h */
	struct resize_float resize;
};

/* Pixels of a picture that is computed by a resize. */
enum { RASTER_RESAMPLER_PIXELS_MAX = 1 << 25 };

void raster_resampler_init(struct raster_resampler *resampler, enum cpu_isa isa);
void raster_resampler_deinit(struct raster_resampler *resampler);

/*
 * Computes which region of an upright raster of width x height pixels the steps show. It is empty,
 * of width 0, if they show none of it. The geometry has to outlive the run. Returns 0, -ENOMEM, or
 * -E2BIG if a computed resize shows more than RASTER_RESAMPLER_PIXELS_MAX.
 */
int raster_resampler_begin(struct raster_resampler *resampler, const struct geometry *geometry,
			   uint32_t width, uint32_t height, enum pipeline_filter filter,
			   struct packimg_region *ret_region);
/*
 * Writes the finished raster: rows of interleaved pixels without padding, in the raster's element
 * and channels and the geometry's final size. `raster` is the region, decoded by
 * packimg_decode_raster(); if the region is empty, only element and channels are read. fill is one
 * element, for all channels. `output` needs no alignment. Returns 0 or -ENOMEM.
 */
int raster_resampler_run(struct raster_resampler *resampler, const struct packimg_raster *raster,
			 const void *fill, void *output);
