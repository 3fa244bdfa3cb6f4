/*
 * The part after a convolution, or a separate norm: norm, residual, activation; forward, backward,
 * running statistics. Also layer norm.
 *
 * Forward reads raw twice (statistics, then y) and writes y. Backward reads gradient and raw twice:
 * the first pass sums dz and dz * (raw - mean), the second writes dx = scale * (dz - mean(dz) -
 * xhat * mean(dz * xhat)), rewritten as a * dz + b * raw + c with per-channel constants (Ioffe and
 * Szegedy 2015, collected by powers of raw). If the slope depends only on raw, the second pass
 * recomputes dz instead of storing it.
 */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum slope post_choose_slope(const struct device_node *node)
{
	if (node->activation == DEVICE_GELU)
		return SLOPE_GELU_X;
	if (node->activation == DEVICE_LOGISTIC)
		return SLOPE_SIGMOID_X;
	if (node->activation == DEVICE_RELU)
		return node->has_norm && !node->residual ? SLOPE_RELU_X : SLOPE_RELU_Y;
	return SLOPE_ONE;
}

/* True if backward sums dz: fixed statistics do not depend on x and need no sums. */
static bool post_sums(const struct device_node *node)
{
	return (node->has_norm && !node->norm.fixed) || device_param_trains(node->gamma) ||
	       device_param_trains(node->beta) || device_param_trains(node->bias);
}

/* True if the slope depends on the activation's input, residual included. */
static bool post_is_curved(const struct cpu_post *post)
{
	return post->slope == SLOPE_GELU_X || post->slope == SLOPE_SIGMOID_X;
}

static int post_allocate(struct cpu_post *post)
{
	float **const grouped[] = {&post->scale, &post->bias, &post->mean, &post->deviation};
	float **const arrays[] = {&post->shift, &post->a, &post->b, &post->c, &post->channel};
	size_t width = (post->columns.width + 15) / 16 * 16,
	       channels = (post->columns.channels + 15u) / 16 * 16;
	size_t bytes = (4 * (size_t)post->groups + 5) * width * sizeof(float) +
		       2 * channels * sizeof(double);
	float *at;

	post->memory = at = aligned_alloc(64, bytes);
	if (!at)
		return -ENOMEM;
	memset(at, 0, bytes);
	for (size_t i = 0; i < 4; i++, at += post->groups * width)
		*grouped[i] = at;
	for (size_t i = 0; i < 5; i++, at += width)
		*arrays[i] = at;
	post->sum = (double *)at;
	post->second = post->sum + channels;
	for (uint32_t i = 0; i < post->columns.width; i++)
		post->scale[i] = 1;
	return 0;
}

int cpu_post_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_post *post = &node->post;
	struct device_shape shape = node->node->y->shape;
	uint32_t each;
	int r;

	loops_columns_init(&post->columns, shape.c);
	post->rows = (size_t)shape.n * shape.h * shape.w;
	post->groups = device_node_groups(node->node, &each);
	post->group_rows = (size_t)each * shape.h * shape.w;
	post->slope = post_choose_slope(node->node);
	r = loops_reserve(&graph->device->loops, shape.c);
	return r < 0 ? r : post_allocate(post);
}

int cpu_post_plan_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_post *post = &node->post;
	struct cpu_value *y = node->y;
	bool passes_on = node->residual && node->node->residual->active;
	uint32_t step = cpu_backward_step(graph, node), first = y->gradient_blocks[0];

	if (post->slope == SLOPE_RELU_Y)
		arena_extend(&graph->arena, y->block, step);
	if (node->node->has_norm || post_is_curved(post))
		arena_extend(&graph->arena, node->raw_block, step);
	if (node->residual && post_is_curved(post))
		arena_extend(&graph->arena, node->residual->block, step);
	post->stores_dz = y->gradient_count > 1 || node->residual || post->slope == SLOPE_RELU_Y ||
			  (!node->node->has_norm && post->slope != SLOPE_ONE);
	post->reduces = post->stores_dz || post_sums(node->node);
	post->dx_block = first;
	if (passes_on) {
		cpu_contribute(graph, node->residual, first);
		/*
		 * dz also is the residual's gradient, so the convolution needs separate memory for
		 * its own
		 */
		if (node->node->has_norm)
			return cpu_add_block(graph,
					     cpu_value_bytes(node->node->y, graph->device->element),
					     step, &post->dx_block);
	}
	return 0;
}

