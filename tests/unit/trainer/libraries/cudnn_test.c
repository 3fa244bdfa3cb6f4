#include "tests/unit/trainer/libraries/cudnn_test.h"

#include "trainer/device/device.h"

char cudnn_properties[4096];

static void read_properties(void)
{
	FILE *from = fopen(H200, "r");

	assert_non_null(from);
	size_t length = fread(cudnn_properties, 1, sizeof(cudnn_properties) - 1, from);
	cudnn_properties[length] = '\0';
	fclose(from);
}

void open_engines(struct engines *engines, const struct engines_options *options)
{
	char error[DEVICE_ERROR_MAX];
	int r = engines_open(options, engines, error);

	if (r < 0)
		fail_msg("%s", error);
	assert_string_equal(error, "");
}

struct conv_problem problem_of(const struct sweep *sweep, const struct layer *layer,
			       enum conv_direction direction)
{
	struct conv_problem problem;

	conv_problem_init(&problem);
	problem.direction = direction;
	problem.element = problem.gradient = sweep->element;
	problem.deterministic = sweep->deterministic;
	problem.n = sweep->n;
	problem.h = problem.w = layer->size;
	problem.c = layer->c;
	problem.k = layer->k;
	problem.r = problem.s = layer->window;
	problem.groups = layer->groups ? layer->groups : 1;
	problem.stride = layer->stride;
	problem.pad = layer->window / 2;
	problem.p = problem.q = (layer->size + 2 * problem.pad - layer->window) / layer->stride + 1;
	return problem;
}

void expect_plan(struct sweep *sweep, const struct conv_problem *problem)
{
	const struct conv_engines *conv = &sweep->engines->conv;
	struct conv_plan_info info;
	struct conv_plan *plan;

	if (conv->plan(conv->state, problem, &plan) < 0)
		fail_msg("%s", conv->error(conv->state));
	conv->plan_info(plan, &info);
	assert_in_range(info.workspace_bytes, 0, ENGINES_WORKSPACE_MAX);
	assert_true(strncmp(info.engine, "cudnn ", 6) == 0);
	if (problem->deterministic)
		assert_true(info.deterministic);
	sweep->planned++;
	sweep->compiled += strstr(info.engine, "compiled") != NULL;
	conv->plan_free(plan);
}

bool cudnn_test_found(void)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	char error[DEVICE_ERROR_MAX];
	struct engines engines;

	read_properties();
	if (engines_open(&options, &engines, error) == -ENODEV) {
		fprintf(stderr, "skipped: %s\n", error);
		return false;
	}
	engines_close(&engines);
	return true;
}
