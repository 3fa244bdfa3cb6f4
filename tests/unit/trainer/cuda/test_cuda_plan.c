/*
 * trainer --plan with stub engines: its output for a network counted by hand, and its errors for
 * invalid files.
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"
#include "trainer/device/cuda/engines.h"
#include "trainer/device/cuda/lowering/roofline.h"
#include "trainer/estimate/estimate.h"

#include <jansson.h>
#include <math.h>

#define ROOFLINE                                                                                   \
	"\"roofline\": {\"bytes_per_second\": 1e12, \"flops_per_second\": {\"fp32\": 1e13, "       \
	"\"tf32\": 3e13, "                                                                         \
	"\"fp16\": 1e16, \"bf16\": 1e14}, \"source\": \"made up\"}"

/* Writes the text to a file. The path is valid until the next call. */
static const char *device_file(const char *text)
{
	static char path[64];
	FILE *file;

	if (*path)
		unlink(path);
	strcpy(path, "/tmp/test_cuda_plan.XXXXXX");
	file = fdopen(mkstemp(path), "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	return path;
}

static int plan(const char *settings, const struct estimate_options *options, char *ret_text,
		size_t size, char *error)
{
	struct engines engines = {stub_conv, stub_matmul, "a stub"};
	char text[1024], *printed = NULL;
	struct recipe recipe;
	size_t length;

	assert_int_equal(recipe_init(&recipe), 0);
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if (recipe_override(&recipe, word, error))
			fail_msg("%s", error);
	FILE *file = open_memstream(&printed, &length);
	int r = estimate_with(&recipe, options, &engines, file, error);
	fclose(file);
	snprintf(ret_text, size, "%s", printed);
	free(printed);
	recipe_deinit(&recipe);
	assert_int_equal(stub_plans, 0);
	return r;
}

static void expect(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" is not in:\n%s", words, text);
}

/* Returns the number before `words`. */
static double number_before(const char *text, const char *words)
{
	const char *at = strstr(text, words), *from = at;

	assert_non_null(at);
	while (from > text && strchr(" .0123456789", from[-1]))
		from--;
	return strtod(from, NULL);
}

TEST(resnet50)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536];

	assert_int_equal(plan("model.name=resnet50 train.precision=fp16 data.batch_size=256 "
			      "data.val=x",
			      &options, text, sizeof(text), error),
			 0);
	expect(text, "device   G: 1.00 TB/s, 10000 TFLOP/s in fp16; made up");
	expect(text, "plans    a stub, fusion c");
	expect(text, "resnet50, 1000 classes (assumed: model.classes is not set), batches of 256 "
		     "images of 224 x 224 (assumed: --size is not given)");
	expect(text, "dual-scale-bias-add-relu > conv > statistics");
	expect(text, "data > relu-norm-add-shortcut-norm");
	expect(text, "patterns of this level without a plan: 0\n");
	/* 25.6 million parameters with gradient and momentum, 53,120 running statistics */
	assert_in_range((uint64_t)(10 * number_before(text, " MB parameters, gradients")), 3065,
			3080);
	assert_in_range((uint64_t)(10 * number_before(text, " MB copies of weights")), 509, 511);
	/* 2 x 256 x 224 x 224 x 4 bytes, in training and in evaluation */
	assert_in_range((uint64_t)(10 * number_before(text, " MB batches in flight")), 2054, 2056);
	/*
	 * at this ratio everything is memory-bound: 263.4 MB per image, plus 562 MB for the update
	 */
	double milliseconds = number_before(text, " ms at the roofline");
	assert_true(milliseconds > 256 * 0.265 && milliseconds < 256 * 0.270);
	assert_in_range((uint64_t)number_before(text, " images/s"),
			(uint64_t)(256e3 / milliseconds) - 1, (uint64_t)(256e3 / milliseconds) + 1);
}

