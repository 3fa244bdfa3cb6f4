#include "tests/unit/trainer/cuda/cuda_planner_test.h"
#include "tests/test.h"

stub_refuses stub_refuse;
int stub_plans;

struct conv_plan {
	uint64_t workspace_bytes;
};

struct matmul_plan {
	int unused;
};

static int stub_plan(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan)
{
	assert_int_equal(conv_problem_check(problem), 0);
	if (stub_refuse && stub_refuse(problem))
		return -ENOENT;
	struct conv_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	plan->workspace_bytes = (uint64_t)problem->direction << 20;
	stub_plans++;
	*ret_plan = plan;
	return 0;
}

static void stub_plan_info(const struct conv_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info =
		(struct conv_plan_info){.engine = "stub", .workspace_bytes = plan->workspace_bytes};
}

static void stub_plan_free(struct conv_plan *plan)
{
	stub_plans -= plan != NULL;
	free(plan);
}

static int stub_plan_matmul(void *state, const struct matmul_problem *problem,
			    struct matmul_plan **ret_plan)
{
	*ret_plan = calloc(1, sizeof(**ret_plan));
	if (!*ret_plan)
		return -ENOMEM;
	stub_plans++;
	return 0;
}

static void stub_matmul_info(const struct matmul_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info = (struct conv_plan_info){.engine = "stub", .workspace_bytes = 4096};
}

static void stub_matmul_free(struct matmul_plan *plan)
{
	stub_plans -= plan != NULL;
	free(plan);
}

static const char *stub_error(void *state)
{
	return "the stub refused, or is out of memory";
}

const struct conv_engines stub_conv = {
	.plan = stub_plan,
	.plan_info = stub_plan_info,
	.plan_free = stub_plan_free,
	.error = stub_error,
};

const struct matmul_engines stub_matmul = {
	.plan = stub_plan_matmul,
	.plan_info = stub_matmul_info,
	.plan_free = stub_matmul_free,
	.error = stub_error,
};

void plan_fixture_init(struct plan_fixture *fixture, const char *settings, uint32_t classes,
		       enum device_fusion fusion, enum cuda_element element)
{
	static struct comm ranks = {.world = 2}; /* that divide a sharded store */
	struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	char error[2048] = "", text[1024];

	memset(fixture, 0, sizeof(*fixture));
	fixture->options = (struct program_options){
		.fusion = fusion, .element = element, .conv = &stub_conv, .matmul = &stub_matmul};
	assert_int_equal(recipe_init(&fixture->recipe), 0);
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if (recipe_override(&fixture->recipe, word, error))
			fail_msg("%s", error);
	sgd.shard = (enum device_shard)fixture->recipe.train.shard;
	if (planner_open(&fixture->options, &fixture->device))
		fail();
	if (sgd.shard)
		fixture->device->options.comm = &ranks;
	if (device_params_new(fixture->device, &fixture->params) ||
	    model_new(&fixture->recipe.model, classes, fixture->params, &fixture->model, error) ||
	    device_params_allocate(fixture->params, &sgd))
		fail_msg("%s", error);
}

void plan_fixture_deinit(struct plan_fixture *fixture)
{
	device_graph_free(fixture->graph);
	model_free(fixture->model);
	device_params_free(fixture->params);
	device_close(fixture->device);
	recipe_deinit(&fixture->recipe);
}

const struct cuda_program *plan_fixture_program(struct plan_fixture *fixture, enum device_mode mode,
						uint32_t count, uint32_t side, bool keep_all)
{
	struct device_graph_options options = {
		.mode = mode,
		.keep_all = keep_all,
		.recompute = (uint32_t)fixture->recipe.train.recompute,
	};
	struct model_input input = {
		.count = count, .height = side, .width = side, .std = {1, 1, 1}};
	char error[DEVICE_ERROR_MAX] = "";

	device_graph_free(fixture->graph);
	assert_int_equal(device_graph_new(fixture->params, &options, &fixture->graph), 0);
	model_record(fixture->model, fixture->graph, &input);
	if (device_graph_plan(fixture->graph, error) ||
	    program_check(planner_program(fixture->graph), error))
		fail_msg("%s", error);
	return planner_program(fixture->graph);
}

static void take_bytes(const struct cuda_program *program, const struct cuda_tensor *tensor,
		       bool *whole)
{
	const struct arena_block *a = &program->arena.blocks[tensor->block];

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *other = program->tensors[i];
		const struct arena_block *b = &program->arena.blocks[other->block];

		if (other->storage == CUDA_IN_ARENA && a->offset < b->offset + other->bytes &&
		    b->offset < a->offset + tensor->bytes)
			whole[other->block] = false;
	}
	whole[tensor->block] = true;
}

void plan_run_memory(const struct cuda_program *program)
{
	bool *whole = calloc(program->arena.count, sizeof(bool));

	for (uint32_t i = 0; i < program->tensor_count; i++)
		if (program->tensors[i]->grad_output)
			take_bytes(program, program->tensors[i], whole);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		for (int pass = 0; pass < 3; pass++) {
			for (int role = 0; role < CUDA_ROLES; role++) {
				const struct cuda_tensor *tensor = op->operands[role];
				bool writes = tensor && cuda_op_writes(op, role);

				if (tensor && tensor->storage == CUDA_IN_BUCKET)
					tensor = tensor->bucket;
				if (!tensor || tensor->storage != CUDA_IN_ARENA)
					continue;
				/* an operation's results must not overwrite each other */
				if (pass == 1 && writes)
					take_bytes(program, tensor, whole);
				else if (pass != 1 && !(pass == 0 && writes) &&
					 !whole[tensor->block])
					fail_msg("%s of %s: %s is gone", cuda_op_name(op->kind),
						 op->node->name, tensor->name);
			}
		}
	}
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->storage == CUDA_IN_ARENA && (tensor->kept || tensor->grad_output) &&
		    !whole[tensor->block])
			fail_msg("%s is not kept", tensor->name);
	}
	free(whole);
}
