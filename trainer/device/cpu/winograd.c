/*
 * 3 x 3 convolutions of stride 1 in fp32, forward and both gradients, by Winograd's F(4 x 4, 3 x 3)
 * (kernels_winograd.c). Without AVX-512, oneDNN computes them directly at the CPU's peak, so only
 * less arithmetic can be faster.
 *
 * Results are split into 4 x 4 tiles, each computed from a 6 x 6 patch. A block of tiles is
 * transformed, [points][tiles][channels], multiplied by the transformed weights point by point, and
 * transformed back, so that intermediate data stays in the caches. The gradient of x is the same
 * with a flipped window; that of the weights sums, point by point, over the tiles of a block, then
 * over blocks in order. The split depends only on the problem size.
 */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(WINOGRAD_CHANNELS == PRODUCT_PANEL, "a block of channels is a panel");

#define WINDOW 3
#define TAPS   (WINDOW * WINDOW)

/*
 * Limits in bytes on the transformed tiles of a block that is private to a thread, and of one that
 * all threads share. BLOCK_TILES_MIN takes precedence.
 */
#define BLOCK_BYTES        (5 << 19)
#define SHARED_BLOCK_BYTES (12 << 20)
#define BLOCK_TILES_MIN    48 /* with fewer tiles, the transformed weights are read too often */
#define BLOCK_TILES_MAX    96
#define SHARED_TILES_MAX   1024
#define TRANSFORM_TILES    8 /* tiles per task that only transforms */

/*
 * Cost model. TRANSFORM_COST: multiply-adds to transform a tile, per channel of x and of the
 * result. WEIGHTS_COST: cost of transforming the weights, expressed as a number of tiles whose
 * products cost as much. Measured with AVX2 on layers of 16 to 512 channels, as a third of a
 * training step.
 */
#define TRANSFORM_COST 900
#define WEIGHTS_COST   40
#define GAIN_MIN       1.1 /* least speed-up, by the cost model, for which oneDNN is not used */

static size_t padded(uint32_t channels)
{
	return (channels + WINOGRAD_CHANNELS - 1u) / WINOGRAD_CHANNELS * WINOGRAD_CHANNELS;
}

/* Tiling of the results. */
struct tiling {
	uint32_t rows, columns;
	size_t count; /* tiles of all samples */
};

static struct tiling tiling_of(struct device_shape shape)
{
	struct tiling tiling = {
		.rows = (shape.h + WINOGRAD_TILE - 1) / WINOGRAD_TILE,
		.columns = (shape.w + WINOGRAD_TILE - 1) / WINOGRAD_TILE,
	};

	tiling.count = (size_t)shape.n * tiling.rows * tiling.columns;
	return tiling;
}

/* Sample, row and column of a tile's first result. */
struct tile_position {
	size_t sample;
	int64_t top, left;
};

static struct tile_position tiling_place(const struct tiling *tiling, size_t tile)
{
	size_t row = tile / tiling->columns;

	return (struct tile_position){
		.sample = row / tiling->rows,
		.top = (int64_t)(row % tiling->rows) * WINOGRAD_TILE,
		.left = (int64_t)(tile % tiling->columns) * WINOGRAD_TILE,
	};
}

bool cpu_winograd_fits(const struct cpu_exec *exec, const struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct device_shape y = n->y->shape;
	double in = n->x->shape.c, out = y.c, tiles = (double)tiling_of(y).count;
	double padded_in = (double)padded(n->x->shape.c), padded_out = (double)padded(y.c);
	double cost = (tiles + WEIGHTS_COST) * WINOGRAD_POINTS * padded_in * padded_out +
		      tiles * TRANSFORM_COST * (padded_in + padded_out);

	if (exec->device->element != ELEMENT_F32 || n->kind != DEVICE_NODE_CONV || n->groups != 1 ||
	    n->stride != 1 || n->window_h != WINDOW || n->window_w != WINDOW || n->pad >= WINDOW)
		return false;
	return cost * GAIN_MIN < (double)y.n * y.h * y.w * TAPS * in * out;
}

/* True if a patch of side x side pixels and WINOGRAD_CHANNELS channels is entirely inside x. */
static bool patch_is_whole(struct device_shape shape, struct tile_position place, uint32_t channel,
			   int side)
{
	return place.top >= 0 && place.left >= 0 && place.top + side <= shape.h &&
	       place.left + side <= shape.w && channel + WINOGRAD_CHANNELS <= shape.c;
}

