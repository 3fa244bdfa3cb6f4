/*
 * Measures the gradient noise scale (trainer/algorithms/noise.h) in a short training run. Before
 * each update, computes the batch in micro-batches and reads the gradient after each.
 *
 * The mean of the micro-batches' squared gradient norms is the measurement for the small batch
 * size. The squared norm of their mean gradient is the one for the large size. Both use the same
 * weights, and batch norms over single micro-batches.
 */
#include "trainer/run/search/find.h"

#include "trainer/algorithms/mix.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/run/network/micro_batch.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	NOISE_STEPS = 50,
	NOISE_PARTS = 8, /* preferred number of micro-batches per batch */
};

struct find_noise {
	struct run *run;
	struct noise noise;
	/* [count] sum of the micro-batches' gradients so far, for all parameters */
	float *sum;
	size_t count;
	float *one; /* [elements of the largest parameter] */
	unsigned steps;
	double small; /* samples per micro-batch */
};

uint32_t find_noise_parts(const struct run *run)
{
	uint32_t share = data_train_share(&run->data), found = 0;
	uint32_t unit = mix_is_on(&run->ctx.recipe->train) ? 2 : 1;
	uint32_t parts_min = recipe_accumulate(run->ctx.recipe);
	for (uint32_t parts = parts_min > 2 ? parts_min : 2; parts * unit <= share; parts++) {
		if (share % (parts * unit) != 0)
			continue;
		if (found && parts > NOISE_PARTS)
			break;
		found = parts;
	}
	return found;
}

/* Squared norms of the gradient sum and of the last micro-batch's contribution. */
struct norms {
	double added, sum;
};

static int noise_read(struct find_noise *find, struct norms *ret_norms)
{
	struct run_context *ctx = &find->run->ctx;
	const struct device_params *params = find->run->network.params;
	struct norms norms = {0};
	float *before = find->sum;
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		size_t count = device_param_elements(param);
		if (spec->kind == DEVICE_BUFFER || spec->frozen)
			continue;
		int r = device_param_read(param, DEVICE_GRAD, find->one);
		if (r < 0)
			return run_fail(ctx, r, "--find-batch-size: gradient of %s: %s", spec->name,
					run_device_text(ctx, r));
		for (size_t j = 0; j < count; j++) {
			double sum = (double)find->one[j], added = sum - (double)before[j];
			norms.sum += sum * sum;
			norms.added += added * added;
			before[j] = find->one[j];
		}
		before += count;
	}
	*ret_norms = norms;
	return 0;
}

/* Computes the micro-batches and sums their gradients and squared norms. */
static int noise_measure(struct find_noise *find, const struct device_batch *batch,
			 struct norms *ret_norms)
{
	struct run *run = find->run;
	const struct run_graph *train = &run->network.train;
	double added = 0;
	memset(find->sum, 0, find->count * sizeof(*find->sum));
	for (uint32_t part = 0; part < recipe_accumulate(run->ctx.recipe); part++) {
		struct device_batch slice =
			micro_batch(batch, run->data.classes, train->count, part);
		int r = micro_batch_gradients(train->graph, &slice);
		if (r < 0)
			return run_fail_step(run, r, "gradients of a micro-batch");
		r = noise_read(find, ret_norms);
		if (r < 0)
			return r;
		added += ret_norms->added;
	}
	ret_norms->added = added;
	return 0;
}

/* Called before each update. Leaves the device's state unchanged, except for running statistics. */
static int noise_before_step(void *data, const struct device_batch *batch)
{
	struct find_noise *find = data;
	struct run *run = find->run;
	uint32_t parts = recipe_accumulate(run->ctx.recipe);
	struct norms norms = {0};
	int r = run_collect(run, 0);
	if (r == 0)
		r = noise_measure(find, batch, &norms);
	device_params_drop_gradients(run->network.params);
	/* with fp16, skip gradients that overflowed under the loss scale */
	if (r < 0 || !isfinite(norms.added) || !isfinite(norms.sum))
		return r;
	struct noise_norms measured = {
		.small = batch->count / (double)parts,
		.big = batch->count,
		.small_squared = norms.added / parts,
		.big_squared = norms.sum / parts / parts,
	};
	noise_add(&find->noise, &measured);
	find->small = measured.small;
	find->steps++;
	return 0;
}

static int noise_run_steps(struct run *run)
{
	for (unsigned i = 0; i < NOISE_STEPS; i++) {
		int r = run_step(run);
		if (r)
			return r;
	}
	return run_collect(run, 0);
}

static int noise_train(struct find_noise *find)
{
	struct run *run = find->run;
	progress_line(&run->ctx.progress, "measuring the gradient noise scale over %d steps",
		      NOISE_STEPS);
	run->hook = (struct step_hook){.before = noise_before_step, .data = find};
	int r = noise_run_steps(run);
	run->hook = (struct step_hook){0};
	if (r == -EINTR || r == RUN_LOST)
		return run_fail(&run->ctx, -EINTR, "--find-batch-size: stopped after %u steps",
				find->steps);
	return r;
}

int find_noise_measure(struct run *run, struct find_noise_result *ret_result)
{
	const struct device_params *params = run->network.params;
	struct find_noise find = {.run = run, .count = 1};
	for (size_t i = 0; i < device_params_count(params); i++)
		find.count += device_param_elements(device_params_at(params, i));
	find.sum = malloc(find.count * sizeof(*find.sum));
	find.one = malloc(device_params_largest(params) * sizeof(*find.one));
	int r = find.sum && find.one ? noise_train(&find)
				     : run_fail(&run->ctx, -ENOMEM, "out of memory");
	*ret_result = (struct find_noise_result){
		.scale = noise_scale(&find.noise),
		.small = find.small,
		.steps = find.steps,
	};
	free(find.sum);
	free(find.one);
	return r;
}
