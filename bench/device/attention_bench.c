/*
 * Time of attention alone on the CPU, forward and backward, at ViT-S/16's shape. A peer program for
 * bench/peers/networks, like device_bench --serve. Arguments: fp32 or bf16, threads, batch.
 *
 * Answers "measure WARMUP SECONDS" with samples per second of the operation's time as measured by
 * the device; feeding the input is excluded.
 */
#include "format/base/system/clock.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKENS 197
#define HEADS  6
#define WIDTH  64 /* head dimension */

struct bench {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	struct device_batch batch;
	float *values;
};

static void check(const struct bench *bench, int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "attention_bench: %s\n",
		bench->device ? device_error(bench->device) : strerror(-result));
	exit(2);
}

static void fill(float *values, size_t count)
{
	uint32_t state = 1;

	for (size_t i = 0; i < count; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = (float)(state >> 8) * 0x1p-23f - 1;
	}
}

static void open_graph(struct bench *bench, uint32_t batch)
{
	struct device_graph_options options = {.mode = DEVICE_TRAIN};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct device_input_spec input = {.name = "qkv",
					  .shape = {batch, 1, TOKENS, 3 * HEADS * WIDTH},
					  .std = {1, 1, 1, 1},
					  .gradient = true};
	struct device_attention_spec attention = {.name = "attention", .heads = HEADS};
	size_t count = (size_t)batch * TOKENS * input.shape.c;
	char error[DEVICE_ERROR_MAX];

	check(bench, device_params_new(bench->device, &bench->params));
	check(bench, device_params_allocate(bench->params, &optimizer));
	check(bench, device_graph_new(bench->params, &options, &bench->graph));
	struct device_value *y =
		device_attention(bench->graph, device_input(bench->graph, &input), &attention);
	if (device_graph_plan(bench->graph, error) < 0) {
		fprintf(stderr, "attention_bench: %s\n", error);
		exit(2);
	}
	bench->values = malloc(count * sizeof(float));
	if (!bench->values)
		exit(2);
	fill(bench->values, count);
	check(bench, device_value_write(bench->graph, y, DEVICE_GRAD, bench->values));
	bench->batch = (struct device_batch){.images = bench->values,
					     .count = batch,
					     .channels = input.shape.c,
					     .element = DEVICE_ELEMENT_F32};
}

static struct device_layer_info attention_times(const struct bench *bench)
{
	struct device_layer_info info;

	check(bench, device_graph_layer(bench->graph, 1, &info));
	return info;
}

static void run(struct bench *bench, double seconds)
{
	double end = clock_s(CLOCK_MONOTONIC) + seconds;
	uint64_t number;

	do {
		check(bench, device_upload(bench->graph, &bench->batch, &number));
		check(bench, device_step(bench->graph, NULL, &number));
	} while (clock_s(CLOCK_MONOTONIC) < end);
}

static void serve(struct bench *bench)
{
	struct device_layer_info info = attention_times(bench);
	double warmup, seconds;

	printf("{\"ready\": true, \"flops\": %.0f, \"batch\": %u, \"settings\": \"%s\"}\n",
	       info.flops_forward + info.flops_backward, bench->batch.count, info.engine);
	fflush(stdout);
	while (scanf(" measure %lf %lf", &warmup, &seconds) == 2) {
		run(bench, warmup);
		struct device_layer_info first = attention_times(bench);
		run(bench, seconds);
		struct device_layer_info last = attention_times(bench);
		printf("{\"images_per_s\": %.2f}\n",
		       1e9 * bench->batch.count * (double)(last.runs - first.runs) /
			       (double)(last.forward_ns + last.backward_ns - first.forward_ns -
					first.backward_ns));
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	struct device_options options = {.profile = true};
	struct bench bench = {0};
	char error[DEVICE_ERROR_MAX];

	if (argc != 4) {
		fprintf(stderr, "usage: attention_bench fp32|bf16 THREADS BATCH\n");
		return 2;
	}
	options.precision = strcmp(argv[1], "bf16") == 0 ? DEVICE_BF16 : DEVICE_FP32;
	options.threads = (unsigned)strtoul(argv[2], NULL, 10);
	if (device_open("cpu", &options, &bench.device, error) < 0) {
		fprintf(stderr, "attention_bench: %s\n", error);
		return 2;
	}
	open_graph(&bench, (uint32_t)strtoul(argv[3], NULL, 10));
	serve(&bench);
	device_graph_free(bench.graph);
	device_params_free(bench.params);
	device_close(bench.device);
	free(bench.values);
	return 0;
}
