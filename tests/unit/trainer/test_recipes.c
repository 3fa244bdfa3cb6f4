/* The shipped recipes: they parse, pass the checks, and the daemon accepts their pipelines. */
#include "format/augment/pipeline.h"
#include "tests/test.h"
#include "trainer/recipe/recipe.h"

static void pipeline(const char *name, const char *text, uint32_t first, uint32_t last)
{
	struct pipeline *pipeline;
	struct pipeline_error error;
	struct pipeline_shape shape;
	if (pipeline_parse(text, &pipeline, &error))
		fail_msg("%s: %s at byte %d", name, error.text, error.position);
	assert_true(pipeline_has_size(pipeline));
	pipeline_shape(pipeline, 0, &shape);
	assert_int_equal(shape.width, first);
	assert_int_equal(shape.element, PIPELINE_U8);
	pipeline_shape(pipeline, 1000, &shape);
	assert_int_equal(shape.width, last);
	pipeline_free(pipeline);
}

TEST(shipped)
{
	static const struct {
		const char *name;
		uint32_t first, last, evaluated;
	} recipes[] = {
		{"shapes.ini", 64, 64},
		{"cifar10.ini", 32, 32},
		{"imagenet.ini", 128, 192, 224},
		{"resnet50_16.ini", 160, 192, 256},
		{"resnet50_88.ini", 160, 192, 256},
		{"resnet50_mosaic.ini", 176, 176, 224},
		{"vit_small.ini", 224, 224, 224},
		{"vit_base.ini", 224, 224, 224},
		{"vit_large.ini", 224, 224, 224},
		{"vit_1b.ini", 224, 224, 224},
		{"vit_finetune.ini", 224, 224, 224},
		{"multilabel.ini", 224, 224, 224},
		{"regression.ini", 224, 224, 224},
	};
	for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		char path[4096], error[RECIPE_ERROR_MAX];
		struct recipe recipe;
		snprintf(path, sizeof(path), "%s/%s", RECIPES, recipes[i].name);
		assert_int_equal(recipe_init(&recipe), 0);
		if (recipe_load(&recipe, path, error) || recipe_check(&recipe, true, error))
			fail_msg("%s", error);
		assert_int_equal(recipe.train.seed, 1);
		pipeline(path, recipe.data.pipeline, recipes[i].first, recipes[i].last);
		if (*recipe.data.val_pipeline)
			pipeline(path, recipe.data.val_pipeline, recipes[i].evaluated,
				 recipes[i].evaluated);
		recipe_deinit(&recipe);
	}
}
