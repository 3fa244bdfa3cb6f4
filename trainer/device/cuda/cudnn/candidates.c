/*
 * Asks cuDNN's heuristics for engine configurations and drops those that violate the problem's
 * constraints.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"

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

/* Writes the candidate's tag, such as "62:2=5,14=1". */
static void candidate_write_tag(struct backend *backend, descriptor config, int64_t engine,
				char *ret_tag)
{
	descriptor knobs[KNOBS_MAX];
	int64_t count;
	int length = snprintf(ret_tag, PLAN_TAG_MAX, "%lld", (long long)engine);

	for (size_t i = 0; i < KNOBS_MAX; i++)
		knobs[i] = backend_new(backend, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	count = backend_get(backend, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
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
 * True if the epilogue sums over channels. Run-time compiled engines do that by atomic additions in
 * whatever order blocks run, and their numerical notes do not report it (README.md). Observed for
 * CONV_STATISTICS; cuDNN 9.19 has no compiled engine for CONV_RELU_NORM.
 */
static bool sums_channels(const struct conv_problem *problem)
{
	return problem->epilogue == CONV_STATISTICS || problem->epilogue == CONV_RELU_NORM;
}

/*
 * Reads a configuration's properties. Returns false if it violates the problem's constraints, or if
 * cuDNN fails to report them.
 */
static bool candidate_describe(const struct cudnn_engines *engines,
			       const struct conv_problem *problem, struct candidates *candidates,
			       struct candidate *candidate)
{
	cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	char error[DEVICE_ERROR_MAX];
	struct backend backend;
	descriptor engine;
	int64_t numerical_count, behaviour_count;
	bool narrows;

	backend_init(&backend, &engines->library, candidates->name, error);
	engine = backend_new(&backend, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	backend_get(&backend, candidate->config, CUDNN_ATTR_ENGINECFG_ENGINE,
		    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	backend_get(&backend, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
		    &candidate->engine);
	numerical_count =
		backend_get(&backend, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
			    CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, numerical);
	behaviour_count =
		backend_get(&backend, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
			    CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviour);
	candidate_write_tag(&backend, candidate->config, candidate->engine, candidate->tag);
	backend_deinit(&backend);
	if (backend.result < 0)
		return false;
	candidate->compiled = has_note((const int *)behaviour, behaviour_count,
				       CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
	candidate->deterministic = !has_note((const int *)numerical, numerical_count,
					     CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
				   !(candidate->compiled && sums_channels(problem));
	if (problem->deterministic && !candidate->deterministic)
		return false;
	/* for fp32 operands, tensor cores compute in tf32 */
	narrows = has_note((const int *)numerical, numerical_count,
			   CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
		  has_note((const int *)numerical, numerical_count,
			   CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
	return problem->element != CUDA_F32 || engines->tf32 || !narrows;
}

_Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int) &&
		       sizeof(cudnnBackendBehaviorNote_t) == sizeof(int),
	       "notes are read as int");

/* Adds the candidates that one heuristic mode returns. */
static void candidates_ask(struct cudnn_engines *engines, const struct conv_problem *problem,
			   descriptor graph, cudnnBackendHeurMode_t mode, size_t offers_max,
			   struct candidates *candidates)
{
	struct backend *backend = &candidates->configs;
	descriptor heuristic = backend_new(backend, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	descriptor offers[CANDIDATES_MAX];
	int64_t count;

	backend_set_descriptor(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	backend_set(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	/* the graph already refers to a present device */
	if (!engines->handle)
		backend_set_descriptor(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
				       engines->device.descriptors[0]);
	backend_finish(backend, heuristic, "heuristics");
	for (size_t i = 0; i < offers_max; i++)
		offers[i] = backend_new(backend, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	count = backend_get(backend, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
			    CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)offers_max, offers);
	for (int64_t i = 0; i < count && candidates->count < CANDIDATES_MAX; i++) {
		struct candidate *candidate = &candidates->list[candidates->count];

		candidate->config = offers[i];
		if (candidate_describe(engines, problem, candidates, candidate))
			candidates->count++;
	}
}

int candidates_find(struct cudnn_engines *engines, const struct conv_problem *problem,
		    struct candidates **ret_candidates)
{
	static const struct {
		cudnnBackendHeurMode_t mode;
		size_t offers_max;
	} modes[] = {{CUDNN_HEUR_MODE_A, 64}, {CUDNN_HEUR_MODE_FALLBACK, 32}};
	struct candidates *candidates = calloc(1, sizeof(*candidates));
	descriptor graph;
	int r;

	if (!candidates)
		return -ENOMEM;
	conv_problem_name(problem, candidates->name, sizeof(candidates->name));
	backend_init(&candidates->graph, &engines->library, candidates->name, engines->error);
	backend_init(&candidates->configs, &engines->library, candidates->name, engines->error);
	graph = conv_graph(&candidates->graph, engines->handle, problem, &candidates->operands);
	r = candidates->graph.result;
	for (size_t i = 0; graph && i < sizeof(modes) / sizeof(modes[0]); i++) {
		/* one mode may fail on a graph that the other supports */
		candidates->configs.result = 0;
		candidates_ask(engines, problem, graph, modes[i].mode, modes[i].offers_max,
			       candidates);
		if (candidates->configs.result < 0)
			r = candidates->configs.result;
	}
	if (candidates->count) {
		*ret_candidates = candidates;
		return 0;
	}
	if (r == 0)
		snprintf(engines->error, sizeof(engines->error),
			 "%s: cuDNN has no %sengine for it on %s", candidates->name,
			 problem->deterministic ? "deterministic " : "", engines->tuned.device);
	candidates_free(candidates);
	return r < 0 ? r : -ENOENT;
}

void candidates_free(struct candidates *candidates)
{
	if (!candidates)
		return;
	backend_deinit(&candidates->configs);
	backend_deinit(&candidates->graph);
	free(candidates);
}
