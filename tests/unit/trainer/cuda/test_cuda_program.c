/*
 * Lowering of models: consistent programs at every level, the pattern of each convolution of
 * ResNet-50, lifetimes, memory, bytes and FLOPs, and errors that program_check() detects. Stub
 * engines supply the plans.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"

static const struct {
	const char *settings;
	uint32_t side;
} models[] = {
	{"model.name=resnet18", 64},
	{"model.name=resnet50 model.zero_init=no", 64},
	{"model.name=resnet101 model.width=0.25", 64},
	{"model.name=resnet34 model.stem=cifar", 32},
	{"model.name=resnet_cifar model.depth=20", 32},
	{"model.name=speednet model.activation=gelu", 32},
	{"model.name=speednet model.activation=relu model.whiten=no", 32},
};

TEST(models)
{
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		for (int way = 0; way < 3 * 3 * 2 * 2; way++) {
			enum device_fusion fusion = DEVICE_FUSION_NONE + way % 3;
			enum cuda_element element = way / 3 % 3;
			enum device_mode mode = way / 9 % 2 ? DEVICE_EVAL : DEVICE_TRAIN;
			bool keep_all = way / 18;
			struct plan_fixture f;

			plan_fixture_init(&f, models[i].settings, 10, fusion, element);
			const struct cuda_program *program =
				plan_fixture_program(&f, mode, 4, models[i].side, keep_all);
			plan_run_memory(program);
			assert_int_equal(program->fallbacks, 0);
			assert_string_equal(program->log, "");
			assert_int_equal(program->backward_start == program->op_count,
					 mode == DEVICE_EVAL);
			if (!keep_all)
				assert_true(program->arena.size < program->arena.unshared);
			plan_fixture_deinit(&f);
			assert_int_equal(stub_plans, 0);
		}
	}
}

/*
 * Every trained parameter gets a gradient, and each gradient is written once: directly, or by a
 * conversion from another element.
 */
TEST(gradients)
{
	struct plan_fixture f;
	unsigned slots = 0, wanted = 0;

	plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_C, CUDA_F16);
	const struct cuda_program *program = plan_fixture_program(&f, DEVICE_TRAIN, 4, 64, false);
	for (uint32_t i = 0; i < program->tensor_count; i++)
		slots += program->tensors[i]->storage == CUDA_IN_PARAMETER &&
			 program->tensors[i]->slot == DEVICE_GRAD;
	for (size_t i = 0; i < device_params_count(f.params); i++)
		wanted += device_param_spec(device_params_at(f.params, i))->kind != DEVICE_BUFFER;
	assert_int_equal(slots, wanted);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		assert_int_equal(op->adds, 0);
		/* conv1's padded channels prevent writing directly to the parameter's gradient */
		if (op->kind == CUDA_OP_CONV && op->conv.problem.direction == CONV_WEIGHTS)
			assert_int_equal(op->operands[CUDA_DW]->storage == CUDA_IN_PARAMETER,
					 strcmp(op->node->name, "conv1") != 0);
		if (op->operands[CUDA_DW] && op->operands[CUDA_DW]->storage == CUDA_IN_PARAMETER &&
		    op->kind != CUDA_OP_WEIGHT_GRADIENT)
			assert_int_equal(op->operands[CUDA_ADDEND]->bytes,
					 op->operands[CUDA_DW]->bytes);
	}
	plan_fixture_deinit(&f);
}

/* ---- ResNet-50 at level C ---- */

struct conv_role {
	bool stem, downsample, first_block, first_stage, after_downsample;
	unsigned conv_number; /* number of the convolution in its block, from 1 */
};

static struct conv_role conv_role_of(const char *name)
{
	struct conv_role place = {0};
	unsigned stage, block, number;

	if (sscanf(name, "layer%u.%u.conv%u", &stage, &block, &number) == 3) {
		place.conv_number = number;
		place.first_block = block == 0;
		place.after_downsample = block == 1;
	} else if (sscanf(name, "layer%u.%u.downsample", &stage, &block) == 2) {
		place.downsample = true;
	} else {
		assert_string_equal(name, "conv1");
		place.stem = true;
		return place;
	}
	place.first_stage = stage == 1;
	return place;
}

