/*
 * The part after a convolution, or a separate norm: norm, residual, activation; forward, backward,
 * running statistics. Also layer norm.
 *
 * Forward reads raw twice (for the statistics, then for y) and writes y. Backward reads gradient
 * and raw twice:
 * - The first pass sums dz and dz * (raw - mean).
 * - The second pass writes dx = scale * (dz - mean(dz) - xhat * mean(dz * xhat)) (Ioffe and Szegedy
 *   2015), rearranged as a * dz + b * raw + c with constants per channel. If the activation's
 *   derivative depends only on raw, it recomputes dz instead of reading it.
 */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum slope norm_act_choose_slope(const struct device_node *node)
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
static bool norm_act_sums(const struct device_node *node)
{
	return (node->has_norm && !node->norm.fixed) || device_param_trains(node->gamma) ||
	       device_param_trains(node->beta) || device_param_trains(node->bias);
}

/*
 * True for GELU and sigmoid, whose derivative backward evaluates at the activation's input,
 * residual included.
 */
static bool norm_act_is_curved(const struct cpu_norm_act *norm_act)
{
	return norm_act->slope == SLOPE_GELU_X || norm_act->slope == SLOPE_SIGMOID_X;
}

static int norm_act_allocate(struct cpu_norm_act *norm_act)
{
	float **const grouped[] = {&norm_act->scale, &norm_act->bias, &norm_act->mean,
				   &norm_act->deviation};
	float **const arrays[] = {&norm_act->shift, &norm_act->a, &norm_act->b, &norm_act->c,
				  &norm_act->channel};
	size_t width = (norm_act->columns.width + 15) / 16 * 16,
	       channels = (norm_act->columns.channels + 15u) / 16 * 16;
	size_t bytes = (4 * (size_t)norm_act->groups + 5) * width * sizeof(float) +
		       2 * channels * sizeof(double);
	float *at;

	norm_act->memory = at = aligned_alloc(64, bytes);
	if (!at)
		return -ENOMEM;
	memset(at, 0, bytes);
	for (size_t i = 0; i < 4; i++, at += norm_act->groups * width)
		*grouped[i] = at;
	for (size_t i = 0; i < 5; i++, at += width)
		*arrays[i] = at;
	norm_act->sum = (double *)at;
	norm_act->second = norm_act->sum + channels;
	for (uint32_t i = 0; i < norm_act->columns.width; i++)
		norm_act->scale[i] = 1;
	return 0;
}

int cpu_norm_act_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	struct cpu_norm_act *norm_act = &node->norm_act;
	struct device_shape shape = node->node->y->shape;
	uint32_t each;

	loops_columns_init(&norm_act->columns, shape.c);
	norm_act->rows = (size_t)shape.n * shape.h * shape.w;
	norm_act->groups = device_node_groups(node->node, &each);
	norm_act->group_rows = (size_t)each * shape.h * shape.w;
	norm_act->slope = norm_act_choose_slope(node->node);
	int r = loops_reserve(&exec->device->loops, shape.c);
	return r < 0 ? r : norm_act_allocate(norm_act);
}

int cpu_norm_act_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	struct cpu_norm_act *norm_act = &node->norm_act;
	struct cpu_value *y = node->y;
	bool passes_on = node->residual && node->node->residual->active;
	uint32_t step = cpu_backward_step(exec, node), first = y->gradient_blocks[0];

	if (norm_act->slope == SLOPE_RELU_Y)
		arena_extend(&exec->arena, y->block, step);
	if (node->node->has_norm || norm_act_is_curved(norm_act))
		arena_extend(&exec->arena, node->raw_block, step);
	if (node->residual && norm_act_is_curved(norm_act))
		arena_extend(&exec->arena, node->residual->block, step);
	norm_act->stores_dz = y->gradient_count > 1 || node->residual ||
			      norm_act->slope == SLOPE_RELU_Y ||
			      (!node->node->has_norm && norm_act->slope != SLOPE_ONE);
	norm_act->reduces = norm_act->stores_dz || norm_act_sums(node->node);
	norm_act->dx_block = first;
	if (passes_on) {
		cpu_contribute(exec, node->residual, first);
		/*
		 * dz is also the residual's gradient, so the gradient of raw needs separate memory
		 */
		if (node->node->has_norm)
			return cpu_add_block(exec,
					     cpu_value_bytes(node->node->y, exec->device->element),
					     step, &norm_act->dx_block);
	}
	return 0;
}

