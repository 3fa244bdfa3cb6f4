/* Builds plans from engine configurations and executes them. */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int execution_plan_build(struct cudnn_engines *engines, const struct engine_configs *engine_configs,
			 size_t index, const struct conv_problem *problem,
			 struct conv_plan **ret_plan)
{
	const struct engine_config *engine_config = &engine_configs->list[index];
	struct conv_plan *plan = calloc(1, sizeof(*plan));
	struct backend backend;
	int64_t workspace = 0;

	if (!plan)
		return -ENOMEM;
	backend_init(&backend, &engines->library, engine_configs->name, engines->error);
	plan->plan = backend_new(&backend, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	backend_set_descriptor(&backend, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
			       engine_config->config);
	if (engines->handle)
		backend_set(&backend, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
			    CUDNN_TYPE_HANDLE, 1, &engines->handle);
	else
		backend_set_descriptor(&backend, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
				       engines->device.descriptors[0]);
	backend_finish(&backend, plan->plan, "plan");
	backend_get(&backend, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
		    CUDNN_TYPE_INT64, 1, &workspace);
	if (backend.result < 0) {
		backend_deinit(&backend);
		free(plan);
		return backend.result;
	}
	plan->problem = *problem;
	plan->engines = engines;
	plan->users = 1;
	plan->info.workspace_bytes = (uint64_t)workspace;
	plan->info.deterministic = engine_config->deterministic;
	snprintf(plan->info.engine, sizeof(plan->info.engine), "cudnn %lld%s",
		 (long long)engine_config->engine,
		 engine_config->compiled ? " (compiled at run time)" : "");
	*ret_plan = plan;
	return 0;
}

/*
 * Makes the plan the owner of the engine configurations. Keeps the operation graph and the plan's
 * configuration, and destroys the others.
 */
static void plan_own_configs(struct conv_plan *plan, struct engine_configs *engine_configs,
			     size_t index)
{
	struct backend *configs = &engine_configs->configs;
	descriptor config = engine_configs->list[index].config;

	for (size_t i = 0; i < configs->count; i++)
		if (configs->descriptors[i] != config)
			configs->library->cudnnBackendDestroyDescriptor(configs->descriptors[i]);
	configs->descriptors[0] = config;
	configs->count = 1;
	plan->engine_configs = engine_configs;
	plan->next = plan->engines->plans;
	plan->engines->plans = plan;
}

/* Returns a plan in use for the same problem with the same tuning result, or NULL. */
static struct conv_plan *plan_find(const struct cudnn_engines *engines,
				   const struct conv_problem *problem, float tuned_ms)
{
	struct conv_plan *plan = engines->plans;

	while (plan && (plan->info.tuned_ms != tuned_ms ||
			memcmp(&plan->problem, problem, sizeof(*problem)) != 0))
		plan = plan->next;
	return plan;
}

/*
 * Builds a plan from the first engine configuration that works within the workspace limit. If `tag`
 * is given, tries only configurations with this tag.
 */
static int plan_try(struct cudnn_engines *engines, struct engine_configs *engine_configs,
		    const struct conv_problem *problem, const char *tag,
		    struct conv_plan **ret_plan)
{
	int result = -ENOENT;

