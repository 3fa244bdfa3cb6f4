/*
 * Test-time augmentation: the set of views of an image, and images shifted with reflected borders.
 */
#include "tests/test.h"
#include "trainer/algorithms/views.h"

TEST(which)
{
	static const struct {
		struct recipe_train recipe;
		unsigned count;
		struct view views[VIEWS_MAX];
	} cases[] = {
		{{0}, 1, {{0, false, 1}}},
		{{.eval_flip = true}, 2, {{0, false, 0.5f}, {0, true, 0.5f}}},
		{{.eval_shift = 2}, 3, {{0, false, 0.5f}, {2, false, 0.25f}, {-2, false, 0.25f}}},
		{{.eval_flip = true, .eval_shift = 1},
		 6,
		 {{0, false, 0.25f},
		  {0, true, 0.25f},
		  {1, false, 0.125f},
		  {1, true, 0.125f},
		  {-1, false, 0.125f},
		  {-1, true, 0.125f}}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct view views[VIEWS_MAX];
		assert_int_equal(views_of(&cases[i].recipe, views), cases[i].count);
		for (unsigned k = 0; k < cases[i].count; k++) {
			assert_int_equal(views[k].shift, cases[i].views[k].shift);
			assert_int_equal(views[k].flip, cases[i].views[k].flip);
			assert_float_equal(views[k].weight, cases[i].views[k].weight, 0);
		}
	}
}

/* Finds the source of a pixel by walking; the direction reverses at each border. */
static uint32_t reflected_source(uint32_t at, int32_t shift, uint32_t count)
{
	int32_t step = shift < 0 ? -1 : 1;
	for (; shift; shift += shift < 0 ? 1 : -1) {
		if ((at == 0 && step < 0) || (at == count - 1 && step > 0))
			step = -step;
		at = (uint32_t)((int32_t)at + step);
	}
	return at;
}

TEST(moved)
{
	enum { COUNT = 3, HEIGHT = 5, WIDTH = 7, BYTES_MAX = 8 };
	for (size_t size = 1; size <= BYTES_MAX; size++) {
		/* no larger than the images, so that a sanitizer detects accesses outside */
		size_t bytes = COUNT * HEIGHT * WIDTH * size;
		uint8_t *from = malloc(bytes), *to = malloc(bytes);
		for (size_t i = 0; i < bytes; i++)
			from[i] = (uint8_t)(i * 37 + i / 256);
		for (int32_t shift = -HEIGHT + 1; shift < HEIGHT; shift++) {
			memset(to, 0xa5, bytes);
			views_move(&(struct views_images){from, COUNT, HEIGHT, WIDTH, size}, shift,
				   to);
			for (uint32_t i = 0; i < COUNT * HEIGHT * WIDTH; i++) {
				uint32_t x = reflected_source(i % WIDTH, shift, WIDTH),
					 y = reflected_source(i / WIDTH % HEIGHT, shift, HEIGHT),
					 image = i / WIDTH / HEIGHT;
				assert_memory_equal(
					to + i * size,
					from + ((image * HEIGHT + y) * WIDTH + x) * size, size);
			}
		}
		free(from);
		free(to);
	}
}