/* View of a patch that is entirely inside x. */
static struct winograd_array patch_view(const float *x, struct device_shape shape,
					struct tile_position place, uint32_t channel)
{
	size_t row = place.sample * shape.h + (size_t)place.top;

	return (struct winograd_array){
		.v = (float *)x + (row * shape.w + (size_t)place.left) * shape.c + channel,
		.row = (ptrdiff_t)shape.w * shape.c,
		.column = shape.c,
	};
}

/* Patch in a private buffer, [side][side][WINOGRAD_CHANNELS]. */
static struct winograd_array patch_spare(float *spare, int side)
{
	return (struct winograd_array){spare, side * WINOGRAD_CHANNELS, WINOGRAD_CHANNELS};
}

static size_t channels_at(struct device_shape shape, uint32_t channel)
{
	return shape.c - channel < WINOGRAD_CHANNELS ? shape.c - channel : WINOGRAD_CHANNELS;
}

static void copy_channels(float *to, const float *from, size_t channels)
{
	/* a constant size, so that the compiler expands memcpy() inline */
	if (channels == WINOGRAD_CHANNELS) {
		memcpy(to, from, WINOGRAD_CHANNELS * sizeof(float));
		return;
	}
	memset(to, 0, WINOGRAD_CHANNELS * sizeof(float));
	memcpy(to, from, channels * sizeof(float));
}

/* Returns a view of the patch or, if it is partly outside x, of a zero-padded copy. */
static struct winograd_array patch_of(const float *x, struct device_shape shape,
				      struct tile_position place, uint32_t channel, int side,
				      float *spare)
{
	const float *sample = x + place.sample * shape.h * shape.w * shape.c + channel;
	size_t channels = channels_at(shape, channel);
	float *to = spare;

	if (patch_is_whole(shape, place, channel, side))
		return patch_view(x, shape, place, channel);
	for (int64_t h = place.top; h < place.top + side; h++)
		for (int64_t w = place.left; w < place.left + side; w++, to += WINOGRAD_CHANNELS)
			if (h >= 0 && h < shape.h && w >= 0 && w < shape.w)
				copy_channels(to,
					      sample + ((size_t)h * shape.w + (size_t)w) * shape.c,
					      channels);
			else
				memset(to, 0, WINOGRAD_CHANNELS * sizeof(float));
	return patch_spare(spare, side);
}

/*
 * Stride in floats between the points of a block: an odd number of panels, so that a tile's points
 * do not map to the same cache sets.
 */
static size_t plane_of(size_t tiles, size_t channels)
{
	return (tiles * channels / PRODUCT_PANEL | 1) * PRODUCT_PANEL;
}

/* Array of a tile's points, `plane` floats apart. */
static struct winograd_array points_at(const float *v, size_t plane)
{
	return (struct winograd_array){(float *)v, (ptrdiff_t)(WINOGRAD_PATCH * plane),
				       (ptrdiff_t)plane};
}

/* ---- results and the gradient of x ---- */

struct pass {
	const struct cpu_exec *exec;
	struct device_shape from, to;
	const float *x, *weights, *bias; /* weights: [points][columns / 16][depth][16] */
	float *y;
	uint32_t pad;
	struct tiling tiling;
	size_t depth, columns, block;
	float *scratch; /* per thread: [points][block][depth], [points][block][columns] */
};

static size_t pass_scratch(const struct pass *pass)
{
	return WINOGRAD_POINTS *
	       (plane_of(pass->block, pass->depth) + plane_of(pass->block, pass->columns));
}

/* Tiles per block: at most the size limit, and such that all threads get equally many blocks. */
static size_t pass_block(const struct pass *pass, size_t threads)
{
	size_t tile = WINOGRAD_POINTS * (pass->depth + pass->columns) * sizeof(float);
	size_t max = BLOCK_BYTES / tile;

	max = max < BLOCK_TILES_MIN   ? BLOCK_TILES_MIN
	      : max > BLOCK_TILES_MAX ? BLOCK_TILES_MAX
				      : max;
	size_t rounds = (pass->tiling.count + threads * max - 1) / (threads * max);
	return (pass->tiling.count + threads * rounds - 1) / (threads * rounds);
}

