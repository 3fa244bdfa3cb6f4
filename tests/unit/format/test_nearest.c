/* Suggestions for misspelt words: few typos are allowed, and fewer in short words. */
#include "format/base/text/nearest.h"
#include "tests/test.h"

TEST(distance)
{
	static const struct {
		const char *written, *meant;
		unsigned distance;
	} cases[] = {
		{"convert", "convert", 0},
		{"max_side", "max-side", 0},
		{"RandomResizedCrop", "random_resized_crop", 0},
		{"convret", "convert", 1},
		{"converts", "convert", 1},
		{"onvert", "convert", 1},
		{"convart", "convert", 1},
		{"konvret", "convert", 2},
		{"knovret", "convert", NEAREST_NONE},
		{"status", "convert", NEAREST_NONE},
		{"gpu", "cpu", NEAREST_NONE},
		{"rl", "lr", 1},
		{"lrr", "lr", 1},
		{"seed", "speed", 1},
		{"", "lr", NEAREST_NONE},
		{"x", "", NEAREST_NONE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (nearest_distance(cases[i].written, cases[i].meant) != cases[i].distance)
			fail_msg("%s for %s: %u distance, not %u", cases[i].written, cases[i].meant,
				 nearest_distance(cases[i].written, cases[i].meant),
				 cases[i].distance);
}

/* Words are compared only up to a limit, so any length is allowed. */
TEST(long_words)
{
	char a[300], b[300];

	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	a[299] = b[299] = '\0';
	assert_int_equal(nearest_distance(a, b), NEAREST_NONE);
	assert_int_equal(nearest_distance(a, "lr"), NEAREST_NONE);
	assert_int_equal(nearest_distance("lr", a), NEAREST_NONE);
}

TEST(nearest_of_several)
{
	struct nearest nearest = nearest_to("lisst");

	assert_null(nearest.meant);
	nearest_offer(&nearest, "split");
	nearest_offer(&nearest, "info");
	assert_null(nearest.meant);
	nearest_offer(&nearest, "lists");
	assert_string_equal(nearest.meant, "lists");
	nearest_offer(&nearest, "list");
	assert_string_equal(nearest.meant, "lists"); /* the first of two equally close words */
}
