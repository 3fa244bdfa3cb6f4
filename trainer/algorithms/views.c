#include "trainer/algorithms/views.h"

#include <string.h>

unsigned views_of(const struct recipe_train *recipe, struct view ret_views[VIEWS_MAX])
{
	int32_t shift = (int32_t)recipe->eval_shift;
	const struct view places[] = {
		{0, false, shift ? 0.5f : 1}, {shift, false, 0.25f}, {-shift, false, 0.25f}};
	unsigned count = 0;

	for (unsigned i = 0; i < (shift ? 3 : 1); i++) {
		ret_views[count++] = places[i];
		if (!recipe->eval_flip)
			continue;
		ret_views[count - 1].weight /= 2;
		ret_views[count] = ret_views[count - 1];
		ret_views[count++].flip = true;
	}
	return count;
}

static uint32_t reflected(int64_t at, uint32_t count)
{
	return (uint32_t)(at < 0 ? -at : at < count ? at : 2 * ((int64_t)count - 1) - at);
}

static void move_row(const char *from, char *to, const struct views_images *images, int32_t shift)
{
	size_t size = images->pixel_size;
	uint32_t width = images->width, gap = (uint32_t)(shift < 0 ? -shift : shift);
	uint32_t first = shift < 0 ? gap : 0;

	memcpy(to + first * size, from + (shift < 0 ? 0 : gap) * size, (width - gap) * size);
	for (uint32_t i = 0; i < gap; i++) {
		uint32_t x = shift < 0 ? i : width - gap + i;

		memcpy(to + x * size, from + reflected((int64_t)x + shift, width) * size, size);
	}
}

void views_move(const struct views_images *images, int32_t shift, void *to)
{
	size_t row = images->width * images->pixel_size, image = images->height * row;

	for (uint32_t i = 0; i < images->count; i++)
		for (uint32_t y = 0; y < images->height; y++)
			move_row((const char *)images->pixels + i * image +
					 reflected((int64_t)y + shift, images->height) * row,
				 (char *)to + i * image + y * row, images, shift);
}