static struct pass pass_of(const struct cpu_exec *exec, const struct cpu_node *node, bool backward)
{
	const struct device_node *n = node->node;
	struct pass pass = {
		.exec = exec,
		.from = backward ? n->y->shape : n->x->shape,
		.to = backward ? n->x->shape : n->y->shape,
		.weights = backward ? node->weights_backward : node->weights_forward,
		.pad = backward ? WINDOW - 1 - n->pad : n->pad,
	};

	pass.tiling = tiling_of(pass.to);
	pass.depth = padded(pass.from.c);
	pass.columns = padded(pass.to.c);
	pass.block = pass_block(&pass, exec->device->thread_pool.threads);
	return pass;
}

static void pass_transform(const struct pass *pass, size_t first, size_t count, float *v)
{
	const struct kernels *kernels = pass->exec->device->loops.kernels;
	size_t plane = plane_of(pass->block, pass->depth);
	float spare[WINOGRAD_POINTS * WINOGRAD_CHANNELS];

	for (size_t tile = 0; tile < count; tile++) {
		struct tile_position place = tiling_place(&pass->tiling, first + tile);

		place.top -= pass->pad;
		place.left -= pass->pad;
		for (uint32_t c = 0; c < pass->from.c; c += WINOGRAD_CHANNELS)
			kernels->winograd(
				WINOGRAD_INPUT,
				patch_of(pass->x, pass->from, place, c, WINOGRAD_PATCH, spare),
				points_at(v + tile * pass->depth + c, plane));
	}
}

/* Writes the part of a tile that is inside the result, plus bias. */
static void pass_put(const struct pass *pass, const float *tile, struct tile_position place,
		     uint32_t channel)
{
	size_t channels = channels_at(pass->to, channel);
	float *y = pass->y + place.sample * pass->to.h * pass->to.w * pass->to.c + channel;

	for (int64_t i = 0; i < WINOGRAD_TILE && place.top + i < pass->to.h; i++)
		for (int64_t j = 0; j < WINOGRAD_TILE && place.left + j < pass->to.w; j++) {
			const float *from = tile + (i * WINOGRAD_TILE + j) * WINOGRAD_CHANNELS;
			float *to = y + ((size_t)(place.top + i) * pass->to.w +
					 (size_t)(place.left + j)) *
						pass->to.c;

			for (size_t c = 0; c < channels; c++)
				to[c] = pass->bias ? from[c] + pass->bias[channel + c] : from[c];
		}
}

static void pass_transform_back(const struct pass *pass, size_t first, size_t count, const float *m)
{
	const struct kernels *kernels = pass->exec->device->loops.kernels;
	size_t plane = plane_of(pass->block, pass->columns);
	float spare[WINOGRAD_TILE * WINOGRAD_TILE * WINOGRAD_CHANNELS];

	for (size_t tile = 0; tile < count; tile++) {
		struct tile_position place = tiling_place(&pass->tiling, first + tile);

		for (uint32_t c = 0; c < pass->to.c; c += WINOGRAD_CHANNELS) {
			struct winograd_array from = points_at(m + tile * pass->columns + c, plane);

			if (!pass->bias && patch_is_whole(pass->to, place, c, WINOGRAD_TILE)) {
				kernels->winograd(WINOGRAD_OUTPUT, from,
						  patch_view(pass->y, pass->to, place, c));
			} else {
				kernels->winograd(WINOGRAD_OUTPUT, from,
						  patch_spare(spare, WINOGRAD_TILE));
				pass_put(pass, spare, place, c);
			}
		}
	}
}

static void pass_task(void *context, uint32_t task, unsigned thread)
{
	const struct pass *pass = context;
	size_t first = task * pass->block, count = pass->tiling.count - first;
	float *v = pass->scratch + thread * pass_scratch(pass);
	float *m = v + WINOGRAD_POINTS * plane_of(pass->block, pass->depth);

	count = count < pass->block ? count : pass->block;
	pass_transform(pass, first, count, v);
	for (size_t point = 0; point < WINOGRAD_POINTS; point++) {
		struct product_args product = {
			.a = v + point * plane_of(pass->block, pass->depth),
			.a_row = pass->depth,
			.a_step = 1,
			.b = pass->weights + point * pass->depth * pass->columns,
			.b_panel = pass->depth * PRODUCT_PANEL,
			.c = m + point * plane_of(pass->block, pass->columns),
			.c_row = pass->columns,
			.rows = count,
			.depth = pass->depth,
			.panels = pass->columns / PRODUCT_PANEL,
		};

		pass->exec->device->loops.kernels->product(&product);
	}
	pass_transform_back(pass, first, count, m);
}

