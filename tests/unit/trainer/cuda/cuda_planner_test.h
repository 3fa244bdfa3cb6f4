/*
 * What tests of the CUDA backend's lowering share: engines that plan whatever the test does not
 * refuse, and a model on a device that only plans.
 */
#pragma once

#include "trainer/device/cuda/lowering/planner.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"

/* What the stub refuses; NULL: nothing. Asked for each problem. */
typedef bool (*stub_refuses)(const struct conv_problem *problem);
extern stub_refuses stub_refuse;
extern const struct conv_engines stub_conv;
extern const struct matmul_engines stub_matmul;
/* Plans that have not been freed. */
extern int stub_plans;

struct plan_fixture {
	struct recipe recipe;
	struct program_options options;
	struct device *device;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph; /* the last of plan_fixture_program() */
};

/* settings: "section.key=value" with blanks between. Fails the test on an error. */
void plan_fixture_init(struct plan_fixture *fixture, const char *settings, uint32_t classes,
		       enum device_fusion fusion, enum cuda_element element);
void plan_fixture_deinit(struct plan_fixture *fixture);
/* The program of a model's graph, checked. It lives until the next. */
const struct cuda_program *plan_fixture_program(struct plan_fixture *fixture, enum device_mode mode,
						uint32_t count, uint32_t side, bool keep_all);
/*
 * Consistency: every operand written before it is read, in one place with nothing else that lives.
 * -EINVAL with a text.
 */
int program_check(const struct cuda_program *program, char *error);
/*
 * Runs the program's memory without computing: an operation's results take their bytes from
 * whatever lay there, and what is read or kept must still be whole. Fails the test otherwise. Knows
 * nothing of lifetimes.
 */
void plan_run_memory(const struct cuda_program *program);
