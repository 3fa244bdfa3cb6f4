/*
 * Speed of the trainer's device without a feed: training steps and evaluation of a few nets on random images, and where the time
 * goes by kind of operation. The nets are those that trainer/model builds, reduced to what costs time.
 */
#include "device.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
	const char *net, *backend;
	enum device_precision precision;
	unsigned threads, batch, side, steps, width;
	bool layers;
};

struct builder {
	struct device_params *params;
	struct device_graph *graph; /* NULL: only declare */
	unsigned count;		    /* of operations so far: names */
	unsigned width;
};

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "device_bench: %s: %s\n", what, strerror(-result));
	exit(2);
}

/* Finds or declares. */
static struct device_param *param(struct builder *b, const char *role, enum device_param_kind kind,
				  uint32_t s0, uint32_t s1, uint32_t s2, uint32_t s3)
{
	struct device_param_spec spec = {.kind = kind, .shape = {s0, s1, s2, s3}};
	struct device_param *p;
	char name[DEVICE_NAME_MAX];

	snprintf(name, sizeof(name), "%u.%s", b->count, role);
	spec.name = name;
	p = device_params_find(b->params, name);
	if (!p)
		check(device_param_add(b->params, &spec, &p), "declaring a parameter");
	return p;
}

static struct device_value *conv(struct builder *b, struct device_value *x, uint32_t in,
				 uint32_t out, uint32_t kernel, uint32_t stride,
				 struct device_value *residual, bool relu)
{
	struct device_norm norm = {.epsilon = 1e-5f, .momentum = 0.1f};
	char name[32];

	snprintf(name, sizeof(name), "conv%u", ++b->count);
	norm.gamma = param(b, "gamma", DEVICE_VECTOR, out, 0, 0, 0);
	norm.beta = param(b, "beta", DEVICE_VECTOR, out, 0, 0, 0);
	norm.running_mean = param(b, "mean", DEVICE_BUFFER, out, 0, 0, 0);
	norm.running_var = param(b, "var", DEVICE_BUFFER, out, 0, 0, 0);
	struct device_conv_spec spec = {
		.name = name,
		.weight = param(b, "weight", DEVICE_CONV_WEIGHT, out, kernel, kernel, in),
		.norm = &norm,
		.stride = stride,
		.pad = kernel / 2,
		.residual = residual,
		.activation = relu ? DEVICE_RELU : DEVICE_IDENTITY,
	};
	return b->graph ? device_conv(b->graph, x, &spec) : NULL;
}

static struct device_value *max_pool(struct builder *b, struct device_value *x, uint32_t window,
				     uint32_t stride, uint32_t pad)
{
	char name[32];

	snprintf(name, sizeof(name), "pool%u", ++b->count);
	return b->graph ? device_max_pool(b->graph, x,
					  &(struct device_pool_spec){name, window, stride, pad})
			: NULL;
}

static struct device_value *head(struct builder *b, struct device_value *x, uint32_t in,
				 uint32_t classes)
{
	struct device_linear_spec spec = {.name = "fc"};

	b->count++;
	spec.weight = param(b, "fc.weight", DEVICE_LINEAR_WEIGHT, classes, in, 0, 0);
	spec.bias = param(b, "fc.bias", DEVICE_VECTOR, classes, 0, 0, 0);
	if (!b->graph)
		return NULL;
	x = device_global_average_pool(b->graph, "pool", x);
	x = device_linear(b->graph, x, &spec);
	return device_softmax_loss(b->graph, x,
				   &(struct device_loss_spec){.name = "loss", .smoothing = 0.1f});
}

static void basic_blocks(struct builder *b, struct device_value *x, const unsigned *depths,
			 uint32_t in, uint32_t classes)
{
	for (unsigned stage = 0; stage < 4 && depths[stage]; stage++) {
		uint32_t out = b->width << stage;

		for (unsigned i = 0; i < depths[stage]; i++) {
			uint32_t stride = stage && !i ? 2 : 1;
			struct device_value *shortcut =
				in != out ? conv(b, x, in, out, 1, stride, NULL, false) : x;
			struct device_value *y = conv(b, x, in, out, 3, stride, NULL, true);

			x = conv(b, y, out, out, 3, 1, shortcut, true);
			in = out;
		}
	}
	head(b, x, in, classes);
}

static void bottlenecks(struct builder *b, struct device_value *x, const unsigned *depths,
			uint32_t in, uint32_t classes)
{
	for (unsigned stage = 0; stage < 4; stage++) {
		uint32_t middle = b->width << stage, out = 4 * middle;

		for (unsigned i = 0; i < depths[stage]; i++) {
			uint32_t stride = stage && !i ? 2 : 1;
			struct device_value *shortcut =
				in != out ? conv(b, x, in, out, 1, stride, NULL, false) : x;
			struct device_value *y = conv(b, x, in, middle, 1, 1, NULL, true);

			y = conv(b, y, middle, middle, 3, stride, NULL, true);
			x = conv(b, y, middle, out, 1, 1, shortcut, true);
			in = out;
		}
	}
	head(b, x, in, classes);
}

