/*
 * Lowering with failing allocations: whichever allocation fails, nothing leaks and the error
 * reports it. The linker wraps the allocation functions.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"

static long left = -1; /* allocations that still succeed; negative if none fails */

void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static bool fails(void)
{
	return left >= 0 && left-- == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return fails() ? NULL : __real_realloc(memory, size);
}

/* Refuses fp32 gradients, so that lowering has patterns to unfuse and to log. */
static bool refuse(const struct conv_problem *problem)
{
	return problem->epilogue == CONV_STATISTICS ||
	       (problem->direction == CONV_WEIGHTS && problem->gradient == CUDA_F32);
}

static void check(const char *settings)
{
	struct model_input input = {.count = 2, .height = 32, .width = 32, .std = {1, 1, 1}};
	const struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = true};
	char error[DEVICE_ERROR_MAX];
	long allocations = 0;
	int r = -ENOMEM;

	stub_refuse = refuse;
	for (; r < 0; allocations++) {
		struct device_graph *graph;
		struct plan_fixture f;

		plan_fixture_init(&f, settings, 10, DEVICE_FUSION_C, CUDA_F16);
		assert_int_equal(device_graph_new(f.params, &options, &graph), 0);
		model_record(f.model, graph, &input);
		left = allocations;
		r = device_graph_plan(graph, error);
		left = -1;
		if (r < 0) {
			assert_int_equal(r, -ENOMEM);
			assert_non_null(strstr(error, "out of memory"));
		}
		device_graph_free(graph);
		plan_fixture_deinit(&f);
		assert_int_equal(stub_plans, 0);
	}
	stub_refuse = NULL;
	/* at least one for every tensor and every plan */
	assert_true(allocations > 200);
}

TEST(failures)
{
	check("model.name=resnet_cifar model.depth=8");
}

/* Of a store that gathers weights: gathers are inserted after the others are complete. */
TEST(gathers)
{
	check("model.name=resnet_cifar model.depth=8 train.shard=parameters");
}
