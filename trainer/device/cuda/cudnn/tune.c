/*
 * Autotuning: times every engine configuration on the device and stores the fastest in the file of
 * tuned plans.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS     5 /* the result is that of the fastest round */
#define ROUND_RUNS 3 /* executions between two events */
#define COMPILED_MAX                                                                               \
	4 /* maximum run-time compiled configurations to try; each takes about a second */
#define COMPILED_TOO                                                                               \
	1 /* the same if other engine configurations exist, as for nearly all patterns of a net    \
	   */
#define HOPELESS 2 /* stop after a round slower than this factor times the best so far */

struct trial {
	struct cudnn_engines *engines;
	const struct conv_problem *problem;
	const struct conv_arguments *arguments;
	uint64_t workspace_bytes;
	gpu_stream stream;
	gpu_event from, to;
	const struct engine_configs *engine_configs;
	size_t best;   /* index of the fastest engine configuration */
	float best_ms; /* INFINITY until an engine configuration has run */
	bool broken;   /* an engine configuration broke the device: nothing runs on it any more */
};

static int trial_time_round(const struct trial *trial, const struct conv_plan *plan, float *ret_ms)
{
	uint64_t lead =
		trial->workspace_bytes < ENGINES_LEAD ? trial->workspace_bytes : ENGINES_LEAD;
	int r = gpu_fill(trial->arguments->workspace, 0, lead, trial->stream);

	if (r == 0)
		r = gpu_event_record(trial->from, trial->stream);
	for (unsigned i = 0; i < ROUND_RUNS && r == 0; i++)
		r = execution_plan_run(trial->engines, plan, trial->engine_configs,
				       trial->arguments, trial->stream);
	if (r == 0)
		r = gpu_event_record(trial->to, trial->stream);
	if (r == 0)
		r = gpu_event_synchronize(trial->to);
	if (r == 0)
		r = gpu_event_elapsed(trial->from, trial->to, ret_ms);
	*ret_ms /= ROUND_RUNS;
	return r;
}

/* Measures the milliseconds of one execution, the best of all rounds. */
static int trial_time_plan(const struct trial *trial, const struct conv_plan *plan, float *ret_ms)
{
	/* the first run loads the kernel (lazy loading) and warms up */
	int r = execution_plan_run(trial->engines, plan, trial->engine_configs, trial->arguments,
				   trial->stream);
	float ms = 0;

	*ret_ms = INFINITY;
	for (unsigned i = 0; r == 0 && i < ROUNDS; i++) {
		r = trial_time_round(trial, plan, &ms);
		if (r == 0 && ms < *ret_ms)
			*ret_ms = ms;
		if (*ret_ms > HOPELESS * trial->best_ms)
			break;
	}
	return r;
}

/*
 * Checks whether a failed engine configuration broke the device, e.g. by an out-of-bounds access.
 * Otherwise the failure is ignored as long as other configurations work. On a broken device every
 * later CUDA call of the process returns the same error, which would then be attributed to an
 * unrelated operation.
 */
static void trial_check_device(struct trial *trial, size_t index)
{
	if (gpu_stream_synchronize(trial->stream) == 0)
		return;
	trial->broken = true;
	snprintf(trial->engines->error, sizeof(trial->engines->error),
		 "%s: plan %s broke the GPU: %s; without autotuning others are taken",
		 trial->engine_configs->name, trial->engine_configs->list[index].tag, gpu_error());
}

/* Times an engine configuration. Returns 0 if it ran or needs too much workspace. */
static int trial_config(struct trial *trial, size_t index)
{
	struct conv_plan *plan;
	float ms;
	int r = execution_plan_build(trial->engines, trial->engine_configs, index, trial->problem,
				     &plan);

	if (r < 0)
		return r;
	if (plan->info.workspace_bytes <= trial->workspace_bytes) {
		r = trial_time_plan(trial, plan, &ms);
		if (r < 0)
			trial_check_device(trial, index);
		if (r == 0 && ms < trial->best_ms) {
			trial->best_ms = ms;
			trial->best = index;
		}
	}
	cudnn_plan_free(plan);
	return r;
}

