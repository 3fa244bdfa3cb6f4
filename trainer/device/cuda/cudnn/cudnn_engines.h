/*
 * Implements struct conv_engines with cuDNN: engine configurations that the heuristics propose for
 * a problem, execution plans built from them, and the cache of tuned plans. Private to this folder.
 */
#pragma once

#include "trainer/device/cuda/engines.h"

#include "trainer/device/cuda/cudnn/backend.h"
#include "trainer/device/cuda/cudnn/operation_graph.h"
#include "trainer/device/cuda/cudnn/plan_cache.h"
#include "trainer/device/device.h"

struct cudnn_engines {
	struct cudnn_library library;
	cudnnHandle_t handle; /* NULL if planning for an absent GPU */
	/* without a handle: holds one descriptor with the properties of the absent GPU */
	struct backend device;
	struct plan_cache tuned;
	struct conv_plan *plans; /* plans in use; layers with the same problem share one */
	uint64_t workspace_max;
	bool tf32;
	/* the driver or its stand-in is loaded, so cuDNN offers run-time compiled engines */
	bool compiles;
	char error[DEVICE_ERROR_MAX];
};

/* One way to run a problem: an engine and its knob settings. */
struct engine_config {
	descriptor config;
	int64_t engine;
	bool compiled; /* the engine is compiled at run time, by NVRTC */
	bool deterministic;
	char tag[PLAN_TAG_MAX]; /* engine:knob=value,..., e.g. "62:2=5,14=1" */
};

#define ENGINE_CONFIGS_MAX 96

struct engine_configs {
	struct backend graph, configs;
	struct conv_operands operands;
	struct engine_config list[ENGINE_CONFIGS_MAX];
	size_t count;
	char name[160]; /* problem name */
};

struct conv_plan {
	struct conv_problem problem;
	struct cudnn_engines *engines;
	struct conv_plan *next; /* next in engines->plans */
	unsigned users;
	descriptor plan;
	/* NULL until the plan is kept, then owned; `plan` references its descriptors */
	struct engine_configs *engine_configs;
	struct conv_plan_info info;
};

/*
 * Finds the engine configurations that satisfy the problem's constraints, best first. -ENOENT if
 * there are none.
 */
int engine_configs_find(struct cudnn_engines *engines, const struct conv_problem *problem,
			struct engine_configs **ret_configs);
void engine_configs_free(struct engine_configs *engine_configs); /* accepts NULL */
/*
 * Builds an execution plan from one of the engine configurations. Returns -ENOENT, or the error of
 * another cuDNN failure, if this configuration does not work. The plan does not own engine_configs
 * until plan_keep().
 */
int execution_plan_build(struct cudnn_engines *engines, const struct engine_configs *engine_configs,
			 size_t index, const struct conv_problem *problem,
			 struct conv_plan **ret_plan);
/* Queues an execution of a plan that was built from these engine_configs. */
int execution_plan_run(struct cudnn_engines *engines, const struct conv_plan *plan,
		       const struct engine_configs *engine_configs,
		       const struct conv_arguments *arguments, gpu_stream stream);

/* Implementations of the members of struct conv_engines. */
int cudnn_plan(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan);
void cudnn_plan_info(const struct conv_plan *plan, struct conv_plan_info *ret_info);
void cudnn_plan_free(struct conv_plan *plan);
int cudnn_execute(void *state, struct conv_plan *plan, const struct conv_arguments *arguments,
		  gpu_stream stream);
int cudnn_tune(void *state, const struct conv_problem *problem,
	       const struct conv_arguments *arguments, uint64_t workspace_bytes, gpu_stream stream);
int cudnn_refuse(void *state, const struct conv_problem *problem, float ms);
const char *cudnn_cache_error(void *state);
int cudnn_export_tuning(void *state, char **ret_bytes, size_t *ret_size);
int cudnn_import_tuning(void *state, const char *bytes, size_t size);

/* The cuBLASLt part of engines_open(). */
int cublaslt_open(const struct engines_options *options, struct matmul_engines *ret_engines,
		  size_t *ret_version, char *error);
void cublaslt_close(struct matmul_engines *engines); /* accepts a zeroed struct */