/* Operations that need separate passes are listed with their cost; a plain network has none. */
TEST(breaks)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536];
	double megabytes;

	assert_int_equal(plan("model.name=resnet18", &options, text, sizeof(text), error), 0);
	assert_null(strstr(text, "\nbreaks "));
	assert_int_equal(plan("model.name=resnet18 model.blur=all model.downsample=average "
			      "model.drop_path=0.1 data.batch_size=8 train.accumulate=2",
			      &options, text, sizeof(text), error),
			 0);
	/* the first block is never dropped; the stem's pool is blurred too */
	expect(text, "7 x stochastic depth between layer and sum");
	expect(text, "4 x blur between ReLU and stride");
	expect(text, "3 x average before a shortcut's convolution");
	assert_null(strstr(text, "squeeze"));
	/*
	 * batches of 4 in bf16, at sides of 56, 28, 14 and 7 with 1, 2, 2 and 2 sums with
	 * stochastic depth; forward: two reads and one write; backward, for two gradients and the
	 * result: three reads and two writes; all for two micro-batches
	 */
	double elements = 56 * 56 * 64 + 2 * (28 * 28 * 128 + 14 * 14 * 256 + 7 * 7 * 512);
	megabytes =
		strtod(strstr(text, "\nbreaks ") + strlen("\nbreaks           0.000 ms,"), NULL);
	assert_true(fabs(megabytes / (2 * 4 * 2 * 8e-6 * elements) - 1) < 0.02);
	assert_int_equal(plan("model.name=resnet50 model.squeeze_excite=yes data.batch_size=8",
			      &options, text, sizeof(text), error),
			 0);
	expect(text, "16 x squeeze and excite between norm and sum");
	assert_int_equal(
		plan("model.name=speednet data.batch_size=8", &options, text, sizeof(text), error),
		0);
	expect(text, "6 x norm apart from its convolution");
}

/* train.accumulate = auto: as few micro-batches as fit in the device's memory. */
TEST(micro_batches)
{
	static const char device[] =
		"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
		"\"totalGlobalMem\": %.0f, " ROOFLINE "}";
	static const char settings[] =
		"model.name=resnet18 data.batch_size=8 train.accumulate=auto ";
	struct estimate_options options = {0};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536], json[1024], more[160];

	snprintf(json, sizeof(json), device, 8e10);
	options.device = device_file(json);
	assert_int_equal(plan(settings, &options, text, sizeof(text), error), 0);
	expect(text, ", in 1 micro-batch of 8 (train.accumulate = auto)\n");
	double all = number_before(text, " MB total") * 1e6;
	double arena = number_before(text, " MB activations and workspace (");
	snprintf(more, sizeof(more), "%strain.memory_limit=%g", settings,
		 arena * 1e6 / (1 << 30) / 2);
	assert_int_equal(plan(more, &options, text, sizeof(text), error), 0);
	expect(text, ", in 4 micro-batches of 2 (train.accumulate = auto)\n");
	snprintf(json, sizeof(json), device, all - 1e6);
	options.device = device_file(json);
	assert_int_equal(plan(settings, &options, text, sizeof(text), error), 0);
	expect(text, ", in 2 micro-batches of 4 (train.accumulate = auto)\n");
	snprintf(json, sizeof(json), device, 1e6);
	options.device = device_file(json);
	assert_int_equal(plan(settings, &options, text, sizeof(text), error), -ENOMEM);
	expect(error, "data.batch_size = 8 does not fit into the memory of G even with the "
		      "smallest micro-batches, of 1");
}

/*
 * A teacher of the same network takes as much memory as evaluation, and additional forward passes.
 */
