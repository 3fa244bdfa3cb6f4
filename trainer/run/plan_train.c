/* The graphs of the next training step. */
#include "trainer/run/run_internal.h"

#include "trainer/algorithms/colout.h"
#include "trainer/algorithms/progressive.h"
#include "trainer/device/graph.h"
#include "trainer/device/steps.h"

/* Computes the image size of the next step: the batch's, after ColOut and progressive resizing. */
static void plan_train_size(const struct run *run, uint32_t *ret_height, uint32_t *ret_width)
{
	const struct recipe_data *recipe = &run->ctx.recipe->data;
	*ret_height = run->input.batch.height;
	*ret_width = run->input.batch.width;
	progressive_size(recipe, run->state.step, run->length.steps, ret_height, ret_width);
	*ret_height = colout_kept(recipe->colout, *ret_height);
	*ret_width = colout_kept(recipe->colout, *ret_width);
}

static int plan_train_graphs(struct run *run)
{
	struct network *network = &run->network;
	uint32_t height, width;
	plan_train_size(run, &height, &width);
	int r = network_plan(network, &network->train, DEVICE_TRAIN, data_micro_share(&run->data),
			     height, width);
	if (r < 0)
		return r;
	r = selection_plan(&run->selection);
	if (r < 0)
		return r;
	r = teacher_plan(&run->teacher, (enum device_element)run->input.batch.element);
	if (r < 0 || !run->ctx.auto_accum)
		return r;
	return run_warm_up(run);
}

static int plan_train(struct run *run)
{
	/* free the old graphs first, to make room for the new ones */
	network_drop_training(&run->network);
	int r = plan_train_graphs(run);
	if (r < 0) {
		network_drop_training(&run->network);
		teacher_drop_graph(&run->teacher);
	}
	return r;
}

bool run_has_train_graph(const struct run *run)
{
	uint32_t height, width;
	plan_train_size(run, &height, &width);
	return run_graph_fits(&run->network.train, data_micro_share(&run->data), height, width);
}

int run_plan_train(struct run *run)
{
	return run_has_train_graph(run) ? 0 : grad_accum_fit(run, plan_train);
}

int run_plan_eval(struct run *run, uint32_t height, uint32_t width)
{
	return network_plan(&run->network, &run->network.eval, DEVICE_EVAL,
			    data_val_share(&run->data), height, width);
}

int run_move_freeze(struct run *run)
{
	bool due = network_freeze_is_due(&run->network, &run->state, run->length.steps);
	int r = network_move_freeze(&run->network, &run->state, run->length.steps);
	if (r < 0)
		return r;
	if (due)
		network_drop_training(&run->network);
	return 0;
}
