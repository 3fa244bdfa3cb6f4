#include "trainer/estimate/estimate_teacher.h"

#include "format/base/text/sentence.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/estimate/estimate.h"

#include <string.h>

#define teacher_fail(error, code, ...)                                                             \
	sentence_fail((error), ESTIMATE_ERROR_MAX, (code), __VA_ARGS__)

static int read_recipe(struct estimate_teacher *teacher, const char *path, char *error)
{
	char text[RECIPE_ERROR_MAX] = "";
	int r = recipe_init(&teacher->recipe);
	if (r == 0)
		r = recipe_load(&teacher->recipe, path, text);
	if (r < 0)
		return teacher_fail(error, r, "train.teacher_recipe: %s",
				    *text ? text : strerror(-r));
	return 0;
}

static int make_model(struct estimate_teacher *teacher, uint32_t classes, struct device *planner,
		      char *text)
{
	int r = device_params_new(planner, &teacher->params);
	if (r < 0)
		return r;
	r = model_new(&teacher->recipe.model, classes, teacher->params, &teacher->model, text);
	return r < 0 ? r : device_params_allocate(teacher->params, NULL);
}

int estimate_teacher_open(struct estimate_teacher *teacher, const struct recipe *recipe,
			  uint32_t classes, struct device *planner, char *error)
{
	char text[RECIPE_ERROR_MAX] = "";
	if (!*recipe->train.teacher_recipe)
		return 0;
	int r = read_recipe(teacher, recipe->train.teacher_recipe, error);
	if (r < 0)
		return r;
	r = make_model(teacher, classes, planner, text);
	if (r < 0)
		return teacher_fail(error, r, "the network of train.teacher: %s",
				    *text ? text : strerror(-r));
	return 0;
}

int estimate_teacher_plan(struct estimate_teacher *teacher, const struct model_input *images,
			  char *error)
{
	struct device_graph_options options = {.mode = DEVICE_EVAL};
	struct model_input input = *images;
	char text[DEVICE_ERROR_MAX] = "";
	if (!teacher->model)
		return 0;
	device_graph_free(teacher->graph);
	teacher->graph = NULL;
	int r = device_graph_new(teacher->params, &options, &teacher->graph);
	if (r < 0)
		return teacher_fail(error, r, "the network of train.teacher: %s", strerror(-r));
	memset(&input.loss, 0, sizeof(input.loss));
	model_record(teacher->model, teacher->graph, &input);
	r = device_graph_plan(teacher->graph, text);
	return r < 0 ? teacher_fail(error, r, "planning train.teacher, a %s: %s",
				    teacher->recipe.model.name, text)
		     : 0;
}

void estimate_teacher_close(struct estimate_teacher *teacher)
{
	device_graph_free(teacher->graph);
	model_free(teacher->model);
	device_params_free(teacher->params);
	recipe_deinit(&teacher->recipe);
}
