/*
 * Checks that the images of the shapes dataset never change, because published accuracies depend on
 * them. Compares one image of each figure by block means. The last bits of libm's results differ
 * between processors, and change a mean by less than one.
 */
#include "tests/test.h"
#include "tools/shapes/draw.h"

enum {
	SIDE = 64,
	BLOCKS = 8, /* blocks per axis */
	BLOCK = SIDE / BLOCKS,
	TOLERANCE = 1,
};

/*
 * [figure][row of blocks]: the mean red, green and blue of each block, two hexadecimal digits each.
 */
static const char *const expected[FIGURE_COUNT][BLOCKS] = {
	[FIGURE_ARROW] = {"5f4f54545b534d54", "64515250685c4d51", "54414d666f564442",
			  "53474b6c9b564048", "4f5568c5c5b0a646", "525c4fa5b1908d47",
			  "5c61536d75585a55", "536456726d595b5d"},
	[FIGURE_CRESCENT] = {"6961646a63535469", "6b67636959525368", "636e6f6b61606769",
			     "58443b5d6b6f6b6b", "42180c195d6d6e6f", "5466581b3c5a6165",
			     "696663324b59575e", "6968624f68665d58"},
	[FIGURE_CROSS] = {"a8b5b9ababc0c2b7", "b4b7b4a6a1b8babd", "bcb0a1b3b39e8eb3",
			  "a9aaa5836b7274b6", "a1a7a99a6d606a91", "b6a39da5607f798f",
			  "a9a4a3ad9d9db4b3", "9db6b0a3b1b3a6ac"},
	[FIGURE_DISC] = {"7087a6d6d6948589", "7b99e3edf8f3868e", "84d3e5e0e0e9a28e",
			 "7ff1fbf3eae38a87", "86b6d9ebfbe47f88", "8e91d3dab9928283",
			 "8678888e71878278", "8381808e7381806f"},
	[FIGURE_HEART] = {"98aea79da4b4a1a5", "9dab989eb7a7a1bb", "afa495abb899a9bd",
			  "b4a55f666175a9ab", "a7974a50524ea29c", "9d9a47424556b1a2",
			  "aca2505189acaaaa", "9aac5a51abb5abb5"},
	[FIGURE_HEXAGON] = {"c4cabab2b0b9c6aa", "b9ccc8b48c77bdba", "bcc8cb7c6a6986a3",
			    "acc0ca6f736f6a9f", "afbcc8717a7d73a9", "aab3bcae7c759ab8",
			    "aaabb4bab7acaeb6", "b4adb0b6bcb8b0b7"},
	[FIGURE_RING] = {"7779827c7a726a72", "77798475686b736c", "726137313343676f",
			 "723257816733576e", "5733827d783f4c73", "6f315579542f607a",
			 "6e693a30345d6a6c", "7d817f6f716f7272"},
	[FIGURE_SQUARE] = {"b4bba9b2afabafc0", "bdb3a2a694a9bfbe", "a8a99f644c7daeac",
			   "a6a6665a5a5d6491", "986a4a61664c5670", "a38967525260629c",
			   "c1c4a870506b979d", "c0bdacb58ea8b5a1"},
	[FIGURE_STAR] = {"9ca1b8a39cb8a1ba", "a799b4ae9bb6b3ab", "af97ae99a0b5ba9d",
			 "b89b9e8695aab49b", "b5958e8b8c98b9a7", "b0ae958e8f97a8b1",
			 "a6b39caea198a1a8", "9ab4b5a5b7a399b3"},
	[FIGURE_TRIANGLE] = {"a7978d948e99a197", "a19d91869c969189", "9a9b7b727b7b6b88",
			     "94954e494647528a", "9ca47a4a47457394", "85978e5245518f8f",
			     "858e8376496f848c", "8d88859463898b8b"},
};

static int mean(const uint8_t *pixels, unsigned row, unsigned column)
{
	unsigned sum = 0, count = BLOCK * BLOCK * 3;

	for (unsigned y = row * BLOCK; y < (row + 1) * BLOCK; y++)
		for (unsigned i = column * BLOCK * 3; i < (column + 1) * BLOCK * 3; i++)
			sum += pixels[(size_t)y * SIDE * 3 + i];
	return (int)((sum + count / 2) / count);
}

static int expected_mean(const char *digits, unsigned column)
{
	const char pair[] = {digits[2 * column], digits[2 * column + 1], '\0'};

	return (int)strtol(pair, NULL, 16);
}

/* Prints the image if it differs. */
static bool compare(enum figure figure)
{
	static uint8_t pixels[SIDE * SIDE * 3];
	bool same = true;

	draw_image(1000 + figure, figure, SIDE, pixels);
	for (unsigned row = 0; row < BLOCKS; row++)
		for (unsigned column = 0; column < BLOCKS; column++)
			same &= abs(mean(pixels, row, column) -
				    expected_mean(expected[figure][row], column)) <= TOLERANCE;
	if (same)
		return true;
	fprintf(stderr, "%s is drawn otherwise:\n", figure_names[figure]);
	for (unsigned row = 0; row < BLOCKS; row++) {
		fprintf(stderr, "\"");
		for (unsigned column = 0; column < BLOCKS; column++)
			fprintf(stderr, "%02x", (unsigned)mean(pixels, row, column));
		fprintf(stderr, "\",\n");
	}
	return false;
}

TEST(pictures)
{
	unsigned different = 0;

	figure_init();
	for (unsigned figure = 0; figure < FIGURE_COUNT; figure++)
		different += !compare((enum figure)figure);
	assert_int_equal(different, 0);
}
