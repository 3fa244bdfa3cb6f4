/*
 * Asks cuDNN's heuristics for engine configurations and drops those that violate the problem's
 * constraints.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOBS_MAX 48

static bool has_note(const int *notes, int64_t count, int note)
{
	for (int64_t i = 0; i < count; i++)
		if (notes[i] == note)
			return true;
	return false;
}

/* Writes the engine configuration's tag, such as "62:2=5,14=1". */
static void engine_config_write_tag(struct backend *backend, descriptor config, int64_t engine,
				    char *ret_tag)
{
	descriptor knobs[KNOBS_MAX];
	int length = snprintf(ret_tag, PLAN_TAG_MAX, "%lld", (long long)engine);

	for (size_t i = 0; i < KNOBS_MAX; i++)
		knobs[i] = backend_new(backend, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	int64_t count = backend_get(backend, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
				    CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS_MAX, knobs);
	for (int64_t i = 0; i < count; i++) {
		cudnnBackendKnobType_t type = 0;
		int64_t value = 0;

		backend_get(backend, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
			    CUDNN_TYPE_KNOB_TYPE, 1, &type);
		backend_get(backend, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
			    1, &value);
		if (length < PLAN_TAG_MAX)
			length += snprintf(ret_tag + length, (size_t)(PLAN_TAG_MAX - length),
					   "%c%d=%lld", i ? ',' : ':', (int)type, (long long)value);
	}
}

/*
 * True if the epilogue sums over rows per channel. Engines compiled at run time do so by atomic
 * additions, in an order that varies, although their numerical notes do not say so (README.md).
 * This was observed for CONV_STATISTICS; cuDNN 9.19 has no such engine for CONV_RELU_NORM.
 */
static bool sums_channels(const struct conv_problem *problem)
{
	return problem->epilogue == CONV_STATISTICS || problem->epilogue == CONV_RELU_NORM;
}

/*
 * Reads a configuration's properties. Returns false if it violates the problem's constraints, or if
 * cuDNN fails to report them.
 */
static bool engine_config_describe(const struct cudnn_engines *engines,
				   const struct conv_problem *problem,
				   struct engine_configs *engine_configs,
				   struct engine_config *engine_config)
{
	cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	char error[DEVICE_ERROR_MAX];
	struct backend backend;
	int64_t numerical_count, behaviour_count;

	backend_init(&backend, &engines->library, engine_configs->name, error);
	descriptor engine = backend_new(&backend, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	backend_get(&backend, engine_config->config, CUDNN_ATTR_ENGINECFG_ENGINE,
		    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	backend_get(&backend, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
		    &engine_config->engine);
	numerical_count =
		backend_get(&backend, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
			    CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, numerical);
	behaviour_count =
		backend_get(&backend, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
			    CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviour);
	engine_config_write_tag(&backend, engine_config->config, engine_config->engine,
				engine_config->tag);
	backend_deinit(&backend);
	if (backend.result < 0)
		return false;
	engine_config->compiled = has_note((const int *)behaviour, behaviour_count,
					   CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
	engine_config->deterministic = !has_note((const int *)numerical, numerical_count,
						 CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
				       !(engine_config->compiled && sums_channels(problem));
	if (problem->deterministic && !engine_config->deterministic)
		return false;
	/* tensor cores round fp32 operands to tf32 */
	bool narrows = has_note((const int *)numerical, numerical_count,
				CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
		       has_note((const int *)numerical, numerical_count,
				CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
	return problem->element != CUDA_F32 || engines->tf32 || !narrows;
}

_Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int) &&
		       sizeof(cudnnBackendBehaviorNote_t) == sizeof(int),
	       "notes are read as int");

/* Adds the engine configurations that one heuristic mode returns. */
static void engine_configs_ask(struct cudnn_engines *engines, const struct conv_problem *problem,
			       descriptor graph, cudnnBackendHeurMode_t mode, size_t offers_max,
			       struct engine_configs *engine_configs)
{
	struct backend *backend = &engine_configs->configs;
	descriptor heuristic = backend_new(backend, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	descriptor offers[ENGINE_CONFIGS_MAX];

	backend_set_descriptor(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	backend_set(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	/* with a handle, the graph already has a device */
	if (!engines->handle)
		backend_set_descriptor(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
				       engines->device.descriptors[0]);
	backend_finish(backend, heuristic, "heuristics");
	for (size_t i = 0; i < offers_max; i++)
		offers[i] = backend_new(backend, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	int64_t count = backend_get(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
				    CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)offers_max, offers);
	for (int64_t i = 0; i < count && engine_configs->count < ENGINE_CONFIGS_MAX; i++) {
		struct engine_config *engine_config = &engine_configs->list[engine_configs->count];

		engine_config->config = offers[i];
		if (engine_config_describe(engines, problem, engine_configs, engine_config))
			engine_configs->count++;
	}
}

int engine_configs_find(struct cudnn_engines *engines, const struct conv_problem *problem,
			struct engine_configs **ret_configs)
{
	static const struct {
		cudnnBackendHeurMode_t mode;
		size_t offers_max;
	} modes[] = {{CUDNN_HEUR_MODE_A, 64}, {CUDNN_HEUR_MODE_FALLBACK, 32}};
	struct engine_configs *engine_configs = calloc(1, sizeof(*engine_configs));
	descriptor graph;
	int r;

	if (!engine_configs)
		return -ENOMEM;
	conv_problem_name(problem, engine_configs->name, sizeof(engine_configs->name));
	backend_init(&engine_configs->graph, &engines->library, engine_configs->name,
		     engines->error);
	backend_init(&engine_configs->configs, &engines->library, engine_configs->name,
		     engines->error);
	graph = conv_graph(&engine_configs->graph, engines->handle, problem,
			   &engine_configs->operands);
	r = engine_configs->graph.result;
	for (size_t i = 0; graph && i < sizeof(modes) / sizeof(modes[0]); i++) {
		/* clear the error: the other mode may support the graph */
		engine_configs->configs.result = 0;
		engine_configs_ask(engines, problem, graph, modes[i].mode, modes[i].offers_max,
				   engine_configs);
		if (engine_configs->configs.result < 0)
			r = engine_configs->configs.result;
	}
	if (engine_configs->count) {
		*ret_configs = engine_configs;
		return 0;
	}
	if (r == 0)
		snprintf(engines->error, sizeof(engines->error),
			 "%s: cuDNN has no %sengine for it on %s", engine_configs->name,
			 problem->deterministic ? "deterministic " : "", engines->tuned.device);
	engine_configs_free(engine_configs);
	return r < 0 ? r : -ENOENT;
}

void engine_configs_free(struct engine_configs *engine_configs)
{
	if (!engine_configs)
		return;
	backend_deinit(&engine_configs->configs);
	backend_deinit(&engine_configs->graph);
	free(engine_configs);
}
