/*
 * Colour operations on single pixels, as torchvision's transforms.v2.functional defines them for
 * uint8 tensors. Used by the daemon and by the client's training process. The compiler vectorises
 * loops over these functions; a GPU runs one thread per pixel. A pixel is a uint32_t: red in the
 * lowest byte, then green, blue, and a zero byte. All platforms compute the same bytes: floats are
 * IEEE single precision in a fixed order, files that include this one are compiled without
 * contraction, and colour_fused() and colour_fused_short() round exactly once everywhere. For C and
 * CUDA C.
 */
#ifndef FORMAT_AUGMENT_COLOUR_H
#define FORMAT_AUGMENT_COLOUR_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define COLOUR_INLINE     static __device__ __forceinline__
#define COLOUR_FUSED      fmaf
#define COLOUR_HAVE_FUSED 1
#else
#define COLOUR_INLINE static inline
#define COLOUR_FUSED  __builtin_fmaf
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define COLOUR_HAVE_FUSED 1
#else
#define COLOUR_HAVE_FUSED 0
#endif
#endif

COLOUR_INLINE float colour_channel(uint32_t pixel, unsigned shift)
{
	return (float)(int32_t)(pixel >> shift & 255);
}

/* a * b + c with one rounding. Slow without an FMA instruction. */
COLOUR_INLINE float colour_fused(float a, float b, float c)
{
	return COLOUR_FUSED(a, b, c);
}

/*
 * Like colour_fused(), for operands whose product and sum are exact in double precision: at most 53
 * bits lie between the highest bit of product or sum and the lowest bit of either.
 */
COLOUR_INLINE float colour_fused_short(float a, float b, float c)
{
	return COLOUR_HAVE_FUSED ? COLOUR_FUSED(a, b, c) : (float)((double)a * b + c);
}

COLOUR_INLINE float colour_clamp(float value)
{
	value = value > 0 ? value : 0;
	return value < 255 ? value : 255;
}

/* Returns the luma of a pixel, rounded down. */
COLOUR_INLINE int32_t colour_luma(uint32_t pixel)
{
	float sum = colour_channel(pixel, 0) * 0.2989f;

	sum = colour_fused_short(colour_channel(pixel, 8), 0.587f, sum);
	sum = colour_fused_short(colour_channel(pixel, 16), 0.114f, sum);
	return (int32_t)sum;
}

/*
 * Returns factor * channel + rest * grey, rounded down and clamped to a byte. rest is zero or at
 * least 2^-20.
 */
COLOUR_INLINE uint32_t colour_blend_channel(uint32_t pixel, unsigned shift, float factor,
					    float grey, float rest)
{
	return (uint32_t)(int32_t)colour_clamp(
		       colour_fused_short(grey, rest, colour_channel(pixel, shift) * factor))
	       << shift;
}

COLOUR_INLINE uint32_t colour_saturate(uint32_t pixel, float factor, float rest)
{
	float grey = (float)colour_luma(pixel);

	return colour_blend_channel(pixel, 0, factor, grey, rest) |
	       colour_blend_channel(pixel, 8, factor, grey, rest) |
	       colour_blend_channel(pixel, 16, factor, grey, rest);
}

/* Scales one channel: brightness if rest is 0, contrast if mean is the mean luma of the image. */
COLOUR_INLINE uint32_t colour_scale_channel(uint32_t pixel, unsigned shift, float factor,
					    float mean, float rest)
{
	float value = colour_channel(pixel, shift) * factor;

	return (uint32_t)(int32_t)colour_clamp(rest != 0 ? colour_fused(mean, rest, value) : value)
	       << shift;
}

COLOUR_INLINE uint32_t colour_scale(uint32_t pixel, float factor, float mean, float rest)
{
	return colour_scale_channel(pixel, 0, factor, mean, rest) |
	       colour_scale_channel(pixel, 8, factor, mean, rest) |
	       colour_scale_channel(pixel, 16, factor, mean, rest);
}

/*
 * Returns condition ? a : b. Selects with a bit mask because a branch would prevent vectorisation.
 */
COLOUR_INLINE float colour_pick(int condition, float a, float b)
{
	uint32_t mask = (uint32_t)-condition, x, y;

	memcpy(&x, &a, 4);
	memcpy(&y, &b, 4);
	x = (x & mask) | (y & ~mask);
	memcpy(&a, &x, 4);
	return a;
}

/*
 * Returns the value of a channel in a sector of the colour circle, 0 to 5: high in 5 and 0, low in
 * 2 and 3, moving in 1 and 4.
 */
COLOUR_INLINE float colour_by_sector(int32_t sector, float high, float moving, float low)
{
	int32_t distance = 2 * sector - 5;

	distance = distance < 0 ? -distance : distance;
	return colour_pick(distance > 4, high, colour_pick(distance > 2, moving, low));
}

/*
 * Rotates the hue by turns of the colour circle, in HSV. The factor 256 - 0.001 maps 1 to 255 and
 * gives the other byte values intervals of about equal width.
 */
COLOUR_INLINE uint32_t colour_turn(uint32_t pixel, float turns)
{
	const float scale = (float)(1.0 / 255), back = (float)(256.0 - 1e-3);
	float r = colour_channel(pixel, 0) * scale, g = colour_channel(pixel, 8) * scale,
	      b = colour_channel(pixel, 16) * scale;
	float high = r > g ? r : g, low = r < g ? r : g;

	high = high > b ? high : b;
	low = low < b ? low : b;
	float range = high - low, divisor = colour_pick(high == low, 1, range);
	float s = range / colour_pick(high == low, 1, high);
	float start = colour_pick(high == r, 0, colour_pick(high == g, 2, 4));
	float rise = high - colour_pick(high == r, b, colour_pick(high == g, r, g));
	float fall = high - colour_pick(high == r, g, colour_pick(high == g, b, r));
	float h = (rise / divisor + start - fall / divisor) * (float)(1.0 / 6) + 1;

	h = h - (float)(int32_t)h;
	h = h + turns;
	h = h - (float)(int32_t)h;
	h = colour_pick(h < 0, h + 1, h);

	float six = h * 6;
	int32_t sector = (int32_t)six;
	float part = s * (six - (float)sector), rest = 1 - s;
	/* Needs no clamp, unlike in torchvision: the factors are always in 0..1. */
	float falling = (1 - part) * high, rising = (part + rest) * high, p = rest * high;
	float moving = colour_pick(sector & 1, falling, rising);

	/* Rounding may produce sector 6, a full turn. */
	sector -= 6 & -(sector >= 6);
	r = colour_by_sector(sector, high, moving, p);
	g = colour_by_sector(sector - 2 + (6 & -(sector < 2)), high, moving, p);
	b = colour_by_sector(sector - 4 + (6 & -(sector < 4)), high, moving, p);
	return (uint32_t)(int32_t)(r * back) | (uint32_t)(int32_t)(g * back) << 8 |
	       (uint32_t)(int32_t)(b * back) << 16;
}

#endif