int cpu_post_bind(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_post *post = &node->post;

	post->raw =
		node->raw_block == CPU_NO_BLOCK ? node->y->data : cpu_block(graph, node->raw_block);
	post->dz = node->y->gradients[0];
	post->dx = cpu_block(graph, post->dx_block);
	return 0;
}

/* Elements before a group. */
static size_t post_before(const struct cpu_post *post, uint32_t group)
{
	return group * post->group_rows * post->columns.channels;
}

/* Address of a group's first element. */
static void *post_from(const struct cpu_post *post, uint32_t group, const void *data,
		       enum element element)
{
	return data ? (char *)data + post_before(post, group) * element_size(element) : NULL;
}

/* Part of a post for one group of samples: its rows and normalisation. */
static struct cpu_post post_part(const struct cpu_graph *graph, const struct cpu_post *post,
				 uint32_t group)
{
	enum element element = graph->device->element;
	size_t width = (post->columns.width + 15) / 16 * 16, at = group * width;
	struct cpu_post part = *post;

	part.rows -= group * post->group_rows;
	part.rows = part.rows < post->group_rows ? part.rows : post->group_rows;
	part.raw = post_from(post, group, post->raw, element);
	part.dz = post_from(post, group, post->dz, element);
	part.dx = post_from(post, group, post->dx, element);
	part.scale += at;
	part.bias += at;
	part.mean += at;
	part.deviation += at;
	return part;
}

void cpu_running_affine(const struct cpu_node *node, enum device_slot slot, float *ret_scale,
			float *ret_bias)
{
	const struct device_node *n = node->node;
	const float *gamma = cpu_param_slot(n->gamma, slot), *beta = cpu_param_slot(n->beta, slot);
	const float *mean = cpu_param_slot(n->running_mean, slot),
		    *var = cpu_param_slot(n->running_var, slot);

	for (uint32_t c = 0; c < node->node->y->shape.c; c++) {
		float scale = gamma[c] / sqrtf(var[c] + n->norm.epsilon);

		ret_scale[c] = scale;
		ret_bias[c] = beta[c] - mean[c] * scale;
	}
}

/* Moves the running statistics towards those of the batch or group. */
static void post_move_running(const struct device_node *node, uint32_t c, double mean,
			      double variance, size_t rows, float momentum)
{
	float *running_mean = cpu_param_slot(node->running_mean, DEVICE_VALUE) + c;
	float *running_var = cpu_param_slot(node->running_var, DEVICE_VALUE) + c;
	double unbiased = rows > 1 ? variance * (double)rows / (double)(rows - 1) : variance;

	*running_mean += momentum * ((float)mean - *running_mean);
	*running_var += momentum * ((float)unbiased - *running_var);
}

/* Number of positions in a channel's statistics. */
static size_t post_statistics_rows(const struct cpu_graph *graph, const struct cpu_node *node,
				   const struct cpu_post *post)
{
	unsigned ranks = node->node->norm.synchronized ? device_world(&graph->device->base) : 1;

	return post->rows * ranks;
}

/* Sums a pair of the post's sums over ranks, for a synchronized norm. */
static int post_sum_ranks(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_post *post = &node->post;
	size_t count = (size_t)(post->second - post->sum) + post->columns.channels;

	return node->node->norm.synchronized ? cpu_ranks_sum(graph, post->sum, count) : 0;
}

