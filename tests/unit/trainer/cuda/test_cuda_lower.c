/*
 * Lowering of graphs that no model has: random graphs with randomly refused plans, and the
 * operations that replace each pattern without a plan.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"
#include "tests/unit/trainer/cuda/random_graph.h"
#include "tests/unit/trainer/cuda/random_plans.h"

/* ---- random graphs ---- */

static uint64_t refusal_seed;
static unsigned refusal_share; /* number of eighths of the patterns that have no plan */

static bool refuse_some(const struct conv_problem *problem)
{
	return random_plans_refuse(refusal_seed, refusal_share, problem);
}

static struct comm ranks = {.world = 2}; /* that divide a sharded store */

static bool is_trained(const struct device_param *param)
{
	return param && !param->spec.frozen && param->spec.kind != DEVICE_BUFFER;
}

/*
 * Marks the values that need a gradient: the result depends on them, and they depend on something
 * that is trained.
 */
static void mark_wanted(const struct device_graph *graph, bool *wanted)
{
	for (uint32_t i = graph->node_count; i-- > 0;) {
		const struct device_node *node = graph->nodes[i];

		if (node == graph->loss || (!graph->loss && !node->y->consumers))
			wanted[node->y->index] = node->y->needs_gradient;
		if (!wanted[node->y->index])
			continue;
		for (int j = 0; j < DEVICE_NODE_INPUTS; j++)
			if (node->inputs[j])
				wanted[node->inputs[j]->index] |= node->inputs[j]->needs_gradient;
	}
}

static bool has_gradient_slot(const struct cuda_program *program, const struct device_param *param)
{
	for (uint32_t i = 0; i < program->tensor_count; i++)
		if (program->tensors[i]->param == param &&
		    program->tensors[i]->storage == CUDA_IN_PARAMETER &&
		    program->tensors[i]->slot == DEVICE_GRAD)
			return true;
	return false;
}

static unsigned readable(const struct cuda_program *program, const struct device_value *value,
			 bool gradient)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];

		count += tensor->value == value && tensor->gradient == gradient && tensor->kept;
	}
	return count;
}

/*
 * Weights of a store that gathers them are read from buckets only, each gathered once a direction,
 * and folded anew with each batch.
 */
static void check_gathers(const struct cuda_program *program)
{
	bool gathers = program->graph->params->shards.gathers;
	unsigned gathered[2][DEVICE_SHARD_BUCKETS_MAX] = {0};

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->slot == DEVICE_VALUE && tensor->storage != CUDA_IN_ARENA)
			assert_int_equal(tensor->storage == CUDA_IN_BUCKET,
					 gathers && device_param_row(tensor->param));
	}
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		if (op->kind == CUDA_OP_GATHER)
			assert_int_equal(gathered[op->backward][op->gather.bucket]++, 0);
		if (op->operands[CUDA_W] && op->operands[CUDA_W]->storage == CUDA_IN_BUCKET)
			assert_false(op->operands[CUDA_W16] && cuda_op_is_constant(op));
	}
}

static void check_random(const struct cuda_program *program)
{
	const struct device_graph *graph = program->graph;
	bool *wanted = calloc(graph->value_count + 1, sizeof(bool));
	bool *wanted_params = calloc(graph->params->count + 1, sizeof(bool));

	bool training = graph->options.mode == DEVICE_TRAIN;
	if (training)
		mark_wanted(graph, wanted);
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct device_node *node = graph->nodes[i];

		for (int j = 0; j < DEVICE_NODE_PARAMS; j++)
			if (wanted[node->y->index] && is_trained(node->params[j]))
				wanted_params[node->params[j]->index] = true;
	}
	for (size_t i = 0; i < graph->params->count; i++)
		assert_int_equal(has_gradient_slot(program, graph->params->items[i]),
				 wanted_params[i]);
	for (uint32_t i = 0; i < graph->value_count; i++) {
		const struct device_value *value = graph->values[i];
		bool end = (!value->consumers && !value->saved) ||
			   (graph->loss && graph->loss->x == value);
		bool given = training && !graph->loss && !value->consumers && wanted[i];

		assert_int_equal(readable(program, value, false), end || graph->options.keep_all);
		assert_int_equal(readable(program, value, true),
				 given || (graph->options.keep_all && wanted[i]));
	}
	free(wanted);
	free(wanted_params);
}