static void pass_run(struct pass *pass)
{
	const struct cpu_exec *exec = pass->exec;
	size_t tasks = (pass->tiling.count + pass->block - 1) / pass->block;

	pass->scratch = cpu_block(exec, exec->scratchpad_block);
	thread_pool_run(&exec->device->thread_pool, (uint32_t)tasks, pass_task, pass);
}

/* Plans scratchpad; returns the size of the transformed weights. */
static size_t pass_plan(struct cpu_exec *exec, const struct cpu_node *node, bool backward)
{
	struct pass pass = pass_of(exec, node, backward);

	cpu_need_scratchpad(exec, exec->device->thread_pool.threads * pass_scratch(&pass) *
					  sizeof(float));
	return WINOGRAD_POINTS * pass.depth * pass.columns * sizeof(float);
}

int cpu_winograd_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	return cpu_plan_weights(exec, pass_plan(exec, node, false), node->node->index,
				&node->weights_forward_block, &node->weights_forward);
}

int cpu_winograd_plan_data_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	return cpu_plan_weights(exec, pass_plan(exec, node, true), cpu_backward_step(exec, node),
				&node->weights_backward_block, &node->weights_backward);
}

void cpu_winograd_forward(struct cpu_exec *exec, struct cpu_node *node, const float *bias)
{
	struct pass pass = pass_of(exec, node, false);

	pass.x = node->x->data;
	pass.y = node->norm_act.raw;
	pass.bias = bias;
	pass_run(&pass);
}

void cpu_winograd_data_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	struct pass pass = pass_of(exec, node, true);

	pass.x = node->norm_act.dx;
	pass.y = cpu_block(exec, node->dx_block);
	pass_run(&pass);
}

/* ---- weights ---- */

struct weights_job {
	const struct cpu_exec *exec;
	const struct cpu_node *node;
	const float *weights; /* [K][3][3][C] */
	uint32_t channels, results;
	size_t depth, columns; /* padded */
};

/* The window of output channel k and input channels from c on, in the store's layout. */
static struct winograd_array window_of(const float *weights, uint32_t channels, uint32_t k,
				       uint32_t c, float *spare)
{
	struct device_shape shape = {1, WINDOW, WINDOW, channels};

	return patch_of(weights + (size_t)k * TAPS * channels, shape, (struct tile_position){0}, c,
			WINDOW, spare);
}

/* Transforms a panel of output channels, for each channel of x. */
static void weights_forward_task(void *context, uint32_t panel, unsigned thread)
{
	const struct weights_job *job = context;
	const struct kernels *kernels = job->exec->device->loops.kernels;
	float *to = (float *)job->node->weights_forward + panel * job->depth * PRODUCT_PANEL;
	float window[TAPS][PRODUCT_PANEL] = {0};
	uint32_t first = panel * PRODUCT_PANEL, left = job->results - first;
	uint32_t count = left < PRODUCT_PANEL ? left : PRODUCT_PANEL;

	for (uint32_t c = 0; c < job->channels; c++) {
		const float *from = job->weights + (size_t)first * TAPS * job->channels + c;

		for (uint32_t tap = 0; tap < TAPS; tap++)
			for (uint32_t k = 0; k < count; k++)
				window[tap][k] = from[(size_t)(k * TAPS + tap) * job->channels];
		kernels->winograd(WINOGRAD_WEIGHTS, patch_spare(window[0], WINDOW),
				  points_at(to + c * PRODUCT_PANEL, job->depth * job->columns));
	}
}

