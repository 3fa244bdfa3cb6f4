#include "bench/device/nets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check(int result, const char *what)
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

/*
 * A bare convolution, and a norm with GELU after a pool: the nets that learn CIFAR-10 in seconds on
 * a GPU look like this.
 */
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

const struct net nets[] = {
	{"resnet50", build_resnet50, 224, 32, 64, 1000},
	{"resnet18", build_resnet18, 224, 32, 64, 1000},
	{"cifar18", build_cifar18, 32, 128, 64, 10},
	{"cifar20", build_cifar20, 32, 128, 16, 10},
	{"plain", build_plain, 32, 256, 64, 10},
	{"speednet", build_speednet, 32, 256, 64, 10},
};
const size_t nets_count = sizeof(nets) / sizeof(*nets);

const struct net *net_find(const char *name)
{
	for (size_t i = 0; i < nets_count; i++)
		if (strcmp(nets[i].name, name) == 0)
			return &nets[i];
	return NULL;
}
