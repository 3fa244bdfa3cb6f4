#include "trainer/algorithms/optim.h"
#include "trainer/algorithms/ema.h"
#include "trainer/algorithms/swa.h"
#include "trainer/model/model.h"

#include <math.h>

void optim_spec(const struct recipe *recipe, struct device_optimizer_spec *ret_spec)
{
	*ret_spec = (struct device_optimizer_spec){
		.kind = (enum device_optimizer_kind)recipe->optim.name,
#define OPTION(name, ...) .name = recipe->optim.name,
#define COUNT(name, ...)  .name = (uint32_t)recipe->optim.name,
		DEVICE_OPTIMIZER_KEYS(DEVICE_NO_KEY, OPTION, COUNT)
#undef COUNT
#undef OPTION
			.coupled_decay = recipe->optim.decay == RECIPE_COUPLED,
		.ema = recipe->train.ema > 0,
		.perturbs = recipe->train.sam > 0,
		.slow = recipe->train.lookahead > 0,
		.swa = recipe->train.swa > 0,
		.centralize = recipe->optim.centralize,
		.clip_value = (float)recipe->optim.clip_value,
		.shard = (enum device_shard)recipe->train.shard,
	};
}

/* Factor on a group's learning rate; 0 keeps the group fixed. */
static double rate_factor(const struct recipe_optim *optim, enum model_group group, double epoch)
{
	if (group == MODEL_NORM_BIASES)
		return optim->bias_lr;
	double end = optim->whiten_bias_epochs;
	return group == MODEL_WHITEN_BIAS && end > 0 && epoch >= end ? 0 : 1;
}

/* Returns optim.lr, scaled for the batch size. */
static double base_rate(const struct recipe *recipe)
{
	const struct recipe_optim *optim = &recipe->optim;
	if (!optim->lr_base_size)
		return optim->lr;
	double grown = (double)recipe->data.batch_size / (double)optim->lr_base_size;
	return optim->lr * (optim->lr_base_scale == RECIPE_SCALE_SQRT ? sqrt(grown) : grown);
}

void optim_hyper(const struct recipe *recipe, const struct schedule *schedule, uint64_t step,
		 uint64_t batches_per_epoch, struct device_hyper *ret_hyper)
{
	const struct recipe_optim *optim = &recipe->optim;
	struct device_hyper hyper = {
#define NUMBER(name, ...) .name = (float)optim->name,
		DEVICE_OPTIMIZER_KEYS(NUMBER, DEVICE_NO_KEY, DEVICE_NO_KEY)
#undef NUMBER
			.clip_norm = (float)optim->clip_norm,
	};
	double epoch = (double)(step - 1) / (double)batches_per_epoch;
	double lr = base_rate(recipe) * schedule_factor(schedule, epoch);
	hyper.momentum = (float)schedule_momentum(schedule, epoch, optim->momentum);
	hyper.beta1 = (float)schedule_momentum(schedule, epoch, optim->beta1);
	for (enum model_group group = 0; group < MODEL_GROUPS; group++) {
		double factor = rate_factor(optim, group, epoch);
		hyper.lr[group] = (float)(lr * factor);
		/*
		 * divide weight decay by the factor, so that lr * weight_decay is independent of it
		 */
		if (factor > 0 && (group == MODEL_WEIGHTS || optim->decay_all))
			hyper.weight_decay[group] = (float)(optim->weight_decay / factor);
	}
	if (recipe->train.ema > 0)
		hyper.ema_decay = ema_decay(&recipe->train, step, batches_per_epoch);
	hyper.lookahead = recipe->train.ema_lookahead;
	if (recipe->train.lookahead && step % recipe->train.lookahead == 0)
		hyper.slow = (float)recipe->train.lookahead_alpha;
	hyper.swa = swa_share(&recipe->train, step, batches_per_epoch);
	if (recipe->train.accumulate > 1)
		hyper.grad_scale = 1 / (float)recipe->train.accumulate;
	*ret_hyper = hyper;
}

double optim_passes(const struct recipe *recipe)
{
	return recipe->train.sam > 0 ? 1 + 1 / (double)recipe->train.sam_every : 1;
}
