/*
 * Real JPEGs: compares all files in the folder $LOADERD_TEST_IMAGENET with libjpeg-turbo, whole and
 * in regions, with and without an index, at full scale and at a smaller one. Reports how many of
 * them our own decoder supports. Skipped if the variable is not set.
 */
#include "tests/test.h"
#include "tests/unit/format/jpeg/baseline.h"

#include <ftw.h>

enum { REGIONS = 6 };

static struct jpeg_baseline *own;
static struct packimg_decoder *decoder;
static unsigned files, taken, indexed, regions;
static size_t bytes, index_bytes; /* bytes of the files that have an index */

static int check_file(const char *path, const struct stat *status, int type, struct FTW *place)
{
	struct picture picture = {0};
	struct packimg_jpeg_info info;
	uint64_t state = files;

	if (type != FTW_F)
		return 0;
	picture.jpeg = image_file_read(path, &picture.jpeg_size);
	if (packimg_jpeg_probe(picture.jpeg, picture.jpeg_size, &info, NULL) < 0 ||
	    info.components == 4)
		goto out;
	picture.components = info.components;
	picture.width = info.width;
	picture.height = info.height;
	picture_scale(&picture, 1);
	files++;
	if (picture_index(own, &picture) == 0) {
		indexed++;
		bytes += picture.jpeg_size;
		index_bytes += picture.index_size;
	}
	for (unsigned n = 0; n < REGIONS; n++) {
		struct packimg_region region = picture_region(&picture, n, &state);
		const uint8_t *pixels;
		int r = picture_decode(own, &picture, false, region.x, region.y, region.width,
				       region.height, &pixels);

		if (r != -ENOTSUP)
			picture_check_own(own, path, &picture, &region);
		picture_check(decoder, path, &picture, &region);
		taken += n == 0 && r == 0;
		regions++;
	}
	picture_scale(&picture, 2u << files % 3);
	for (unsigned n = 0; n < 2; n++) {
		struct packimg_region region = picture_region(&picture, 4 * n, &state);
		const uint8_t *pixels;

		if (picture_decode(own, &picture, false, 0, 0, 1, 1, &pixels) != -ENOTSUP)
			picture_check_own(own, path, &picture, &region);
		regions++;
	}
out:
	picture_drop(&picture);
	return 0;
}

TEST(files)
{
	const char *folder = getenv("LOADERD_TEST_IMAGENET");

	assert_int_equal(jpeg_baseline_new(&own), 0);
	assert_int_equal(packimg_decoder_new(&decoder), 0);
	assert_int_equal(nftw(folder, check_file, 16, FTW_PHYS), 0);
	print_message(
		"%u files, %u by our own decoder, %u with an index of %.2f %% of their bytes, %u "
		"regions\n",
		files, taken, indexed, bytes ? 100.0 * (double)index_bytes / (double)bytes : 0,
		regions);
	assert_true(files > 0);
	jpeg_baseline_free(own);
	packimg_decoder_free(decoder);
}

int main(void)
{
	if (!getenv("LOADERD_TEST_IMAGENET")) {
		printf("skipped: LOADERD_TEST_IMAGENET names no folder of JPEG files\n");
		return 77;
	}
	return test_run(NULL, NULL);
}
