#include "trainer/device/pos_embed.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static void positions_add(const struct pos_embed_size *size, float weight, const float *from,
			  float *to)
{
	for (uint32_t c = 0; c < size->channels; c++)
		to[c] += weight * from[c];
}

/*
 * Visits each new position with each old one in its window; forward adds the weighted old one to
 * the new one, backward the new one to the old one.
 */
static void positions_walk(const struct pos_embed_size *size, const float *from, float *to,
			   bool forward)
{
	for (uint32_t place = 0; place < size->h * size->w; place++) {
		struct pos_embed_window y = pos_embed_window(place / size->w, size->side, size->h);
		struct pos_embed_window x = pos_embed_window(place % size->w, size->side, size->w);
		size_t new = (size_t)(size->first + place) * size->channels;

		for (uint32_t i = 0; i < y.count * x.count; i++) {
			uint32_t row = y.first + i / x.count, column = x.first + i % x.count;
			size_t old =
				(size_t)(size->first + row * size->side + column) * size->channels;
			float weight = pos_embed_weight(&y, row) * pos_embed_weight(&x, column) /
				       (y.sum * x.sum);

			if (forward)
				positions_add(size, weight, from + old, to + new);
			else
				positions_add(size, weight, from + new, to + old);
		}
	}
}

static void positions_run(const struct pos_embed_size *size, const float *from, float *to,
			  uint32_t places, bool forward)
{
	size_t first = (size_t)size->first * size->channels;

	memcpy(to, from, first * sizeof(float));
	memset(to + first, 0, (size_t)places * size->channels * sizeof(float));
	positions_walk(size, from, to, forward);
}

void pos_embed_resize(const struct pos_embed_size *size, const float *from, float *to)
{
	positions_run(size, from, to, size->h * size->w, true);
}

void pos_embed_resize_backward(const struct pos_embed_size *size, const float *gradient, float *to)
{
	positions_run(size, gradient, to, size->side * size->side, false);
}
