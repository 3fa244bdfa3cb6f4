/*
 * Generated JPEGs of every kind against libjpeg-turbo: sampling, size, restart interval, tables,
 * quality, content and scale. Checks that our own decoder decodes exactly the kinds that it
 * supports, so that a fallback to libjpeg-turbo cannot hide a failure. In either case all pixels
 * must be equal, for whole images and regions, with and without an index.
 */
#include "format/packimg.h"
#include "tests/test.h"
#include "tests/unit/format/jpeg/baseline.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct jpeg_baseline *own;
static struct packimg_decoder *decoder;

static int setup(void **state)
{
	return jpeg_baseline_new(&own) < 0 || packimg_decoder_new(&decoder) < 0;
}

static int teardown(void **state)
{
	jpeg_baseline_free(own);
	packimg_decoder_free(decoder);
	return 0;
}

struct sampling {
	const char *name;
	int components, h, v, chroma_h, chroma_v;
	enum { OURS, LIBRARY } takes;
};

static const struct sampling samplings[] = {
	{"grey", 1, 1, 1, 1, 1, OURS},
	{"grey, said to be 2x2", 1, 2, 2, 1, 1, OURS},
	{"4:4:4", 3, 1, 1, 1, 1, OURS},
	{"4:2:2", 3, 2, 1, 1, 1, OURS},
	{"4:2:0", 3, 2, 2, 1, 1, OURS},
	{"4:4:0", 3, 1, 2, 1, 1, OURS},
	{"4:1:1", 3, 4, 1, 1, 1, OURS},
	{"4:1:0", 3, 4, 2, 1, 1, OURS},
	{"luma 1x4", 3, 1, 4, 1, 1, LIBRARY},
	{"luma 3x1", 3, 3, 1, 1, 1, LIBRARY},
	{"4:4:4 as 2x1", 3, 2, 1, 2, 1, LIBRARY},
	{"4:2:2 as 2x2 with 1x2", 3, 2, 2, 1, 2, LIBRARY},
	{"4:4:0 as 2x2 with 2x1", 3, 2, 2, 2, 1, LIBRARY},
	{"luma smaller than chroma", 3, 1, 1, 2, 1, LIBRARY},
};

struct tally {
	unsigned pictures, own, indexed, regions;
};

/* Returns the MCUs per row. With a single component an MCU is a block. */
static int mcus_wide(const struct sampling *sampling, uint32_t width)
{
	int size = sampling->components == 1 ? 8 : 8 * sampling->h;

	return ((int)width + size - 1) / size;
}

static void check_picture(const struct sampling *sampling, uint32_t width, uint32_t height,
			  const struct jpeg_kind *kind, unsigned regions, struct tally *tally)
{
	uint64_t state = width * 1000 + height;
	struct picture picture = picture_make(width, height, kind, state);
	bool ours = sampling->takes == OURS;
	bool indexable = ours && kind->restart_mcus % mcus_wide(sampling, width) == 0;
	const uint8_t *pixels;
	char what[160];
	int r = picture_decode(own, &picture, false, 0, 0, width, height, &pixels),
	    indexed = picture_index(own, &picture);

	snprintf(what, sizeof(what), "%s, content %d, restart %d, quality %d, %s quantisation%s",
		 sampling->name, (int)kind->content, kind->restart_mcus, kind->quality,
		 kind->wide_quant ? "16-bit" : "8-bit", kind->optimise ? ", own tables" : "");
	tally->pictures++;
	tally->own += r == 0;
	tally->indexed += indexed == 0;
	if (r != (ours ? 0 : -ENOTSUP))
		fail_msg("%s, %ux%u: own decoder says %d", what, width, height, r);
	if (indexed != (indexable ? 0 : -ENOTSUP))
		fail_msg("%s, %ux%u: making an index says %d", what, width, height, indexed);
	for (unsigned n = 0; n < regions; n++) {
		struct packimg_region region = picture_region(&picture, n, &state);

		if (ours)
			picture_check_own(own, what, &picture, &region);
		if (!ours || n == 0)
			picture_check(decoder, what, &picture, &region);
		tally->regions++;
	}
	for (uint32_t denominator = 2; ours && denominator <= 8; denominator *= 2) {
		picture_scale(&picture, denominator);
		for (unsigned n = 0; n < (regions + 2) / 3; n++) {
			struct packimg_region region =
				picture_region(&picture, n ? n + 2 : 0, &state);

			picture_check_own(own, what, &picture, &region);
			tally->regions++;
		}
	}
	picture_drop(&picture);
}