static unsigned lines_of(const char *text)
{
	unsigned lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

/* Counts of each operation and pattern. */
struct pattern_counts {
	unsigned kinds[CUDA_OP_KINDS], prologues[4], epilogues[5], shortcuts[3], adds;
};

static void count_patterns(const struct cuda_program *program, struct pattern_counts *seen)
{
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		seen->kinds[op->kind]++;
		seen->adds += op->adds != 0;
		if (op->kind != CUDA_OP_CONV)
			continue;
		seen->prologues[op->conv.problem.prologue]++;
		seen->epilogues[op->conv.problem.epilogue]++;
		seen->shortcuts[op->conv.problem.shortcut]++;
	}
}

/* Asserts that every operation and pattern occurred. */
static void check_pattern_counts(const struct pattern_counts *seen)
{
	for (int i = 0; i < CUDA_OP_KINDS; i++)
		if (!seen->kinds[i])
			fail_msg("no %s", cuda_op_name((enum cuda_op_kind)i));
	for (int i = 0; i < 4; i++)
		assert_int_not_equal(seen->prologues[i], 0);
	for (int i = 0; i < 5; i++)
		assert_int_not_equal(seen->epilogues[i], 0);
	for (int i = 0; i < 3; i++)
		assert_int_not_equal(seen->shortcuts[i], 0);
	assert_int_not_equal(seen->adds, 0);
}

TEST(random)
{
	struct pattern_counts seen = {0};

	for (uint64_t seed = 0; seed < 5000; seed++) {
		struct program_options options = {
			.fusion = (enum device_fusion)(DEVICE_FUSION_NONE + seed % 3),
			.element = (enum cuda_element)(seed / 3 % 3),
			.conv = &stub_conv,
			.matmul = &stub_matmul,
		};
		struct random_graph_options graph_options = {
			.seed = seed,
			.mode = seed % 10 == 9 ? DEVICE_EVAL : DEVICE_TRAIN,
			.keep_all = seed % 7 == 6,
			.loss = seed % 2,
			.nodes = 1 + seed % 24,
			.samples = 2,
			.recompute = seed % 4,
			.shard = seed % 5 ? DEVICE_SHARD_NONE : DEVICE_SHARD_PARAMETERS,
		};
		char error[DEVICE_ERROR_MAX] = "";
		struct random_graph random;
		struct device *device;

		refusal_seed = seed;
		refusal_share = seed / 9 % 3 * 3;
		stub_refuse = refuse_some;
		assert_int_equal(planner_open(&options, &device), 0);
		device->options.comm = &ranks;
		random_graph_new(device, &graph_options, &random);
		if (device_graph_plan(random.graph, error) ||
		    program_check(planner_program(random.graph), error))
			fail_msg("seed %llu: %s", (unsigned long long)seed, error);
		const struct cuda_program *program = planner_program(random.graph);
		plan_run_memory(program);
		check_random(program);
		check_gathers(program);
		count_patterns(program, &seen);
		assert_int_equal(program->fallbacks, lines_of(program->log));
		if (options.fusion == DEVICE_FUSION_NONE)
			assert_int_equal(program->fallbacks, 0);
		random_graph_free(&random);
		device_close(device);
		assert_int_equal(stub_plans, 0);
	}
	stub_refuse = NULL;
	check_pattern_counts(&seen);
}

/* ---- the order of sums over ranks ---- */

#define SUMS_MAX 400

/*
 * All-reduces of a step with synchronized norms, and gathers of weights, in order; and for each
 * parameter, the number of them that start before its gradient is complete.
 */
struct sums {
	uint32_t nodes[SUMS_MAX], count;
	uint32_t before[SUMS_MAX]; /* indexed by parameter */
};

