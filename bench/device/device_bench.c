/*
 * Speed of the trainer's device without a feed: training steps and evaluation of the trainer's
 * networks on random images, with a breakdown by layer. Batches rotate through host memory
 * registered with the device; the next batch is fed while a step runs, as in the trainer's loop.
 *
 * With --serve, one network trains on commands from standard input and answers in JSON, the
 * protocol of bench/peers, so that it can be measured in turn with other programs.
 */
#include "format/base/median.h"
#include "format/base/system/clock.h"
#include "format/base/text/options.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
	BATCHES = 3, /* batches in host memory, used in turn */
	LAG = 2,     /* steps queued before waiting for results */
	KEYS_MAX = 16,
};

static const double mean[3] = {123.675, 116.28, 103.53}, deviation[3] = {58.395, 57.12, 57.375};

struct options {
	const char *net;            /* NULL for a set of networks */
	const char *keys[KEYS_MAX]; /* keys of the recipe's section model, NULL-terminated */
	unsigned key_count;
	const char *backend;
	struct device_options device;
	unsigned batch, side, steps;
	bool layers, json, serve, train_only;
	double bytes_per_second, flops_per_second; /* peak rates of the device; 0 if unknown */
};

/* One network, in training or evaluation. */
struct bench {
	struct device *device;
	const char *net;
	const struct options *options;
	unsigned batch, side, classes;
	bool train;
	struct device_params *params;
	struct model *model;
	struct device_graph *graph;
	uint8_t *images; /* [BATCHES][batch][side][side][3] */
	int32_t *labels; /* [batch] */
	size_t images_bytes;
	uint64_t fed;   /* number of batches fed */
	uint64_t steps; /* number of steps queued; results are awaited LAG steps later */
	struct device_results results;
};

struct timing {
	double *seconds, *cpu_seconds; /* [count], one per step */
	unsigned count;
};

/* Like check(), with the device's error message. */
static void check_device(const struct bench *bench, int result, const char *what)
{
	const char *text = device_error(bench->device);

	if (result >= 0)
		return;
	fprintf(stderr, "device_bench: %s: %s\n", what, *text ? text : strerror(-result));
	exit(2);
}

/* Exits the program if result is negative. */
static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "device_bench: %s: %s\n", what, strerror(-result));
	exit(2);
}

static const char *precision_name(enum device_precision precision)
{
	static const char *const names[] = {"auto", "fp32", "bf16", "fp16"};

	return names[precision];
}

static const char *const fusions[] = {"auto", "none", "b", "c"};

/* ---- parameters and batches ---- */

