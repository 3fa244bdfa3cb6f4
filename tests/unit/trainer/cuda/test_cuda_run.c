/*
 * Steps on the emulated GPU: a small residual net replayed from captured graphs against the same
 * net launched one operation at a time; resumed, evaluated, scaled and skipped steps; and losses
 * against the CPU backend's.
 */
#include "tests/gpu/emulation/queue.h"
#include "tests/unit/trainer/cuda/cuda_run_test.h"

#include <math.h>

static const struct {
	enum device_precision precision;
	enum device_fusion fusion;
} forms[] = {
	{DEVICE_FP32, DEVICE_FUSION_NONE}, {DEVICE_FP32, DEVICE_FUSION_C},
	{DEVICE_BF16, DEVICE_FUSION_B},    {DEVICE_FP16, DEVICE_FUSION_NONE},
	{DEVICE_FP16, DEVICE_FUSION_C},
};

#define FORMS (sizeof(forms) / sizeof(*forms))

/*
 * Every variant of a step gives the same bits launched and replayed. Nothing is allocated once both
 * batch buffers exist.
 */
TEST(replay)
{
	static const bool updates[] = {true,  false, true,  false, false, true, true,
				       false, false, false, true,  true,  true};
	const unsigned steps = sizeof(updates) / sizeof(*updates);

	for (size_t form = 0; form < FORMS; form++) {
		struct net eager, replayed;
		uint64_t allocations = 0;

		open_emulated(&eager, forms[form].precision, forms[form].fusion, true);
		open_emulated(&replayed, forms[form].precision, forms[form].fusion, false);
		uint64_t launches = emulation_launches();
		for (unsigned t = 0; t < steps; t++) {
			if (t == 2)
				allocations = emulation_allocations();
			struct device_results a = results_of(&eager, step(&eager, t, updates[t]));
			struct device_results b =
				results_of(&replayed, step(&replayed, t, updates[t]));
			assert_same_results(&a, &b);
			assert_int_equal(a.updated, updates[t]);
		}
		assert_int_equal(emulation_allocations(), allocations);
		/* each of the four variants runs once before it is captured */
		assert_int_equal(emulation_launches() - launches, steps - 4);
		assert_same(&eager, &replayed);
		close_net(&eager);
		close_net(&replayed);
	}
}

/* Losses over 20 steps follow the CPU backend's. */
TEST(against_cpu)
{
	struct device_options options = {.precision = DEVICE_FP32};
	char error[DEVICE_ERROR_MAX];
	struct net cpu;
	double losses[20];

	if (open_net(&cpu, "cpu", &options, error) < 0)
		fail_msg("%s", error);
	for (unsigned t = 0; t < 20; t++)
		losses[t] = results_of(&cpu, step(&cpu, t % 4, true)).loss;
	close_net(&cpu);
	assert_true(losses[19] < 0.8 * losses[0]);
	for (size_t form = 0; form < FORMS; form++) {
		bool half = forms[form].precision != DEVICE_FP32;
		struct net net;

		open_emulated(&net, forms[form].precision, forms[form].fusion, false);
		for (unsigned t = 0; t < 20; t++) {
			double loss = results_of(&net, step(&net, t % 4, true)).loss;
			double tolerance = half ? 0.02 + 0.004 * t : 1e-4;

			if (!(fabs(loss - losses[t]) < tolerance * losses[t]))
				fail_msg("precision %d, fusion %d, step %u: loss %g, the CPU's %g",
					 forms[form].precision, forms[form].fusion, t, loss,
					 losses[t]);
		}
		close_net(&net);
	}
}

TEST(resume)
{
	float *x = malloc(ELEMENTS * sizeof(float));
	struct device_params_state counters;
	struct net a, b;

	open_emulated(&a, DEVICE_FP16, DEVICE_FUSION_C, false);
	for (unsigned t = 0; t < 3; t++)
		step(&a, t, true);
	open_emulated(&b, DEVICE_FP16, DEVICE_FUSION_C, false);
	for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++)
		for (unsigned i = 0; i < a.count; i++)
			if (slot != DEVICE_GRAD &&
			    device_param_read(a.p[i], (enum device_slot)slot, x) == 0)
				assert_int_equal(
					device_param_write(b.p[i], (enum device_slot)slot, x), 0);
	assert_int_equal(device_params_get_state(a.params, &counters), 0);
	assert_int_equal(device_params_set_state(b.params, &counters), 0);
	for (unsigned t = 3; t < 7; t++) {
		struct device_results own = results_of(&a, step(&a, t, true)),
				      other = results_of(&b, step(&b, t, true));

		assert_int_equal(own.step, other.step + 3);
		own.step = other.step;
		assert_same_results(&own, &other);
	}
	assert_same(&a, &b);
	close_net(&a);
	close_net(&b);
	free(x);
}