static void find_sums(const struct cuda_program *program, struct sums *ret_sums)
{
	memset(ret_sums, 0, sizeof(*ret_sums));
	assert_true(program->op_count <= SUMS_MAX && program->graph->params->count <= SUMS_MAX);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		if (cuda_op_def(op)->across_ranks || op->kind == CUDA_OP_LOSS)
			ret_sums->nodes[ret_sums->count++] = op->node->index;
		if (op->kind == CUDA_OP_GATHER)
			ret_sums->nodes[ret_sums->count++] = UINT32_MAX - op->gather.bucket;
		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct cuda_tensor *tensor = op->operands[role];

			if (tensor && tensor->storage == CUDA_IN_PARAMETER &&
			    tensor->slot == DEVICE_GRAD && cuda_op_writes(op, (enum cuda_role)role))
				ret_sums->before[tensor->param->index] = ret_sums->count;
		}
	}
}

/* Like cuDNN: no fp32 gradients of 16-bit weights. */
static bool refuse_wide(const struct conv_problem *problem)
{
	return problem->direction == CONV_WEIGHTS && problem->gradient != problem->element;
}

/*
 * As refuse_wide(); also refuses fused forward passes and data gradients at random, as tuning does
 * if unfused parts are faster.
 */
static bool refuse_as_tuning(const struct conv_problem *problem)
{
	return refuse_wide(problem) || (problem->direction != CONV_WEIGHTS && refuse_some(problem));
}

static void lower_random(uint64_t seed, enum device_mode mode, stub_refuses refuse,
			 struct sums *ret_sums, uint32_t *ret_fallbacks)
{
	const struct program_options options = {
		.fusion = DEVICE_FUSION_C,
		.element = seed % 2 ? CUDA_F16 : CUDA_F32,
		.conv = &stub_conv,
		.matmul = &stub_matmul,
	};
	const struct random_graph_options graph_options = {
		.seed = seed,
		.mode = mode,
		.loss = true,
		.nodes = 1 + seed % 24,
		.samples = 2,
		.shard = mode == DEVICE_EVAL ? DEVICE_SHARD_PARAMETERS : DEVICE_SHARD_NONE,
	};
	char error[DEVICE_ERROR_MAX] = "";
	struct random_graph random;
	struct device *device;

	refusal_seed = seed;
	refusal_share = 1 + seed % 8;
	stub_refuse = refuse;
	assert_int_equal(planner_open(&options, &device), 0);
	device->options.comm = &ranks;
	random_graph_new(device, &graph_options, &random);
	if (device_graph_plan(random.graph, error))
		fail_msg("seed %llu: %s", (unsigned long long)seed, error);
	find_sums(planner_program(random.graph), ret_sums);
	*ret_fallbacks = planner_program(random.graph)->fallbacks;
	random_graph_free(&random);
	device_close(device);
	stub_refuse = NULL;
}

/*
 * The order of sums over ranks does not depend on the patterns that tuning unfuses, nor does that
 * of an evaluation's gathers. It does change if gradients have other elements.
 */
TEST(order_of_sums)
{
	unsigned different[2] = {0}, moved = 0;

	for (uint64_t seed = 0; seed < 2000; seed++) {
		enum device_mode mode = seed < 1000 ? DEVICE_TRAIN : DEVICE_EVAL;
		struct sums fused, apart, wide;
		uint32_t fused_fallbacks, apart_fallbacks, wide_fallbacks;

		lower_random(seed, mode, refuse_wide, &fused, &fused_fallbacks);
		lower_random(seed, mode, refuse_as_tuning, &apart, &apart_fallbacks);
		if (memcmp(&fused, &apart, sizeof(fused)) != 0)
			fail_msg("seed %llu: another order", (unsigned long long)seed);
		different[mode == DEVICE_EVAL] += apart_fallbacks != fused_fallbacks;
		if (mode == DEVICE_EVAL)
			continue;
		lower_random(seed, mode, NULL, &wide, &wide_fallbacks);
		moved += memcmp(&fused, &wide, sizeof(fused)) != 0;
	}
	/* the test is meaningful only if many programs differ and many orders change */
	assert_true(different[0] > 300 && different[1] > 300 && moved > 300);
}

/* ---- gathers of weights ---- */

#define LAYERS 5

/* Records linear layers of 64 x 64, which get a bucket each, of a store that gathers them. */
static void record_layers(struct device *device, struct device_params **ret_params,
			  struct device_graph **ret_graph)
{
	static const struct device_optimizer_spec adamw = {.kind = DEVICE_ADAMW,
							   .shard = DEVICE_SHARD_PARAMETERS};
	static const struct device_graph_options options = {.mode = DEVICE_TRAIN};
	struct device_input_spec input = {
		.name = "input", .shape = {2, 1, 1, 64}, .std = {1, 1, 1, 1}};
	char name[16];