/* Transforms a panel of channels of x, for each output channel, with the window flipped. */
static void weights_backward_task(void *context, uint32_t panel, unsigned thread)
{
	const struct weights_job *job = context;
	const struct kernels *kernels = job->exec->device->loops.kernels;
	float *to = (float *)job->node->weights_backward + panel * job->columns * PRODUCT_PANEL;
	float spare[TAPS * WINOGRAD_CHANNELS];

	for (uint32_t k = 0; k < job->results; k++) {
		struct winograd_array window =
			window_of(job->weights, job->channels, k, panel * PRODUCT_PANEL, spare);

		window.v += (WINDOW - 1) * (window.row + window.column);
		window.row = -window.row;
		window.column = -window.column;
		kernels->winograd(WINOGRAD_WEIGHTS, window,
				  points_at(to + k * PRODUCT_PANEL, job->depth * job->columns));
	}
}

static struct weights_job weights_job(const struct cpu_exec *exec, const struct cpu_node *node,
				      const float *weights)
{
	uint32_t channels = node->node->x->shape.c, results = node->node->y->shape.c;

	return (struct weights_job){
		exec, node, weights, channels, results, padded(channels), padded(results)};
}

/* The tasks leave the padding as it is: zero in memory of the node. */
static void weights_clear(const struct weights_job *job, void *to)
{
	if (cpu_gathers(job->exec) && (job->depth != job->channels || job->columns != job->results))
		memset(to, 0, WINOGRAD_POINTS * job->depth * job->columns * sizeof(float));
}

void cpu_winograd_prepare(struct cpu_exec *exec, struct cpu_node *node, const float *weights)
{
	struct weights_job job = weights_job(exec, node, weights);

	weights_clear(&job, node->weights_forward);
	thread_pool_run(&exec->device->thread_pool, (uint32_t)(job.columns / PRODUCT_PANEL),
			weights_forward_task, &job);
}

void cpu_winograd_prepare_backward(struct cpu_exec *exec, struct cpu_node *node,
				   const float *weights)
{
	struct weights_job job = weights_job(exec, node, weights);

	weights_clear(&job, node->weights_backward);
	thread_pool_run(&exec->device->thread_pool, (uint32_t)(job.depth / PRODUCT_PANEL),
			weights_backward_task, &job);
}

/* ---- the gradient of the weights ---- */

struct gradient_job {
	const struct cpu_exec *exec;
	const struct cpu_node *node;
	struct tiling tiling;
	/*
	 * depth: padded channels of x; columns: padded channels of the result; block: tiles per
	 * block
	 */
	size_t depth, columns, block;
	/*
	 * row stride of z in floats: an odd number of panels, so that rows do not map to the same
	 * cache sets
	 */
	size_t row;
	size_t first, count; /* tiles of the current block */
	float *v;            /* [points][depth / 16][block][16] */
	float *z;            /* [points][block][row] */
	float *sums;         /* [points][columns][depth] */
	float *gradient;     /* [K][3][3][C], in the parameter store */
	bool fresh;          /* overwrite the gradient instead of adding to it */
};

static struct gradient_job gradient_job(const struct cpu_exec *exec, const struct cpu_node *node)
{
	struct gradient_job job = {
		.exec = exec,
		.node = node,
		.tiling = tiling_of(node->node->y->shape),
		.depth = padded(node->node->x->shape.c),
		.columns = padded(node->node->y->shape.c),
	};

	job.row = job.columns + (job.columns / PRODUCT_PANEL % 2 ? 0 : PRODUCT_PANEL);
	size_t max = SHARED_BLOCK_BYTES / (WINOGRAD_POINTS * (job.depth + job.row) * sizeof(float));
	job.block = max < BLOCK_TILES_MIN    ? BLOCK_TILES_MIN
		    : max > SHARED_TILES_MAX ? SHARED_TILES_MAX
					     : max;
	if (job.block > job.tiling.count)
		job.block = job.tiling.count;
	return job;
}

/* Floats for sums, v and z. */
static size_t gradient_scratch(const struct gradient_job *job)
{
	return WINOGRAD_POINTS * (job->columns * job->depth + plane_of(job->block, job->depth) +
				  plane_of(job->block, job->row));
}

