#include "format/augment/apply/shared_pictures.h"

#include <errno.h>

static uint32_t denominator_of(const struct packimg_sample *sample, const struct shared_part *part)
{
	return packimg_denominator(sample, &part->region, part->hint_width, part->hint_height);
}

static struct packimg_region unite(const struct packimg_region *a, const struct packimg_region *b)
{
	uint32_t x = a->x < b->x ? a->x : b->x, y = a->y < b->y ? a->y : b->y;
	uint32_t a_right = a->x + a->width, b_right = b->x + b->width;
	uint32_t a_end = a->y + a->height, b_end = b->y + b->height;

	return (struct packimg_region){
		.x = x,
		.y = y,
		.width = (a_right > b_right ? a_right : b_right) - x,
		.height = (a_end > b_end ? a_end : b_end) - y,
	};
}

/*
 * Estimates the work of decoding a region: the entropy coding of a JPEG's whole rows, and the
 * pixels of the region, which take about as long.
 */
static uint64_t work_of(const struct packimg_sample *sample, const struct packimg_region *region)
{
	return (uint64_t)region->height * sample->width + (uint64_t)region->height * region->width;
}

/* Returns the union of the parts of a denominator; *ret_pays if decoding it is less work. */
static struct packimg_region union_of(const struct packimg_sample *sample, uint32_t denominator,
				      const struct shared_part *parts, unsigned count,
				      bool *ret_pays)
{
	struct packimg_region all = {0};
	uint64_t work = 0;
	unsigned found = 0;

	for (unsigned i = 0; i < count; i++) {
		if (denominator_of(sample, &parts[i]) != denominator)
			continue;
		all = found++ ? unite(&all, &parts[i].region) : parts[i].region;
		work += work_of(sample, &parts[i].region);
	}
	*ret_pays = found > 1 && work_of(sample, &all) < work;
	return all;
}

static void decode(struct shared_picture *picture, const struct packimg_sample *sample,
		   uint32_t denominator, const struct packimg_region *region)
{
	/* The largest hints at which a region is decoded at this scale. */
	uint32_t hint_width = region->width / (2 * denominator);
	uint32_t hint_height = region->height / (2 * denominator);
	struct packimg_pixels pixels;

	if (denominator == 1)
		hint_width = hint_height = 0;
	if (packimg_denominator(sample, region, hint_width, hint_height) != denominator ||
	    packimg_decode(picture->decoder, sample, region, hint_width, hint_height, &pixels,
			   NULL) < 0)
		return;
	picture->denominator = denominator;
	picture->region = *region;
	picture->pixels = pixels;
}

static int decoder_ready(struct shared_pictures *shared, struct shared_picture *picture)
{
	int r = picture->decoder ? 0 : packimg_decoder_new(&picture->decoder);

	if (r == 0)
		packimg_decoder_limit(picture->decoder, shared->limit);
	return r;
}

int shared_pictures_decode(struct shared_pictures *shared, const struct packimg_sample *sample,
			   const struct shared_part *parts, unsigned count)
{
	shared_pictures_drop(shared);
	shared->sample = sample;
	/* Pixels of raw samples are in the mapping. */
	for (unsigned i = 0; i < SHARED_PICTURES_MAX && sample->codec != PACKIMG_CODEC_RAW; i++) {
		bool pays;
		struct packimg_region all = union_of(sample, 1u << i, parts, count, &pays);
		int r = pays ? decoder_ready(shared, &shared->pictures[i]) : 0;

		if (r < 0)
			return r;
		if (pays)
			decode(&shared->pictures[i], sample, 1u << i, &all);
	}
	return 0;
}

void shared_pictures_drop(struct shared_pictures *shared)
{
	for (unsigned i = 0; i < SHARED_PICTURES_MAX; i++)
		shared->pictures[i].denominator = 0;
	shared->sample = NULL;
}

void shared_pictures_deinit(struct shared_pictures *shared)
{
	for (unsigned i = 0; i < SHARED_PICTURES_MAX; i++)
		packimg_decoder_free(shared->pictures[i].decoder);
}

static bool holds(const struct packimg_region *all, const struct packimg_region *part)
{
	return part->x >= all->x && part->y >= all->y &&
	       part->x + part->width <= all->x + all->width &&
	       part->y + part->height <= all->y + all->height;
}

bool shared_pictures_find(const struct shared_pictures *shared, const struct packimg_sample *sample,
			  const struct shared_part *part, struct packimg_pixels *ret_pixels)
{
	if (!shared->sample || shared->sample->index != sample->index ||
	    shared->sample->data != sample->data)
		return false;
	for (unsigned i = 0; i < SHARED_PICTURES_MAX; i++) {
		const struct shared_picture *picture = &shared->pictures[i];

		if (picture->denominator == 0 ||
		    picture->denominator != denominator_of(sample, part) ||
		    !holds(&picture->region, &part->region))
			continue;
		const double scale = picture->pixels.region_width / picture->region.width;

		*ret_pixels = picture->pixels;
		ret_pixels->x += (part->region.x - picture->region.x) * scale;
		ret_pixels->y += (part->region.y - picture->region.y) * scale;
		ret_pixels->region_width = part->region.width * scale;
		ret_pixels->region_height = part->region.height * scale;
		return true;
	}
	return false;
}