	assert_int_equal(device_params_new(device, ret_params), 0);
	assert_int_equal(device_graph_new(*ret_params, &options, ret_graph), 0);
	struct device_value *x = device_input(*ret_graph, &input);
	for (unsigned i = 0; i < LAYERS; i++) {
		struct device_param_spec weight = {
			.name = name, .kind = DEVICE_LINEAR_WEIGHT, .shape = {64, 64}};
		struct device_linear_spec linear = {.name = name};

		snprintf(name, sizeof(name), "layer%u", i);
		assert_int_equal(device_param_add(*ret_params, &weight, &linear.weight), 0);
		x = device_linear(*ret_graph, x, &linear);
	}
	assert_int_equal(device_params_allocate(*ret_params, &adamw), 0);
}

/*
 * Each layer's weights are gathered while the layer before it computes, forward and again backward,
 * but those of the last layer once, and those of the first, whose input has no gradient, forward
 * alone. So two buckets are in memory at a time.
 */
TEST(gathers)
{
	const struct program_options options = {.fusion = DEVICE_FUSION_B,
						.element = CUDA_BF16,
						.conv = &stub_conv,
						.matmul = &stub_matmul};
	char error[DEVICE_ERROR_MAX] = "", order[128] = "";
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;

	assert_int_equal(planner_open(&options, &device), 0);
	device->options.comm = &ranks;
	record_layers(device, &params, &graph);
	if (device_graph_plan(graph, error) || program_check(planner_program(graph), error))
		fail_msg("%s", error);
	const struct cuda_program *program = planner_program(graph);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];
		const struct cuda_tensor *w = op->operands[CUDA_W];
		unsigned live = 0;

		/* buckets are in the order in which backward completes them */
		if (op->kind == CUDA_OP_GATHER)
			snprintf(order + strlen(order), 8, "+%u ", LAYERS - 1 - op->gather.bucket);
		else if (w)
			snprintf(order + strlen(order), 8, "%s ", w->param->name + 5);
		for (uint32_t j = 0; j < program->tensor_count; j++) {
			const struct cuda_tensor *bucket = program->tensors[j]->bucket;

			live += bucket && ((i >= bucket->first && i <= bucket->last) ||
					   (bucket->second_first && i >= bucket->second_first &&
					    i <= bucket->second_last));
		}
		assert_in_range(live, 0, 2);
	}
	assert_string_equal(order, "+0 +1 0 +2 1 +3 2 +4 3 4 +3 4 +2 3 +1 2 1 ");
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}

/* ---- one pattern without a plan ---- */

static struct conv_problem
	refused; /* matched by direction, prologue, epilogue and c; c = 0 matches every shape */

static bool refuse_one(const struct conv_problem *problem)
{
	return problem->direction == refused.direction && problem->prologue == refused.prologue &&
	       problem->epilogue == refused.epilogue && (!refused.c || problem->c == refused.c);
}

struct counts {
	unsigned kinds[CUDA_OP_KINDS];
	unsigned prologues[3][4]; /* [direction][prologue] */
	unsigned epilogues[3][5];
};

static void count(const struct cuda_program *program, struct counts *ret_counts)
{
	memset(ret_counts, 0, sizeof(*ret_counts));
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		ret_counts->kinds[op->kind]++;
		if (op->kind != CUDA_OP_CONV)
			continue;
		ret_counts->prologues[op->conv.problem.direction][op->conv.problem.prologue]++;
		ret_counts->epilogues[op->conv.problem.direction][op->conv.problem.epilogue]++;
	}
}

static void lower_resnet50(const struct conv_problem *without, struct counts *ret_counts,
			   char *ret_log, size_t size)
{
	struct plan_fixture f;

	if (without)
		refused = *without;
	stub_refuse = without ? refuse_one : NULL;
	plan_fixture_init(&f, "model.name=resnet50", 1000, DEVICE_FUSION_C, CUDA_F16);
	const struct cuda_program *program = plan_fixture_program(&f, DEVICE_TRAIN, 8, 224, false);
	plan_run_memory(program);
	count(program, ret_counts);
	snprintf(ret_log, size, "%s", program->log);
	assert_int_equal(program->fallbacks, lines_of(program->log));
	stub_refuse = NULL;
	plan_fixture_deinit(&f);
}