static unsigned compiled_max(const struct engine_configs *engine_configs)
{
	for (size_t i = 0; i < engine_configs->count; i++)
		if (!engine_configs->list[i].compiled)
			return COMPILED_TOO;
	return COMPILED_MAX;
}

static int trial_all(struct trial *trial)
{
	unsigned compiled = 0, max = compiled_max(trial->engine_configs);
	int r = 0;

	for (size_t i = 0; i < trial->engine_configs->count; i++) {
		if (trial->engine_configs->list[i].compiled && compiled++ >= max)
			continue;
		/* on failure engines->error has the message */
		int one = trial_config(trial, i);
		if (trial->broken)
			return one;
		if (one < 0)
			r = one;
	}
	if (isfinite(trial->best_ms))
		return 0;
	if (r == 0)
		snprintf(trial->engines->error, sizeof(trial->engines->error),
			 "%s: none of %zu plans gets by with %llu bytes of workspace",
			 trial->engine_configs->name, trial->engine_configs->count,
			 (unsigned long long)trial->workspace_bytes);
	return r < 0 ? r : -ENOENT;
}

/* True if an earlier tuning result exists and its engine configuration still does. */
static bool is_tuned(const struct cudnn_engines *engines, const struct conv_problem *problem,
		     const struct engine_configs *engine_configs)
{
	const struct plan_line *tuned = plan_cache_find(&engines->tuned, problem, engines->tf32);

	if (tuned && strcmp(tuned->tag, PLAN_UNFUSED) == 0)
		return true;
	for (size_t i = 0; tuned && i < engine_configs->count; i++)
		if (strcmp(engine_configs->list[i].tag, tuned->tag) == 0)
			return true;
	return false;
}

int cudnn_tune(void *state, const struct conv_problem *problem,
	       const struct conv_arguments *arguments, uint64_t workspace_bytes, gpu_stream stream)
{
	struct cudnn_engines *engines = state;
	struct engine_configs *engine_configs = NULL;
	struct trial trial = {
		.engines = engines,
		.problem = problem,
		.arguments = arguments,
		.workspace_bytes = workspace_bytes < engines->workspace_max
					   ? workspace_bytes
					   : engines->workspace_max,
		.stream = stream,
		.best_ms = INFINITY,
	};
	int r = engine_configs_find(engines, problem, &engine_configs);

	if (r < 0)
		return r;
	if (is_tuned(engines, problem, engine_configs)) {
		engine_configs_free(engine_configs);
		return 0;
	}
	trial.engine_configs = engine_configs;
	r = gpu_event_new(true, &trial.from);
	if (r == 0)
		r = gpu_event_new(true, &trial.to);
	if (r < 0)
		snprintf(engines->error, sizeof(engines->error), "%s: %s", engine_configs->name,
			 gpu_error());
	if (r == 0)
		r = trial_all(&trial);
	if (r == 0)
		r = plan_cache_store(&engines->tuned, problem, engines->tf32,
				     engine_configs->list[trial.best].tag, trial.best_ms);
	gpu_event_free(trial.to);
	gpu_event_free(trial.from);
	engine_configs_free(engine_configs);
	return r;
}

int cudnn_refuse(void *state, const struct conv_problem *problem, float ms)
{
	struct cudnn_engines *engines = state;

	return plan_cache_store(&engines->tuned, problem, engines->tf32, PLAN_UNFUSED, ms);
}

const char *cudnn_cache_error(void *state)
{
	const struct cudnn_engines *engines = state;

	return engines->tuned.cache_error;
}

int cudnn_export_tuning(void *state, char **ret_bytes, size_t *ret_size)
{
	const struct cudnn_engines *engines = state;

	return plan_cache_write(&engines->tuned, ret_bytes, ret_size);
}

int cudnn_import_tuning(void *state, const char *bytes, size_t size)
{
	struct cudnn_engines *engines = state;

	return plan_cache_merge(&engines->tuned, bytes, size);
}