/* ---- evaluation ---- */

/* Returns the loss of one batch; *ret_works is the number of queued kernels. */
static double evaluate(struct net *net, struct device_graph *graph, enum device_slot weights,
		       uint64_t *ret_works)
{
	struct device_results results;
	struct batch batch;
	uint64_t number;

	make_batch(&batch, 50);
	struct device_batch images = view(&batch);
	assert_int_equal(device_synchronize(net->device), 0);
	*ret_works = emulation_works();
	assert_int_equal(device_upload(graph, &images, &number), 0);
	assert_int_equal(device_evaluate(graph, weights, &number), 0);
	assert_int_equal(device_results(graph, number, true, &results), 0);
	assert_int_equal(device_synchronize(net->device), 0);
	*ret_works = emulation_works() - *ret_works;
	return results.loss;
}

/*
 * Folded weights and scales of norms are computed for the first batch, and again whenever their
 * inputs change: after a step, after a write by the caller, and when evaluation switches to other
 * weights.
 */
static void expect_folded(struct net *net, unsigned folds)
{
	struct device_graph *graph = plan_another(net, DEVICE_EVAL);
	float beta[8] = {0.5f, -1, 1};
	uint64_t first, again;

	for (unsigned t = 0; t < 5; t++) {
		struct device_graph *fresh = plan_another(net, DEVICE_EVAL);
		enum device_slot weights = t % 2 ? DEVICE_EMA : DEVICE_VALUE;
		double loss = evaluate(net, graph, weights, &first);

		assert_true(loss == evaluate(net, fresh, weights, &again));
		assert_int_equal(again, first);
		for (unsigned i = 0; i < 3; i++) {
			assert_true(loss == evaluate(net, graph, weights, &again));
			assert_int_equal(again, first - folds);
		}
		assert_true(loss !=
			    evaluate(net, graph, t % 2 ? DEVICE_VALUE : DEVICE_EMA, &again));
		assert_int_equal(again, first);
		device_graph_free(fresh);
		if (t < 3)
			step(net, t + 1, t != 1);
		else
			assert_int_equal(device_param_write(net->p[2], DEVICE_VALUE, beta), 0);
	}
	device_graph_free(graph);
}

TEST(evaluation)
{
	struct net net;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	step(&net, 0, true);
	step(&net, 1, true);
	expect_folded(&net, 7); /* six convolutions and the classifier */
	close_net(&net);
	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_NONE, false);
	step(&net, 0, true);
	step(&net, 1, true);
	expect_folded(&net, 6); /* norms */
	close_net(&net);
}

/* ---- loss scaling ---- */

TEST(overflow)
{
	float *before = malloc(ELEMENTS * sizeof(float)), *after = malloc(ELEMENTS * sizeof(float));
	struct device_params_state counters;
	struct device_results results;
	struct net net;
	unsigned skips = 0;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 65536);
	set_scale(&net, 0x1p24, 5);
	assert_int_equal(device_param_read(net.p[0], DEVICE_VALUE, before), 0);
	do {
		results = results_of(&net, step(&net, 0, true));
		if (results.updated)
			break;
		assert_true(results.skipped && isfinite(results.loss));
		assert_true(results.loss_scale == 0x1p24 / (double)(1u << skips));
		skips++;
		assert_int_equal(device_param_read(net.p[0], DEVICE_VALUE, after), 0);
		assert_memory_equal(before, after, device_param_elements(net.p[0]) * sizeof(float));
		assert_int_equal(device_params_get_state(net.params, &counters), 0);
		assert_int_equal(counters.skipped, skips);
		assert_int_equal(counters.updates, 0);
		assert_int_equal(counters.scale_age, 0);
		assert_true(counters.loss_scale == 0x1p24 / (double)(1u << skips));
	} while (skips < 24);
	assert_true(skips > 0 && results.updated && isfinite(results.grad_norm));
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_int_equal(counters.updates, 1);
	close_net(&net);
	free(before);
	free(after);
}

/*
 * Gradients written by the caller are multiplied by the loss scale, and divided by it when they are
 * read.
 */
TEST(given_scale)
{
	float *written = malloc(ELEMENTS * sizeof(float)), *read = malloc(ELEMENTS * sizeof(float));
	struct net net;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	for (unsigned i = 0; i < net.count; i++) {
		size_t elements = device_param_elements(net.p[i]);

		if (device_param_spec(net.p[i])->kind == DEVICE_BUFFER)
			continue;
		for (size_t j = 0; j < elements; j++)
			written[j] = (float)uniform(i, j);
		assert_int_equal(device_param_write(net.p[i], DEVICE_GRAD, written), 0);
		assert_int_equal(device_param_read(net.p[i], DEVICE_GRAD, read), 0);
		assert_memory_equal(written, read, elements * sizeof(float));
	}
	close_net(&net);
	free(written);
	free(read);
}

