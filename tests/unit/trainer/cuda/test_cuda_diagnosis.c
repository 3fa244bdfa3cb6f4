/*
 * Diagnostics of the CUDA backend on the emulated GPU: non-finite values, insufficient memory,
 * values that no step has written, and timing.
 */
#include "tests/gpu/emulation/queue.h"
#include "tests/unit/trainer/cuda/cuda_run_test.h"

#include <math.h>

TEST(anomaly)
{
	struct device_options options = {
		.precision = DEVICE_FP16, .fusion = DEVICE_FUSION_C, .detect_anomaly = true};
	struct device_hyper hyper = hyper_at(0);
	float beta[8] = {0};
	char error[DEVICE_ERROR_MAX];
	struct batch batch;
	struct device_params_state counters;
	struct net net;
	uint64_t number;

	if (open_net(&net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	assert_true(results_of(&net, step(&net, 0, true)).updated);
	/* loss scaling expects gradients to overflow, so this is no anomaly */
	set_scale(&net, 0x1p24, 0);
	assert_true(results_of(&net, step(&net, 1, true)).skipped);
	set_scale(&net, 256, 0);
	beta[3] = INFINITY;
	assert_int_equal(device_param_write(net.p[7], DEVICE_VALUE, beta), 0); /* a.conv1.beta */
	make_batch(&batch, 2);
	struct device_batch images = view(&batch);
	assert_int_equal(device_upload(net.graph, &images, &number), 0);
	assert_int_equal(device_step(net.graph, &hyper, &number), -EDOM);
	assert_non_null(strstr(device_error(net.device), "a.conv1"));
	assert_non_null(strstr(device_error(net.device), "is not finite"));
	/* the failed step made no update */
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_int_equal(counters.updates + counters.skipped, 0);
	close_net(&net);
}

/*
 * Whichever allocation fails, the error names the plan's largest tensors, also tensors of equal
 * size.
 */
TEST(memory)
{
	struct device_graph_options training = {.mode = DEVICE_TRAIN};
	struct device_graph_info info;
	char error[DEVICE_ERROR_MAX];
	uint64_t limit;
	unsigned failures = 0;
	struct net net;
	int r;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_B, false);
	device_graph_info(net.graph, &info);
	assert_true(info.arena_bytes > 0 && info.bytes_forward > 0 && info.bytes_backward > 0);
	device_graph_free(net.graph);
	/* the arena's size cannot suffice: the parameters already use part of it */
	for (limit = info.arena_bytes;; limit += 256) {
		emulation_limit_memory(limit);
		assert_int_equal(device_graph_new(net.params, &training, &net.graph), 0);
		record_net(&net);
		r = device_graph_plan(net.graph, error);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_non_null(strstr(error, "out of emulated memory"));
		assert_non_null(
			strstr(error, "smaller batch. Largest: stem raw (0.0 MiB), stem ("));
		device_graph_free(net.graph);
		failures++;
	}
	/* weights, batches, labels, results and other buffers in addition to the arena */
	assert_true(failures > 20 && limit > info.arena_bytes);
	emulation_limit_memory(0);
	close_net(&net);
}

/* Values that no step has written read as NaN, whatever the memory held before. */
TEST(unwritten)
{
	struct device_graph_options training = {.mode = DEVICE_TRAIN, .keep_all = true};
	const size_t elements = (size_t)SAMPLES * SIDE * SIDE * 8;
	float *values = malloc(elements * sizeof(float));
	char error[DEVICE_ERROR_MAX];
	struct net net;

	open_emulated(&net, DEVICE_BF16, DEVICE_FUSION_NONE, false);
	device_graph_free(net.graph);
	emulation_fresh_memory(0);
	assert_int_equal(device_graph_new(net.params, &training, &net.graph), 0);
	record_net(&net);
	assert_int_equal(device_graph_plan(net.graph, error), 0);
	assert_int_equal(device_value_read(net.graph, net.stem, DEVICE_VALUE, values), 0);
	for (size_t i = 0; i < elements; i++)
		assert_true(isnan(values[i]));
	results_of(&net, step(&net, 0, true));
	assert_int_equal(device_value_read(net.graph, net.stem, DEVICE_VALUE, values), 0);
	for (size_t i = 0; i < elements; i++)
		assert_true(isfinite(values[i]));
	emulation_fresh_memory(0xff);
	close_net(&net);
	free(values);
}

TEST(profile)
{
	struct device_options options = {
		.precision = DEVICE_FP32, .fusion = DEVICE_FUSION_B, .profile = true};
	struct device_layer_info layer;
	uint64_t forward = 0, backward = 0;
	char error[DEVICE_ERROR_MAX];
	struct net net;
	uint32_t i;

	if (open_net(&net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	for (unsigned t = 0; t < 3; t++)
		step(&net, t, true);
	for (i = 0; device_graph_layer(net.graph, i, &layer) == 0; i++) {
		assert_int_equal(layer.runs, 3);
		forward += layer.forward_ns;
		backward += layer.backward_ns;
		if (strcmp(layer.name, "stem") == 0) {
			assert_string_equal(layer.kind, "conv+norm+relu");
			assert_true(*layer.engine && layer.flops_forward > 0 &&
				    layer.bytes_backward > 0 && layer.forward_ns > 0);
		}
	}
	assert_int_equal(i, 11);
	assert_true(forward > 0 && backward > 0);
	close_net(&net);
}