TEST(teacher)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char of[] = "/tmp/test_cuda_plan.XXXXXX";
	static const char settings[] = "model.name=resnet18 data.batch_size=16 data.val=x "
				       "train.accumulate=2 data.val_batch_size=8";
	char error[ESTIMATE_ERROR_MAX] = "", alone[65536], text[65536], taught[256];
	FILE *file = fdopen(mkstemp(of), "w");

	assert_non_null(file);
	fputs("[model]\nname = resnet18\n", file);
	fclose(file);
	assert_int_equal(plan(settings, &options, alone, sizeof(alone), error), 0);
	assert_null(strstr(alone, "teacher"));
	snprintf(taught, sizeof(taught), "%s train.teacher=x train.teacher_recipe=%s", settings,
		 of);
	assert_int_equal(plan(taught, &options, text, sizeof(text), error), 0);
	/* 11.7 million weights in fp32 and again in bf16, in addition to its activations */
	double memory = number_before(text, " MB train.teacher, a resnet18");
	double evaluation = number_before(text, " MB activations and workspace of evaluation");
	assert_true(fabs(memory - evaluation - 11.7 * 6) < 0.5);
	double own = number_before(strstr(text, "teacher  "), " ms");
	double more = number_before(text, " ms at the roofline") -
		      number_before(alone, " ms at the roofline");
	assert_true(own > 0 && fabs(own - more) < 0.002);
	assert_true(own < number_before(strstr(text, "forward  "), " ms"));
	snprintf(taught, sizeof(taught), "%s train.teacher=x", settings);
	assert_int_equal(plan(taught, &options, text, sizeof(text), error), 0);
	expect(text, "teacher     not counted: set train.teacher_recipe");
	unlink(of);
	snprintf(taught, sizeof(taught), "%s train.teacher=x train.teacher_recipe=%s", settings,
		 of);
	assert_true(plan(taught, &options, text, sizeof(text), error) < 0);
	expect(error, "train.teacher_recipe: ");
}

/* The report gives the cost and the savings of recomputation, whether the recipe uses it or not. */
TEST(recompute)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	static const char *const lines[] = {" with train.recompute = 0",
					    " with train.recompute = 1"};
	char error[ESTIMATE_ERROR_MAX] = "", text[2][65536];
	double memory[2], rate[2];

	for (int own = 0; own < 2; own++) {
		char settings[128];

		snprintf(settings, sizeof(settings), "model.name=resnet50 train.recompute=%d", own);
		assert_int_equal(plan(settings, &options, text[own], sizeof(*text), error), 0);
		for (int way = 0; way < 2; way++) {
			const char *line = strstr(text[own], lines[way]);

			assert_non_null(line);
			assert_int_equal(strncmp(line + strlen(lines[way]), ", as it is", 10) == 0,
					 way == own);
		}
		memory[own] = number_before(text[own], " MB activations and workspace,");
		rate[own] = number_before(strstr(text[own], "recompute "), " images/s with");
		assert_true(memory[own] > 0 &&
			    fabs(memory[own] -
				 number_before(text[own], " MB activations and workspace (")) <
				    0.1);
	}
	assert_true(memory[1] < 0.4 * memory[0]);
	assert_true(rate[1] < 0.95 * rate[0] && rate[1] > 0.6 * rate[0]);
}

static bool refuse_statistics(const struct conv_problem *problem)
{
	return problem->epilogue == CONV_STATISTICS && problem->c <= 4;
}

TEST(options)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536];

	stub_refuse = refuse_statistics;
	assert_int_equal(
		plan("model.name=resnet18 train.precision=bf16 train.fusion=c model.stem=cifar",
		     &options, text, sizeof(text), error),
		0);
	stub_refuse = NULL;
	expect(text, "100 TFLOP/s in bf16");
	expect(text, "10 classes");
	expect(text, "32 x 32");
	expect(text, "patterns of this level without a plan: 1\nconv1: no plan for forward 3x3/1 "
		     "4>64 32x32");
	options.size = 8;
	assert_int_equal(plan("model.name=speednet train.precision=fp32 model.classes=3", &options,
			      text, sizeof(text), error),
			 -EINVAL);
	expect(error, "--size=8 is too small for speednet, which needs at least 9");
	options.size = 48;
	assert_int_equal(plan("model.name=speednet train.precision=fp32 model.classes=3", &options,
			      text, sizeof(text), error),
			 0);
	expect(text, "10 TFLOP/s in fp32");
	expect(text, "fusion b");
	expect(text, "3 classes, batches of");
	expect(text, "images of 48 x 48\n");
	assert_int_equal(plan("model.name=speednet train.precision=fp32 train.tf32=yes", &options,
			      text, sizeof(text), error),
			 0);
	expect(text, "30 TFLOP/s in tf32");
	/* fp32 needs no copies */
	assert_true(number_before(text, " MB copies of weights") == 0);
}

