/* The optimizer's hyperparameters at each step: rates, groups, and the average's decay. */
#include "tests/test.h"
#include "trainer/algorithms/ema.h"
#include "trainer/algorithms/optim.h"
#include "trainer/device/params.h"
#include "trainer/model/model.h"

#include <math.h>

static char error[RECIPE_ERROR_MAX];

static void set(struct recipe *recipe, const char *argument)
{
	if (recipe_override(recipe, argument, error))
		fail_msg("%s", error);
}

static struct device_hyper at(const struct recipe *recipe, uint64_t step)
{
	struct schedule schedule;
	struct device_hyper hyper;
	schedule_init(&schedule, recipe);
	optim_hyper(recipe, &schedule, step, 100, &hyper);
	return hyper;
}

TEST(groups)
{
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "optim.lr=0.5");
	set(&recipe, "optim.weight_decay=0.01");
	set(&recipe, "optim.bias_lr=64");
	set(&recipe, "schedule.name=linear");
	set(&recipe, "train.epochs=10");
	struct device_hyper first = at(&recipe, 1), middle = at(&recipe, 501),
			    last = at(&recipe, 1000);
	assert_true(first.lr[MODEL_WEIGHTS] == 0.5f);
	assert_true(first.lr[MODEL_SCALES] == 0.5f);
	assert_true(first.lr[MODEL_BIASES] == 0.5f);
	assert_true(first.lr[MODEL_NORM_BIASES] == 32.0f);
	assert_true(middle.lr[MODEL_WEIGHTS] == 0.25f);
	assert_true(fabsf(last.lr[MODEL_WEIGHTS] - 0.0005f) < 1e-8f);
	assert_true(first.weight_decay[MODEL_WEIGHTS] == 0.01f);
	for (int group = MODEL_SCALES; group < MODEL_GROUPS; group++)
		assert_true(first.weight_decay[group] == 0);
	assert_true(first.momentum == 0.9f);
	assert_true(first.grad_scale == 0);
	set(&recipe, "train.accumulate=4");
	assert_true(at(&recipe, 1).grad_scale == 0.25f);
	assert_true(at(&recipe, 200).swa == 0 && at(&recipe, 6).slow == 0);
	set(&recipe, "train.swa=2");
	assert_true(at(&recipe, 199).swa == 0 && at(&recipe, 200).swa == 1);
	assert_true(at(&recipe, 250).swa == 0 && at(&recipe, 300).swa == 0.5f);
	set(&recipe, "train.lookahead=6");
	assert_true(at(&recipe, 6).slow == 0.5f && at(&recipe, 7).slow == 0);
	set(&recipe, "optim.decay_all=true");
	first = at(&recipe, 1);
	for (int group = MODEL_SCALES; group < MODEL_GROUPS; group++)
		assert_true(first.weight_decay[group] ==
			    (group == MODEL_NORM_BIASES ? 0.01f / 64 : 0.01f));
	set(&recipe, "optim.bias_lr=0");
	assert_true(at(&recipe, 1).weight_decay[MODEL_NORM_BIASES] == 0);
	recipe_deinit(&recipe);
}

/*
 * Rate and decay of the whitening convolution's bias are 0 from the step at which its epochs end.
 */
TEST(whiten_bias)
{
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "optim.lr=0.5");
	set(&recipe, "optim.weight_decay=0.01");
	set(&recipe, "optim.decay_all=true");
	set(&recipe, "optim.bias_lr=64");
	set(&recipe, "schedule.name=constant");
	set(&recipe, "train.epochs=10");
	assert_true(at(&recipe, 1000).lr[MODEL_WHITEN_BIAS] == 0.5f);
	set(&recipe, "optim.whiten_bias_epochs=3");
	struct device_hyper last = at(&recipe, 300), after = at(&recipe, 301);
	assert_true(last.lr[MODEL_WHITEN_BIAS] == 0.5f);
	assert_true(last.weight_decay[MODEL_WHITEN_BIAS] == 0.01f);
	assert_true(after.lr[MODEL_WHITEN_BIAS] == 0 && after.weight_decay[MODEL_WHITEN_BIAS] == 0);
	for (int group = 0; group < MODEL_WHITEN_BIAS; group++)
		assert_true(after.lr[group] == last.lr[group] &&
			    after.weight_decay[group] == last.weight_decay[group]);
	recipe_deinit(&recipe);
}