#define FORWARD CONV_FORWARD
#define WEIGHTS CONV_WEIGHTS
#define DATA    CONV_DATA

/*
 * Refuses one pattern of ResNet-50 at one number of input channels: only its convolutions are
 * unfused, and the log names them.
 */
TEST(taken_apart)
{
	static const struct {
		struct conv_problem without;
		unsigned lines;
		const char *first;      /* beginning of the log */
		enum cuda_op_kind kind; /* operation added for the unfused pattern */
		int more;
	} cases[] = {
		/* the second and third convolutions of layer4's blocks */
		{{.direction = FORWARD,
		  .prologue = CONV_SCALE_BIAS_RELU,
		  .epilogue = CONV_STATISTICS,
		  .c = 512},
		 6,
		 "layer4.0.conv2: no plan for forward 3x3/2 512>512",
		 CUDA_OP_STATISTICS,
		 6},
		{{.direction = FORWARD,
		  .prologue = CONV_DUAL_SCALE_BIAS_ADD_RELU,
		  .epilogue = CONV_STATISTICS,
		  .c = 1024},
		 1,
		 "layer3.1.conv1: no plan for forward 1x1/1 1024>256 14x14 n8 f16 "
		 "dual-scale-bias-add-relu statistics; the norm's sums",
		 CUDA_OP_STATISTICS,
		 1},
		{{.direction = FORWARD,
		  .prologue = CONV_PLAIN,
		  .epilogue = CONV_STATISTICS,
		  .c = 4},
		 1,
		 "conv1: no plan for forward 7x7/2 4>64",
		 CUDA_OP_STATISTICS,
		 1},
		{{.direction = WEIGHTS, .prologue = CONV_SCALE_BIAS_RELU, .c = 128},
		 8,
		 "layer2.3.conv3: no plan for weight gradient",
		 CUDA_OP_APPLY,
		 8},
		{{.direction = DATA, .epilogue = CONV_RELU_NORM, .c = 64},
		 6,
		 "layer1.2.conv3: no plan for data gradient",
		 CUDA_OP_NORM_REDUCE,
		 6},
		/* layer4.1.conv1's input sums two norms, one of them the downsampling's */
		{{.direction = DATA, .epilogue = CONV_RELU_NORM, .c = 2048},
		 2,
		 "layer4.2.conv1: no plan for data gradient",
		 CUDA_OP_NORM_REDUCE,
		 3},
		/* the max pool backward reads both gradients, so no CUDA_OP_ADD is needed */
		{{.direction = DATA, .epilogue = CONV_ADD, .c = 64},
		 1,
		 "layer1.0.downsample.0: no plan for data gradient",
		 CUDA_OP_ADD,
		 0},
	};
	struct counts whole, taken;
	char log[16384];

	lower_resnet50(NULL, &whole, log, sizeof(log));
	assert_string_equal(log, "");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		lower_resnet50(&cases[i].without, &taken, log, sizeof(log));
		assert_int_equal(lines_of(log), cases[i].lines);
		if (strncmp(log, cases[i].first, strlen(cases[i].first)) != 0)
			fail_msg("the log begins with %.200s", log);
		assert_int_equal(taken.kinds[cases[i].kind],
				 (int)whole.kinds[cases[i].kind] + cases[i].more);
		assert_int_equal(taken.kinds[CUDA_OP_CONV], whole.kinds[CUDA_OP_CONV]);
	}
}

static bool refuse_prologues(const struct conv_problem *problem)
{
	return problem->prologue != CONV_PLAIN;
}

static bool refuse_fusions(const struct conv_problem *problem)
{
	return problem->prologue != CONV_PLAIN || problem->epilogue != CONV_STORE;
}

/*
 * If no fused pattern has a plan, level C runs the same operations as level B, except for the max
 * pool.
 */
