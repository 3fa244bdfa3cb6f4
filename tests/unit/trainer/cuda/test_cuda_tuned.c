/*
 * Tuning a net's plans on the emulated GPU with given plan times: patterns are unfused only if that
 * is faster, and the net computes the same.
 */
#include "tests/gpu/emulation/queue.h"
#include "tests/unit/trainer/cuda/cuda_run_test.h"
#include "tests/unit/trainer/cuda/plan_times.h"

/* The forward pass would be faster without a prologue, but the weight gradient would lose more. */
static double gradients_want_prologues(const struct conv_problem *problem)
{
	bool prologue = problem->prologue != CONV_PLAIN;

	if (problem->direction == CONV_WEIGHTS)
		return prologue ? 1e-9 : 3 * AGES;
	return prologue ? AGES : 1e-9;
}

/* The forward pass would be faster with a prologue, but the weight gradient would lose more. */
static double gradients_want_none(const struct conv_problem *problem)
{
	bool prologue = problem->prologue != CONV_PLAIN;

	if (problem->direction == CONV_WEIGHTS)
		return prologue ? 3 * AGES : 1e-9;
	return problem->direction == CONV_FORWARD && !prologue ? AGES : 1e-9;
}

/* Opens a net tuned with these plan times; returns the log of unfused patterns. */
static const char *open_tuned(struct net *net, emulation_ms *ms)
{
	struct device_options options = {
		.precision = DEVICE_FP16, .fusion = DEVICE_FUSION_C, .autotune = true};
	struct device_graph_info info;
	char error[DEVICE_ERROR_MAX];

	emulation_time_plans(ms);
	/* too little for the workspace that tuning asks for */
	emulation_limit_memory(16 << 20);
	if (open_net(net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	emulation_limit_memory(0);
	device_graph_info(net->graph, &info);
	return info.fallback_log;
}

TEST(tuned_fused)
{
	struct net net;

	assert_string_equal(open_tuned(&net, fused_is_fast), "");
	close_net(&net);
	assert_string_equal(open_tuned(&net, gradients_want_prologues), "");
	close_net(&net);
	emulation_time_plans(NULL);
}

/*
 * Patterns slower than their parts are unfused, and the net computes the same as without plans for
 * them.
 */
TEST(tuned_unfused)
{
	static const char *const patterns[] = {" statistics;", " scale-bias-relu;", " relu-norm;",
					       " relu-norm-add-shortcut;", " add;"};
	struct net tuned, plain;
	const char *log = open_tuned(&tuned, fused_is_slow);

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strstr(log, patterns[i]))
			fail_msg("not taken apart:%s\n%s", patterns[i], log);
	emulation_time_plans(NULL);
	setenv(EMULATION_PLANS, "plain", 1);
	open_emulated(&plain, DEVICE_FP16, DEVICE_FUSION_C, false);
	unsetenv(EMULATION_PLANS);
	for (unsigned t = 0; t < 3; t++)
		assert_true(results_of(&tuned, step(&tuned, t, true)).loss ==
			    results_of(&plain, step(&plain, t, true)).loss);
	close_net(&plain);
	close_net(&tuned);
}

TEST(tuned_for_gradients)
{
	struct net net;
	const char *log = open_tuned(&net, gradients_want_none);

	assert_non_null(strstr(log, " scale-bias-relu"));
	assert_null(strstr(log, "relu-norm"));
	close_net(&net);
	emulation_time_plans(NULL);
}

/*
 * Tuning writes only to the arena: not to weights, nor to gradients that are already summed when
 * another graph is planned.
 */
TEST(tuned_between)
{
	struct net tuned, plain;

	open_emulated(&plain, DEVICE_FP16, DEVICE_FUSION_C, false);
	assert_string_equal(open_tuned(&tuned, fused_is_fast), "");
	for (unsigned t = 0; t < 6; t++) {
		struct device_results own = results_of(&plain, step(&plain, t, t % 3 == 2)),
				      other = results_of(&tuned, step(&tuned, t, t % 3 == 2));

		assert_same_results(&own, &other);
		device_graph_free(plan_another(&tuned, t % 2 ? DEVICE_TRAIN : DEVICE_EVAL));
		assert_same(&plain, &tuned);
	}
	close_net(&plain);
	close_net(&tuned);
	emulation_time_plans(NULL);
}

static double time_fails(const struct conv_problem *problem)
{
	return -1;
}

/* The error names the operation and the reason why its plans failed. */
TEST(tuning_fails)
{
	struct device_options options = {
		.precision = DEVICE_FP16, .fusion = DEVICE_FUSION_C, .autotune = true};
	struct net net;
	char error[DEVICE_ERROR_MAX];

	emulation_time_plans(time_fails);
	assert_int_equal(open_net(&net, "cuda-emulated", &options, error), -EIO);
	assert_string_equal(error, "stem: autotuning failed: no time was taken");
	close_net(&net);
	emulation_time_plans(NULL);
}
