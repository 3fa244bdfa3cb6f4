/* Recommendations for given measurements. */
#include "tests/test.h"
#include "tools/packimg/estimate/recommend.h"

enum { ORIGINALS, BARE, Q95_384, Q90_384, Q85_384, Q95, Q90, Q85, ZSTD, RAW, COUNT };

/* Typical sizes in bytes, and rates in images/s per core, for photographs. */
static struct encoding_variant variants[COUNT] = {
	[ORIGINALS] = {.kind = ENCODING_VERBATIM, .bytes = 106000, .images_per_s = 2600},
	[BARE] = {.kind = ENCODING_UNINDEXED, .bytes = 105600, .images_per_s = 1700},
	[Q95_384] = {.kind = ENCODING_JPEG,
		     .short_side = 384,
		     .quality = 95,
		     .bytes = 77000,
		     .images_per_s = 3200},
	[Q90_384] = {.kind = ENCODING_JPEG,
		     .short_side = 384,
		     .quality = 90,
		     .bytes = 53000,
		     .images_per_s = 3800},
	[Q85_384] = {.kind = ENCODING_JPEG,
		     .short_side = 384,
		     .quality = 85,
		     .bytes = 44000,
		     .images_per_s = 4300},
	[Q95] = {.kind = ENCODING_JPEG,
		 .short_side = 256,
		 .quality = 95,
		 .bytes = 39000,
		 .images_per_s = 5900},
	[Q90] = {.kind = ENCODING_JPEG,
		 .short_side = 256,
		 .quality = 90,
		 .bytes = 27000,
		 .images_per_s = 6700},
	[Q85] = {.kind = ENCODING_JPEG,
		 .short_side = 256,
		 .quality = 85,
		 .bytes = 22000,
		 .images_per_s = 7200},
	[ZSTD] = {.kind = ENCODING_RAW_ZSTD,
		  .short_side = 256,
		  .bytes = 208000,
		  .images_per_s = 4300},
	[RAW] = {.kind = ENCODING_RAW, .short_side = 256, .bytes = 257000, .images_per_s = 38000},
};

static struct recommend_request request;

static int setup(void **state)
{
	for (int i = 0; i < COUNT; i++)
		variants[i].images = 1;
	request = (struct recommend_request){.variants = variants, .count = COUNT, .cores = 2};
	return 0;
}

TEST_WITH(choice, setup, NULL)
{
	static const struct {
		double wanted;
		uint32_t variant;
	} cases[] = {
		{0, ORIGINALS},
		{1, ORIGINALS},
		{5200, ORIGINALS}, /* originals without an index are never recommended */
		{5201, Q90_384},
		{7600, Q90_384}, /* quality 95 has no visible advantage over 90 */
		{7601, Q90},
		{8601, Q90},
		{13400, Q90}, /* a smaller side is preferred to a lower quality */
		{13401, Q85},
		{14401, RAW},
		{76000, RAW}, /* raw pixels are the last resort */
		{76001, UINT32_MAX},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (recommend_choose(&request, cases[i].wanted) != cases[i].variant)
			fail_msg("%.0f: %u", cases[i].wanted,
				 recommend_choose(&request, cases[i].wanted));
	assert_int_equal(recommend_fastest(&request), RAW);
	/* quality 95 is chosen if no other variant of its size is fast enough */
	variants[Q90_384].images = 0;
	assert_int_equal(recommend_choose(&request, 6000), Q95_384);
}

static const char *advice(double wanted)
{
	static char text[4096];
	FILE *file = fmemopen(text, sizeof(text), "w");

	request.wanted = wanted;
	assert_non_null(file);
	recommend_write(&request, file);
	assert_int_equal(fclose(file), 0);
	return text;
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" does not say \"%s\"", text, part);
}

TEST_WITH(words, setup, NULL)
{
	const char *text = advice(0);

	expect(text, "as they are for up to 5,200 images/s (2 cores)");
	expect(text, "Beyond 5,200 images/s: short side 384, quality 90, up to 7,600 images/s at "
		     "0.50 times");
	expect(text, "Beyond 7,600 images/s: short side 256, quality 90, up to 13,400");
	expect(text,
	       "Beyond 13,400 images/s: short side 256, raw, up to 76,000 images/s at 2.42 times");
	text = advice(3000);
	expect(text, "Keep the images as they are (originals): they reach 5,200 images/s");
	expect(text, "deliver 318 MB/s");
	expect(text, "Smallest at that rate: short side 256, quality 85, 0.21 times");
	expect(text, "packimg convert SRC -o FILE\n");
	text = advice(9000);
	expect(text,
	       "Choose short side 256, quality 90: it reaches 13,400 images/s on 2 cores at 0.25");
	expect(text, "9,000 are needed; the images as they are reach 5,200");
	expect(text, "--short-side 256 --jpeg quality=90");
	text = advice(20000);
	expect(text, "--short-side 256 --raw\n");
	assert_null(strstr(text, "Smallest"));
	text = advice(100000);
	expect(text, "reaches 76,000, the images as they are 5,200");
	expect(text, "3 cores, or 39 with");
}

TEST_WITH(nothing, setup, NULL)
{
	variants[ORIGINALS].images = 0;
	expect(advice(0), "None of the images");
	request.count = 0;
	expect(advice(5), "None of the images");
}