static uint32_t random_bits(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void make_batches(struct bench *bench)
{
	size_t bytes = BATCHES * (size_t)bench->batch * bench->side * bench->side * 3;
	uint32_t state = 1;

	bench->images =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bench->labels = malloc(bench->batch * sizeof(*bench->labels));
	bench->images_bytes = bytes;
	if (bench->images == MAP_FAILED || !bench->labels)
		check(-ENOMEM, "batches");
	for (size_t i = 0; i < bytes; i++)
		bench->images[i] = (uint8_t)random_bits(&state);
	for (unsigned i = 0; i < bench->batch; i++)
		bench->labels[i] = (int32_t)(random_bits(&state) % bench->classes);
	int r = device_register_host(bench->device, bench->images, bytes, true);
	check_device(bench, r, "registering the batches");
	if (r == DEVICE_STAGED)
		fprintf(stderr, "device_bench: batches are copied twice: %s\n",
			device_error(bench->device));
}

/* ---- network ---- */

/* Builds the network with the trainer's code, with initial weights. */
static void open_model(struct bench *bench, const struct recipe_model *recipe)
{
	struct device_optimizer_spec optimizer = {
		.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .ema = true};
	struct model_images images = {bench->images, bench->batch, bench->side, bench->side, 3};
	char error[MODEL_ERROR_MAX] = "";

	memcpy(images.mean, mean, sizeof(mean));
	memcpy(images.std, deviation, sizeof(deviation));
	check_device(bench, device_params_new(bench->device, &bench->params), "making a store");
	if (model_new(recipe, bench->classes, bench->params, &bench->model, error) < 0) {
		fprintf(stderr, "device_bench: %s\n", error);
		exit(2);
	}
	check_device(bench, device_params_allocate(bench->params, &optimizer),
		     "allocating parameters");
	check_device(bench, model_initialize(bench->model, 1, &images), "initial weights");
}

static void open_graph(struct bench *bench, bool train)
{
	struct device_graph_options how = {.mode = train ? DEVICE_TRAIN : DEVICE_EVAL};
	struct model_input input = {bench->batch, bench->side, bench->side, .loss.smoothing = 0.1f};
	char error[DEVICE_ERROR_MAX] = "";

	memcpy(input.mean, mean, sizeof(mean));
	memcpy(input.std, deviation, sizeof(deviation));
	check_device(bench, device_graph_new(bench->params, &how, &bench->graph), "making a graph");
	model_record(bench->model, bench->graph, &input);
	if (device_graph_plan(bench->graph, error) < 0) {
		fprintf(stderr, "device_bench: planning %s: %s\n", bench->net, error);
		exit(2);
	}
	bench->train = train;
	bench->steps = 0;
}

static void feed(struct bench *bench)
{
	unsigned turn = (unsigned)(bench->fed++ % BATCHES);
	uint64_t ticket;
	struct device_batch batch = {.images =
					     bench->images + turn * (bench->images_bytes / BATCHES),
				     .labels = bench->labels,
				     .count = bench->batch,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8};

	/* The batches are constant, so the code need not wait for the copy. */
	check_device(bench, device_upload(bench->graph, &batch, &ticket), "feeding");
}

/* Queues a step and waits for the one LAG before it. */
static void step(struct bench *bench)
{
	struct device_hyper hyper = {.momentum = 0.9f, .ema_decay = 0.99f};
	uint64_t number;

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.01f;
		hyper.weight_decay[i] = 5e-5f;
	}
	feed(bench);
	check_device(bench,
		     bench->train ? device_step(bench->graph, &hyper, &number)
				  : device_evaluate(bench->graph, DEVICE_VALUE, &number),
		     "computing");
	bench->steps = number;
	if (number > LAG)
		check_device(bench,
			     device_results(bench->graph, number - LAG, true, &bench->results),
			     "results");
}

/* Waits for all queued steps. */
static void drain(struct bench *bench)
{
	if (bench->steps)
		check_device(bench,
			     device_results(bench->graph, bench->steps, true, &bench->results),
			     "results");
	check_device(bench, device_synchronize(bench->device), "waiting");
}

/* ---- results ---- */

static struct timing timing_new(unsigned count)
{
	struct timing timing = {calloc(count, sizeof(double)), calloc(count, sizeof(double)),
				count};

	if (!timing.seconds || !timing.cpu_seconds)
		check(-ENOMEM, "times");
	return timing;
}

static void timing_free(struct timing *timing)
{
	free(timing->seconds);
	free(timing->cpu_seconds);
}

/*
 * Times the steps and sorts the times. The first steps, which prepare plans and capture work, are
 * not timed.
 */
static void measure(struct bench *bench, struct timing *timing)
{
	for (unsigned i = 0; i < LAG + 1; i++)
		step(bench);
	drain(bench);
	double start = clock_s(CLOCK_MONOTONIC), start_cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
	for (unsigned i = 0; i < timing->count + LAG; i++) {
		step(bench);
		double now = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
		/* the first LAG steps fill the queue; after that each waits for one step */
		if (i >= LAG) {
			timing->seconds[i - LAG] = now - start;
			timing->cpu_seconds[i - LAG] = cpu - start_cpu;
		}
		start = now;
		start_cpu = cpu;
	}
	drain(bench);
	median_sort(timing->seconds, timing->count);
	median_sort(timing->cpu_seconds, timing->count);
}

struct layer_times {
	/* [layers], costs of the first step, which are subtracted */
	struct device_layer_info *first;
	uint64_t steps;
};

/* Milliseconds per step of a layer's pass since `first`. */
static double layer_ms(uint64_t now_ns, uint64_t then_ns, uint64_t steps)
{
	return (double)(now_ns - then_ns) * 1e-6 / (double)steps;
}

static struct device_layer_info *snapshot(const struct device_graph *graph)
{
	struct device_graph_info info;