TEST(all_unfused)
{
	struct plan_fixture f;
	struct counts b, c;

	plan_fixture_init(&f, "model.name=resnet50", 1000, DEVICE_FUSION_B, CUDA_F16);
	count(plan_fixture_program(&f, DEVICE_TRAIN, 8, 64, false), &b);
	plan_fixture_deinit(&f);
	stub_refuse = refuse_fusions;
	plan_fixture_init(&f, "model.name=resnet50", 1000, DEVICE_FUSION_C, CUDA_F16);
	count(plan_fixture_program(&f, DEVICE_TRAIN, 8, 64, false), &c);
	assert_int_equal(f.options.fusion, DEVICE_FUSION_C);
	plan_fixture_deinit(&f);
	assert_int_equal(c.kinds[CUDA_OP_APPLY], b.kinds[CUDA_OP_APPLY] - 1);
	assert_int_equal(c.kinds[CUDA_OP_STATISTICS], b.kinds[CUDA_OP_STATISTICS]);
	assert_int_equal(c.kinds[CUDA_OP_NORM_REDUCE], b.kinds[CUDA_OP_NORM_REDUCE] - 1);
	assert_int_equal(c.kinds[CUDA_OP_MAX_POOL_NORM_REDUCE], 1);

	/* without prologues only: statistics and data gradients stay fused */
	stub_refuse = refuse_prologues;
	plan_fixture_init(&f, "model.name=resnet50", 1000, DEVICE_FUSION_C, CUDA_F16);
	count(plan_fixture_program(&f, DEVICE_TRAIN, 8, 64, false), &c);
	plan_fixture_deinit(&f);
	stub_refuse = NULL;
	assert_int_equal(c.kinds[CUDA_OP_APPLY], 48);
	assert_int_equal(c.kinds[CUDA_OP_STATISTICS], 0);
	assert_int_equal(c.epilogues[CONV_DATA][CONV_RELU_NORM], 47);
	assert_int_equal(c.prologues[CONV_FORWARD][CONV_PLAIN], 53);
}

/* ---- channels and gradients that engines do not support ---- */

static uint32_t channels_min;

static bool refuse_few_channels(const struct conv_problem *problem)
{
	return problem->c < channels_min;
}

static bool refuse_wide_gradients(const struct conv_problem *problem)
{
	return problem->direction == CONV_WEIGHTS && problem->gradient == CUDA_F32;
}

TEST(input_channels)
{
	static const uint32_t expected[] = {4, 4, 4, 4, 4, 8, 8, 8, 8};

	for (uint32_t min = 0; min <= 8; min++) {
		struct plan_fixture f;

		channels_min = min;
		stub_refuse = refuse_few_channels;
		plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_F16);
		const struct cuda_program *program =
			plan_fixture_program(&f, DEVICE_TRAIN, 2, 64, false);
		assert_int_equal(program->ops[0].operands[CUDA_Y]->shape.c, expected[min]);
		assert_int_equal(program->ops[1].operands[CUDA_W]->shape.c, expected[min]);
		plan_fixture_deinit(&f);
	}
	stub_refuse = NULL;
}

TEST(narrow_gradients)
{
	unsigned launches = 0, launched = 0;
	struct plan_fixture f;
	struct counts counts;

	stub_refuse = refuse_wide_gradients;
	plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_F16);
	const struct cuda_program *program = plan_fixture_program(&f, DEVICE_TRAIN, 2, 64, false);
	count(program, &counts);
	stub_refuse = NULL;
	assert_int_equal(counts.kinds[CUDA_OP_WEIGHT_GRADIENT], 20);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		if (op->kind != CUDA_OP_WEIGHT_GRADIENT)
			continue;
		assert_int_equal(op->operands[CUDA_X]->element, CUDA_F16);
		assert_true(op->batch.launched <= CUDA_GRADIENT_BATCH_MAX);
		/* the stem's gradient drops the padding channel, so it has a separate launch */
		if (strcmp(op->node->name, "conv1") == 0)
			assert_int_equal(op->batch.launched, 1);
		launches += op->batch.launched > 0;
		launched += op->batch.launched;
		for (uint32_t j = 1; j < op->batch.launched; j++)
			assert_true(op[j].kind == CUDA_OP_WEIGHT_GRADIENT && !op[j].batch.launched);
	}
	assert_int_equal(launched, 20);
	/* three gradients of 2.4 million elements, the others gathered, and the stem */
	assert_in_range(launches, 5, 10);
	plan_fixture_deinit(&f);
}