static void build_resnet18(struct builder *b, struct device_value *x)
{
	x = conv(b, x, 3, b->width, 7, 2, NULL, true);
	x = max_pool(b, x, 3, 2, 1);
	basic_blocks(b, x, (const unsigned[]){2, 2, 2, 2}, b->width, 1000);
}

static void build_resnet50(struct builder *b, struct device_value *x)
{
	x = conv(b, x, 3, b->width, 7, 2, NULL, true);
	x = max_pool(b, x, 3, 2, 1);
	bottlenecks(b, x, (const unsigned[]){3, 4, 6, 3}, b->width, 1000);
}

static void build_cifar18(struct builder *b, struct device_value *x)
{
	x = conv(b, x, 3, b->width, 3, 1, NULL, true);
	basic_blocks(b, x, (const unsigned[]){2, 2, 2, 2}, b->width, 10);
}

/* He's ResNet-20 for CIFAR: widths 16, 32, 64. */
static void build_cifar20(struct builder *b, struct device_value *x)
{
	x = conv(b, x, 3, b->width, 3, 1, NULL, true);
	basic_blocks(b, x, (const unsigned[]){3, 3, 3, 0}, b->width, 10);
}

/* Convolutions and pools in pairs, as in nets made for speed on CIFAR. */
static void build_plain(struct builder *b, struct device_value *x)
{
	uint32_t in = 3;

	for (unsigned stage = 0; stage < 3; stage++) {
		uint32_t out = stage ? b->width * 4 : b->width;

		x = conv(b, x, in, out, 3, 1, NULL, true);
		x = max_pool(b, x, 2, 2, 0);
		x = conv(b, x, out, out, 3, 1, NULL, true);
		in = out;
	}
	head(b, x, in, 10);
}

/* A bare convolution, and a norm with GELU after a pool: the nets that learn CIFAR-10 in seconds on a GPU look like this. */
static struct device_value *bare_conv(struct builder *b, struct device_value *x, uint32_t in,
				      uint32_t out, uint32_t kernel, bool first)
{
	char name[32];
	struct device_conv_spec spec = {.name = name, .stride = 1, .pad = first ? 0 : kernel / 2};

	snprintf(name, sizeof(name), "conv%u", ++b->count);
	spec.weight = param(b, "weight", DEVICE_CONV_WEIGHT, out, kernel, kernel, in);
	if (first) {
		spec.bias = param(b, "bias", DEVICE_VECTOR, out, 0, 0, 0);
		spec.activation = DEVICE_GELU;
	}
	return b->graph ? device_conv(b->graph, x, &spec) : NULL;
}

static struct device_value *norm_gelu(struct builder *b, struct device_value *x, uint32_t channels)
{
	struct device_norm norm = {.epsilon = 1e-5f, .momentum = 0.1f};
	char name[32];

	snprintf(name, sizeof(name), "norm%u", ++b->count);
	norm.gamma = param(b, "gamma", DEVICE_VECTOR, channels, 0, 0, 0);
	norm.beta = param(b, "beta", DEVICE_VECTOR, channels, 0, 0, 0);
	norm.running_mean = param(b, "mean", DEVICE_BUFFER, channels, 0, 0, 0);
	norm.running_var = param(b, "var", DEVICE_BUFFER, channels, 0, 0, 0);
	return b->graph ? device_norm(b->graph, name, x, &norm, NULL, DEVICE_GELU) : NULL;
}

static void build_speednet(struct builder *b, struct device_value *x)
{
	uint32_t in = 24;

	x = bare_conv(b, x, 3, in, 2, true);
	for (unsigned stage = 0; stage < 3; stage++) {
		uint32_t out = stage ? b->width * 4 : b->width;

		x = bare_conv(b, x, in, out, 3, false);
		x = max_pool(b, x, 2, 2, 0);
		x = norm_gelu(b, x, out);
		x = bare_conv(b, x, out, out, 3, false);
		x = norm_gelu(b, x, out);
		in = out;
	}
	head(b, x, in, 10);
}

struct net {
	const char *name;
	void (*build)(struct builder *b, struct device_value *x);
	unsigned side, batch, width;
};

static const struct net nets[] = {
	{"resnet50", build_resnet50, 224, 32, 64}, {"resnet18", build_resnet18, 224, 32, 64},
	{"cifar18", build_cifar18, 32, 128, 64},   {"cifar20", build_cifar20, 32, 128, 16},
	{"plain", build_plain, 32, 256, 64},	   {"speednet", build_speednet, 32, 256, 64},
};