	device_graph_info(graph, &info);
	struct device_layer_info *layers = calloc(info.layers + 1, sizeof(*layers));
	if (!layers)
		check(-ENOMEM, "layers");
	for (uint32_t i = 0; i < info.layers; i++)
		device_graph_layer(graph, i, &layers[i]);
	return layers;
}

static json_t *layers_json(const struct device_graph *graph, const struct layer_times *times)
{
	struct device_layer_info layer;
	json_t *list = json_array();

	for (uint32_t i = 0; device_graph_layer(graph, i, &layer) == 0; i++) {
		const struct device_layer_info *then = &times->first[i];
		json_t *shape = json_pack("[iiii]", layer.shape.n, layer.shape.h, layer.shape.w,
					  layer.shape.c);
		json_array_append_new(
			list,
			json_pack("{ss ss ss so sf sf sf sf sf sf}", "name", layer.name, "kind",
				  layer.kind, "engine", layer.engine ? layer.engine : "", "shape",
				  shape, "forward_ms",
				  layer_ms(layer.forward_ns, then->forward_ns, times->steps),
				  "backward_ms",
				  layer_ms(layer.backward_ns, then->backward_ns, times->steps),
				  "flops_forward", layer.flops_forward, "flops_backward",
				  layer.flops_backward, "bytes_forward", layer.bytes_forward,
				  "bytes_backward", layer.bytes_backward));
	}
	return list;
}

/*
 * Lower bound of a step's time: each layer's pass takes the time for its bytes or its arithmetic,
 * whichever is more; excludes the update. 0 if unknown.
 */
static double roofline(const struct bench *bench)
{
	double bandwidth = bench->options->bytes_per_second, sum = 0;
	double peak = bench->options->flops_per_second;
	struct device_layer_info layer;

	if (bandwidth <= 0)
		return 0;
	for (uint32_t i = 0; device_graph_layer(bench->graph, i, &layer) == 0; i++) {
		sum += fmax(layer.bytes_forward / bandwidth, layer.flops_forward / peak);
		sum += fmax(layer.bytes_backward / bandwidth, layer.flops_backward / peak);
	}
	return sum;
}

/*
 * Returns the peak rate to which utilization refers: the data sheet's value if the device knows it,
 * else the option's. It is not the rate that matrix products reach.
 */
static double peak_flops(const struct bench *bench)
{
	double own = device_info(bench->device)->peak_flops;

	return own > 0 ? own : bench->options->flops_per_second;
}

/* Lines of the fallback log as a JSON array. */
static json_t *fallbacks_json(const struct device_graph_info *graph)
{
	json_t *list = json_array();

	for (const char *line = graph->fallback_log; *line; line = strchr(line, '\n') + 1)
		json_array_append_new(list, json_stringn(line, strcspn(line, "\n")));
	return list;
}

static json_t *properties_json(const struct bench *bench)
{
	const struct device_info *device = device_info(bench->device);
	struct device_graph_info graph;

	device_graph_info(bench->graph, &graph);
	return json_pack(
		"{ss sb si si ss ss ss sb sb sf sf sf sf sf sf sf so}", "net", bench->net,
		"training", bench->train, "batch", (int)bench->batch, "side", (int)bench->side,
		"device", device->name, "precision", precision_name(device->precision), "fusion",
		fusions[bench->options->device.fusion], "autotuned",
		bench->options->device.autotune, "eager", bench->options->device.eager,
		"peak_flops", peak_flops(bench), "flops",
		graph.flops_forward + graph.flops_backward, "bytes_forward", graph.bytes_forward,
		"bytes_backward", graph.bytes_backward, "roofline_seconds", roofline(bench),
		"arena_bytes", (double)graph.arena_bytes, "unshared_bytes",
		(double)graph.unshared_bytes, "fallbacks", fallbacks_json(&graph));
}

/* JSON cannot represent NaN. */
static json_t *loss_json(const struct bench *bench)
{
	return isfinite(bench->results.loss) ? json_real(bench->results.loss) : json_null();
}

static void print_json(json_t *object)
{
	json_dumpf(object, stdout, JSON_COMPACT);
	printf("\n");
	fflush(stdout);
	json_decref(object);
}

