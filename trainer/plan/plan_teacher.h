/*
 * The network of train.teacher in a plan: adds its forward pass for each batch, from its recipe.
 * Embedded in the plan; does not read its weights file.
 */
#pragma once

#include "trainer/model/model.h"

#include <stdio.h>

struct plan_teacher {
	struct recipe recipe;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph;
};

/*
 * Without train.teacher_recipe nothing, and the others then do nothing. error: PLAN_ERROR_MAX
 * bytes.
 */
int plan_teacher_open(struct plan_teacher *teacher, const struct recipe *recipe, uint32_t classes,
		      struct device *planner, char *error);
/* In place of the one before, for images as in training. */
int plan_teacher_plan(struct plan_teacher *teacher, const struct model_input *images, char *error);
void plan_teacher_close(struct plan_teacher *teacher);