int cpu_norm_act_bind(struct cpu_exec *exec, struct cpu_node *node)
{
	struct cpu_norm_act *norm_act = &node->norm_act;

	norm_act->raw =
		node->raw_block == CPU_NO_BLOCK ? node->y->data : cpu_block(exec, node->raw_block);
	norm_act->dz = node->y->gradients[0];
	norm_act->dx = cpu_block(exec, norm_act->dx_block);
	return 0;
}

/* Offset in elements of a group's first element. */
static size_t norm_act_before(const struct cpu_norm_act *norm_act, uint32_t group)
{
	return group * norm_act->group_rows * norm_act->columns.channels;
}

/* Address of a group's first element. */
static void *norm_act_from(const struct cpu_norm_act *norm_act, uint32_t group, const void *data,
			   enum element element)
{
	return data ? (char *)data + norm_act_before(norm_act, group) * element_size(element)
		    : NULL;
}

/* Part of a norm and activation for one group of samples: its rows and normalisation. */
static struct cpu_norm_act norm_act_part(const struct cpu_exec *exec,
					 const struct cpu_norm_act *norm_act, uint32_t group)
{
	enum element element = exec->device->element;
	size_t width = (norm_act->columns.width + 15) / 16 * 16, at = group * width;
	struct cpu_norm_act part = *norm_act;

	part.rows -= group * norm_act->group_rows;
	part.rows = part.rows < norm_act->group_rows ? part.rows : norm_act->group_rows;
	part.raw = norm_act_from(norm_act, group, norm_act->raw, element);
	part.dz = norm_act_from(norm_act, group, norm_act->dz, element);
	part.dx = norm_act_from(norm_act, group, norm_act->dx, element);
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

/* Updates the running statistics with those of the batch or group. */
static void norm_act_move_running(const struct device_node *node, uint32_t c, double mean,
				  double variance, size_t rows, float momentum)
{
	float *running_mean = cpu_param_slot(node->running_mean, DEVICE_VALUE) + c;
	float *running_var = cpu_param_slot(node->running_var, DEVICE_VALUE) + c;
	double unbiased = rows > 1 ? variance * (double)rows / (double)(rows - 1) : variance;

	*running_mean += momentum * ((float)mean - *running_mean);
	*running_var += momentum * ((float)unbiased - *running_var);
}

/* Number of positions in a channel's statistics. */
static size_t norm_act_statistics_rows(const struct cpu_exec *exec, const struct cpu_node *node,
				       const struct cpu_norm_act *norm_act)
{
	unsigned ranks = node->node->norm.synchronized ? device_world(&exec->device->base) : 1;

	return norm_act->rows * ranks;
}

/* Sums norm_act's `sum` and `second` over ranks, for a synchronized norm. */
static int norm_act_sum_ranks(struct cpu_exec *exec, struct cpu_node *node)
{
	struct cpu_norm_act *norm_act = &node->norm_act;
	size_t count = (size_t)(norm_act->second - norm_act->sum) + norm_act->columns.channels;

	return node->node->norm.synchronized ? cpu_ranks_sum(exec, norm_act->sum, count) : 0;
}

/*
 * Converts sums about channel[channels], which differ between ranks, into sums about the running
 * means, which do not: x - r = (x - s) + (s - r). The sums are in double, so the cancellation is
 * harmless unless the running mean is far from the batch's.
 */
static void norm_act_shift_sums(struct cpu_norm_act *norm_act, const float *running)
{
	double rows = (double)norm_act->rows;

	for (uint32_t c = 0; c < norm_act->columns.channels; c++) {
		double d = (double)norm_act->channel[c] - (double)running[c];

		norm_act->second[c] += d * (2 * norm_act->sum[c] + rows * d);
		norm_act->sum[c] += rows * d;
		norm_act->channel[c] = running[c];
	}
}

/* Statistics of a batch or group: sets mean, deviation, scale and bias. */
static int norm_act_normalize_batch(struct cpu_exec *exec, struct cpu_node *node,
				    struct cpu_norm_act *norm_act)
{
	const struct device_node *n = node->node;
	float momentum = n->norm.momentum / (float)norm_act->groups;
	const float *gamma = cpu_param_slot(n->gamma, DEVICE_VALUE),
		    *beta = cpu_param_slot(n->beta, DEVICE_VALUE);
	uint32_t channels = norm_act->columns.channels;
	enum element element = exec->device->element;
	size_t rows = norm_act_statistics_rows(exec, node, norm_act);

	/*
	 * Sums about the first position's values, to avoid cancellation if the mean is large
	 * compared to the deviation.
	 */
	exec->device->loops.kernels->convert(norm_act->channel, ELEMENT_F32, norm_act->raw, element,
					     channels);
	columns_repeat(&norm_act->columns, norm_act->channel, norm_act->shift);
	loops_statistics(&exec->device->loops, &norm_act->columns, norm_act->rows, norm_act->raw,
			 element, norm_act->shift, norm_act->sum, norm_act->second);
	if (rows != norm_act->rows)
		norm_act_shift_sums(norm_act, cpu_param_slot(n->running_mean, DEVICE_VALUE));
	int r = norm_act_sum_ranks(exec, node);
	if (r < 0)
		return r;
	for (uint32_t c = 0; c < channels; c++) {
		double offset = norm_act->sum[c] / (double)rows;
		double variance = norm_act->second[c] / (double)rows - offset * offset;
		double mean = offset + (double)norm_act->channel[c];

		/* written so that NaN propagates */
		variance = variance < 0 ? 0 : variance;
		norm_act->mean[c] = (float)mean;
		norm_act->deviation[c] = (float)(1 / sqrt(variance + (double)n->norm.epsilon));
		norm_act->scale[c] = gamma[c] * norm_act->deviation[c];
		norm_act->bias[c] = beta[c] - norm_act->mean[c] * norm_act->scale[c];
		if (!exec->keeps_statistics)
			norm_act_move_running(n, c, mean, variance, rows, momentum);
	}
	columns_repeat(&norm_act->columns, norm_act->mean, norm_act->mean);
	columns_repeat(&norm_act->columns, norm_act->scale, norm_act->scale);
	columns_repeat(&norm_act->columns, norm_act->bias, norm_act->bias);
	return 0;
}

/* Uses running statistics instead of the batch's; also sets what backward needs. */
static void norm_act_normalize_fixed(struct cpu_exec *exec, struct cpu_node *node)
{
	struct cpu_norm_act *norm_act = &node->norm_act;
	const struct device_node *n = node->node;
	const float *mean = cpu_param_slot(n->running_mean, exec->weights),
		    *var = cpu_param_slot(n->running_var, exec->weights);

	cpu_running_affine(node, exec->weights, norm_act->scale, norm_act->bias);
	for (uint32_t c = 0; c < norm_act->columns.channels; c++) {
		norm_act->mean[c] = mean[c];
		norm_act->deviation[c] = 1 / sqrtf(var[c] + n->norm.epsilon);
	}
	columns_repeat(&norm_act->columns, norm_act->mean, norm_act->mean);
	columns_repeat(&norm_act->columns, norm_act->scale, norm_act->scale);
	columns_repeat(&norm_act->columns, norm_act->bias, norm_act->bias);
}

static int norm_act_forward_part(struct cpu_exec *exec, struct cpu_node *node, uint32_t group)
{
	struct cpu_norm_act part = norm_act_part(exec, &node->norm_act, group), *norm_act = &part;
	const struct cpu_value *residual = node->residual, *y = node->y;

	if (exec->recomputing) {
		/*
		 * recomputation: keep scale and bias, since running statistics have already moved
		 */
	} else if (node->node->has_norm && cpu_training(exec) && !node->node->norm.fixed) {
		int r = norm_act_normalize_batch(exec, node, norm_act);

		if (r < 0)
			return r;
	} else if (node->node->has_norm && !(node->node->weight && cpu_infers(exec, node->node))) {
		norm_act_normalize_fixed(exec, node);
	}
	loops_apply(&exec->device->loops, &norm_act->columns, norm_act->rows,
		    &(struct apply_args){
			    .x = norm_act->raw,
			    .x_element = exec->device->element,
			    .residual = norm_act_from(&node->norm_act, group,
						      residual ? residual->data : NULL, y->element),
			    .y = norm_act_from(&node->norm_act, group, y->data, y->element),
			    .element = y->element,
			    .scale = norm_act->scale,
			    .bias = norm_act->bias,
			    .activation = node->node->activation,
		    });
	return 0;
}

int cpu_norm_act_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = 0;

	for (uint32_t group = 0; group < node->norm_act.groups && r == 0; group++)
		r = norm_act_forward_part(exec, node, group);
	return r;
}

