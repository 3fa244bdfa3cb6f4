/*
 * Plans that cuDNN has for an H200, queried from its properties without a GPU: every fused pattern
 * of ResNet-50 in fp16 at batch 256. Some patterns only have engines that are compiled at run time;
 * for these the test loads the driver's stand-in (LOADERD_CUDA_DRIVER).
 */
#include "tests/test.h"
#include "tests/unit/trainer/cuda/cuda_planner_test.h"
#include "trainer/device/cuda/engines.h"
#include "trainer/estimate/estimate.h"

enum { SKIPPED = 77 };

static struct engines engines;

static const struct cuda_program *lower(struct plan_fixture *f, const char *settings,
					enum device_fusion fusion, enum cuda_element element,
					enum device_mode mode)
{
	plan_fixture_init(f, settings, 1000, fusion, element);
	f->options.conv = &engines.conv;
	f->options.matmul = &engines.matmul;
	return plan_fixture_program(f, mode, 256, 224, false);
}

TEST(resnet50)
{
	unsigned prologues[4] = {0}, shortcuts[3] = {0}, relu_norm = 0, weights = 0;
	struct plan_fixture f;

	const struct cuda_program *program =
		lower(&f, "model.name=resnet50", DEVICE_FUSION_C, CUDA_F16, DEVICE_TRAIN);
	assert_string_equal(program->log, "");
	assert_int_equal(program->fallbacks, 0);
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct conv_problem *problem = &program->ops[i].conv.problem;

		if (program->ops[i].kind != CUDA_OP_CONV)
			continue;
		if (problem->direction == CONV_FORWARD)
			prologues[problem->prologue]++;
		if (problem->epilogue == CONV_RELU_NORM) {
			relu_norm++;
			shortcuts[problem->shortcut]++;
		}
		weights += problem->direction == CONV_WEIGHTS &&
			   problem->prologue == CONV_SCALE_BIAS_RELU;
	}
	assert_int_equal(prologues[CONV_PLAIN], 6);
	assert_int_equal(prologues[CONV_SCALE_BIAS_RELU], 32);
	assert_int_equal(prologues[CONV_SCALE_BIAS_ADD_RELU], 11);
	assert_int_equal(prologues[CONV_DUAL_SCALE_BIAS_ADD_RELU], 4);
	assert_int_equal(relu_norm, 47);
	assert_int_equal(shortcuts[CONV_SHORTCUT], 11);
	assert_int_equal(shortcuts[CONV_SHORTCUT_NORM], 4);
	assert_int_equal(weights, 32);
	plan_fixture_deinit(&f);
}

/* Training has plans in fp32 and bf16 at level B, and evaluation with folded norms in fp16. */
TEST(others)
{
	static const enum cuda_element elements[] = {CUDA_F32, CUDA_BF16};
	const struct cuda_program *program;
	struct plan_fixture f;

	for (int i = 0; i < 2; i++) {
		lower(&f, "model.name=resnet18", DEVICE_FUSION_B, elements[i], DEVICE_TRAIN);
		plan_fixture_deinit(&f);
	}
	program = lower(&f, "model.name=resnet18", DEVICE_FUSION_C, CUDA_F16, DEVICE_EVAL);
	assert_string_equal(program->log, "");
	plan_fixture_deinit(&f);
}

/* Matrix products and patches have plans; all other operations use our own kernels. */
TEST(transformers)
{
	static const char *const settings[] = {"model.name=vit_small_patch16",
					       "model.name=vit_base_patch16 model.pool=average"};
	static const enum cuda_element elements[] = {CUDA_F16, CUDA_BF16, CUDA_F32};

	for (int i = 0; i < 6; i++) {
		enum cuda_element element = elements[i / 2];
		struct plan_fixture f;
		const struct cuda_program *program =
			lower(&f, settings[i % 2], program_fusion(DEVICE_FUSION_AUTO, element),
			      element, DEVICE_TRAIN);

		assert_string_equal(program->log, "");
		assert_int_equal(program->fallbacks, 0);
		plan_fixture_deinit(&f);
	}
}

int main(void)
{
	char error[ESTIMATE_ERROR_MAX] = "", *properties = NULL;
	struct engines_options options = {.plans = ""};
	int r = estimate_device_properties(DEVICES "/h200.json", &properties, error);

	options.properties = properties;
	if (r == 0)
		r = engines_open(&options, &engines, error);
	if (r < 0) {
		fprintf(stderr, "skipped: %s\n", error);
		return SKIPPED;
	}
	r = test_run(NULL, NULL);
	engines_close(&engines);
	free(properties);
	return r;
}