static double seconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fill_params(struct device_params *params)
{
	struct device_param *p;

	for (size_t i = 0; (p = device_params_at(params, i)); i++) {
		size_t count = device_param_elements(p);
		const char *role = strrchr(device_param_spec(p)->name, '.');
		float *values = malloc(count * sizeof(float));
		unsigned state = 12345u + (unsigned)i;

		for (size_t j = 0; j < count; j++) {
			state = state * 1664525u + 1013904223u;
			values[j] = ((float)(state >> 8) / (1 << 24) - 0.5f) * 0.2f;
			if (!strcmp(role, ".gamma") || !strcmp(role, ".var"))
				values[j] = 1;
		}
		check(device_param_write(p, DEVICE_VALUE, values), "writing a parameter");
		free(values);
	}
}

struct family {
	char kind[48];
	double forward, backward, flops;
};

/* Times of every operation so far, [layers]: what the first step cost, to be left out. */
static struct device_layer_info *snapshot(const struct device_graph *graph)
{
	struct device_graph_info info;
	struct device_layer_info *layers;

	device_graph_info(graph, &info);
	layers = calloc(info.layers + 1, sizeof(*layers));
	for (uint32_t i = 0; i < info.layers; i++)
		device_graph_layer(graph, i, &layers[i]);
	return layers;
}

static void print_family(const struct family *family)
{
	printf("  %-24s forward %9.2f ms  backward %9.2f ms", family->kind, family->forward,
	       family->backward);
	if (family->flops > 0)
		printf("  %7.1f GF/s", family->flops / (family->forward + family->backward) * 1e-6);
	printf("\n");
}

static void print_layers(const struct device_graph *graph, const struct device_layer_info *before,
			 double steps)
{
	struct device_layer_info layer;
	struct family families[32] = {0};
	unsigned count = 0;

	for (uint32_t i = 0; device_graph_layer(graph, i, &layer) == 0; i++) {
		double forward = (double)(layer.forward_ns - before[i].forward_ns) * 1e-6 / steps;
		double backward =
			(double)(layer.backward_ns - before[i].backward_ns) * 1e-6 / steps;
		unsigned f = 0;

		printf("  %-10s %-20s %4ux%-4ux%-5u %8.2f ms %7.1f GF/s %8.2f ms %7.1f GF/s  %s\n",
		       layer.name, layer.kind, layer.shape.h, layer.shape.w, layer.shape.c, forward,
		       layer.flops_forward > 0 ? layer.flops_forward / forward * 1e-6 : 0, backward,
		       layer.flops_backward > 0 ? layer.flops_backward / backward * 1e-6 : 0,
		       layer.engine);
		while (f < count && strcmp(families[f].kind, layer.kind))
			f++;
		if (f == 32)
			continue;
		if (f == count)
			snprintf(families[count++].kind, sizeof(families->kind), "%s", layer.kind);
		families[f].forward += forward;
		families[f].backward += backward;
		families[f].flops += layer.flops_forward + layer.flops_backward;
	}
	for (unsigned f = 0; f < count; f++)
		print_family(&families[f]);
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Times `steps` steps and prints the median and the best. */
static void run(struct device_graph *graph, const struct net *net, const struct options *options,
		bool train)
{
	size_t bytes = (size_t)options->batch * options->side * options->side * 3;
	uint8_t *images = malloc(bytes);
	int32_t *labels = malloc(options->batch * sizeof(int32_t));
	struct device_batch batch = {images, labels, options->batch, 3, DEVICE_ELEMENT_U8, false};
	struct device_hyper hyper = {.momentum = 0.9f, .ema_decay = 0.99f};
	double *times = malloc(options->steps * sizeof(double)),
	       *cpu = malloc(options->steps * sizeof(double));
	struct device_graph_info info;
	struct device_results results = {0};
	struct device_layer_info *before = NULL;
	uint64_t ticket, step;

	for (size_t i = 0; i < bytes; i++)
		images[i] = (uint8_t)(i * 2654435761u >> 24);
	for (unsigned i = 0; i < options->batch; i++)
		labels[i] = (int32_t)(i % 10);
	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++)
		hyper.lr[i] = 0.01f;
	for (unsigned i = 0; i <= options->steps; i++) {
		double start = seconds(CLOCK_MONOTONIC),
		       start_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

		check(device_feed(graph, &batch, &ticket), "feeding");
		check(train ? device_step(graph, &hyper, &step)
			    : device_evaluate(graph, DEVICE_VALUE, &step),
		      "running");
		check(device_results(graph, step, true, &results), "results");
		if (!i) {
			before = snapshot(graph);
			continue;
		}
		times[i - 1] = seconds(CLOCK_MONOTONIC) - start;
		cpu[i - 1] = seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
	}
	qsort(times, options->steps, sizeof(double), compare_double);
	qsort(cpu, options->steps, sizeof(double), compare_double);
	device_graph_info(graph, &info);
	printf("%-9s %-5s side %3u batch %3u: median %8.1f best %8.1f images/s, best %7.1f per CPU "
	       "second  %7.1f GF/s  arena %.0f of %.0f MiB  loss %.3f\n",
	       net->name, train ? "train" : "eval", options->side, options->batch,
	       options->batch / times[options->steps / 2], options->batch / times[0],
	       options->batch / cpu[0],
	       (info.flops_forward + info.flops_backward) / times[options->steps / 2] * 1e-9,
	       (double)info.arena_bytes / (1 << 20), (double)info.unshared_bytes / (1 << 20),
	       results.loss);
	if (options->layers)
		print_layers(graph, before, options->steps);
	free(before);
	free(images);
	free(labels);
	free(times);
	free(cpu);
}