/* A recipe for several ranks, planned for one. */
TEST(one_of_several)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536];

	assert_int_equal(plan("model.name=vit_tiny_patch16 data.batch_size=4 train.tensor=3",
			      &options, text, sizeof(text), error),
			 -EINVAL);
	expect(error, "train.tensor = 3 divides the network over ranks, but this plan is of one "
		      "GPU: add --ranks=3");
	assert_int_equal(plan("model.name=vit_tiny_patch16 data.batch_size=4 train.shard=gradients",
			      &options, text, sizeof(text), error),
			 0);
	expect(text, "ranks    one, for which train.shard changes nothing; --ranks=N");
}

TEST(sizes)
{
	static const struct {
		const char *pipeline;
		uint32_t side;
	} pipelines[] = {
		{"", 0},
		{"hflip", 0},
		{"random_resized_crop(176)", 176},
		{"random_resized_crop(176x176, scale=0.25:1) hflip(0.5) to(f16)", 176},
		{"random_resized_crop(scale=0.25:1, size=160)", 160},
		{"random_resized_crop( size=160 , chroma=fast ) normalize(imagenet)", 160},
		{"random_resized_crop(176x128)", 0},
		{"random_resized_crop(128@0;192@15, scale=0.25:1) hflip(0.5)", 0},
		{"random_resized_crop(scale=0.25:1)", 0},
		{"random_resized_crop(99999)", 0},
		{"random_resized_crop(176", 0},
		{"random_crop(32, padding=2, fill=reflect) hflip(alternate)", 32},
		{"resize(256)", 0},
		{"resize(256x256)", 256},
		{"resize(256) center_crop(224)", 224},
		{"center_crop(224) resize(256)", 0},
		{"random_crop(32) pad(4)", 0},
		{"random_crop(32) random_zoom_out", 0},
		{"random_crop(32) boxes: random_iou_crop(0.5)", 0},
		{"pad(4) random_crop(32)", 32},
		{"random_crop(32) cutout(8)", 32},
		{"random_crop(x32)", 0},
		{"random_crop()", 0},
		{"random_crop", 0},
	};
	for (size_t i = 0; i < sizeof(pipelines) / sizeof(*pipelines); i++)
		if (pipeline_side(pipelines[i].pipeline) != pipelines[i].side)
			fail_msg("%s: %u", pipelines[i].pipeline,
				 pipeline_side(pipelines[i].pipeline));
}

/* The image size comes from the recipe unless --size is given. */
TEST(size_of_pipeline)
{
	struct estimate_options options = {
		.device = device_file(
			"{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
			"\"totalGlobalMem\": 8e10, " ROOFLINE "}"),
	};
	char error[ESTIMATE_ERROR_MAX] = "", text[65536];
	const char *settings = "model.name=speednet data.pipeline=random_resized_crop(64)";

	assert_int_equal(plan(settings, &options, text, sizeof(text), error), 0);
	expect(text, "images of 64 x 64 (the size that data.pipeline produces)\n");
	options.size = 48;
	assert_int_equal(plan(settings, &options, text, sizeof(text), error), 0);
	expect(text, "images of 48 x 48\n");
	options.size = 0;
	assert_int_equal(plan("model.name=speednet data.pipeline=random_resized_crop(4)", &options,
			      text, sizeof(text), error),
			 -EINVAL);
	expect(error, "data.pipeline's image size of 4 is too small for speednet");
}

TEST(files)
{
	static const struct {
		const char *text, *words;
	} files[] = {
		{"{", "line 1"},
		{"{\"deviceName\": \"G\"}", "has no \"roofline\""},
		{"{\"totalGlobalMem\": 1, " ROOFLINE "}", "deviceName must be a string"},
		{"{\"deviceName\": \"G\", " ROOFLINE "}", "totalGlobalMem must be a number"},
		{"{\"deviceName\": \"G\", \"totalGlobalMem\": -1, " ROOFLINE "}",
		 "totalGlobalMem must be a number above 0"},
		{"{\"deviceName\": \"G\", \"totalGlobalMem\": 1, \"roofline\": "
		 "{\"source\": \"\", \"bytes_per_second\": 1, \"flops_per_second\": "
		 "{\"fp32\": 1, \"fp16\": 1}}}",
		 "bf16 must be a number above 0"},
		{"{\"deviceName\": \"G\", \"totalGlobalMem\": 1, " ROOFLINE "}",
		 "deviceVer must be a number"},
		{"{\"deviceName\": \"G\", \"totalGlobalMem\": 1, \"deviceVer\": 750, " ROOFLINE "}",
		 "deviceVer = 750: expected 800 or more"},
		{"{\"deviceName\": \"G\", \"totalGlobalMem\": 1, \"deviceVer\": 900, "
		 "\"multiProcessorCount\": 0, " ROOFLINE "}",
		 "multiProcessorCount must be a number above 0"},
	};
	char error[ESTIMATE_ERROR_MAX], *properties = NULL;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		*error = 0;
		assert_int_equal(
			estimate_device_properties(device_file(files[i].text), &properties, error),
			-EINVAL);
		expect(error, files[i].words);
		expect(error, "test_cuda_plan");
	}
	assert_int_equal(estimate_device_properties("/nonexistent.json", &properties, error),
			 -EINVAL);
	expect(error, "/nonexistent.json");
}

