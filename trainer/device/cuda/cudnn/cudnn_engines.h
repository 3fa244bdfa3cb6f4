/*
 * struct conv_engines over cuDNN: candidates (what the heuristics offer for a problem), plans made
 * from them, the file of tuned plans. Private to this folder.
 */
#pragma once

#include "trainer/device/cuda/engines.h"

#include "trainer/device/cuda/cudnn/backend.h"
#include "trainer/device/cuda/cudnn/graph.h"
#include "trainer/device/cuda/cudnn/plan_file.h"

struct cudnn_engines {
	struct cudnn_library library;
	cudnnHandle_t handle; /* NULL without a device */
	/* without a handle: one descriptor with the properties of an absent device */
	struct backend device;
	struct plan_file tuned;
	struct conv_plan *plans; /* plans in use; layers of equal shape share one */
	uint64_t workspace_max;
	bool tf32;
	/* a driver or its stand-in is loaded, so cuDNN offers engines compiled at run time */
	bool compiles;
	char error[DEVICE_ERROR_MAX];
};

/* A way to run a problem: an engine and its knob settings. */
struct candidate {
	descriptor config;
	int64_t engine;
	bool compiled; /* at run time */
	bool deterministic;
	char tag[PLAN_TAG_MAX]; /* "62:2=5,14=1": engine, knobs and their values */
};

#define CANDIDATES_MAX 96

struct candidates {
	struct backend graph, configs;
	struct conv_operands operands;
	struct candidate list[CANDIDATES_MAX];
	size_t count;
	char name[160]; /* of the problem */
};

struct conv_plan {
	struct conv_problem problem;
	struct cudnn_engines *engines;
	struct conv_plan *next; /* of engines->plans */
	unsigned users;
	descriptor plan;
	/* source of the plan, which references them */
	struct candidates *candidates;
	struct conv_plan_info info;
};

/* Finds the candidates that the problem admits, best first. -ENOENT if there are none. */
int candidates_find(struct cudnn_engines *engines, const struct conv_problem *problem,
		    struct candidates **ret_candidates);
void candidates_free(struct candidates *candidates); /* accepts NULL */
/*
 * Makes a plan; -ENOENT or another cuDNN error if the candidate does not work. The plan does not
 * yet own the candidates.
 */
int candidate_plan(struct cudnn_engines *engines, const struct candidates *candidates, size_t index,
		   const struct conv_problem *problem, struct conv_plan **ret_plan);
/* Queues a plan of these candidates. */
int plan_run(struct cudnn_engines *engines, const struct conv_plan *plan,
	     const struct candidates *candidates, const struct conv_arguments *arguments,
	     gpu_stream stream);

/* Implement struct conv_engines. */
int cudnn_plan(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan);
void cudnn_plan_info(const struct conv_plan *plan, struct conv_plan_info *ret_info);
void cudnn_plan_free(struct conv_plan *plan);
int cudnn_execute(void *state, struct conv_plan *plan, const struct conv_arguments *arguments,
		  gpu_stream stream);
int cudnn_tune(void *state, const struct conv_problem *problem,
	       const struct conv_arguments *arguments, uint64_t workspace_bytes, gpu_stream stream);
int cudnn_refuse(void *state, const struct conv_problem *problem, float ms);
const char *cudnn_unkept(void *state);
int cudnn_findings(void *state, char **ret_bytes, size_t *ret_size);
int cudnn_adopt(void *state, const char *bytes, size_t size);

/* cuBLASLt's side of engines_open(). */
int cublaslt_open(const struct engines_options *options, struct matmul_engines *ret_engines,
		  size_t *ret_version, char *error);
void cublaslt_close(struct matmul_engines *engines); /* accepts zeroes */
