/* What our baseline decoder refuses, and damage: errors instead of harm. test_jpeg_matrix.c compares its pixels. */
#include "baseline.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state = 1;

static uint32_t draw(uint32_t bound)
{
	return (uint32_t)(image_random(&state) % bound);
}

static void test_leaves_the_rest(void **unused)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {
		.components = 3, .h = 2, .v = 2, .quality = 90, .progressive = true};
	struct picture picture = picture_make(40, 40, &kind, 1);
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -ENOTSUP);
	assert_int_equal(picture_index(decoder, &picture), -ENOTSUP);
	picture_drop(&picture);
	kind.progressive = false;
	picture = picture_make(40, 40, &kind, 1);
	assert_int_equal(picture_decode(decoder, &picture, false, 1, 0, 40, 40, &pixels), -EINVAL);
	picture.height = 41;
	assert_int_equal(picture_decode(decoder, &picture, false, 0, 0, 40, 40, &pixels), -EBADMSG);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

/* Every truncation fails when the last rows are asked for; flipped bytes do no harm (the sanitizers watch). */
static void test_damaged_scan(void **unused)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3,
				 .h = 2,
				 .v = 1,
				 .quality = 85,
				 .restart_mcus = 4,
				 .optimise = true};
	struct picture picture = picture_make(90, 50, &kind, 2), broken = picture;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	for (size_t size = 0; size + 4 < picture.jpeg_size; size++) {
		broken.jpeg = malloc(size ? size : 1); /* so that reading beyond it is seen */
		broken.jpeg_size = size;
		memcpy(broken.jpeg, picture.jpeg, size);
		assert_true(picture_decode(decoder, &broken, false, 0, 0, 90, 50, &pixels) < 0);
		assert_true(picture_index(decoder, &broken) < 0);
		free(broken.jpeg);
	}
	broken.jpeg_size = picture.jpeg_size;
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			broken.jpeg[draw((uint32_t)picture.jpeg_size)] = (unsigned char)draw(256);
		picture_decode(decoder, &broken, false, 3, 5, 60, 40, &pixels);
	}
	free(broken.jpeg);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

/* A wrong index, a wrong scan under a right one: an error or pixels, never harm. */
static void test_damaged_index(void **unused)
{
	struct jpeg_baseline *decoder;
	struct jpeg_kind kind = {.components = 3, .h = 2, .v = 2, .quality = 92, .optimise = true};
	struct picture picture = picture_make(150, 190, &kind, 3), broken;
	const uint8_t *pixels;

	assert_int_equal(jpeg_baseline_new(&decoder), 0);
	assert_int_equal(picture_index(decoder, &picture), 0);
	broken = picture;
	broken.index_size--;
	assert_int_equal(picture_decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = 0;
	assert_int_equal(picture_decode(decoder, &broken, true, 0, 0, 150, 190, &pixels), -EBADMSG);
	broken.index_size = picture.index_size;
	broken.index = malloc(picture.index_size);
	broken.jpeg = malloc(picture.jpeg_size);
	for (unsigned n = 0; n < 20000; n++) {
		memcpy(broken.jpeg, picture.jpeg, picture.jpeg_size);
		memcpy(broken.index, picture.index, picture.index_size);
		for (unsigned i = draw(4) + 1; i > 0; i--)
			if (n & 1)
				broken.index[draw((uint32_t)broken.index_size)] =
					(uint8_t)draw(256);
			else
				broken.jpeg[draw((uint32_t)picture.jpeg_size)] =
					(unsigned char)draw(256);
		picture_decode(decoder, &broken, true, 10, 20, 100, 150, &pixels);
	}
	free(broken.index);
	free(broken.jpeg);
	picture_drop(&picture);
	jpeg_baseline_free(decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leaves_the_rest),
		cmocka_unit_test(test_damaged_scan),
		cmocka_unit_test(test_damaged_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
