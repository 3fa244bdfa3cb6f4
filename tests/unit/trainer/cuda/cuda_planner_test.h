/*
 * Shared code for tests of the CUDA backend's lowering: stub engines that plan every problem unless
 * the test refuses it, and a model on a device that plans but cannot run.
 */
#pragma once

#include "trainer/device/cuda/lowering/planner.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"

/*
 * Called for each convolution problem; true if the stub has no plan for it. NULL refuses nothing.
 */
typedef bool (*stub_refuses)(const struct conv_problem *problem);
extern stub_refuses stub_refuse;
extern const struct conv_engines stub_conv;
extern const struct matmul_engines stub_matmul;
/* Number of plans not yet freed. */
extern int stub_plans;

struct plan_fixture {
	struct recipe recipe;
	struct program_options options;
	struct device *device;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph; /* from the last plan_fixture_program() */
};

/* `settings` are "section.key=value" separated by spaces. Fails the test on an error. */
void plan_fixture_init(struct plan_fixture *fixture, const char *settings, uint32_t classes,
		       enum device_fusion fusion, enum cuda_element element);
void plan_fixture_deinit(struct plan_fixture *fixture);
/* Records, plans and checks the model's graph. The program is valid until the next call. */
const struct cuda_program *plan_fixture_program(struct plan_fixture *fixture, enum device_mode mode,
						uint32_t count, uint32_t side, bool keep_all);
/*
 * Checks a program's consistency: every operand is written before it is read, and no two live
 * tensors share memory. Returns -EINVAL and sets the error text otherwise.
 */
int program_check(const struct cuda_program *program, char *error);
/*
 * Simulates the program's memory without computing anything: each result invalidates all tensors
 * that overlap its bytes, and tensors that are read or kept must still be valid. Fails the test
 * otherwise. Does not use the tensors' lifetimes.
 */
void plan_run_memory(const struct cuda_program *program);