/*
 * Converts sums about channel[channels], which differ between ranks, into sums about the running
 * means, which do not: x - r = (x - s) + (s - r). In double this loses no more digits than the
 * running mean is off.
 */
static void post_shift_sums(struct cpu_post *post, const float *running)
{
	double rows = (double)post->rows;

	for (uint32_t c = 0; c < post->columns.channels; c++) {
		double d = (double)post->channel[c] - (double)running[c];

		post->second[c] += d * (2 * post->sum[c] + rows * d);
		post->sum[c] += rows * d;
		post->channel[c] = running[c];
	}
}

/* Statistics of a batch or group: sets mean, deviation, scale and bias. */
static int post_normalize_batch(struct cpu_graph *graph, struct cpu_node *node,
				struct cpu_post *post)
{
	const struct device_node *n = node->node;
	float momentum = n->norm.momentum / (float)post->groups;
	const float *gamma = cpu_param_slot(n->gamma, DEVICE_VALUE),
		    *beta = cpu_param_slot(n->beta, DEVICE_VALUE);
	uint32_t channels = post->columns.channels;
	enum element element = graph->device->element;
	size_t rows = post_statistics_rows(graph, node, post);
	int r;

	/*
	 * Sums about the first position's values, to avoid cancellation if the mean is large
	 * compared to the deviation.
	 */
	graph->device->loops.kernels->convert(post->channel, ELEMENT_F32, post->raw, element,
					      channels);
	columns_repeat(&post->columns, post->channel, post->shift);
	loops_statistics(&graph->device->loops, &post->columns, post->rows, post->raw, element,
			 post->shift, post->sum, post->second);
	if (rows != post->rows)
		post_shift_sums(post, cpu_param_slot(n->running_mean, DEVICE_VALUE));
	r = post_sum_ranks(graph, node);
	if (r < 0)
		return r;
	for (uint32_t c = 0; c < channels; c++) {
		double offset = post->sum[c] / (double)rows;
		double variance = post->second[c] / (double)rows - offset * offset;
		double mean = offset + (double)post->channel[c];

		/* written so that NaN propagates */
		variance = variance < 0 ? 0 : variance;
		post->mean[c] = (float)mean;
		post->deviation[c] = (float)(1 / sqrt(variance + (double)n->norm.epsilon));
		post->scale[c] = gamma[c] * post->deviation[c];
		post->bias[c] = beta[c] - post->mean[c] * post->scale[c];
		if (!graph->holds)
			post_move_running(n, c, mean, variance, rows, momentum);
	}
	columns_repeat(&post->columns, post->mean, post->mean);
	columns_repeat(&post->columns, post->scale, post->scale);
	columns_repeat(&post->columns, post->bias, post->bias);
	return 0;
}

/* Uses running statistics instead of the batch's; also sets what backward needs. */
static void post_normalize_fixed(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_post *post = &node->post;
	const struct device_node *n = node->node;
	const float *mean = cpu_param_slot(n->running_mean, graph->weights),
		    *var = cpu_param_slot(n->running_var, graph->weights);

	cpu_running_affine(node, graph->weights, post->scale, post->bias);
	for (uint32_t c = 0; c < post->columns.channels; c++) {
		post->mean[c] = mean[c];
		post->deviation[c] = 1 / sqrtf(var[c] + n->norm.epsilon);
	}
	columns_repeat(&post->columns, post->mean, post->mean);
	columns_repeat(&post->columns, post->scale, post->scale);
	columns_repeat(&post->columns, post->bias, post->bias);
}

