#include "trainer/algorithms/mix.h"

#include "format/augment/mix.h"

bool mix_is_on(const struct recipe_train *recipe)
{
	return (recipe->mixup > 0 || recipe->cutmix > 0) && recipe->mix_prob > 0;
}

uint32_t mix_parts_after(const struct recipe_train *recipe, uint32_t parts, uint32_t share)
{
	uint32_t unit = mix_is_on(recipe) ? 2 : 1;
	for (uint32_t next = 2 * parts; next <= share; next++)
		if (share % (next * unit) == 0)
			return next;
	return 0;
}

/* Draws the blend of one sample, except its partner. Returns the weight of the sample's label. */
static double mix_draw_one(const struct recipe_train *recipe, const struct mix_batch *batch,
			   uint64_t number, struct device_blend *ret_blend)
{
	const struct mix_rule rule = {.mixup = recipe->mixup,
				      .cutmix = recipe->cutmix,
				      .prob = recipe->mix_prob,
				      .switch_prob = recipe->mix_switch};
	struct mix_blend drawn;
	double weight = mix_draw_blend(&rule, batch->seed, batch->step, number, batch->height,
				       batch->width, &drawn);
	*ret_blend = (struct device_blend){.share = drawn.share,
					   .top = drawn.top,
					   .bottom = drawn.bottom,
					   .left = drawn.left,
					   .right = drawn.right};
	return weight;
}

void mix_draw(const struct recipe_train *recipe, const struct mix_batch *batch,
	      struct device_blend *ret_blends, float *ret_shares)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t sample = (uint64_t)batch->first + i;
		uint64_t number = recipe->mix_by == RECIPE_MIX_BY_BATCH  ? 0
				  : recipe->mix_by == RECIPE_MIX_BY_PAIR ? sample / 2
									 : sample;
		ret_shares[i] = (float)mix_draw_one(recipe, batch, number, &ret_blends[i]);
		ret_blends[i].partner = (i % batch->micro) ^ 1;
	}
}