	for (size_t i = 0; i < engine_configs->count; i++) {
		struct conv_plan *plan;

		if (tag && strcmp(engine_configs->list[i].tag, tag) != 0)
			continue;
		int r = execution_plan_build(engines, engine_configs, i, problem, &plan);
		if (r == -ENOMEM)
			result = r;
		if (r < 0)
			continue;
		if (plan->info.workspace_bytes <= engines->workspace_max) {
			plan_own_configs(plan, engine_configs, i);
			*ret_plan = plan;
			return 0;
		}
		snprintf(engines->error, sizeof(engines->error),
			 "%s: no plan with at most %llu bytes of workspace; this one needs %llu",
			 engine_configs->name, (unsigned long long)engines->workspace_max,
			 (unsigned long long)plan->info.workspace_bytes);
		cudnn_plan_free(plan);
	}
	return result;
}

/* Returns an error and its reason if the problem cannot have a plan. */
static int plan_check_problem(struct cudnn_engines *engines, const struct conv_problem *problem,
			      const struct plan_line *tuned)
{
	int r = conv_problem_check(problem);
	char name[160];

	if (r == 0 && tuned && strcmp(tuned->tag, PLAN_UNFUSED) == 0)
		r = -ENOENT;
	if (r == 0)
		return 0;
	conv_problem_name(problem, name, sizeof(name));
	snprintf(engines->error, sizeof(engines->error), "%s: %s", name,
		 r == -ENOENT ? "tuning found it faster when taken apart" : "not a convolution");
	return r;
}

int cudnn_plan(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan)
{
	struct cudnn_engines *engines = state;
	const struct plan_line *tuned = plan_cache_find(&engines->tuned, problem, engines->tf32);
	struct engine_configs *engine_configs;
	int r = plan_check_problem(engines, problem, tuned);

	if (r < 0)
		return r;
	*ret_plan = plan_find(engines, problem, tuned ? tuned->ms : 0);
	if (*ret_plan) {
		(*ret_plan)->users++;
		return 0;
	}
	r = engine_configs_find(engines, problem, &engine_configs);
	if (r < 0)
		return r;
	r = tuned ? plan_try(engines, engine_configs, problem, tuned->tag, ret_plan) : -ENOENT;
	if (r == 0)
		(*ret_plan)->info.tuned_ms = tuned->ms;
	else
		r = plan_try(engines, engine_configs, problem, NULL, ret_plan);
	if (r < 0)
		engine_configs_free(engine_configs);
	return r;
}

void cudnn_plan_info(const struct conv_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info = plan->info;
}

void cudnn_plan_free(struct conv_plan *plan)
{
	struct conv_plan **link;

	if (!plan || --plan->users)
		return;
	/* plans that were built only to be timed are not in the list */
	for (link = &plan->engines->plans; *link && *link != plan; link = &(*link)->next)
		;
	if (*link)
		*link = plan->next;
	plan->engines->library.cudnnBackendDestroyDescriptor(plan->plan);
	engine_configs_free(plan->engine_configs);
	free(plan);
}

/* Creates the descriptor with the pointers of one execution. */
static descriptor plan_pack(struct backend *backend, const struct conv_operands *operands,
			    const struct conv_arguments *arguments)
{
	descriptor made = backend_new(backend, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	void *pointers[CONV_OPERANDS];

	for (int64_t i = 0; i < operands->count; i++)
		pointers[i] = conv_operand(arguments, operands->ids[i]);
	backend_set(backend, made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
		    operands->count, operands->ids);
	backend_set(backend, made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
		    operands->count, pointers);
	backend_set(backend, made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
		    &arguments->workspace);
	backend_finish(backend, made, "pointers");
	return made;
}

int execution_plan_run(struct cudnn_engines *engines, const struct conv_plan *plan,
		       const struct engine_configs *engine_configs,
		       const struct conv_arguments *arguments, gpu_stream stream)
{
	const struct cudnn_library *library = &engines->library;
	const char *missing = conv_arguments_missing(&plan->problem, arguments);
	struct backend backend;

	if (!missing && plan->info.workspace_bytes && !arguments->workspace)
		missing = "workspace";
	if (missing) {
		snprintf(engines->error, sizeof(engines->error),
			 "%s: executed without %s, aligned to %d bytes", engine_configs->name,
			 missing, CONV_ALIGNMENT);
		return -EINVAL;
	}
	if (!engines->handle) {
		snprintf(engines->error, sizeof(engines->error), "%s: executed without a device",
			 engine_configs->name);
		return -ENODEV;
	}
	int r = backend_status(library, library->cudnnSetStream(engines->handle, stream),
			       engine_configs->name, "cudnnSetStream", engines->error);
	if (r < 0)
		return r;
	backend_init(&backend, library, engine_configs->name, engines->error);
	descriptor pointers = plan_pack(&backend, &engine_configs->operands, arguments);
	r = backend.result;
	if (r == 0)
		r = backend_status(
			library,
			library->cudnnBackendExecute(engines->handle, plan->plan, pointers),
			engine_configs->name, "cudnnBackendExecute", engines->error);
	backend_deinit(&backend);
	return r == -ENOENT ? -EIO : r; /* to callers, -ENOENT means that there is no plan */
}

int cudnn_execute(void *state, struct conv_plan *plan, const struct conv_arguments *arguments,
		  gpu_stream stream)
{
	return execution_plan_run(state, plan, plan->engine_configs, arguments, stream);
}
