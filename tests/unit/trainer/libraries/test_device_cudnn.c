/*
 * Plans that cuDNN has for a GPU that need not be present: every pattern at every shape of
 * ResNet-50 and ResNet-18, queried with the properties of an H200. Skipped if the libraries are not
 * installed. Nothing is executed.
 */
#include "tests/unit/trainer/libraries/cudnn_test.h"
#include "trainer/device/ops.h"

static void expect_no_plan(const struct sweep *sweep, const struct conv_problem *problem)
{
	const struct conv_engines *conv = &sweep->engines->conv;
	char name[160];
	struct conv_plan *plan;

	conv_problem_name(problem, name, sizeof(name));
	if (conv->plan(conv->state, problem, &plan) != -ENOENT)
		fail_msg("%s has a plan now: fuse it", name);
	assert_non_null(strstr(conv->error(conv->state), name));
}

/* All three directions, unfused. */
static void plain(struct sweep *sweep, const struct layer *layer)
{
	for (int direction = CONV_FORWARD; direction <= CONV_WEIGHTS; direction++) {
		struct conv_problem problem =
			problem_of(sweep, layer, (enum conv_direction)direction);

		expect_plan(sweep, &problem);
	}
}

static void forward(struct sweep *sweep, const struct layer *layer, enum conv_prologue prologue)
{
	struct conv_problem problem = problem_of(sweep, layer, CONV_FORWARD);

	problem.prologue = prologue;
	problem.epilogue = CONV_STATISTICS;
	expect_plan(sweep, &problem);
}

static void weights(struct sweep *sweep, const struct layer *layer, enum conv_prologue prologue)
{
	struct conv_problem problem = problem_of(sweep, layer, CONV_WEIGHTS);

	problem.prologue = prologue;
	expect_plan(sweep, &problem);
}

static void data(struct sweep *sweep, const struct layer *layer, bool residual,
		 enum conv_shortcut shortcut)
{
	struct conv_problem problem = problem_of(sweep, layer, CONV_DATA);

	problem.epilogue = CONV_RELU_NORM;
	problem.residual = residual;
	problem.shortcut = shortcut;
	expect_plan(sweep, &problem);
}

/*
 * After a convolution with norm and ReLU, both are fused into this one's prologue, and in the
 * backward pass into its epilogue.
 */
static void after_norm(struct sweep *sweep, const struct layer *layer)
{
	forward(sweep, layer, CONV_SCALE_BIAS_RELU);
	weights(sweep, layer, CONV_SCALE_BIAS_RELU);
	data(sweep, layer, false, CONV_NO_SHORTCUT);
}

/*
 * The first convolution of a block that follows another block: the end of that block, including its
 * shortcut, is fused where cuDNN can.
 */
static void after_block(struct sweep *sweep, const struct layer *layer, enum conv_shortcut shortcut)
{
	bool pointwise = layer->window == 1, unit = layer->stride == 1;
	enum conv_prologue prologue = CONV_PLAIN;

	if (pointwise && unit)
		prologue = shortcut == CONV_SHORTCUT_NORM ? CONV_DUAL_SCALE_BIAS_ADD_RELU
							  : CONV_SCALE_BIAS_ADD_RELU;
	forward(sweep, layer, prologue);
	weights(sweep, layer, CONV_PLAIN);
	if (unit)
		data(sweep, layer, true, shortcut);
}

static void stem(struct sweep *sweep)
{
	const struct layer layer = {224, 4, 64, 7, 2};
	unsigned compiled = sweep->compiled;

	/*
	 * four channels are fused only by engines compiled at run time, and only if the order of
	 * sums may vary
	 */
	if (sweep->deterministic) {
		struct conv_problem problem = problem_of(sweep, &layer, CONV_FORWARD);

		problem.epilogue = CONV_STATISTICS;
		expect_no_plan(sweep, &problem);
	} else {
		forward(sweep, &layer, CONV_PLAIN);
		assert_int_equal(sweep->compiled, compiled + 1);
		sweep->compiled = compiled;
	}
	weights(sweep, &layer, CONV_PLAIN);
	plain(sweep, &layer);
}

