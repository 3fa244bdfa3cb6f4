/*
 * struct conv_engines over cuDNN: candidates (what the heuristics offer for a problem), plans made
 * of them, the file of tuned plans. Private to this folder.
 */
#pragma once

#include "trainer/device/cuda/engines.h"

#include "trainer/device/cuda/cudnn/backend.h"
#include "trainer/device/cuda/cudnn/graph.h"
#include "trainer/device/cuda/cudnn/plan_file.h"

struct cudnn_engines {
	struct cudnn_library library;
	cudnnHandle_t handle;  /* NULL: there is no device, and: */
	struct backend device; /* its one descriptor: the properties of a device that is not here */
	struct plan_file tuned;
	struct conv_plan *plans; /* that are in use: layers of one shape share a plan */
	uint64_t workspace_max;
	bool tf32;
	/*
	 * there is a driver, or its stand-in, so that cuDNN offers engines that it compiles at run
	 * time
	 */
	bool compiles;
	char error[DEVICE_ERROR_MAX];
};

/* One way to run a problem: an engine and how its knobs are turned. */
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
	/* what the plan was made of; kept, so that nothing it refers to goes before it */
	struct candidates *candidates;
	struct conv_plan_info info;
};

/* Best first, of those that the problem admits. -ENOENT: there are none. */
int candidates_find(struct cudnn_engines *engines, const struct conv_problem *problem,
		    struct candidates **ret_candidates);
void candidates_free(struct candidates *candidates); /* accepts NULL */
/*
 * -ENOENT, or another error of cuDNN's: this one does not work. The plan does not own the
 * candidates yet.
 */
int candidate_plan(struct cudnn_engines *engines, const struct candidates *candidates, size_t index,
		   const struct conv_problem *problem, struct conv_plan **ret_plan);
/* Queues a plan of these candidates. */
int plan_run(struct cudnn_engines *engines, const struct conv_plan *plan,
	     const struct candidates *candidates, const struct conv_arguments *arguments,
	     gpu_stream stream);

/* Functions of struct conv_engines. */
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