static void report_json(const struct bench *bench, const struct timing *timing,
			const struct layer_times *times)
{
	json_t *object = properties_json(bench), *list = json_array();

	for (unsigned i = 0; i < timing->count; i++)
		json_array_append_new(list, json_real(timing->seconds[i] * 1e3));
	json_object_set_new(object, "step_ms", list);
	json_object_set_new(object, "images_per_s",
			    json_real(bench->batch / timing->seconds[timing->count / 2]));
	json_object_set_new(object, "images_per_s_best",
			    json_real(bench->batch / timing->seconds[0]));
	json_object_set_new(object, "images_per_cpu_s_best",
			    json_real(bench->batch / timing->cpu_seconds[0]));
	json_object_set_new(object, "loss", loss_json(bench));
	if (times)
		json_object_set_new(object, "layers", layers_json(bench->graph, times));
	print_json(object);
}

struct family {
	char kind[48];
	double forward, backward, flops;
};

static void print_layers(const struct device_graph *graph, const struct layer_times *times)
{
	struct device_layer_info layer;
	struct family families[32] = {0};
	unsigned count = 0;

	for (uint32_t i = 0; device_graph_layer(graph, i, &layer) == 0; i++) {
		const struct device_layer_info *then = &times->first[i];
		double forward = layer_ms(layer.forward_ns, then->forward_ns, times->steps);
		double backward = layer_ms(layer.backward_ns, then->backward_ns, times->steps);
		unsigned f = 0;

		printf("  %-10s %-20s %4ux%-4ux%-5u %8.2f ms %7.1f GF/s %8.2f ms %7.1f GF/s  %s\n",
		       layer.name, layer.kind, layer.shape.h, layer.shape.w, layer.shape.c, forward,
		       layer.flops_forward > 0 ? layer.flops_forward / forward * 1e-6 : 0, backward,
		       layer.flops_backward > 0 ? layer.flops_backward / backward * 1e-6 : 0,
		       layer.engine);
		while (f < count && strcmp(families[f].kind, layer.kind) != 0)
			f++;
		if (f == 32)
			continue;
		if (f == count)
			snprintf(families[count++].kind, sizeof(families->kind), "%s", layer.kind);
		families[f].forward += forward;
		families[f].backward += backward;
		families[f].flops += layer.flops_forward + layer.flops_backward;
	}
	for (unsigned f = 0; f < count; f++) {
		printf("  %-24s forward %9.2f ms  backward %9.2f ms", families[f].kind,
		       families[f].forward, families[f].backward);
		if (families[f].flops > 0)
			printf("  %7.1f GF/s",
			       families[f].flops / (families[f].forward + families[f].backward) *
				       1e-6);
		printf("\n");
	}
}

static void report_text(const struct bench *bench, const struct timing *timing,
			const struct layer_times *times)
{
	double peak = peak_flops(bench), median = timing->seconds[timing->count / 2];
	struct device_graph_info info;

	device_graph_info(bench->graph, &info);
	double flops = (info.flops_forward + info.flops_backward) / median;
	printf("%-12s %-5s side %3u batch %3u: median %8.1f best %8.1f images/s, best %7.1f per "
	       "CPU "
	       "second  %7.1f GF/s  ",
	       bench->net, bench->train ? "train" : "eval", bench->side, bench->batch,
	       bench->batch / median, bench->batch / timing->seconds[0],
	       bench->batch / timing->cpu_seconds[0], flops * 1e-9);
	if (peak > 0)
		printf("%4.1f %% of peak  ", 100 * flops / peak);
	if (info.bytes_forward > 0)
		printf("%6.1f GB/s  ", (info.bytes_forward + info.bytes_backward) / median * 1e-9);
	printf("arena %.0f of %.0f MiB  loss %.3f\n", (double)info.arena_bytes / (1 << 20),
	       (double)info.unshared_bytes / (1 << 20), bench->results.loss);
	if (times)
		print_layers(bench->graph, times);
}

static void run(struct bench *bench)
{
	struct timing timing = timing_new(bench->options->steps);
	struct layer_times times = {0};

	if (bench->options->layers) {
		step(bench);
		drain(bench);
		times.first = snapshot(bench->graph);
	}
	measure(bench, &timing);
	times.steps = bench->steps - 1;
	(bench->options->json ? report_json : report_text)(bench, &timing,
							   bench->options->layers ? &times : NULL);
	free(times.first);
	timing_free(&timing);
}

/* ---- --serve ---- */

