#include "format/augment/deferred.h"

static bool within(float value, float low, float high)
{
	return value >= low && value <= high; /* false for NaN */
}

/*
 * Returns true if no value exceeds the bounds of the daemon's draws. Arithmetic on pixels then fits
 * an int32_t.
 */
static bool change_is_safe(const struct deferred_change *change, const struct deferred *deferred)
{
	enum { BLEND_MAX = 1 << 14 };
	if (change->kind == 0 || change->kind >= DEFERRED_KINDS)
		return false;
	if (change->kind >= DEFERRED_ERASE)
		return change->left + change->width <= (int32_t)deferred->width &&
		       change->top + change->height <= (int32_t)deferred->height;
	if (change->kind == DEFERRED_HUE)
		return within(change->factor, -1, 1);
	if (change->kind == DEFERRED_POSTERIZE)
		return within(change->factor, 0, 8);
	return within(change->factor, -BLEND_MAX, BLEND_MAX) &&
	       within(change->rest, -BLEND_MAX, BLEND_MAX);
}

/*
 * True if pixels low .. low + count - 1 are inside an image of `size`, or if reflects is set, at
 * most one reflection away.
 */
static bool reaches(int32_t low, uint32_t count, uint32_t size, bool reflects)
{
	int64_t end = (int64_t)low + count, beyond = reflects ? (int64_t)size - 1 : INT32_MAX / 2;
	return count >= 1 && count <= DEFERRED_SIDE_MAX && low >= -beyond && end <= size + beyond;
}

/* Returns the name of the first invalid field; NULL if all are valid. */
static const char *unsafe_field(const struct deferred *deferred, uint32_t width, uint32_t height)
{
	bool reflects = deferred->flags & DEFERRED_REFLECT;
	if (!reaches(deferred->left, deferred->width, width, reflects))
		return "left or width";
	if (!reaches(deferred->top, deferred->height, height, reflects))
		return "top or height";
	if (deferred->flags >= 2 * DEFERRED_REFLECT)
		return "flags";
	if (deferred->reserved)
		return "reserved";
	for (uint32_t i = 0; i < deferred->count; i++)
		if (!change_is_safe(&deferred->changes[i], deferred))
			return "changes";
	return NULL;
}

const char *deferred_read(const void *from, size_t size, uint32_t width, uint32_t height,
			  struct deferred *ret_deferred)
{
	struct deferred deferred = {0};
	if (size < deferred_size(0))
		return "size";
	memcpy(&deferred, from, deferred_size(0));
	if (deferred.count > DEFERRED_CHANGES_MAX || size < deferred_size(deferred.count))
		return "count";
	memcpy(deferred.changes, (const char *)from + deferred_size(0),
	       deferred.count * sizeof(*deferred.changes));
	const char *field = unsafe_field(&deferred, width, height);
	if (!field)
		*ret_deferred = deferred;
	return field;
}

static float mean_luma(const uint8_t *picture, size_t count, uint32_t channels)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += (uint32_t)colour_luma(deferred_load(picture, i, channels));
	return (float)sum / (float)count;
}

void deferred_apply(const struct deferred *deferred, const uint8_t *picture, uint32_t width,
		    uint32_t height, uint32_t channels, uint8_t *ret_picture)
{
	size_t count = (size_t)deferred->width * deferred->height;
	for (uint32_t y = 0; y < deferred->height; y++)
		for (uint32_t x = 0; x < deferred->width; x++)
			deferred_store(
				ret_picture, (size_t)y * deferred->width + x, channels,
				deferred_shown(deferred, picture, width, height, channels, x, y));
	for (uint32_t i = 0; i < deferred->count; i++) {
		const struct deferred_change *change = &deferred->changes[i];
		float mean = change->kind == DEFERRED_CONTRAST
				     ? mean_luma(ret_picture, count, channels)
				     : 0;
		for (uint32_t y = 0; y < deferred->height; y++)
			for (uint32_t x = 0; x < deferred->width; x++) {
				size_t at = (size_t)y * deferred->width + x;
				uint32_t pixel = deferred_load(ret_picture, at, channels);
				deferred_store(ret_picture, at, channels,
					       deferred_change_pixel(change, pixel, x, y, mean));
			}
	}
}