static void downsample(struct sweep *sweep, const struct layer *layer)
{
	forward(sweep, layer, CONV_PLAIN);
	plain(sweep, layer);
}

/*
 * One stage of ResNet-50. c: channels of its input; `before`: the shortcut at the end of the
 * preceding block.
 */
static void bottlenecks(struct sweep *sweep, uint32_t size, uint32_t c, uint32_t width,
			uint32_t blocks, enum conv_shortcut before)
{
	uint32_t stride = width == 64 ? 1 : 2;

	for (uint32_t i = 0; i < blocks; i++) {
		uint32_t in = i ? 4 * width : c, by = i ? 1 : stride;
		uint32_t outer = i ? size / stride : size;
		const struct layer conv1 = {outer, in, width, 1, 1};
		const struct layer conv2 = {outer, width, width, 3, by};
		const struct layer conv3 = {size / stride, width, 4 * width, 1, 1};
		const struct layer shortcut = {size, c, 4 * width, 1, stride};

		if (i == 0)
			downsample(sweep, &shortcut);
		if (i == 0 && width == 64)
			plain(sweep, &conv1); /* after the pool */
		else
			after_block(sweep, &conv1,
				    i == 1 ? CONV_SHORTCUT_NORM
				    : i    ? CONV_SHORTCUT
					   : before);
		after_norm(sweep, &conv2);
		after_norm(sweep, &conv3);
		plain(sweep, &conv1);
		plain(sweep, &conv2);
		plain(sweep, &conv3);
	}
}

static void resnet50(struct sweep *sweep)
{
	stem(sweep);
	bottlenecks(sweep, 56, 64, 64, 3, CONV_NO_SHORTCUT);
	bottlenecks(sweep, 56, 256, 128, 4, CONV_SHORTCUT);
	bottlenecks(sweep, 28, 512, 256, 6, CONV_SHORTCUT);
	bottlenecks(sweep, 14, 1024, 512, 3, CONV_SHORTCUT);
}

static void resnet18(struct sweep *sweep)
{
	stem(sweep);
	for (uint32_t width = 64, size = 56; width <= 512; width *= 2) {
		uint32_t stride = width == 64 ? 1 : 2, in = width / stride;
		const struct layer conv1 = {size, in, width, 3, stride};
		const struct layer conv = {size / stride, width, width, 3, 1};
		const struct layer shortcut = {size, in, width, 1, stride};

		if (stride == 2)
			downsample(sweep, &shortcut);
		after_block(sweep, &conv1, CONV_SHORTCUT);
		after_norm(sweep, &conv);
		after_block(sweep, &conv, stride == 2 ? CONV_SHORTCUT_NORM : CONV_SHORTCUT);
		plain(sweep, &conv1);
		plain(sweep, &conv);
		size /= stride;
	}
}

/*
 * Every pattern at every shape of these nets in fp16; only the stem needs compilation at run time.
 */
TEST(fp16)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	struct engines engines;

	open_engines(&engines, &options);
	for (int deterministic = 0; deterministic < 2; deterministic++) {
		struct sweep sweep = {&engines, CUDA_F16, 256, deterministic};

		resnet50(&sweep);
		resnet18(&sweep);
		assert_int_equal(sweep.compiled, 0);
		printf("fp16%s: %u plans\n", deterministic ? " deterministic" : "", sweep.planned);
	}
	engines_close(&engines);
}

