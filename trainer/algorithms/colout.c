#include "trainer/algorithms/colout.h"

#include "format/base/random.h"

uint32_t colout_kept(double share, uint32_t size)
{
	uint32_t kept = (uint32_t)((1 - share) * size);
	return kept ? kept : 1;
}

/* Draws uniformly among the subsets of `kept` out of `size` indices (Knuth's algorithm S). */
static void colout_pick(struct random_stream *stream, uint32_t kept, uint32_t size,
			uint32_t *ret_picks)
{
	uint32_t taken = 0;
	for (uint32_t i = 0; taken < kept; i++)
		if (random_below(stream, size - i) < kept - taken)
			ret_picks[taken++] = i;
}

void colout_draw(double share, uint64_t seed, uint64_t step, uint32_t height, uint32_t width,
		 uint32_t *ret_rows, uint32_t *ret_columns)
{
	struct random_stream stream;
	random_init(&stream, seed, step, 0, RANDOM_COLOUT);
	colout_pick(&stream, colout_kept(share, height), height, ret_rows);
	random_init(&stream, seed, step, 1, RANDOM_COLOUT);
	colout_pick(&stream, colout_kept(share, width), width, ret_columns);
}