static void norm_act_take_gradient(struct cpu_norm_act *norm_act, struct device_param *param,
				   const double *sums, const float *factors)
{
	if (!device_param_trains(param))
		return;
	for (uint32_t c = 0; c < norm_act->columns.channels; c++)
		norm_act->channel[c] = (float)(sums[c] * (factors ? (double)factors[c] : 1));
	cpu_param_add_gradient(param, norm_act->channel);
}

/*
 * Computes from the sums of dz and dz * (raw - mean): the gradients of gamma and beta, from this
 * rank's sums, since all gradients are summed over ranks later; and the constants of dx, from sums
 * over all ranks if the norm is synchronized.
 */
static int norm_act_norm_constants(struct cpu_exec *exec, struct cpu_node *node,
				   struct cpu_norm_act *norm_act)
{
	double rows = (double)norm_act_statistics_rows(exec, node, norm_act);

	norm_act_take_gradient(norm_act, node->node->beta, norm_act->sum, NULL);
	norm_act_take_gradient(norm_act, node->node->gamma, norm_act->second, norm_act->deviation);
	int r = norm_act_sum_ranks(exec, node);
	if (r < 0)
		return r;
	for (uint32_t c = 0; c < norm_act->columns.channels; c++) {
		double scale = (double)norm_act->scale[c],
		       deviation = (double)norm_act->deviation[c];
		double b = -scale * deviation * deviation * norm_act->second[c] / rows;
		double c0 = -scale * norm_act->sum[c] / rows - b * (double)norm_act->mean[c];

		/* fixed statistics do not depend on x */
		norm_act->a[c] = (float)scale;
		norm_act->b[c] = node->node->norm.fixed ? 0 : (float)b;
		norm_act->c[c] = node->node->norm.fixed ? 0 : (float)c0;
	}
	columns_repeat(&norm_act->columns, norm_act->a, norm_act->a);
	columns_repeat(&norm_act->columns, norm_act->b, norm_act->b);
	columns_repeat(&norm_act->columns, norm_act->c, norm_act->c);
	return 0;
}