static enum conv_prologue expected_prologue(const struct conv_role *p, const char *name)
{
	if (p->stem || p->downsample)
		return CONV_PLAIN;
	if (p->conv_number > 1)
		return CONV_SCALE_BIAS_RELU;
	if (p->first_block)
		/* the input comes from the max pool, or from a block without downsampling */
		return p->first_stage ? CONV_PLAIN : CONV_SCALE_BIAS_ADD_RELU;
	return p->after_downsample ? CONV_DUAL_SCALE_BIAS_ADD_RELU : CONV_SCALE_BIAS_ADD_RELU;
}

/*
 * The epilogue continues into the ReLU and norm that produced the input, if any. At the end of a
 * block it also reads the addend of the shortcut and the gradient that arrived through the
 * shortcut.
 */
static void check_data(const struct conv_problem *problem, const struct conv_role *p)
{
	bool sum = p->conv_number == 1 && !(p->first_block && p->first_stage);
	bool norm = p->conv_number > 1 || sum;

	if (p->downsample)
		assert_int_equal(problem->epilogue, p->first_stage ? CONV_ADD : CONV_STORE);
	else
		assert_int_equal(problem->epilogue, norm ? CONV_RELU_NORM : CONV_STORE);
	assert_int_equal(problem->residual, sum);
	assert_int_equal(problem->shortcut, !sum                  ? CONV_NO_SHORTCUT
					    : p->after_downsample ? CONV_SHORTCUT_NORM
								  : CONV_SHORTCUT);
}

static void check_conv(const struct cuda_op *op)
{
	const struct conv_problem *problem = &op->conv.problem;
	struct conv_role place = conv_role_of(op->node->name);

	switch (problem->direction) {
	case CONV_FORWARD:
		assert_int_equal(problem->prologue, expected_prologue(&place, op->node->name));
		assert_int_equal(problem->epilogue, CONV_STATISTICS);
		break;
	case CONV_DATA:
		check_data(problem, &place);
		break;
	case CONV_WEIGHTS:
		assert_int_equal(problem->prologue,
				 place.conv_number > 1 ? CONV_SCALE_BIAS_RELU : CONV_PLAIN);
		assert_int_equal(problem->gradient, CUDA_F32);
		break;
	}
}

static unsigned count_kind(const struct cuda_program *program, enum cuda_op_kind kind)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < program->op_count; i++)
		count += program->ops[i].kind == kind;
	return count;
}

TEST(resnet50)
{
	unsigned directions[3] = {0};
	struct plan_fixture f;

	plan_fixture_init(&f, "model.name=resnet50", 1000, DEVICE_FUSION_C, CUDA_F16);
	const struct cuda_program *program =
		plan_fixture_program(&f, DEVICE_TRAIN, 256, 224, false);
	plan_run_memory(program);
	for (uint32_t i = 0; i < program->op_count; i++) {
		if (program->ops[i].kind != CUDA_OP_CONV)
			continue;
		check_conv(&program->ops[i]);
		directions[program->ops[i].conv.problem.direction]++;
	}
	assert_int_equal(directions[CONV_FORWARD], 53);
	assert_int_equal(directions[CONV_DATA], 52);
	assert_int_equal(directions[CONV_WEIGHTS], 53);
	/* one activation is computed separately: the last block's, for the pool */
	assert_int_equal(count_kind(program, CUDA_OP_APPLY), 1);
	assert_int_equal(count_kind(program, CUDA_OP_STATISTICS), 0);
	assert_int_equal(count_kind(program, CUDA_OP_NORM_FINALIZE), 53);
	/*
	 * and the sums of one norm, in the same block; data gradients and the max pool compute the
	 * other 52
	 */
	assert_int_equal(count_kind(program, CUDA_OP_NORM_REDUCE), 1);
	assert_int_equal(count_kind(program, CUDA_OP_NORM_BACKWARD_APPLY), 52);
	assert_int_equal(count_kind(program, CUDA_OP_MAX_POOL_NORM_REDUCE), 1);
	assert_int_equal(count_kind(program, CUDA_OP_MAX_POOL_NORM_APPLY), 1);
	assert_int_equal(count_kind(program, CUDA_OP_MAX_POOL_BACKWARD), 0);
	assert_int_equal(count_kind(program, CUDA_OP_ADD), 0);
	assert_int_equal(count_kind(program, CUDA_OP_MATMUL), 3);
	plan_fixture_deinit(&f);
}

