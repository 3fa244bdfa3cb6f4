/*
 * 20 steps of training with each of Composer's methods, and the number of layers frozen in each
 * step, compared with Composer. tests/golden/trajectories/make.py computed the references in double
 * precision.
 */
#include "tests/test.h"
#include "tests/unit/trainer/golden.h"
#include "trainer/algorithms/freeze_layers.h"
#include "trainer/algorithms/optim.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"

enum { COUNT = 8, SIDE = 16, STEPS = 20, EPOCH = 4, LAYERS = 19 };

static uint32_t depth_at(const json_t *json, size_t step)
{
	return (uint32_t)json_integer_value(json_array_get(json_object_get(json, "depths"), step));
}

TEST(schedules)
{
	json_t *json = golden_load("../trajectories/trajectories.json"), *schedule;
	size_t i;
	json_array_foreach(json_object_get(json, "schedules"), i, schedule)
	{
		const struct recipe_train recipe = {
			.freeze_start = golden_number(schedule, "start"),
			.freeze_level = golden_number(schedule, "level")};
		uint64_t steps = (uint64_t)golden_number(schedule, "steps"),
			 epoch = (uint64_t)golden_number(schedule, "epoch");
		uint32_t layers = (uint32_t)golden_number(schedule, "layers");
		for (uint64_t step = 0; step < steps; step++)
			assert_int_equal(freeze_layers_depth(&recipe, step, steps, epoch, layers),
					 depth_at(schedule, step));
	}
	assert_int_equal(i, 5);
	json_decref(json);
}

struct trajectory {
	struct golden_trajectory trajectory;
	struct fixture fixture;
	struct freeze_layers layers;
};

static void prepare(struct golden_trajectory *golden, size_t step)
{
	struct trajectory *trajectory = (struct trajectory *)golden;
	uint32_t depth = freeze_layers_depth(&golden->recipe->train, step, STEPS, EPOCH,
					     trajectory->layers.count);
	assert_int_equal(depth, depth_at(golden->reference, step));
	if (golden->graph && depth == trajectory->layers.depth)
		return;
	if (depth)
		freeze_layers_apply(&trajectory->layers, trajectory->fixture.params, depth);
	device_graph_free(golden->graph);
	golden->graph = fixture_graph(&trajectory->fixture, DEVICE_TRAIN, COUNT, SIDE, 0.1, false);
}

static void check_trajectory(const json_t *reference)
{
	struct trajectory trajectory = {0};
	struct device_optimizer_spec spec;
	struct recipe plain;
	char settings[512];
	assert_int_equal(recipe_init(&plain), 0);
	optim_spec(&plain, &spec);
	recipe_deinit(&plain);
	snprintf(settings, sizeof(settings), "model.name=resnet_cifar model.depth=8 %s",
		 json_string_value(json_object_get(reference, "settings")));
	fixture_init(&trajectory.fixture, settings, 10, &spec);
	golden_fill(&trajectory.fixture, 2);
	assert_int_equal(freeze_layers_init(&trajectory.layers, &trajectory.fixture.recipe.train,
					    trajectory.fixture.params),
			 0);
	trajectory.trajectory = (struct golden_trajectory){.recipe = &trajectory.fixture.recipe,
							   .reference = reference,
							   .seed = 2,
							   .count = COUNT,
							   .side = SIDE,
							   .prepare = prepare};
	golden_follow(&trajectory.trajectory, 1e-3);
	golden_compare(&trajectory.fixture, json_object_get(reference, "values"), DEVICE_VALUE,
		       3e-4);
	device_graph_free(trajectory.trajectory.graph);
	freeze_layers_deinit(&trajectory.layers);
	fixture_deinit(&trajectory.fixture);
}

TEST(trajectories)
{
	json_t *json = golden_load("../trajectories/trajectories.json"), *trajectory;
	const char *name;
	json_t *trajectories = json_object_get(json, "trajectories");
	assert_int_equal(json_object_size(trajectories), 2);
	json_object_foreach(trajectories, name, trajectory)
	{
		print_message("%s\n", name);
		check_trajectory(trajectory);
	}
	json_decref(json);
}
