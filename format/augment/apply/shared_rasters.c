#include "format/augment/apply/shared_rasters.h"

void shared_rasters_begin(struct shared_rasters *shared, bool on)
{
	shared->count = 0;
	shared->on = on;
}

void shared_rasters_deinit(struct shared_rasters *shared)
{
	for (unsigned i = 0; i < SHARED_RASTERS_MAX; i++)
		packimg_decoder_free(shared->rasters[i].decoder);
}

/* The bytes may be in a buffer that other rasters of the sample have had, so the number counts. */
static bool is_same(const struct shared_raster *raster, const struct packimg_sample *sample,
		    uint32_t number)
{
	const struct packimg_sample *one = &raster->sample;

	return raster->number == number && one->index == sample->index &&
	       one->data_size == sample->data_size && one->codec == sample->codec &&
	       one->width == sample->width && one->height == sample->height &&
	       one->channels == sample->channels && one->orientation == sample->orientation;
}

/* Returns the raster, or room for it; NULL if there is none. */
static struct shared_raster *find_raster(struct shared_rasters *shared,
					 const struct packimg_sample *sample, uint32_t number)
{
	for (unsigned i = 0; i < shared->count; i++)
		if (is_same(&shared->rasters[i], sample, number))
			return &shared->rasters[i];
	if (shared->count == SHARED_RASTERS_MAX)
		return NULL;
	struct shared_raster *raster = &shared->rasters[shared->count];

	if (!raster->decoder && packimg_decoder_new(&raster->decoder) < 0)
		return NULL;
	packimg_decoder_limit(raster->decoder, shared->limit);
	raster->sample = *sample;
	raster->number = number;
	raster->begun = raster->fails = false;
	shared->count++;
	return raster;
}

bool shared_rasters_decode(struct shared_rasters *shared, const struct packimg_sample *sample,
			   uint32_t number, const struct packimg_region *region,
			   struct packimg_raster *ret_raster)
{
	if (!shared->on || number == 0 || sample->codec != PACKIMG_CODEC_RASTER)
		return false;
	struct shared_raster *raster = find_raster(shared, sample, number);

	if (!raster || raster->fails)
		return false;
	/* An error is reported by the view that decodes the region itself. */
	raster->fails = packimg_decode_raster_bands(raster->decoder, sample, region, !raster->begun,
						    ret_raster, NULL) < 0;
	raster->begun = true;
	return !raster->fails;
}