static uint32_t draw(uint64_t *state, uint32_t bound)
{
	return (uint32_t)(image_random(state) % bound);
}

/* Draws a random combination: over many pictures, all pairs of values occur. */
static struct jpeg_kind draw_kind(const struct sampling *sampling, uint32_t width, uint64_t *state)
{
	static const int qualities[] = {5, 20, 35, 50, 65, 75, 85, 90, 95, 97, 100};
	int wide = mcus_wide(sampling, width);
	const int restarts[] = {0, 0, 0, 0, 1, 3, 7, wide, 2 * wide};

	return (struct jpeg_kind){
		.content = (enum image_content)draw(state, 4),
		.components = sampling->components,
		.h = sampling->h,
		.v = sampling->v,
		.chroma_h = sampling->chroma_h,
		.chroma_v = sampling->chroma_v,
		.restart_mcus = restarts[draw(state, COUNT(restarts))],
		.optimise = draw(state, 2),
		.wide_quant = draw(state, 4) == 0,
		.quality = qualities[draw(state, COUNT(qualities))],
	};
}

static void report(const struct sampling *sampling, const struct tally *tally)
{
	print_message("%-26s %5u pictures: %5u by our own decoder (%u with an index); "
		      "%u regions\n",
		      sampling->name, tally->pictures, tally->own, tally->indexed, tally->regions);
	assert_int_equal(tally->own, sampling->takes == OURS ? tally->pictures : 0);
}

/* All pairs of odd sides up to 39, and every fifth pair with an even side. */
TEST(small_sizes)
{
	for (unsigned i = 0; i < COUNT(samplings); i++) {
		uint64_t seed = i;
		struct tally tally = {0};

		for (uint32_t width = 1; width <= 40; width++)
			for (uint32_t height = 1; height <= 40; height++) {
				if ((width % 2 == 0 || height % 2 == 0) && (width + height / 2) % 5)
					continue;
				struct jpeg_kind kind = draw_kind(&samplings[i], width, &seed);
				check_picture(&samplings[i], width, height, &kind, 7, &tally);
			}
		report(&samplings[i], &tally);
	}
}

TEST(larger_sizes)
{
	static const uint32_t sizes[][2] = {{64, 64},   {65, 63},   {97, 131}, {256, 171},
					    {171, 256}, {1023, 24}, {8, 517},  {1, 300},
					    {300, 1},   {333, 500}};

	for (unsigned i = 0; i < COUNT(samplings); i++) {
		uint64_t seed = 100 + i;
		struct tally tally = {0};

		for (unsigned size = 0; size < COUNT(sizes); size++)
			for (unsigned n = 0; n < 3; n++) {
				struct jpeg_kind kind =
					draw_kind(&samplings[i], sizes[size][0], &seed);
				check_picture(&samplings[i], sizes[size][0], sizes[size][1], &kind,
					      16, &tally);
			}
		report(&samplings[i], &tally);
	}
}

/*
 * Every restart interval with every row length, so that markers fall on each MCU of a row, and
 * every quality with both kinds of tables.
 */
TEST(restarts_and_qualities)
{
	for (unsigned i = 0; i < COUNT(samplings); i++) {
		struct tally tally = {0};
		struct jpeg_kind kind = {
			.components = samplings[i].components,
			.h = samplings[i].h,
			.v = samplings[i].v,
			.chroma_h = samplings[i].chroma_h,
			.chroma_v = samplings[i].chroma_v,
			.quality = 80,
		};

		for (uint32_t mcus = 1; mcus <= 9; mcus++)
			for (kind.restart_mcus = 1; kind.restart_mcus <= 20; kind.restart_mcus++)
				check_picture(&samplings[i], mcus * 8 * (uint32_t)kind.h - 1, 70,
					      &kind, 5, &tally);
		kind.restart_mcus = 0;
		for (kind.quality = 5; kind.quality <= 100; kind.quality += 5)
			for (unsigned n = 0; n < 4; n++) {
				kind.optimise = n & 1;
				kind.wide_quant = n & 2;
				kind.content = kind.quality / 5 % 2 ? IMAGE_NOISE : IMAGE_MIXED;
				check_picture(&samplings[i], 75, 43, &kind, 5, &tally);
			}
		report(&samplings[i], &tally);
	}
}

TEST_MAIN(setup, teardown)