static void measure_rate(struct bench *bench, double warmup, double duration)
{
	double begin = clock_s(CLOCK_MONOTONIC), elapsed;
	uint64_t count = 0;

	do {
		step(bench);
	} while (clock_s(CLOCK_MONOTONIC) - begin < warmup);
	double start = clock_s(CLOCK_MONOTONIC);
	do {
		step(bench);
		count++;
		elapsed = clock_s(CLOCK_MONOTONIC) - start;
	} while (elapsed < duration);
	/*
	 * Wait for the queued steps; as many were queued at the start, so `count` steps fit the
	 * time.
	 */
	drain(bench);
	print_json(json_pack("{sf so sI}", "images_per_s", (double)count * bench->batch / elapsed,
			     "loss", loss_json(bench), "steps", (json_int_t)count));
}

static void serve(struct bench *bench)
{
	char line[128];
	double warmup, duration;
	json_t *properties = properties_json(bench);

	json_object_set_new(properties, "ready", json_true());
	print_json(properties);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "measure %lf %lf", &warmup, &duration) != 2) {
			fprintf(stderr,
				"device_bench: expected \"measure WARMUP SECONDS\", got "
				"\"%.40s\"\n",
				line);
			exit(2);
		}
		measure_rate(bench, warmup, duration);
	}
}

/* ---- command line ---- */

/* Builds the recipe's section model for the network. */
static struct recipe make_recipe(const char *net, const struct options *options)
{
	char name[128], error[RECIPE_ERROR_MAX];
	struct recipe recipe;
	int r = recipe_init(&recipe);

	check(r, "making a recipe");
	snprintf(name, sizeof(name), "model.name=%s", net);
	r = recipe_override(&recipe, name, error);
	for (unsigned i = 0; i < options->key_count && !r; i++)
		r = recipe_override(&recipe, options->keys[i], error);
	if (!r)
		r = recipe_check(&recipe, false, error);
	if (r) {
		fprintf(stderr, "device_bench: %s\n", error);
		exit(2);
	}
	return recipe;
}

static void run_net(struct device *device, const char *net, const struct options *options)
{
	struct recipe recipe = make_recipe(net, options);
	bool small = model_is_small(&recipe.model);
	struct bench bench = {.device = device,
			      .net = net,
			      .options = options,
			      .batch = options->batch
					       ?: small ? 128
							: 32,
			      .side = options->side
					      ?: small ? 32
						       : 224,
			      .classes = (unsigned)recipe.model.classes
						 ?: small ? 10
							  : 1000};

	make_batches(&bench);
	open_model(&bench, &recipe.model);
	for (int train = 1; train >= (options->train_only || options->serve); train--) {
		open_graph(&bench, train);
		(options->serve ? serve : run)(&bench);
		device_graph_free(bench.graph);
	}
	device_unregister_host(device, bench.images);
	munmap(bench.images, bench.images_bytes);
	free(bench.labels);
	model_free(bench.model);
	device_params_free(bench.params);
	recipe_deinit(&recipe);
}

/* Index of a word in words[]; an error if it is not there. */
static unsigned word(struct argp_state *state, const char *argument, const char *const *words,
		     unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(argument, words[i]) == 0)
			return i;
	argp_error(state, "'%s' is not one of the words that --help lists", argument);
	return 0;
}

static unsigned number(struct argp_state *state, const char *argument)
{
	char *end;
	unsigned long value = strtoul(argument, &end, 10);

	if (*end || !*argument || !value || value > 1000000)
		argp_error(state, "'%s' is not a number from 1 to 1000000", argument);
	return (unsigned)value;
}

enum {
	OPTION_FUSION = 256,
	OPTION_AUTOTUNE,
	OPTION_TF32,
	OPTION_DETERMINISTIC,
	OPTION_ROOFLINE,
	OPTION_EAGER,
	OPTION_JSON,
	OPTION_SERVE,
	OPTION_TRAIN
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	static const char *const precisions[] = {"auto", "fp32", "bf16", "fp16"};
	struct options *options = state->input;