TEST(spec)
{
	struct recipe recipe;
	struct device_optimizer_spec spec;
	assert_int_equal(recipe_init(&recipe), 0);
	optim_spec(&recipe, &spec);
	assert_int_equal(spec.kind, DEVICE_SGD);
	assert_true(spec.nesterov && spec.coupled_decay && !spec.ema);
	assert_true(!spec.centralize && spec.clip_value == 0);
	set(&recipe, "optim.nesterov=no");
	set(&recipe, "optim.decay=decoupled");
	set(&recipe, "train.ema=0.99");
	set(&recipe, "optim.centralize=true");
	set(&recipe, "optim.clip_value=0.5");
	optim_spec(&recipe, &spec);
	assert_true(!spec.nesterov && !spec.coupled_decay && spec.ema);
	assert_true(spec.centralize && spec.clip_value == 0.5f);
	set(&recipe, "optim.name=adamw");
	optim_spec(&recipe, &spec);
	assert_int_equal(spec.kind, DEVICE_ADAMW);
	assert_true(spec.ns_steps == 5 && !spec.match_rms);
	set(&recipe, "optim.ns_steps=7");
	set(&recipe, "optim.match_rms=true");
	optim_spec(&recipe, &spec);
	assert_true(spec.ns_steps == 7 && spec.match_rms);
	struct device_hyper hyper = at(&recipe, 1);
	assert_true(hyper.beta1 == 0.9f && hyper.beta2 == 0.999f && hyper.epsilon == 1e-8f);
	assert_true(hyper.clip_norm == 0 && hyper.adamw_lr == 0.015f);
	set(&recipe, "optim.beta1=0.8");
	set(&recipe, "optim.beta2=0.95");
	set(&recipe, "optim.epsilon=1e-6");
	set(&recipe, "optim.clip_norm=2.5");
	hyper = at(&recipe, 1);
	assert_true(hyper.beta1 == 0.8f && hyper.beta2 == 0.95f && hyper.epsilon == 1e-6f);
	assert_true(hyper.clip_norm == 2.5f);
	recipe_deinit(&recipe);
}

/* The rate is scaled if the batch size is not the one for which optim.lr is meant. */
TEST(batch_scale)
{
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "optim.lr=0.5");
	set(&recipe, "schedule.name=constant");
	set(&recipe, "data.batch_size=1024");
	assert_true(at(&recipe, 1).lr[MODEL_WEIGHTS] == 0.5f);
	set(&recipe, "optim.lr_base_scale=sqrt");
	assert_true(at(&recipe, 1).lr[MODEL_WEIGHTS] == 0.5f);
	set(&recipe, "optim.lr_base_size=256");
	assert_true(at(&recipe, 1).lr[MODEL_WEIGHTS] == 1.0f);
	set(&recipe, "optim.lr_base_scale=linear");
	assert_true(at(&recipe, 1).lr[MODEL_WEIGHTS] == 2.0f);
	set(&recipe, "data.batch_size=64");
	assert_true(at(&recipe, 1).lr[MODEL_WEIGHTS] == 0.125f);
	recipe_deinit(&recipe);
}

/* Momentum and beta1 follow the schedule's cycle. */
TEST(cycled_momentum)
{
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "schedule.name=one_cycle");
	set(&recipe, "schedule.peak=0.5");
	set(&recipe, "train.epochs=10");
	set(&recipe, "optim.beta1=0.95");
	assert_true(at(&recipe, 501).momentum == 0.9f && at(&recipe, 501).beta1 == 0.95f);
	set(&recipe, "schedule.base_momentum=0.8");
	assert_true(at(&recipe, 1).momentum == 0.9f && at(&recipe, 1).beta1 == 0.95f);
	assert_true(at(&recipe, 501).momentum == 0.8f && at(&recipe, 501).beta1 == 0.8f);
	assert_true(fabsf(at(&recipe, 751).momentum - 0.85f) < 1e-6f);
	recipe_deinit(&recipe);
}

TEST(averages)
{
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "train.ema=0.99");
	set(&recipe, "train.ema_every=5");
	assert_true(ema_decay(&recipe.train, 1, 100) == 1);
	assert_true(ema_decay(&recipe.train, 2, 100) == 1);
	assert_true(ema_decay(&recipe.train, 5, 100) == 0.99f);
	assert_true(ema_decay(&recipe.train, 6, 100) == 1);
	set(&recipe, "train.ema_warmup=0.1");
	assert_true(ema_decay(&recipe.train, 10, 100) == 0);
	assert_true(ema_decay(&recipe.train, 11, 100) == 1);
	assert_true(ema_decay(&recipe.train, 15, 100) == 0.99f);
	assert_true(at(&recipe, 15).ema_decay == 0.99f && !at(&recipe, 15).lookahead);
	set(&recipe, "train.epochs=2");
	set(&recipe, "train.ema_rise=2");
	set(&recipe, "train.ema_lookahead=true");
	assert_true(at(&recipe, 10).ema_decay == 0 && at(&recipe, 101).ema_decay == 1);
	assert_true(at(&recipe, 100).ema_decay == (float)(0.99 / 4) && at(&recipe, 100).lookahead);
	assert_true(at(&recipe, 200).ema_decay == 0.99f);
	/* steps after the last epoch have the final decay */
	assert_true(at(&recipe, 205).ema_decay == 0.99f);
	recipe_deinit(&recipe);
}