/* Batch sizes without convenient divisors. */
TEST(odd_batches)
{
	static const uint32_t batches[] = {1, 3, 100, 255};
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer conv1 = {56, 256, 64, 1, 1}, conv2 = {56, 128, 128, 3, 2};
	struct engines engines;

	open_engines(&engines, &options);
	for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
		struct sweep sweep = {&engines, CUDA_F16, batches[i], false};

		after_block(&sweep, &conv1, CONV_SHORTCUT);
		after_block(&sweep, &conv1, CONV_SHORTCUT_NORM);
		after_norm(&sweep, &conv2);
		plain(&sweep, &conv2);
		stem(&sweep);
	}
	engines_close(&engines);
}

/*
 * bf16 and fp32: unfused patterns have plans everywhere. fp32 uses no tensor cores unless tf32 is
 * allowed.
 */
TEST(other_elements)
{
	struct engines_options options = {.properties = cudnn_properties, .plans = ""};

	for (int i = 0; i < 3; i++) {
		struct engines engines;
		struct sweep sweep = {&engines, i ? CUDA_F32 : CUDA_BF16, 256, true};
		static const struct layer layers[] = {
			{224, 4, 64, 7, 2},    {56, 64, 64, 1, 1},    {56, 64, 64, 3, 1},
			{56, 64, 256, 1, 1},   {56, 256, 64, 1, 1},   {56, 256, 128, 1, 1},
			{56, 128, 128, 3, 2},  {28, 128, 512, 1, 1},  {56, 256, 512, 1, 2},
			{28, 512, 128, 1, 1},  {28, 128, 128, 3, 1},  {28, 512, 256, 1, 1},
			{28, 256, 256, 3, 2},  {14, 256, 1024, 1, 1}, {28, 512, 1024, 1, 2},
			{14, 1024, 256, 1, 1}, {14, 256, 256, 3, 1},  {14, 1024, 512, 1, 1},
			{14, 512, 512, 3, 2},  {7, 512, 2048, 1, 1},  {14, 1024, 2048, 1, 2},
			{7, 2048, 512, 1, 1},  {7, 512, 512, 3, 1},   {56, 64, 128, 3, 2},
			{56, 64, 128, 1, 2},   {28, 128, 256, 3, 2},  {14, 256, 512, 3, 2},
		};

		options.tf32 = i == 2;
		open_engines(&engines, &options);
		for (size_t j = 0; j < sizeof(layers) / sizeof(layers[0]); j++)
			plain(&sweep, &layers[j]);
		assert_int_equal(sweep.compiled, 0);
		engines_close(&engines);
	}
}

/* Evaluation compiles nothing; compiling would take a second for each shape of a net. */
TEST(evaluation)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	static const struct layer layers[] = {{224, 4, 64, 7, 2},   {56, 64, 64, 3, 1},
					      {56, 64, 256, 1, 1},  {56, 256, 128, 1, 1},
					      {56, 128, 128, 3, 2}, {14, 1024, 2048, 1, 2},
					      {7, 512, 512, 3, 1},  {7, 512, 2048, 1, 1}};
	struct engines engines;

	open_engines(&engines, &options);
	for (int element = CUDA_F16; element <= CUDA_BF16; element++) {
		struct sweep sweep = {&engines, (enum cuda_element)element, 256, true};

		for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
			for (int way = 0; way < 4; way++) {
				struct conv_problem problem =
					problem_of(&sweep, &layers[i], CONV_FORWARD);

				problem.epilogue = CONV_BIAS;
				problem.residual = way & 1;
				problem.activation = way & 2 ? DEVICE_RELU : DEVICE_IDENTITY;
				expect_plan(&sweep, &problem);
			}
		assert_int_equal(sweep.compiled, 0);
	}
	engines_close(&engines);
}

