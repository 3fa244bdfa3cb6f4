#include "format/codec/orient.h"

/*
 * Pixels of a tile's side: 32 rows of 96 bytes stay in the first-level cache while they are read
 * across.
 */
enum { TILE = 32 };

/*
 * TIFF 6.0, tag Orientation: upright (u, v) is stored (s, t) where s and t are u and v, exchanged
 * from 5 on, then counted from the far side for these.
 */
static bool flips_s(uint8_t orientation)
{
	return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool flips_t(uint8_t orientation)
{
	return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

bool orient_swaps(uint8_t orientation)
{
	return orientation >= 5;
}

void orient_region(uint8_t orientation, uint32_t width, uint32_t height,
		   const struct packimg_region *region, struct packimg_region *ret_region)
{
	struct packimg_region r = *region;

	if (orient_swaps(orientation))
		r = (struct packimg_region){region->y, region->x, region->height, region->width};
	if (flips_s(orientation))
		r.x = width - r.x - r.width;
	if (flips_t(orientation))
		r.y = height - r.y - r.height;
	*ret_region = r;
}

void orient_pixels(uint8_t orientation, const struct packimg_pixels *stored, uint8_t *target,
		   struct packimg_pixels *ret_pixels)
{
	bool swap = orient_swaps(orientation), flip_s = flips_s(orientation),
	     flip_t = flips_t(orientation);
	ptrdiff_t step_s = flip_s ? -3 : 3;
	ptrdiff_t step_t = flip_t ? -(ptrdiff_t)stored->stride : (ptrdiff_t)stored->stride;
	ptrdiff_t step_u = swap ? step_t : step_s, step_v = swap ? step_s : step_t;
	uint32_t width = swap ? stored->height : stored->width,
		 height = swap ? stored->width : stored->height;
	const uint8_t *origin = stored->data + (flip_s ? (size_t)(stored->width - 1) * 3 : 0) +
				(flip_t ? (size_t)(stored->height - 1) * stored->stride : 0);

	for (uint32_t v0 = 0; v0 < height; v0 += TILE) {
		uint32_t v1 = height - v0 < TILE ? height : v0 + TILE;
		for (uint32_t u0 = 0; u0 < width; u0 += TILE) {
			uint32_t u1 = width - u0 < TILE ? width : u0 + TILE;
			for (uint32_t v = v0; v < v1; v++) {
				const uint8_t *in =
					origin + (ptrdiff_t)v * step_v + (ptrdiff_t)u0 * step_u;
				uint8_t *out = target + ((size_t)v * width + u0) * 3;
				for (uint32_t u = u0; u < u1; u++, in += step_u, out += 3) {
					out[0] = in[0];
					out[1] = in[1];
					out[2] = in[2];
				}
			}
		}
	}
	double x = flip_s ? stored->width - stored->x - stored->region_width : stored->x;
	double y = flip_t ? stored->height - stored->y - stored->region_height : stored->y;
	*ret_pixels = (struct packimg_pixels){
		.data = target,
		.stride = (size_t)width * 3,
		.width = width,
		.height = height,
		.x = swap ? y : x,
		.y = swap ? x : y,
		.region_width = swap ? stored->region_height : stored->region_width,
		.region_height = swap ? stored->region_width : stored->region_height,
	};
}