static void run_net(struct device *device, const struct net *net, const struct options *given)
{
	struct options options = *given;
	struct device_optimizer_spec optimizer = {
		.kind = DEVICE_SGD, .nesterov = true, .ema = true};
	struct builder b = {.width = given->width ? given->width : net->width};
	char error[DEVICE_ERROR_MAX];

	if (!options.side)
		options.side = net->side;
	if (!options.batch)
		options.batch = net->batch;
	check(device_params_new(device, &b.params), "making a store");
	net->build(&b, NULL);
	check(device_params_allocate(b.params, &optimizer), "allocating parameters");
	fill_params(b.params);
	for (int train = 1; train >= 0; train--) {
		struct device_input_spec input = {
			.name = "input",
			.shape = {options.batch, options.side, options.side, 3},
			.mean = {120, 120, 120},
			.std = {60, 60, 60}};

		b.count = 0;
		check(device_graph_new(
			      b.params,
			      &(struct device_graph_options){train ? DEVICE_TRAIN : DEVICE_EVAL},
			      &b.graph),
		      "making a graph");
		net->build(&b, device_input(b.graph, &input));
		if (device_graph_plan(b.graph, error) < 0) {
			fprintf(stderr, "device_bench: %s\n", error);
			exit(2);
		}
		run(b.graph, net, &options, train);
		device_graph_free(b.graph);
	}
	device_params_free(b.params);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'p':
		options->precision = !strcmp(argument, "fp32")	 ? DEVICE_FP32
				     : !strcmp(argument, "bf16") ? DEVICE_BF16
				     : !strcmp(argument, "fp16") ? DEVICE_FP16
								 : DEVICE_AUTO;
		break;
	case 't':
		options->threads = (unsigned)atoi(argument);
		break;
	case 'b':
		options->batch = (unsigned)atoi(argument);
		break;
	case 's':
		options->side = (unsigned)atoi(argument);
		break;
	case 'n':
		options->steps = (unsigned)atoi(argument);
		break;
	case 'w':
		options->width = (unsigned)atoi(argument);
		break;
	case 'd':
		options->backend = argument;
		break;
	case 'l':
		options->layers = true;
		break;
	case ARGP_KEY_ARG:
		options->net = argument;
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
		{"threads", 't', "N", 0, "worker threads", 0},
		{"batch", 'b', "N", 0, "images per step", 0},
		{"side", 's', "PIXELS", 0, "of the images", 0},
		{"steps", 'n', "N", 0, "timed steps after one that is not, 5", 0},
		{"width", 'w', "N", 0, "channels of the first stage", 0},
		{"device", 'd', "NAME", 0, "backend, cpu", 0},
		{"layers", 'l', NULL, 0, "time every operation", 0},
		{0},
	};
	static const struct argp argp = {
		table, parse, "[NET]",
		"Speed of the trainer's device on random images. NET: resnet50, resnet18, cifar18, "
		"cifar20, plain, speednet; all by default."};
	struct options options = {.steps = 5};
	struct device_options device_options;
	struct device *device;
	char error[DEVICE_ERROR_MAX];

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (!options.steps)
		options.steps = 1;
	device_options = (struct device_options){.precision = options.precision,
						 .threads = options.threads,
						 .profile = options.layers};
	if (device_open(options.backend, &device_options, &device, error) < 0) {
		fprintf(stderr, "device_bench: %s\n", error);
		return 2;
	}
	printf("%s, %s\n", device_info(device)->name,
	       device_info(device)->precision == DEVICE_FP32   ? "fp32"
	       : device_info(device)->precision == DEVICE_BF16 ? "bf16"
							       : "fp16");
	for (size_t i = 0; i < sizeof(nets) / sizeof(*nets); i++)
		if (!options.net || !strcmp(options.net, nets[i].name))
			run_net(device, &nets[i], &options);
	device_close(device);
	return 0;
}