static int norm_act_backward_part(struct cpu_exec *exec, struct cpu_node *node, uint32_t group)
{
	struct cpu_norm_act part = norm_act_part(exec, &node->norm_act, group), *norm_act = &part;
	const struct cpu_value *y = node->y, *residual = node->residual;
	struct loops *loops = &exec->device->loops;
	enum element element = exec->device->element;
	bool sums = norm_act_sums(node->node);
	bool norm = node->node->has_norm,
	     from_raw = norm_act->slope == SLOPE_RELU_X || norm_act_is_curved(norm_act);
	const void *gradient = norm_act_from(&node->norm_act, group, y->gradients[0], element);
	const void *second = y->gradient_count > 1 ? y->gradients[1] : NULL;
	struct reduce_args args = {
		.gradient = {gradient, norm_act_from(&node->norm_act, group, second, element)},
		.x = norm || from_raw ? norm_act->raw : NULL,
		.y = norm_act_from(&node->norm_act, group, y->data, element),
		.residual = norm_act_from(&node->norm_act, group, residual ? residual->data : NULL,
					  element),
		.dz = norm_act->stores_dz ? norm_act->dz : NULL,
		.element = element,
		.slope = norm_act->slope,
		.scale = norm_act->scale,
		.bias = norm_act->bias,
		.mean = norm && sums ? norm_act->mean : NULL,
	};
	int r;

	if (norm_act->reduces)
		loops_reduce(loops, &norm_act->columns, norm_act->rows, &args,
			     sums ? norm_act->sum : NULL, norm && sums ? norm_act->second : NULL);
	norm_act_take_gradient(norm_act, node->node->bias, norm_act->sum, NULL);
	if (!norm)
		return 0;
	r = norm_act_norm_constants(exec, node, norm_act);
	if (r < 0)
		return r;
	loops_dx(loops, &norm_act->columns, norm_act->rows,
		 &(struct dx_args){
			 .gradient = norm_act->stores_dz ? norm_act->dz : gradient,
			 .x = norm_act->raw,
			 .dx = norm_act->dx,
			 .element = element,
			 .slope = norm_act->stores_dz ? SLOPE_ONE : norm_act->slope,
			 .scale = norm_act->scale,
			 .bias = norm_act->bias,
			 .a = norm_act->a,
			 .b = norm_act->b,
			 .c = norm_act->c,
		 });
	return 0;
}

