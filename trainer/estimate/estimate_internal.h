/* The state of --plan, and what its reports share. estimate.c implements the functions. */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/device/cuda/lowering/planner.h"
#include "trainer/estimate/estimate.h"
#include "trainer/estimate/estimate_device.h"
#include "trainer/estimate/estimate_teacher.h"

#define estimate_fail(error, code, ...)                                                            \
	sentence_fail((error), ESTIMATE_ERROR_MAX, (code), __VA_ARGS__)

struct estimate {
	struct recipe recipe_copy;   /* copy of the recipe; its strings belong to the caller */
	const struct recipe *recipe; /* points to `recipe_copy` */
	/*
	 * train.accumulate = auto: find the number of micro-batches and store it in `recipe_copy`
	 */
	bool auto_accum;
	const struct estimate_options *options;
	struct estimate_device device;
	struct program_options program;
	uint32_t size, classes;
	uint32_t pipeline_size; /* image side according to data.pipeline; 0 if unknown */
	struct device *planner;
	struct comm group; /* tensor ranks that hold the network together; world 0 or 1 for none */
	struct device_params *params;
	struct model *model;
	struct estimate_teacher teacher;
};

struct estimate_memory {
	struct roofline_store store;
	struct roofline_sums matrices; /* memory for matrix products of the update */
	double teacher;                /* this member and those below are in bytes */
	double staging, total;
};

/* Duration of a step and its parts. */
struct step_time {
	struct roofline_sums passes[2]; /* forward, backward */
	struct roofline_sums matrices;  /* matrix products of the update */
	/* update_bytes is in bytes; `update` and the members below are in seconds */
	double update_bytes, update;
	double teacher; /* the teacher's forward pass on every batch */
	double all, images_per_second;
};

/*
 * Opens the model again, as a rank of so many tensor ranks has it. -EINVAL if the network cannot be
 * divided. No graph must be left.
 */
int estimate_divide(struct estimate *estimate, uint32_t tensor, char *error);
/* Plans the graphs of a step and, if the recipe evaluates, of an evaluation; free them. */
int estimate_make_graphs(struct estimate *estimate, struct device_graph **ret_train,
			 struct device_graph **ret_eval, char *error);
/* eval: NULL if the recipe does not evaluate. */
struct estimate_memory estimate_memory(const struct estimate *estimate,
				       const struct cuda_program *train,
				       const struct cuda_program *eval);
struct step_time estimate_step_time(const struct estimate *estimate,
				    const struct cuda_program *train);
