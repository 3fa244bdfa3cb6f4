/*
 * The teacher network (train.teacher) in a plan: adds its forward pass to each batch. The teacher's
 * recipe describes the network; its weights file is not read. Embedded in the plan.
 */
#pragma once

#include "trainer/model/model.h"

#include <stdio.h>

struct estimate_teacher {
	struct recipe recipe;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph;
};

/*
 * Builds the teacher's model. Without train.teacher_recipe, this and the other functions do
 * nothing. `error` has ESTIMATE_ERROR_MAX bytes.
 */
int estimate_teacher_open(struct estimate_teacher *teacher, const struct recipe *recipe,
			  uint32_t classes, struct device *planner, char *error);
/* Replaces the previous graph with one for images of the training size. */
int estimate_teacher_plan(struct estimate_teacher *teacher, const struct model_input *images,
			  char *error);
void estimate_teacher_close(struct estimate_teacher *teacher);