/*
 * Bytes and FLOPs of ResNet-50 at 224, batch 256, against numbers counted by hand layer by layer:
 * 475 MB per image unfused, 367 at level B and 308 at level C. These programs move less, for three
 * reasons:
 * - a downsampling's norm is applied in the block's sum
 * - the gradient before the activation is not stored if raw determines the derivative
 * - at level C data gradients continue through a block's sum into its norms
 */
TEST(traffic)
{
	static const struct {
		double min, max;
	} megabytes[] = {{472, 478}, {348, 356}, {260, 267}};
	uint64_t arena[3];

	for (int level = 0; level < 3; level++) {
		double bytes = 0, flops = 0;
		struct plan_fixture f;

		plan_fixture_init(&f, "model.name=resnet50", 1000,
				  (enum device_fusion)(DEVICE_FUSION_NONE + level), CUDA_F16);
		const struct cuda_program *program =
			plan_fixture_program(&f, DEVICE_TRAIN, 256, 224, false);
		for (uint32_t i = 0; i < program->op_count; i++) {
			bytes += (double)program->ops[i].bytes;
			flops += program->ops[i].flops;
		}
		assert_in_range((uint64_t)(bytes / 256), (uint64_t)(megabytes[level].min * 1e6),
				(uint64_t)(megabytes[level].max * 1e6));
		assert_in_range((uint64_t)(flops / 256e6), 24250, 24350);
		arena[level] = program->arena.size;
		assert_true(arena[level] < program->arena.unshared / 2);
		plan_fixture_deinit(&f);
	}
	/* tensors that are never stored take no memory */
	assert_true(arena[2] < arena[1] && arena[1] < arena[0]);
}

/* Returns the arena bytes of a training step with batches of 32; *ret_flops is its FLOPs. */
static uint64_t step_bytes(const char *settings, enum device_fusion fusion, double *ret_flops)
{
	struct device_graph_info info = {0};
	struct plan_fixture f;

	plan_fixture_init(&f, settings, 1000, fusion, CUDA_BF16);
	const struct cuda_program *program = plan_fixture_program(&f, DEVICE_TRAIN, 32, 224, false);
	plan_run_memory(program);
	program_info(program, &info);
	plan_fixture_deinit(&f);
	assert_int_equal(stub_plans, 0);
	*ret_flops = info.flops_forward + info.flops_backward;
	return info.arena_bytes;
}

/*
 * Recomputed tensors take no memory between forward and backward, and cost at most a third more
 * arithmetic.
 */