static int post_forward_part(struct cpu_graph *graph, struct cpu_node *node, uint32_t group)
{
	struct cpu_post part = post_part(graph, &node->post, group), *post = &part;
	const struct cpu_value *residual = node->residual, *y = node->y;

	if (graph->again) {
		/*
		 * recomputation: keep scale and bias, since running statistics have already moved
		 */
	} else if (node->node->has_norm && cpu_training(graph) && !node->node->norm.fixed) {
		int r = post_normalize_batch(graph, node, post);

		if (r < 0)
			return r;
	} else if (node->node->has_norm && !(node->node->weight && cpu_infers(graph, node->node))) {
		post_normalize_fixed(graph, node);
	}
	loops_apply(&graph->device->loops, &post->columns, post->rows,
		    &(struct apply_args){
			    .x = post->raw,
			    .x_element = graph->device->element,
			    .residual = post_from(&node->post, group,
						  residual ? residual->data : NULL, y->element),
			    .y = post_from(&node->post, group, y->data, y->element),
			    .element = y->element,
			    .scale = post->scale,
			    .bias = post->bias,
			    .activation = node->node->activation,
		    });
	return 0;
}

int cpu_post_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = 0;

	for (uint32_t group = 0; group < node->post.groups && r == 0; group++)
		r = post_forward_part(graph, node, group);
	return r;
}

static void post_take_gradient(struct cpu_post *post, struct device_param *param,
			       const double *sums, const float *factors)
{
	if (!device_param_trains(param))
		return;
	for (uint32_t c = 0; c < post->columns.channels; c++)
		post->channel[c] = (float)(sums[c] * (factors ? (double)factors[c] : 1));
	cpu_param_add_gradient(param, post->channel);
}

/*
 * From the sums of dz and dz * (raw - mean): gradients of gamma and beta, which are summed over
 * ranks with all other gradients, and the constants of dx, from sums over all ranks of the norm.
 */
static int post_norm_constants(struct cpu_graph *graph, struct cpu_node *node,
			       struct cpu_post *post)
{
	double rows = (double)post_statistics_rows(graph, node, post);
	int r;

	post_take_gradient(post, node->node->beta, post->sum, NULL);
	post_take_gradient(post, node->node->gamma, post->second, post->deviation);
	r = post_sum_ranks(graph, node);
	if (r < 0)
		return r;
	for (uint32_t c = 0; c < post->columns.channels; c++) {
		double scale = (double)post->scale[c], deviation = (double)post->deviation[c];
		double b = -scale * deviation * deviation * post->second[c] / rows;
		double c0 = -scale * post->sum[c] / rows - b * (double)post->mean[c];

		/* fixed statistics do not depend on x */
		post->a[c] = (float)scale;
		post->b[c] = node->node->norm.fixed ? 0 : (float)b;
		post->c[c] = node->node->norm.fixed ? 0 : (float)c0;
	}
	columns_repeat(&post->columns, post->a, post->a);
	columns_repeat(&post->columns, post->b, post->b);
	columns_repeat(&post->columns, post->c, post->c);
	return 0;
}

static int post_backward_part(struct cpu_graph *graph, struct cpu_node *node, uint32_t group)
{
	struct cpu_post part = post_part(graph, &node->post, group), *post = &part;
	const struct cpu_value *y = node->y, *residual = node->residual;
	struct loops *loops = &graph->device->loops;
	enum element element = graph->device->element;
	bool sums = post_sums(node->node);
	bool norm = node->node->has_norm,
	     from_raw = post->slope == SLOPE_RELU_X || post_is_curved(post);
	const void *gradient = post_from(&node->post, group, y->gradients[0], element);
	const void *second = y->gradient_count > 1 ? y->gradients[1] : NULL;
	struct reduce_args args = {
		.gradient = {gradient, post_from(&node->post, group, second, element)},
		.x = norm || from_raw ? post->raw : NULL,
		.y = post_from(&node->post, group, y->data, element),
		.residual =
			post_from(&node->post, group, residual ? residual->data : NULL, element),
		.dz = post->stores_dz ? post->dz : NULL,
		.element = element,
		.slope = post->slope,
		.scale = post->scale,
		.bias = post->bias,
		.mean = norm && sums ? post->mean : NULL,
	};
	int r;

	if (post->reduces)
		loops_reduce(loops, &post->columns, post->rows, &args, sums ? post->sum : NULL,
			     norm && sums ? post->second : NULL);
	post_take_gradient(post, node->node->bias, post->sum, NULL);
	if (!norm)
		return 0;
	r = post_norm_constants(graph, node, post);
	if (r < 0)
		return r;
	loops_dx(loops, &post->columns, post->rows,
		 &(struct dx_args){
			 .gradient = post->stores_dz ? post->dz : gradient,
			 .x = post->raw,
			 .dx = post->dx,
			 .element = element,
			 .slope = post->stores_dz ? SLOPE_ONE : post->slope,
			 .scale = post->scale,
			 .bias = post->bias,
			 .a = post->a,
			 .b = post->b,
			 .c = post->c,
		 });
	return 0;
}