/* Groups of several channels, as in ResNeXt, and of one, as in blurs and ConvNeXt. */
TEST(groups)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	static const struct layer layers[] = {{56, 128, 128, 3, 1, 32},
					      {56, 256, 256, 3, 2, 32},
					      {112, 64, 64, 3, 2, 64},
					      {56, 96, 96, 7, 1, 96},
					      {7, 768, 768, 7, 1, 768}};
	struct engines engines;

	open_engines(&engines, &options);
	for (int element = CUDA_F16; element <= CUDA_BF16; element++) {
		struct sweep sweep = {&engines, (enum cuda_element)element, 256, false};

		for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
			for (int direction = CONV_FORWARD; direction <= CONV_WEIGHTS; direction++) {
				struct conv_problem problem = problem_of(
					&sweep, &layers[i], (enum conv_direction)direction);

				expect_plan(&sweep, &problem);
			}
	}
	engines_close(&engines);
}

/* One of each pattern compiled at run time; the compiler needs a second or more for each. */
TEST(compiled)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer conv2 = {28, 128, 128, 3, 1};
	struct engines engines;
	struct sweep fp16 = {&engines, CUDA_F16, 256, false};
	struct sweep bf16 = {&engines, CUDA_BF16, 256, false};

	open_engines(&engines, &options);
	struct conv_problem problem = problem_of(&fp16, &conv2, CONV_DATA);
	problem.epilogue = CONV_ADD;
	expect_plan(&fp16, &problem);
	forward(&bf16, &conv2, CONV_SCALE_BIAS_RELU);
	assert_int_equal(fp16.compiled, 1);
	assert_int_equal(bf16.compiled, 1);
	bf16.deterministic = true;
	problem = problem_of(&bf16, &conv2, CONV_FORWARD);
	problem.epilogue = CONV_STATISTICS;
	expect_no_plan(&bf16, &problem);
	engines_close(&engines);
}

/* Patterns known to have no plan, to notice if a newer cuDNN adds one. */
TEST(none)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	const struct layer conv2 = {28, 128, 128, 3, 1}, strided = {56, 256, 512, 1, 2};
	struct engines engines;
	struct sweep fp16 = {&engines, CUDA_F16, 256, false};
	struct sweep bf16 = {&engines, CUDA_BF16, 256, false};

	open_engines(&engines, &options);
	struct conv_problem problem = problem_of(&fp16, &strided, CONV_FORWARD);
	problem.prologue = CONV_SCALE_BIAS_ADD_RELU;
	problem.epilogue = CONV_STATISTICS;
	expect_no_plan(&fp16, &problem);
	problem = problem_of(&fp16, &strided, CONV_DATA);
	problem.epilogue = CONV_RELU_NORM;
	problem.residual = true;
	expect_no_plan(&fp16, &problem);
	problem = problem_of(&fp16, &conv2, CONV_WEIGHTS);
	problem.gradient = CUDA_F32;
	expect_no_plan(&fp16, &problem);
	problem = problem_of(&bf16, &conv2, CONV_DATA);
	problem.epilogue = CONV_RELU_NORM;
	expect_no_plan(&bf16, &problem);
	problem = problem_of(&bf16, &conv2, CONV_WEIGHTS);
	problem.prologue = CONV_SCALE_BIAS_RELU;
	expect_no_plan(&bf16, &problem);
	engines_close(&engines);
}

TEST(matmul)
{
	const struct engines_options options = {.properties = cudnn_properties, .plans = ""};
	struct engines engines;
	struct matmul_problem problem;
	struct matmul_plan *plan;
	struct conv_plan_info info;
	void *conv;

	open_engines(&engines, &options);
	conv = engines.matmul.state;
	matmul_problem_init(&problem);
	problem.rows = 256;
	problem.columns = 1000;
	problem.inner = 2048;
	problem.transposed_b = problem.bias = true;
	problem.element = CUDA_F16;
	problem.result = CUDA_F32;
	assert_int_equal(engines.matmul.plan(conv, &problem, &plan), 0);
	engines.matmul.plan_info(plan, &info);
	assert_in_range(info.workspace_bytes, 1, ENGINES_WORKSPACE_MAX);
	engines.matmul.plan_free(plan);
	engines_close(&engines);
}

int main(void)
{
	return cudnn_test_found() ? test_run(NULL, NULL) : 77;
}
