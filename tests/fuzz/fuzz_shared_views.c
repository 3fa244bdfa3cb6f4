/*
 * Arbitrary bytes as a JPEG sample of which several views are made, with and without an index, in
 * every orientation. Views made from shared pictures must have the bytes and the errors of views
 * that decode for themselves, and so must regions from kept coefficients.
 */
#include "format/augment/pipeline.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { SIDE_MAX = 1 << 16, PIXELS_MAX = 1 << 18, OUTPUT_MAX = 64 * 64 * 3, ROUNDS = 4 };

/* Full and reduced scales, sources near and far from each other, and two stages. */
static const char *const texts[] = {
	"view a(3) { random_resized_crop(40, scale=0.4:1) hflip } "
	"view b(5) { random_resized_crop(9, scale=0.3:1) } view c { resize(2x2) }",
	"vflip view a(2) { resize(3x3) } view b(2) { resize(7x6) } view c(2) { resize(64x64) }",
	"view a(6) { random_resized_crop(5, scale=0.01:0.2) } view b { center_crop(16) }",
	"view a(4) { resize(48x48) random_crop(20) } view b(4) { resize(12x12) random_crop(8) }",
};
enum { TEXTS = sizeof(texts) / sizeof(*texts) };

static struct pipeline *pipelines[TEXTS];
static struct pipeline_scratch *sharing, *alone;
static struct packimg_decoder *decoder, *borrower, *keeper;
static volatile unsigned sink;

static void fail(const char *text)
{
	fprintf(stderr, "%s\n", text);
	abort();
}

static void prepare(void)
{
	struct pipeline_error error;

	for (int i = 0; i < TEXTS; i++)
		if (pipeline_parse_views(texts[i], &pipelines[i], &error) < 0)
			fail(error.text);
	if (pipeline_scratch_new(&sharing) < 0 || pipeline_scratch_new(&alone) < 0 ||
	    packimg_decoder_new(&decoder) < 0 || packimg_decoder_new(&borrower) < 0 ||
	    packimg_decoder_new(&keeper) < 0)
		fail("out of memory");
}

/* Bytes may differ if coefficients are out of range and libjpeg-turbo takes over. */
static void compare(const struct pipeline *pipeline, const struct packimg_sample *sample,
		    uint32_t draw)
{
	static uint8_t ours[OUTPUT_MAX], theirs[OUTPUT_MAX];
	struct pipeline_view_call calls[PIPELINE_VIEWS_MAX];
	struct packimg_error error = {.text = ""}, other = {.text = ""};
	unsigned count = pipeline_view_count(pipeline);

	pipeline_scratch_shared_seed(sharing, draw);
	pipeline_scratch_shared_seed(alone, draw);
	for (unsigned v = 0; v < count; v++)
		calls[v] = (struct pipeline_view_call){pipeline_view(pipeline, v).pipeline,
						       draw + v, 0};
	pipeline_share_decode(sharing, sample, calls, count, 0, NULL);
	for (unsigned v = 0; v < count; v++) {
		size_t size = pipeline_sample_size_max(calls[v].pipeline);
		int r = pipeline_apply(calls[v].pipeline, sharing, sample, calls[v].seed, 0, ours,
				       NULL, &error);
		int expected = pipeline_apply(calls[v].pipeline, alone, sample, calls[v].seed, 0,
					      theirs, NULL, &other);

		if (r == 0)
			for (size_t i = 0; i < size; i++)
				sink = sink + ours[i];
		if (r != expected || strcmp(error.text, other.text) != 0) {
			fprintf(stderr, "view %u: %d '%s', alone %d '%s'\n", v, r, error.text,
				expected, other.text);
			abort();
		}
		if (r == 0 && memcmp(ours, theirs, size) != 0 &&
		    jpeg_reference_in_range(sample->data, sample->data_size))
			fail("a shared picture changes bytes");
	}
	pipeline_share_decode(sharing, sample, NULL, 0, 0, NULL);
}

static struct packimg_region draw_region(const struct packimg_region *in, uint32_t draw)
{
	struct packimg_region region = {.x = in->x + (draw >> 4) % in->width,
					.y = in->y + (draw >> 9) % in->height};

	region.width = 1 + (draw >> 13) % (in->x + in->width - region.x);
	region.height = 1 + (draw >> 18) % (in->y + in->height - region.y);
	return region;
}

/* A region from coefficients that another decoder keeps of a region around it. */
static void compare_kept(const struct packimg_sample *sample, uint32_t draw)
{
	const struct packimg_region whole = {0, 0, sample->width, sample->height};
	struct packimg_region kept = draw_region(&whole, draw);
	struct packimg_error error;

	if (packimg_decode_keep(keeper, sample, &kept) < 0)
		return;
	packimg_decode_borrow(borrower, keeper);
	for (uint32_t hint = 0; hint < 4; hint++, draw = draw * 1664525 + 1013904223) {
		struct packimg_region region = draw_region(&kept, draw);
		struct packimg_pixels ours, theirs;

		if (packimg_decode(borrower, sample, &region, hint, hint, &ours, &error) < 0 ||
		    packimg_decode(decoder, sample, &region, hint, hint, &theirs, &error) < 0)
			fail(error.text);
		if (ours.width != theirs.width || ours.height != theirs.height ||
		    ours.x != theirs.x || ours.y != theirs.y)
			fail("kept coefficients change a region");
		for (uint32_t y = 0; y < ours.height; y++)
			if (memcmp(ours.data + y * ours.stride, theirs.data + y * theirs.stride,
				   3 * (size_t)ours.width) != 0 &&
			    jpeg_reference_in_range(sample->data, sample->data_size))
				fail("kept coefficients change pixels");
	}
	packimg_decode_borrow(borrower, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_jpeg_info info;
	struct packimg_error error;
	uint32_t draw = (uint32_t)size * 2654435761u;
	static uint8_t index[SIDE_MAX];
	const uint8_t *made;
	size_t index_size = 0;

	if (!decoder)
		prepare();
	if (size == 0 || packimg_jpeg_probe(data, size, &info, &error) < 0 ||
	    (uint64_t)info.width * info.height > PIXELS_MAX)
		return 0;
	if (packimg_index_jpeg(decoder, data, size, &info, &made, &index_size) < 0 ||
	    index_size > SIDE_MAX)
		index_size = 0;
	if (index_size > 0)
		memcpy(index, made, index_size);
	for (unsigned i = 0; i < ROUNDS; i++, draw = draw * 1664525 + 1013904223) {
		uint8_t orientation = i < 2 ? 1 : (uint8_t)(1 + (draw >> 8) % 8);
		bool indexed = i % 2 && index_size > 0;
		const struct packimg_sample sample = {
			.index = i,
			.data = data,
			.data_size = (uint32_t)size,
			.side = indexed ? index : NULL,
			.side_size = indexed ? (uint32_t)index_size : 0,
			.side_xxh3 = indexed ? XXH3_64bits(index, index_size) : 0,
			.width = orientation < 5 ? info.width : info.height,
			.height = orientation < 5 ? info.height : info.width,
			.codec = PACKIMG_CODEC_JPEG,
			.channels = info.components,
			.orientation = orientation,
		};

		compare(pipelines[(draw >> 16) % TEXTS], &sample, draw >> 4);
		compare_kept(&sample, draw >> 2);
	}
	return 0;
}
