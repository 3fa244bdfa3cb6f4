#include "trainer/algorithms/select.h"

#include "format/base/random.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct candidate {
	float loss;
	double key;
	uint32_t place;
};

bool select_is_on(const struct recipe_train *recipe)
{
	return recipe->selective_backprop > 0;
}

bool select_is_due(const struct recipe_train *recipe, uint64_t step, uint64_t steps, uint64_t batch)
{
	double elapsed = (double)step / (double)steps;
	uint64_t interrupt = recipe->selective_interrupt;
	return select_is_on(recipe) && elapsed >= recipe->selective_start &&
	       elapsed < recipe->selective_end && (!interrupt || (batch + 1) % interrupt != 0);
}

uint32_t select_count(const struct recipe_train *recipe, uint32_t count)
{
	return (uint32_t)(recipe->selective_backprop * count);
}

/* Orders by index in the batch, also to break ties between equal losses or keys. */
static int by_place(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	return x->place < y->place ? -1 : x->place > y->place;
}

static int by_loss(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (isnan(x->loss) != isnan(y->loss))
		return isnan(x->loss) ? 1 : -1;
	if (x->loss < y->loss)
		return -1;
	return x->loss > y->loss ? 1 : by_place(a, b);
}

static int by_key(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (x->key > y->key)
		return -1;
	return x->key < y->key ? 1 : by_place(a, b);
}

/*
 * Returns the sort key log(u) / weight, where u is independent for each sample. Taking the largest
 * keys equals weighted sampling without replacement (Efraimidis and Spirakis 2006).
 */
static double key_of(const struct recipe_train *recipe, uint64_t step, uint32_t place,
		     double percentile)
{
	struct random_stream stream;
	random_init(&stream, recipe->seed, step, place, RANDOM_SELECT);
	double u = ((double)random_u32(&stream) + 1) * 0x1p-32; /* in (0, 1] */
	return log(u) / pow(percentile, 1 / recipe->selective_backprop - 1);
}

int select_draw(const struct recipe_train *recipe, uint64_t step, const float *losses,
		uint32_t count, uint32_t *ret_picks)
{
	struct candidate *all = malloc(count * sizeof(*all));
	uint32_t kept = select_count(recipe, count);
	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		all[i] = (struct candidate){.loss = losses[i], .place = i};
	qsort(all, count, sizeof(*all), by_loss);
	for (uint32_t i = 0; i < count; i++)
		all[i].key = key_of(recipe, step, all[i].place, (i + 0.5) / count);
	qsort(all, count, sizeof(*all), by_key);
	qsort(all, kept, sizeof(*all), by_place);
	for (uint32_t i = 0; i < kept; i++)
		ret_picks[i] = all[i].place;
	free(all);
	return 0;
}