int cpu_norm_act_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = 0;

	cpu_sum_gradients(exec, node, 2);
	for (uint32_t group = 0; group < node->norm_act.groups && r == 0; group++)
		r = norm_act_backward_part(exec, node, group);
	return r;
}

/* ---- separate norm ---- */

static int norm_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	node->raw_block = node->x->block;
	return cpu_norm_act_plan(exec, node);
}

static int norm_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = cpu_norm_act_plan_backward(exec, node);

	if (r == 0 && node->node->x->active)
		cpu_contribute(exec, node->x, node->norm_act.dx_block);
	return r;
}

const struct cpu_node_ops cpu_norm_ops = {
	.plan = norm_plan,
	.plan_backward = norm_plan_backward,
	.bind = cpu_norm_act_bind,
	.forward = cpu_norm_act_forward,
	.backward = cpu_norm_act_backward,
};

/* ---- layer norm; of struct cpu_norm_act it uses only the arrays of sums ---- */

/* The gradient of x overwrites the gradient of y. */
static int layer_norm_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	arena_extend(&exec->arena, node->x->block, cpu_backward_step(exec, node));
	if (node->node->x->active)
		cpu_contribute(exec, node->x, node->y->gradient_blocks[0]);
	return 0;
}

static int layer_norm_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;

	loops_layer_norm(&exec->device->loops, node->norm_act.rows, n->x->shape.c,
			 &(struct layer_norm_args){
				 .x = node->x->data,
				 .y = node->y->data,
				 .element = node->y->element,
				 .gamma = cpu_param_slot(n->gamma, exec->weights),
				 .beta = cpu_param_slot(n->beta, exec->weights),
				 .mean = node->mean ? node->mean->data : NULL,
				 .deviation = node->deviation ? node->deviation->data : NULL,
				 .epsilon = n->norm.epsilon,
			 });
	return 0;
}

static int layer_norm_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct cpu_norm_act *norm_act = &node->norm_act;
	struct cpu_value *y = node->y;
	bool sums = device_param_trains(n->gamma) || device_param_trains(n->beta);

	cpu_sum_gradients(exec, node, 1);
	loops_layer_norm_backward(&exec->device->loops, norm_act->rows, n->x->shape.c,
				  &(struct layer_norm_backward_args){
					  .gradient = y->gradients[0],
					  .x = node->x->data,
					  .dx = n->x->active ? y->gradients[0] : NULL,
					  .element = exec->device->element,
					  .gamma = cpu_param_slot(n->gamma, DEVICE_VALUE),
					  .mean = node->mean->data,
					  .deviation = node->deviation->data,
				  },
				  sums ? norm_act->sum : NULL, sums ? norm_act->second : NULL);
	norm_act_take_gradient(norm_act, n->beta, norm_act->sum, NULL);
	norm_act_take_gradient(norm_act, n->gamma, norm_act->second, NULL);
	return 0;
}

const struct cpu_node_ops cpu_layer_norm_ops = {
	.plan = cpu_norm_act_plan,
	.plan_backward = layer_norm_plan_backward,
	.forward = layer_norm_forward,
	.backward = layer_norm_backward,
};