static bool refuse_all(const struct conv_problem *problem)
{
	return true;
}

static bool refuse_data(const struct conv_problem *problem)
{
	return problem->direction == CONV_DATA;
}

static void expect_refusal(stub_refuses refuse, const char *words)
{
	static const struct device_graph_options training = {.mode = DEVICE_TRAIN};
	struct model_input input = {.count = 2, .height = 64, .width = 64, .std = {1, 1, 1}};
	char error[DEVICE_ERROR_MAX] = "";
	struct device_graph *graph;
	struct plan_fixture f;

	stub_refuse = refuse;
	plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_BF16);
	assert_int_equal(device_graph_new(f.params, &training, &graph), 0);
	model_record(f.model, graph, &input);
	assert_int_equal(device_graph_plan(graph, error), -ENOTSUP);
	if (!strstr(error, words))
		fail_msg("\"%s\" does not say \"%s\"", error, words);
	stub_refuse = NULL;
	device_graph_free(graph);
	plan_fixture_deinit(&f);
	assert_int_equal(stub_plans, 0);
}

TEST(refusal)
{
	expect_refusal(refuse_all, "conv1: the library has no plan for forward 7x7/2 3>64");
	expect_refusal(refuse_data, "layer4.1.conv2: the library has no plan for data gradient");
}

TEST(pool_window)
{
	static const struct device_graph_options training = {.mode = DEVICE_TRAIN};
	struct device_input_spec input = {
		.name = "input", .shape = {1, 40, 40, 8}, .std = {1, 1, 1, 1}};
	char error[DEVICE_ERROR_MAX] = "";
	struct device_graph *graph;
	struct plan_fixture f;

	for (uint32_t window = 16; window <= 17; window++) {
		struct device_pool_spec pool = {"wide", window, 1, 0};

		plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_F16);
		assert_int_equal(device_graph_new(f.params, &training, &graph), 0);
		device_max_pool(graph, device_input(graph, &input), &pool);
		assert_int_equal(device_graph_plan(graph, error), window > 16 ? -ENOTSUP : 0);
		device_graph_free(graph);
		plan_fixture_deinit(&f);
	}
	assert_non_null(strstr(error, "wide: a maximum over a window of 17"));
}

/*
 * Heads have at most 64 channels. The products with scores and their gradients count as FLOPs, but
 * no T x T tensor is kept.
 */
TEST(attention)
{
	static const struct device_graph_options training = {.mode = DEVICE_TRAIN};
	const double positions = 14 * 14, forward = 4 * 2 * positions * positions * 384;
	struct device_input_spec input = {.name = "input",
					  .shape = {2, 14, 14, 3 * 384},
					  .std = {1, 1, 1, 1},
					  .gradient = true};
	char error[DEVICE_ERROR_MAX] = "";
	struct device_graph_info info;
	struct device_graph *graph;
	struct plan_fixture f;

	for (uint32_t heads = 4; heads <= 6; heads += 2) {
		struct device_attention_spec spec = {"attention", heads};

		plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_F16);
		assert_int_equal(device_graph_new(f.params, &training, &graph), 0);
		device_attention(graph, device_input(graph, &input), &spec);
		if (heads == 4) {
			assert_int_equal(device_graph_plan(graph, error), -ENOTSUP);
			assert_non_null(strstr(
				error,
				"attention: heads of 96 channels, but attention on a GPU takes at "
				"most 64; make the network narrower, or compute on the CPU"));
		} else {
			uint64_t qkv = (uint64_t)(2 * positions) * 3 * 384 * 2;

			assert_int_equal(device_graph_plan(graph, error), 0);
			device_graph_info(graph, &info);
			assert_true(info.flops_forward == forward);
			assert_true(info.flops_backward == 2 * forward);
			/*
			 * the input converts bytes to qkv; the log-sum-exp is one float per query
			 * and head
			 */
			assert_true(info.bytes_forward ==
				    (double)(qkv / 2 + qkv + qkv + qkv / 3 + 2 * 6 * 14 * 14 * 4));
			assert_true(info.arena_bytes < 3 * qkv);
		}
		device_graph_free(graph);
		plan_fixture_deinit(&f);
	}
}