int cpu_post_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = 0;

	cpu_sum_gradients(graph, node, 2);
	for (uint32_t group = 0; group < node->post.groups && r == 0; group++)
		r = post_backward_part(graph, node, group);
	return r;
}

/* ---- separate norm ---- */

static int norm_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	node->raw_block = node->x->block;
	return cpu_post_plan(graph, node);
}

static int norm_plan_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = cpu_post_plan_backward(graph, node);

	if (r == 0 && node->node->x->active)
		cpu_contribute(graph, node->x, node->post.dx_block);
	return r;
}

const struct cpu_node_ops cpu_norm_ops = {
	.plan = norm_plan,
	.plan_backward = norm_plan_backward,
	.bind = cpu_post_bind,
	.forward = cpu_post_forward,
	.backward = cpu_post_backward,
};

/* ---- layer norm, which only uses a post's arrays of sums ---- */

/* In place: the gradient of x replaces that of y. */
static int layer_norm_plan_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	arena_extend(&graph->arena, node->x->block, cpu_backward_step(graph, node));
	if (node->node->x->active)
		cpu_contribute(graph, node->x, node->y->gradient_blocks[0]);
	return 0;
}

static int layer_norm_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	const struct device_node *n = node->node;

	loops_layer_norm(&graph->device->loops, node->post.rows, n->x->shape.c,
			 &(struct layer_norm_args){
				 .x = node->x->data,
				 .y = node->y->data,
				 .element = node->y->element,
				 .gamma = cpu_param_slot(n->gamma, graph->weights),
				 .beta = cpu_param_slot(n->beta, graph->weights),
				 .mean = node->mean ? node->mean->data : NULL,
				 .deviation = node->deviation ? node->deviation->data : NULL,
				 .epsilon = n->norm.epsilon,
			 });
	return 0;
}

static int layer_norm_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct cpu_post *post = &node->post;
	struct cpu_value *y = node->y;
	bool sums = device_param_trains(n->gamma) || device_param_trains(n->beta);

	cpu_sum_gradients(graph, node, 1);
	loops_layer_norm_backward(&graph->device->loops, post->rows, n->x->shape.c,
				  &(struct layer_norm_backward_args){
					  .gradient = y->gradients[0],
					  .x = node->x->data,
					  .dx = n->x->active ? y->gradients[0] : NULL,
					  .element = graph->device->element,
					  .gamma = cpu_param_slot(n->gamma, DEVICE_VALUE),
					  .mean = node->mean->data,
					  .deviation = node->deviation->data,
				  },
				  sums ? post->sum : NULL, sums ? post->second : NULL);
	post_take_gradient(post, n->beta, post->sum, NULL);
	post_take_gradient(post, n->gamma, post->second, NULL);
	return 0;
}

const struct cpu_node_ops cpu_layer_norm_ops = {
	.plan = cpu_post_plan,
	.plan_backward = layer_norm_plan_backward,
	.forward = layer_norm_forward,
	.backward = layer_norm_backward,
};