/* The shipped device files are complete, and the roofline is not passed to cuDNN. */
TEST(shipped)
{
	static const char *const names[] = {"a100", "h100", "h200"};

	for (size_t i = 0; i < 3; i++) {
		char path[4096], error[ESTIMATE_ERROR_MAX] = "", *properties;

		snprintf(path, sizeof(path), "%s/%s.json", DEVICES, names[i]);
		if (estimate_device_properties(path, &properties, error))
			fail_msg("%s", error);
		expect(properties, "\"deviceVer\":");
		assert_null(strstr(properties, "roofline"));
		free(properties);
	}
}

static struct gpu_properties properties_of(const json_t *json)
{
	int version = (int)json_integer_value(json_object_get(json, "deviceVer"));

	return (struct gpu_properties){
		.compute_major = version / 100,
		.compute_minor = version % 100 / 10,
		.multiprocessors =
			(uint32_t)json_integer_value(json_object_get(json, "multiProcessorCount")),
		.clock_khz = (uint32_t)json_integer_value(json_object_get(json, "smClockRateKHz")),
	};
}

/*
 * The computed peak FLOP/s equal those of NVIDIA's data sheets, which a100.json and h100.json also
 * contain. An H200 computes like an H100.
 */
TEST(peaks)
{
	static const char *const names[] = {"a100", "h100", "h200"};
	static const double sheets[3][3] = {{19.5e12, 156e12, 312e12},
					    {67e12, 494.7e12, 989.4e12},
					    {67e12, 494.7e12, 989.4e12}};
	static const char *const keys[] = {"fp32", "tf32", "fp16"};
	struct gpu_properties gpu;

	for (size_t i = 0; i < 3; i++) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/%s.json", DEVICES, names[i]);
		json_t *json = json_load_file(path, 0, NULL), *flops;

		assert_non_null(json);
		gpu = properties_of(json);
		flops = json_object_get(json_object_get(json, "roofline"), "flops_per_second");
		for (int j = 0; j < 3; j++) {
			enum cuda_element element = j == 2 ? CUDA_F16 : CUDA_F32;
			double peak = roofline_peak_flops(&gpu, element, j == 1);

			assert_true(fabs(peak / sheets[i][j] - 1) < 2e-3);
			/* no measured rate exceeds the peak */
			assert_true(json_number_value(json_object_get(flops, keys[j])) <
				    1.002 * peak);
		}
		assert_true(roofline_peak_flops(&gpu, CUDA_BF16, false) ==
			    roofline_peak_flops(&gpu, CUDA_F16, false));
		json_decref(json);
	}
	gpu.clock_khz /= 2; /* below the clock that the tensor cores' peak assumes */
	assert_true(fabs(roofline_peak_flops(&gpu, CUDA_F16, false) / 535.3e12 - 1) < 2e-3);
	gpu.clock_khz = 0;
	assert_true(roofline_peak_flops(&gpu, CUDA_F16, false) == 0);
	gpu = (struct gpu_properties){.compute_major = 7,
				      .compute_minor = 5,
				      .multiprocessors = 40,
				      .clock_khz = 1590000};
	assert_true(roofline_peak_flops(&gpu, CUDA_F16, false) == 0);
}

static int remove_file(void **state)
{
	unlink(device_file(""));
	return 0;
}

TEST_MAIN(NULL, remove_file)
