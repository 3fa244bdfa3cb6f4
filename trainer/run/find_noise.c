/*
 * Measures the gradient noise scale (trainer/algorithms/noise.h) in a short training run: before a
 * batch is trained on, its micro-batches are computed and their gradients read one by one.
 *
 * The mean of their squared norms belongs to the small batch size, the squared norm of their mean
 * to the large one. Both use the same weights and batch norms over single micro-batches.
 */
#include "trainer/run/find.h"

#include "trainer/algorithms/mix.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
	NOISE_STEPS = 50,
	NOISE_PARTS = 8, /* micro-batches per batch, if it can be split so */
};

struct find_noise {
	struct noise noise;
	float *sum; /* sum of the micro-batches' gradients so far, over all parameters */
	float *one; /* [elements of the largest parameter] */
	unsigned steps;
	double small; /* samples */
};

uint32_t find_noise_parts(const struct run *run)
{
	uint32_t share = data_train_share(&run->data), found = 0;
	uint32_t unit = mix_is_on(&run->recipe->train) ? 2 : 1;
	uint32_t least = recipe_accumulate(run->recipe);
	for (uint32_t parts = least > 2 ? least : 2; parts * unit <= share; parts++) {
		if (share % (parts * unit) != 0)
			continue;
		if (found && parts > NOISE_PARTS)
			break;
		found = parts;
	}
	return found;
}

/* Norms of the gradient sum and of the last micro-batch's contribution. */
struct norms {
	double added, sum; /* squared */
};

static int noise_read(struct run *run, struct norms *ret_norms)
{
	struct find_noise *find = run->noise;
	struct norms norms = {0};
	float *before = find->sum;
	for (size_t i = 0; i < device_params_count(run->params); i++) {
		struct device_param *param = device_params_at(run->params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		size_t count = device_param_elements(param);
		if (spec->kind == DEVICE_BUFFER || spec->frozen)
			continue;
		int r = device_param_read(param, DEVICE_GRAD, find->one);
		if (r)
			return run_fail(run, r, "--find-batch-size: gradient of %s: %s", spec->name,
					run_device_text(run, r));
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

static void noise_clear(struct run *run)
{
	float *at = run->noise->sum;
	for (size_t i = 0; i < device_params_count(run->params); i++)
		for (size_t n = device_param_elements(device_params_at(run->params, i)); n; n--)
			*at++ = 0;
}

static int noise_compute(struct run *run, const struct device_batch *batch)
{
	uint64_t ticket, step;
	int r = device_feed(run->train.graph, batch, &ticket);
	if (!r)
		r = device_step(run->train.graph, NULL, &step);
	if (!r)
		r = device_fed(run->train.graph, ticket, true);
	return r ? run_fail_step(run, r, "gradients of a micro-batch") : 0;
}

/* Leaves the device's state unchanged, except that running statistics are updated once more. */
static int noise_observe(struct run *run, const struct device_batch *batch)
{
	uint32_t parts = recipe_accumulate(run->recipe);
	struct find_noise *find = run->noise;
	struct norms norms = {0};
	double added = 0;
	int r = run_collect(run, 0);
	noise_clear(run);
	for (uint32_t part = 0; part < parts && !r; part++) {
		struct device_batch slice = run_slice(run, batch, part);
		r = noise_compute(run, &slice);
		if (!r)
			r = noise_read(run, &norms);
		added += norms.added;
	}
	device_params_drop_gradients(run->params);
	/* with fp16, skip a gradient that overflows under the loss scale */
	if (r || !isfinite(added) || !isfinite(norms.sum))
		return r;
	struct noise_norms measured = {
		.small = batch->count / (double)parts,
		.big = batch->count,
		.small_squared = added / parts,
		.big_squared = norms.sum / parts / parts,
	};
	noise_add(&find->noise, &measured);
	find->small = measured.small;
	find->steps++;
	return 0;
}

static int noise_train(struct run *run)
{
	int r = 0;
	progress_line(&run->progress, "measuring the gradient noise scale over %d steps",
		      NOISE_STEPS);
	run->observe = noise_observe;
	for (unsigned i = 0; i < NOISE_STEPS && !r; i++)
		r = run_step(run);
	run->observe = NULL;
	if (r == -EINTR || r == RUN_LOST)
		return run_fail(run, -EINTR, "--find-batch-size: stopped after %u steps",
				run->noise->steps);
	return r ? r : run_collect(run, 0);
}

int find_noise_measure(struct run *run, struct find_noise_result *ret_result)
{
	size_t count = 1;
	for (size_t i = 0; i < device_params_count(run->params); i++)
		count += device_param_elements(device_params_at(run->params, i));
	struct find_noise find = {0};
	find.sum = malloc(count * sizeof(*find.sum));
	find.one = malloc(device_params_largest(run->params) * sizeof(*find.one));
	run->noise = &find;
	int r = find.sum && find.one ? noise_train(run) : run_fail(run, -ENOMEM, "out of memory");
	run->noise = NULL;
	*ret_result = (struct find_noise_result){
		.scale = noise_scale(&find.noise),
		.small = find.small,
		.steps = find.steps,
	};
	free(find.sum);
	free(find.one);
	return r;
}