static void gradient_transform_task(void *context, uint32_t task, unsigned thread)
{
	const struct gradient_job *job = context;
	const struct device_node *n = job->node->node;
	const struct kernels *kernels = job->exec->device->loops.kernels;
	struct device_shape x = n->x->shape, y = n->y->shape;
	float spare[WINOGRAD_POINTS * WINOGRAD_CHANNELS];
	size_t end = (task + 1) * (size_t)TRANSFORM_TILES;

	for (size_t tile = task * (size_t)TRANSFORM_TILES; tile < end && tile < job->count;
	     tile++) {
		struct tile_position place = tiling_place(&job->tiling, job->first + tile);

		for (uint32_t k = 0; k < y.c; k += WINOGRAD_CHANNELS)
			kernels->winograd(
				WINOGRAD_GRADIENT,
				patch_of(job->node->norm_act.dx, y, place, k, WINOGRAD_TILE, spare),
				points_at(job->z + tile * job->row + k,
					  plane_of(job->block, job->row)));
		place.top -= n->pad;
		place.left -= n->pad;
		for (uint32_t c = 0; c < x.c; c += WINOGRAD_CHANNELS)
			kernels->winograd(
				WINOGRAD_INPUT,
				patch_of(job->node->x->data, x, place, c, WINOGRAD_PATCH, spare),
				points_at(job->v + c * job->block + tile * PRODUCT_PANEL,
					  plane_of(job->block, job->depth)));
	}
}

/* Adds the products of a block of tiles to the sums of one point. */
static void gradient_product_task(void *context, uint32_t point, unsigned thread)
{
	const struct gradient_job *job = context;
	struct product_args product = {
		.a = job->z + point * plane_of(job->block, job->row),
		.a_row = 1,
		.a_step = job->row,
		.b = job->v + point * plane_of(job->block, job->depth),
		.b_panel = job->block * PRODUCT_PANEL,
		.c = job->sums + point * job->columns * job->depth,
		.c_row = job->depth,
		.rows = job->columns,
		.depth = job->count,
		.panels = job->depth / PRODUCT_PANEL,
		.adds = job->first != 0,
	};

	job->exec->device->loops.kernels->product(&product);
}

static void gradient_transform_back_task(void *context, uint32_t k, unsigned thread)
{
	const struct gradient_job *job = context;
	struct device_shape weight = {1, WINDOW, WINDOW, job->node->node->x->shape.c};
	float window[TAPS * WINOGRAD_CHANNELS];

	for (uint32_t c = 0; c < weight.c; c += WINOGRAD_CHANNELS) {
		float *to = job->gradient + (size_t)k * TAPS * weight.c + c;
		size_t channels = channels_at(weight, c);

		job->exec->device->loops.kernels->winograd(
			WINOGRAD_WEIGHTS_GRADIENT,
			points_at(job->sums + k * job->depth + c, job->columns * job->depth),
			patch_spare(window, WINDOW));
		for (size_t tap = 0; tap < TAPS; tap++)
			for (size_t i = 0; i < channels; i++) {
				float sum = window[tap * WINOGRAD_CHANNELS + i];
				float *at = to + tap * weight.c + i;

				*at = job->fresh ? sum : *at + sum;
			}
	}
}

void cpu_winograd_plan_weight_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	struct gradient_job job = gradient_job(exec, node);

	arena_extend(&exec->arena, node->x->block, cpu_backward_step(exec, node));
	cpu_need_scratchpad(exec, gradient_scratch(&job) * sizeof(float));
	node->flops_backward += node->flops_forward;
	node->winograd_learns = true;
}

void cpu_winograd_weight_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	struct gradient_job job = gradient_job(exec, node);
	struct thread_pool *thread_pool = &exec->device->thread_pool;

	job.gradient = cpu_param_gradient(node->node->weight);
	job.fresh = cpu_param_take_fresh(node->node->weight);
	job.sums = cpu_block(exec, exec->scratchpad_block);
	job.v = job.sums + WINOGRAD_POINTS * job.columns * job.depth;
	job.z = job.v + WINOGRAD_POINTS * plane_of(job.block, job.depth);
	for (; job.first < job.tiling.count; job.first += job.block) {
		size_t left = job.tiling.count - job.first;

		job.count = left < job.block ? left : job.block;
		thread_pool_run(thread_pool,
				(uint32_t)((job.count + TRANSFORM_TILES - 1) / TRANSFORM_TILES),
				gradient_transform_task, &job);
		thread_pool_run(thread_pool, WINOGRAD_POINTS, gradient_product_task, &job);
	}
	thread_pool_run(thread_pool, node->node->y->shape.c, gradient_transform_back_task, &job);
}