TEST(recompute)
{
	static const struct {
		const char *kept, *anew;
		/*
		 * upper bound on memory, in percent of that without recomputation, by level; at
		 * level C the next block's convolution stores a block's sum, so the sum's operands
		 * live until then
		 */
		uint64_t percent[3];
	} cases[] = {
		{"model.name=resnet50", "model.name=resnet50 train.recompute=1", {35, 35, 70}},
		{"model.name=resnet50 model.squeeze_excite=yes model.blur=all model.drop_path=0.1",
		 "model.name=resnet50 model.squeeze_excite=yes model.blur=all model.drop_path=0.1 "
		 "train.recompute=1",
		 {35, 35, 35}},
		{"model.name=vit_small_patch16",
		 "model.name=vit_small_patch16 train.recompute=1",
		 {20, 20, 20}},
		{"model.name=vit_small_patch16",
		 "model.name=vit_small_patch16 train.recompute=3",
		 {32, 32, 32}},
		{"model.name=convnext_tiny",
		 "model.name=convnext_tiny train.recompute=1",
		 {25, 25, 25}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int level = 0; level < 3; level++) {
			enum device_fusion fusion =
				(enum device_fusion)(DEVICE_FUSION_NONE + level);
			double flops, again;
			uint64_t kept = step_bytes(cases[i].kept, fusion, &flops);
			uint64_t anew = step_bytes(cases[i].anew, fusion, &again);

			print_message("%s, level %d: %.0f MB of %.0f MB, %.2f times the FLOPs\n",
				      cases[i].anew, level, (double)anew / 1e6, (double)kept / 1e6,
				      again / flops);
			assert_true(anew * 100 < kept * cases[i].percent[level]);
			assert_true(again > flops && again < flops * 1.34);
		}
}

/* ---- evaluation ---- */

TEST(evaluation)
{
	for (int level = 0; level < 3; level++) {
		unsigned bias = 0, residual = 0;
		struct plan_fixture f;

		plan_fixture_init(&f, "model.name=resnet18", 10,
				  (enum device_fusion)(DEVICE_FUSION_NONE + level), CUDA_BF16);
		const struct cuda_program *program =
			plan_fixture_program(&f, DEVICE_EVAL, 4, 64, false);
		for (uint32_t i = 0; i < program->op_count; i++) {
			const struct cuda_op *op = &program->ops[i];

			if (op->kind != CUDA_OP_CONV || op->conv.problem.epilogue != CONV_BIAS)
				continue;
			bias++;
			residual += op->conv.problem.residual;
		}
		/* weights of convolutions are folded, those of the last layer converted */
		assert_int_equal(count_kind(program, CUDA_OP_FOLD), 21);
		assert_int_equal(bias, level ? 20 : 0);
		assert_int_equal(residual, level ? 8 : 0);
		assert_int_equal(count_kind(program, CUDA_OP_NORM_RUNNING), level ? 0 : 20);
		assert_int_equal(count_kind(program, CUDA_OP_APPLY), level ? 0 : 20 + 17);
		plan_fixture_deinit(&f);
	}
}

/* ---- what program_check() finds ---- */

static void expect_wrong(const struct cuda_program *program, const char *words)
{
	char error[DEVICE_ERROR_MAX] = "";

	assert_int_equal(program_check(program, error), -EINVAL);
	if (!strstr(error, words))
		fail_msg("\"%s\" does not say \"%s\"", error, words);
}

static struct cuda_op *first_of(struct cuda_program *program, enum cuda_op_kind kind)
{
	for (uint32_t i = 0; i < program->op_count; i++)
		if (program->ops[i].kind == kind)
			return &program->ops[i];
	fail_msg("no such operation");
	return NULL;
}

TEST(check)
{
	struct plan_fixture f;

	plan_fixture_init(&f, "model.name=resnet18", 10, DEVICE_FUSION_B, CUDA_F16);
	struct cuda_program *program =
		(struct cuda_program *)plan_fixture_program(&f, DEVICE_TRAIN, 4, 64, false);

	struct cuda_op *op = first_of(program, CUDA_OP_STATISTICS);
	struct cuda_op copy = op[0];
	op[0] = op[1];
	op[1] = copy;
	expect_wrong(program, "before it is written");
	copy = op[0];
	op[0] = op[1];
	op[1] = copy;

	struct cuda_tensor *tensor = op->operands[CUDA_X];
	op->operands[CUDA_X] = NULL;
	expect_wrong(program, "is missing");
	op->operands[CUDA_X] = tensor;

	uint64_t offset = program->arena.blocks[tensor->block].offset;
	program->arena.blocks[tensor->block].offset =
		program->arena.blocks[op[-1].operands[CUDA_X]->block].offset;
	expect_wrong(program, "lies on another");
	program->arena.blocks[tensor->block].offset = program->arena.size;
	expect_wrong(program, "does not lie in the arena");
	program->arena.blocks[tensor->block].offset = offset;

	tensor->last = tensor->first;
	expect_wrong(program, "outside its lifetime");
	tensor->last = program->op_count - 1;

	op = first_of(program, CUDA_OP_NORM_BACKWARD_FINALIZE);
	op->adds = (uint64_t)1 << CUDA_DGAMMA;
	expect_wrong(program, "wrong order");
	op->adds = 0;

	op = first_of(program, CUDA_OP_CONV);
	op->conv.problem.k *= 2;
	expect_wrong(program, "output shape");
	op->conv.problem.k /= 2;

	op = first_of(program, CUDA_OP_APPLY);
	op->backward = true;
	expect_wrong(program, "wrong side");
	plan_fixture_deinit(&f);
}