/* The loss scale does not affect training: powers of two cancel exactly. */
TEST(scale)
{
	struct device_params_state counters;
	struct device_results one, other;
	struct net net, grown;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_NONE, false);
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 1);
	set_scale(&net, 4096, 0); /* as in an fp16 run */
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 1);
	close_net(&net);
	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	open_emulated(&grown, DEVICE_FP16, DEVICE_FUSION_C, false);
	set_scale(&net, 1024, 0);
	set_scale(&grown, 1024, 1999);
	for (unsigned t = 0; t < 3; t++) {
		one = results_of(&net, step(&net, t, true));
		other = results_of(&grown, step(&grown, t, true));
		assert_true(one.loss_scale == 1024);
		assert_true(other.loss_scale == (t ? 2048 : 1024));
		assert_true(fabs(one.loss - other.loss) < 1e-3);
		assert_true(fabs(one.grad_norm - other.grad_norm) < 0.01 * one.grad_norm);
	}
	assert_int_equal(device_params_get_state(grown.params, &counters), 0);
	assert_int_equal(counters.scale_age, 2);
	close_net(&net);
	close_net(&grown);
}

/*
 * Gradient of resized position embeddings, where x has two more readers, so that its gradient is a
 * sum. The weights of each new position sum to 1, so gradients of 1 sum to the number of new
 * positions times the number of samples.
 */
TEST(resized_positions)
{
	enum { CHANNELS = 8, OLD = 3, NEW = 6, COUNT = 2 };
	static const struct device_graph_options training = {.mode = DEVICE_TRAIN};
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	struct device_options options = {.precision = DEVICE_FP32, .fusion = DEVICE_FUSION_B};
	struct device_input_spec input = {.name = "input",
					  .shape = {COUNT, NEW, NEW, CHANNELS},
					  .std = {1, 1, 1, 1},
					  .gradient = true};
	struct device_param_spec positions = {"positions", DEVICE_EMBEDDING, {OLD * OLD, CHANNELS}};
	struct device_param_spec weight = {
		"weight", DEVICE_CONV_WEIGHT, {CHANNELS, 1, 1, CHANNELS}};
	static float ones[COUNT * NEW * NEW * CHANNELS], gradient[OLD * OLD * CHANNELS];
	struct device_batch batch = {ones, NULL, COUNT, CHANNELS, DEVICE_ELEMENT_F32, false};
	struct device_param *p, *w;
	struct device_params *params;
	struct device_value *x, *y[3];
	struct device_graph *graph;
	struct device *device;
	char error[DEVICE_ERROR_MAX];
	uint64_t number;

	assert_int_equal(device_open("cuda-emulated", &options, &device, error), 0);
	assert_int_equal(device_params_new(device, &params), 0);
	assert_int_equal(device_param_add(params, &positions, &p), 0);
	assert_int_equal(device_param_add(params, &weight, &w), 0);
	assert_int_equal(device_params_allocate(params, &sgd), 0);
	assert_int_equal(device_graph_new(params, &training, &graph), 0);
	x = device_input(graph, &input);
	y[0] = device_pos_embed(graph, x,
				&(struct device_pos_embed_spec){
					.name = "tokens", .positions = p, .grid_side = OLD});
	for (int i = 1; i < 3; i++)
		y[i] = device_conv(graph, x,
				   &(struct device_conv_spec){.name = i == 1 ? "one" : "two",
							      .weight = w,
							      .stride = 1});
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	for (size_t i = 0; i < sizeof(ones) / sizeof(*ones); i++)
		ones[i] = 1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(device_value_write(graph, y[i], DEVICE_GRAD, ones), 0);
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_step(graph, NULL, &number), 0);
	assert_int_equal(device_param_read(p, DEVICE_GRAD, gradient), 0);
	for (unsigned c = 0; c < CHANNELS; c++) {
		double sum = 0;

		for (unsigned place = 0; place < OLD * OLD; place++)
			sum += (double)gradient[place * CHANNELS + c];
		assert_true(fabs(sum - COUNT * NEW * NEW) < 1e-3);
		/* opposite corners are equal by symmetry */
		assert_true(fabs((double)gradient[c] -
				 (double)gradient[(OLD * OLD - 1) * CHANNELS + c]) < 1e-4);
	}
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}