	switch (key) {
	case 'p':
		options->device.precision =
			(enum device_precision)word(state, argument, precisions, 4);
		break;
	case 't':
		options->device.threads = number(state, argument);
		break;
	case 'b':
		options->batch = number(state, argument);
		break;
	case 's':
		options->side = number(state, argument);
		break;
	case 'n':
		options->steps = number(state, argument);
		break;
	case 'd':
		options->backend = argument;
		break;
	case 'l':
		options->layers = options->device.profile = true;
		break;
	case OPTION_FUSION:
		options->device.fusion = (enum device_fusion)word(state, argument, fusions, 4);
		break;
	case OPTION_AUTOTUNE:
		options->device.autotune = true;
		break;
	case OPTION_TF32:
		options->device.tf32 = true;
		break;
	case OPTION_DETERMINISTIC:
		options->device.deterministic = true;
		break;
	case OPTION_ROOFLINE:
		if (sscanf(argument, "%lf,%lf", &options->bytes_per_second,
			   &options->flops_per_second) != 2 ||
		    !(options->bytes_per_second > 0) || !(options->flops_per_second > 0))
			argp_error(state, "--roofline: '%s' is not two numbers above 0", argument);
		break;
	case OPTION_EAGER:
		options->device.eager = true;
		break;
	case OPTION_JSON:
		options->json = true;
		break;
	case OPTION_SERVE:
		options->serve = true;
		break;
	case OPTION_TRAIN:
		options->train_only = true;
		break;
	case ARGP_KEY_ARG:
		if (!options->net)
			options->net = argument;
		else if (strncmp(argument, "model.", 6) != 0)
			argp_error(state,
				   "expected one network and its keys model.KEY=VALUE, got "
				   "'%s'",
				   argument);
		else if (options->key_count == KEYS_MAX)
			argp_error(state, "more than %d keys", KEYS_MAX);
		else
			options->keys[options->key_count++] = argument;
		break;
	case ARGP_KEY_END:
		if (options->serve && !options->net)
			argp_error(state, "--serve needs a net");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_option table[] = {
		{"precision", 'p', "auto|fp32|bf16|fp16", 0, "of activations", 0},
		{"threads", 't', "N", 0, "threads of the device", 0},
		{"batch", 'b', "N", 0, "images per step", 0},
		{"side", 's', "PIXELS", 0, "of the images", 0},
		{"steps", 'n', "N", 0, "timed steps after three that are not, 5", 0},
		{"device", 'd', "NAME", 0, "backend, cpu", 0},
		{"layers", 'l', NULL, 0, "time every operation", 0},
		{"fusion", OPTION_FUSION, "auto|none|b|c", 0, "across operations", 0},
		{"autotune", OPTION_AUTOTUNE, NULL, 0, "try kernels before measuring", 0},
		{"tf32", OPTION_TF32, NULL, 0, "let fp32 products round to tf32", 0},
		{"deterministic", OPTION_DETERMINISTIC, NULL, 0, "the same bits each time", 0},
		{"eager", OPTION_EAGER, NULL, 0, "launch every operation of every step", 0},
		{"roofline", OPTION_ROOFLINE, "BYTES,FLOPS", 0,
		 "that the device moves and computes per second at best, to compare with", 0},
		{"train-only", OPTION_TRAIN, NULL, 0, "no evaluation", 0},
		{"json", OPTION_JSON, NULL, 0, "one object a line", 0},
		{"serve", OPTION_SERVE, NULL, 0,
		 "train the net for as long as lines \"measure WARMUP SECONDS\" on standard input "
		 "say",
		 0},
		{0},
	};
	static const struct argp argp = {
		table, parse, "[NETWORK [model.KEY=VALUE...]]",
		"Speed of the trainer's device on random images. NETWORK and keys are as in a "
		"recipe (trainer --help-recipe); without, a few networks."};
	static const char *const nets[] = {"resnet50", "resnet18", "resnet_cifar", "speednet"};
	struct options options = {.steps = 5};
	struct device *device;
	char error[DEVICE_ERROR_MAX];

	options_parse(&argp, argc, argv, &options);
	if (device_open(options.backend, &options.device, &device, error) < 0) {
		fprintf(stderr, "device_bench: %s\n", error);
		return 2;
	}
	if (!options.json && !options.serve)
		printf("%s, %s\n", device_info(device)->name,
		       precision_name(device_info(device)->precision));
	for (size_t i = 0; i < (options.net ? 1 : sizeof(nets) / sizeof(*nets)); i++)
		run_net(device, options.net ? options.net : nets[i], &options);
	device_close(device);
	return 0;
}
