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

/* Estimates the work of the entropy coding of a region: of whole rows. */
static uint64_t entropy_work(const struct packimg_sample *sample,
			     const struct packimg_region *region)
{
	return (uint64_t)region->height * sample->width;
}

/* Estimates the work of decoding a region: its pixels take about as long as its entropy coding. */
static uint64_t work_of(const struct packimg_sample *sample, const struct packimg_region *region)
{
	return entropy_work(sample, region) + (uint64_t)region->height * region->width;
}

/* What views decode at one scale. */
struct scale_group {
	struct packimg_region all; /* union of the parts */
	unsigned parts;
	bool pays; /* decoding the union is less work than decoding each part, and it may fit */
};

/*
 * Returns false for a picture that exceeds the memory limit. Without this check, libjpeg-turbo
 * would decode all of a progressive JPEG before it refuses the pixels.
 */
static bool may_fit(const struct shared_pictures *shared, const struct packimg_region *region,
		    uint32_t denominator)
{
	uint64_t width = region->width / denominator, height = region->height / denominator;

	return shared->limit == 0 || 3 * width * height <= shared->limit;
}

static void find_groups(const struct shared_pictures *shared, const struct packimg_sample *sample,
			const struct shared_part *parts, unsigned count,
			struct scale_group groups[SHARED_PICTURES_MAX])
{
	uint64_t work[SHARED_PICTURES_MAX] = {0};

	for (unsigned i = 0; i < count; i++) {
		unsigned g = (unsigned)__builtin_ctz(denominator_of(sample, &parts[i]));
		struct scale_group *group = &groups[g];

		group->all =
			group->parts++ ? unite(&group->all, &parts[i].region) : parts[i].region;
		work[g] += work_of(sample, &parts[i].region);
	}
	for (unsigned g = 0; g < SHARED_PICTURES_MAX; g++)
		groups[g].pays = groups[g].parts > 1 && work_of(sample, &groups[g].all) < work[g] &&
				 may_fit(shared, &groups[g].all, 1u << g);
}

/* Returns the region with a border, from which upsampling at any scale reads. */
static struct packimg_region with_border(const struct packimg_sample *sample,
					 const struct packimg_region *region)
{
	enum { BORDER = 32 };
	uint32_t left = region->x < BORDER ? region->x : BORDER;
	uint32_t top = region->y < BORDER ? region->y : BORDER;
	uint32_t right = sample->width - region->x - region->width;
	uint32_t bottom = sample->height - region->y - region->height;

	return (struct packimg_region){
		.x = region->x - left,
		.y = region->y - top,
		.width = region->width + left + (right < BORDER ? right : BORDER),
		.height = region->height + top + (bottom < BORDER ? bottom : BORDER),
	};
}

/*
 * Decodes the coefficients of all pictures once, where that is less work. Returns true if the
 * keeper has them.
 */
static bool keep(struct shared_pictures *shared, const struct packimg_sample *sample,
		 const struct scale_group groups[SHARED_PICTURES_MAX])
{
	struct packimg_region all = {0};
	uint64_t work = 0;
	unsigned pictures = 0;

	for (unsigned g = 0; g < SHARED_PICTURES_MAX; g++) {
		if (!groups[g].pays)
			continue;
		all = pictures++ ? unite(&all, &groups[g].all) : groups[g].all;
		work += entropy_work(sample, &groups[g].all);
	}
	if (pictures < 2)
		return false;
	all = with_border(sample, &all);
	/* Copies take a part of what entropy coding takes. */
	if (entropy_work(sample, &all) + entropy_work(sample, &all) / 4 >= work)
		return false;
	if (!shared->keeper && packimg_decoder_new(&shared->keeper) < 0)
		return false;
	packimg_decoder_limit(shared->keeper, shared->limit);
	return packimg_decode_keep(shared->keeper, sample, &all) == 0;
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
	struct scale_group groups[SHARED_PICTURES_MAX] = {0};
	int r = 0;

	shared_pictures_drop(shared);
	if (sample->codec == PACKIMG_CODEC_RAW) /* its pixels are in the mapping */
		return 0;
	shared->sample = *sample;
	find_groups(shared, sample, parts, count, groups);
	bool kept = keep(shared, sample, groups);
	for (unsigned i = 0; r == 0 && i < SHARED_PICTURES_MAX; i++) {
		struct shared_picture *picture = &shared->pictures[i];

		if (!groups[i].pays)
			continue;
		r = decoder_ready(shared, picture);
		if (r < 0)
			break;
		packimg_decode_borrow(picture->decoder, kept ? shared->keeper : NULL);
		decode(picture, sample, 1u << i, &groups[i].all);
		packimg_decode_borrow(picture->decoder, NULL);
	}
	return r;
}

void shared_pictures_drop(struct shared_pictures *shared)
{
	for (unsigned i = 0; i < SHARED_PICTURES_MAX; i++)
		shared->pictures[i].denominator = 0;
}

void shared_pictures_deinit(struct shared_pictures *shared)
{
	for (unsigned i = 0; i < SHARED_PICTURES_MAX; i++)
		packimg_decoder_free(shared->pictures[i].decoder);
	packimg_decoder_free(shared->keeper);
}

static bool holds(const struct packimg_region *all, const struct packimg_region *part)
{
	return part->x >= all->x && part->y >= all->y &&
	       part->x + part->width <= all->x + all->width &&
	       part->y + part->height <= all->y + all->height;
}

/*
 * Further images of a sample have its number, and in a damaged file perhaps its bytes, but may be
 * of another size or orientation.
 */
static bool is_same(const struct packimg_sample *one, const struct packimg_sample *other)
{
	return one->index == other->index && one->data == other->data &&
	       one->data_size == other->data_size && one->codec == other->codec &&
	       one->width == other->width && one->height == other->height &&
	       one->channels == other->channels && one->orientation == other->orientation;
}

bool shared_pictures_find(const struct shared_pictures *shared, const struct packimg_sample *sample,
			  const struct shared_part *part, struct packimg_pixels *ret_pixels)
{
	if (!is_same(&shared->sample, sample))
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
