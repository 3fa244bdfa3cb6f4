/*
 * Parameter storage, and the optimizer: one pass over all tensors for the gradient norm, one for
 * the update including the EMA.
 */
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/optimizers/perturb.h"
#include "trainer/device/optimizers/updates.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ELEMENTS 16384

static struct cpu_params *cpu_store(const struct device_params *params)
{
	return params->backend;
}

float *cpu_param_slot(const struct device_param *param, enum device_slot slot)
{
	float *base = cpu_store(param->store)->slots[slot];

	return base ? base + shards_offset(param, slot, 0) : NULL;
}

float *cpu_param_gradient(const struct device_param *param)
{
	const struct cpu_params *cpu = cpu_store(param->store);

	if (!cpu->divided[DEVICE_GRAD] || !shards_divide(param))
		return cpu_param_slot(param, DEVICE_GRAD);
	return cpu->gradients ? cpu->gradients[param->index] : NULL;
}

float *cpu_chunk_slot(const struct cpu_params *cpu, const struct cpu_update_chunk *chunk,
		      enum device_slot slot)
{
	if (!cpu->slots[slot])
		return NULL;
	return cpu->slots[slot] + (cpu->divided[slot] ? chunk->part : chunk->offset);
}

void cpu_params_release(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	if (!cpu)
		return;
	for (int i = 0; i < DEVICE_SLOTS; i++)
		free(cpu->slots[i]);
	free(cpu->fresh);
	free(cpu->chunks);
	free(cpu->partial);
	free(cpu->norms);
	free(cpu->tensor_norms);
	free(cpu->matrices);
	free(cpu->matrix_scratch);
	free(cpu);
	params->backend = NULL;
}

static int allocate_slots(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++) {
		size_t bytes = device_params_elements(params, slot) * sizeof(float) / 64 * 64 + 64;

		if (!device_params_have(params, slot))
			continue;
		cpu->slots[slot] = aligned_alloc(64, bytes);
		if (!cpu->slots[slot])
			return -ENOMEM;
		memset(cpu->slots[slot], 0, bytes);
	}
	return 0;
}

static uint32_t chunks_of(size_t elements)
{
	return (uint32_t)((elements + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS);
}

/* Adds the chunks of a part of a parameter. */
static void add_chunks(struct cpu_params *cpu, const struct device_param *param,
		       struct device_range part)
{
	for (size_t at = 0; at < part.count; at += CHUNK_ELEMENTS) {
		size_t first = part.first + at, rest = part.count - at;

		cpu->chunks[cpu->chunk_count++] = (struct cpu_update_chunk){
			.param = param,
			.first = first,
			.count = rest < CHUNK_ELEMENTS ? rest : CHUNK_ELEMENTS,
			.offset = param->offset + first,
			.part = shards_offset(param, DEVICE_STATE, first),
		};
	}
}

static int make_chunks(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;
	uint32_t count = 0;

	for (size_t i = 0; i < params->count; i++)
		count += chunks_of(shards_part(params->items[i], params->shards.rank).count);
	cpu->chunks = calloc(count + 1, sizeof(*cpu->chunks));
	cpu->partial = calloc(count + 1, sizeof(*cpu->partial));
	cpu->norms = calloc(count + 1, sizeof(*cpu->norms));
	cpu->tensor_norms = calloc(params->count + 1, sizeof(*cpu->tensor_norms));
	cpu->fresh = calloc(params->count + 1, sizeof(*cpu->fresh));
	if (!cpu->chunks || !cpu->partial || !cpu->norms || !cpu->tensor_norms || !cpu->fresh)
		return -ENOMEM;
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++)
		cpu->divided[slot] = shards_divide_slot(params, slot);
	for (size_t i = 0; i < params->count; i++) {
		cpu->fresh[i] = true;
		add_chunks(cpu, params->items[i],
			   shards_part(params->items[i], params->shards.rank));
	}
	return 0;
}

int cpu_params_allocate(struct device_params *params)
{
	struct cpu_params *cpu = calloc(1, sizeof(*cpu));

	if (!cpu)
		return -ENOMEM;
	params->backend = cpu;
	cpu->weights_version = cpu->buffers_version = 1;
	cpu->state.loss_scale = 1;
	int r = allocate_slots(params);
	if (r == 0)
		r = make_chunks(params);
	if (r == 0)
		r = cpu_matrices_allocate(params);
	if (r < 0)
		cpu_params_release(params);
	return r;
}

/* Before a divided DEVICE_GRAD gets its first sums since an update. */
static void begin_sums(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	if (cpu->divided[DEVICE_GRAD] && !cpu->sums)
		memset(cpu->slots[DEVICE_GRAD], 0,
		       params->shards.divided / params->shards.world * sizeof(float));
	cpu->sums = true;
}

int cpu_param_write(struct device_param *param, enum device_slot slot,
		    const struct device_range *part, const float *values)
{
	struct cpu_params *cpu = cpu_store(param->store);

	if (slot == DEVICE_GRAD) {
		begin_sums(param->store);
		cpu->fresh[param->index] = false;
	}
	memcpy(cpu->slots[slot] + shards_offset(param, slot, part->first), values + part->first,
	       part->count * sizeof(float));
	cpu->weights_version++;
	cpu->buffers_version++;
	return 0;
}

int cpu_param_read(struct device_param *param, enum device_slot slot,
		   const struct device_range *part, float *ret_values)
{
	memcpy(ret_values + part->first,
	       cpu_store(param->store)->slots[slot] + shards_offset(param, slot, part->first),
	       part->count * sizeof(float));
	return 0;
}

void cpu_drop_gradients(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	cpu->sums = false;
	for (size_t i = 0; i < params->count; i++)
		cpu->fresh[i] = true;
}

void cpu_begin_gradients(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	begin_sums(params);
	for (size_t i = 0; i < params->count && cpu->divided[DEVICE_GRAD]; i++)
		if (shards_divide(params->items[i]))
			cpu->fresh[i] = true;
}

int cpu_get_state(struct device_params *params, struct device_params_state *ret_state)
{
	*ret_state = cpu_store(params)->state;
	return 0;
}

int cpu_set_state(struct device_params *params, const struct device_params_state *state)
{
	cpu_store(params)->state = *state;
	cpu_store(params)->state.loss_scale = 1; /* discard the scale of another precision */
	return 0;
}

bool cpu_param_take_fresh(struct device_param *param)
{
	bool *fresh = &cpu_store(param->store)->fresh[param->index];
	bool was = *fresh;

	*fresh = false;
	return was;
}

void cpu_param_add_gradient(struct device_param *param, const float *values)
{
	float *gradient = cpu_param_gradient(param);

	if (cpu_param_take_fresh(param)) {
		memcpy(gradient, values, param->elements * sizeof(float));
		return;
	}
	for (size_t i = 0; i < param->elements; i++)
		gradient[i] += values[i];
}

struct update_job {
	struct cpu_device *device;
	struct device_params *params;
	struct cpu_params *cpu;
	const struct device_hyper *hyper;
	struct update_decision decision;
};

static bool updates(const struct device_param *param)
{
	return param->spec.kind != DEVICE_BUFFER && !param->spec.frozen;
}

static void norm_task(void *context, uint32_t task, unsigned thread)
{
	struct update_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];

	job->cpu->partial[task] = 0;
	if (updates(chunk->param))
		job->cpu->partial[task] = job->device->loops.kernels->sum_squares(
			cpu_chunk_slot(job->cpu, chunk, DEVICE_GRAD), chunk->count);
}

/* An optimizer state; NULL if the parameter lacks it. */
static float *state_at(const struct cpu_update_chunk *chunk, unsigned index)
{
	enum device_slot slot = DEVICE_STATE + index;

	if (!device_param_takes(chunk->param, slot))
		return NULL;
	return cpu_store(chunk->param->store)->slots[slot] +
	       shards_offset(chunk->param, slot, chunk->first);
}

static struct update_args args_of(const struct update_job *job,
				  const struct cpu_update_chunk *chunk)
{
	struct update_args args = {
		.w = cpu_chunk_slot(job->cpu, chunk, DEVICE_VALUE),
		.g = cpu_chunk_slot(job->cpu, chunk, DEVICE_GRAD),
		.count = chunk->count,
		.group = chunk->param->spec.group,
		.lr_factor = chunk->param->spec.lr_factor,
		.start = chunk->param->spec.start,
		.hyper = job->hyper,
		.optimizer = &job->params->optimizer,
		.decision = &job->decision,
	};

	args.rows = device_param_matrix(chunk->param);
	args.columns = device_param_row(chunk->param);
	for (unsigned i = 0; i < DEVICE_STATES_MAX; i++)
		args.state[i] = state_at(chunk, i);
	return args;
}

static bool is_scaled(const struct update_job *job, const struct device_param *param)
{
	return (DEVICE_OPTIMIZERS_BY_TENSOR >> job->params->optimizer.kind & 1) && updates(param) &&
	       device_param_row(param);
}

/*
 * With centralize, conditions the weight rows that begin in the chunk; for vectors or without
 * centralize, the chunk's elements.
 */
static void condition_task(void *context, uint32_t task, unsigned thread)
{
	struct update_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	const struct kernels *kernels = job->device->loops.kernels;
	const struct device_optimizer_spec *optimizer = &job->params->optimizer;
	float *gradient = cpu_chunk_slot(job->cpu, chunk, DEVICE_GRAD) - chunk->first;
	float limit = gradients_limit(optimizer, &job->decision);
	size_t first = chunk->first;
	size_t row = optimizer->centralize ? device_param_row(chunk->param) : 0;

	if (!updates(chunk->param))
		return;
	if (!row) {
		kernels->condition(gradient + first, chunk->count, limit, false);
		return;
	}
	for (size_t at = (first + row - 1) / row * row; at < first + chunk->count; at += row)
		kernels->condition(gradient + at, row, limit, true);
}

static void measure_task(void *context, uint32_t task, unsigned thread)
{
	struct update_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	struct update_args args = args_of(job, chunk);

	if (is_scaled(job, chunk->param))
		job->device->loops.kernels->measure[args.optimizer->kind](&args,
									  job->cpu->norms[task]);
}

/* Adds up each tensor's sums over its chunks, in order, and over the ranks. */
static int measure_tensors(struct update_job *job)
{
	struct cpu_params *cpu = job->cpu;
	size_t count = job->params->count * UPDATE_NORMS;

	if (!(DEVICE_OPTIMIZERS_BY_TENSOR >> job->params->optimizer.kind & 1))
		return 0;
	thread_pool_run(&job->device->thread_pool, cpu->chunk_count, measure_task, job);
	memset(cpu->tensor_norms, 0, count * sizeof(**cpu->tensor_norms));
	for (uint32_t i = 0; i < cpu->chunk_count; i++)
		for (int n = 0; n < UPDATE_NORMS && is_scaled(job, cpu->chunks[i].param); n++)
			cpu->tensor_norms[cpu->chunks[i].param->index][n] += cpu->norms[i][n];
	return cpu_shards_sum(job->params, *cpu->tensor_norms, count);
}

static void direct_task(void *context, uint32_t task, unsigned thread)
{
	struct update_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	struct update_args args = args_of(job, chunk);

	if (updates(chunk->param) && args.rows)
		job->device->loops.kernels->direct[args.optimizer->kind](
			&args, cpu_chunk_slot(job->cpu, chunk, DEVICE_GRAD));
}

static int direct_matrices(struct update_job *job)
{
	if (!job->cpu->matrix_count)
		return 0;
	thread_pool_run(&job->device->thread_pool, job->cpu->chunk_count, direct_task, job);
	return cpu_orthogonalize(job->device, job->params);
}

static void update_task(void *context, uint32_t task, unsigned thread)
{
	struct update_job *job = context;
	const struct cpu_update_chunk *chunk = &job->cpu->chunks[task];
	const struct kernels *kernels = job->device->loops.kernels;
	const struct device_optimizer_spec *optimizer = &job->params->optimizer;
	bool averages = job->decision.ema_decay != 1;
	float *ema = averages ? cpu_chunk_slot(job->cpu, chunk, DEVICE_EMA) : NULL;
	struct update_args args = args_of(job, chunk);

	if (is_scaled(job, chunk->param))
		args.norms = job->cpu->tensor_norms[chunk->param->index];
	if (updates(chunk->param))
		kernels->update[optimizer->kind](&args);
	if (ema)
		kernels->average(ema, args.w, args.count, job->decision.ema_decay);
	if (ema && job->hyper->lookahead && !chunk->param->spec.frozen)
		memcpy(args.w, ema, args.count * sizeof(float));
}

/* Zeroes gradients that no graph has written since the last update. */
static void zero_untouched(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;

	for (size_t i = 0; i < params->count; i++) {
		struct device_param *param = params->items[i];
		bool divided = cpu->divided[DEVICE_GRAD] && shards_divide(param);

		if (cpu->fresh[i] && updates(param) && !divided)
			memset(cpu_param_slot(param, DEVICE_GRAD), 0,
			       param->elements * sizeof(float));
	}
}

/* Sum of the squares of all gradients. */
static int sum_squares(struct update_job *job, double *ret_squares)
{
	struct cpu_params *cpu = job->cpu;
	/* [1]: of parameters that are split over the group */
	double whole[2] = {0, 0}, divided[2] = {0, 0};

	thread_pool_run(&job->device->thread_pool, cpu->chunk_count, norm_task, job);
	for (uint32_t i = 0; i < cpu->chunk_count; i++) {
		const struct device_param *param = cpu->chunks[i].param;

		(shards_divide(param) ? divided : whole)[device_param_is_split(param)] +=
			cpu->partial[i];
	}
	int r = cpu_shards_sum(job->params, divided, job->params->group ? 2 : 1);
	double split = whole[1] + divided[1];
	if (r == 0)
		r = cpu_group_sum_split(job->device, job->params, &split);
	*ret_squares = whole[0] + divided[0] + split;
	return r;
}

static int update_values(struct cpu_device *device, struct device_params *params,
			 const struct device_hyper *hyper, struct device_results *results)
{
	struct cpu_params *cpu = params->backend;
	struct update_job job = {.device = device, .params = params, .cpu = cpu, .hyper = hyper};
	double scale = hyper->grad_scale != 0 ? (double)hyper->grad_scale : 1, squares;

	if (params->perturbed)
		cpu_restore(device, params);
	zero_untouched(params);
	int r = sum_squares(&job, &squares);
	if (r < 0)
		return r;
	cpu_drop_gradients(params);
	double norm = sqrt(squares) * fabs(scale);
	results->grad_norm = norm;
	if (hyper->perturb > 0) {
		cpu_perturb(device, params, perturb_scale(hyper, scale, norm));
		return 0;
	}
	if (!isfinite(norm)) {
		cpu->state.skipped++;
		results->skipped = true;
		return 0;
	}
	update_decide_finite(hyper, scale, norm, &cpu->state, &job.decision);
	if (gradients_change(&params->optimizer))
		thread_pool_run(&device->thread_pool, cpu->chunk_count, condition_task, &job);
	r = measure_tensors(&job);
	if (r < 0)
		return r;
	r = direct_matrices(&job);
	if (r < 0)
		return device_fail(&device->base, r, "oneDNN: a product of matrices");
	thread_pool_run(&device->thread_pool, cpu->chunk_count, update_task, &job);
	cpu->weights_version++;
	cpu->buffers_version++;
	results->updated = true;
	return 0;
}

int cpu_update(struct cpu_device *device, struct device_params *params,
	       const struct device_hyper *hyper, struct device_results *results)
{
	int r = update_values(device, params, hyper, results);

	if (r < 0)
		return r;
	if (hyper->perturb > 0)
		return cpu_shards_gather(params);
#define FOLLOW(constant, name, prefix, buffers, returns)                                           \
	cpu_average(device, params, DEVICE_##constant, hyper->name, returns);
	DEVICE_AVERAGES(FOLLOW)
#undef FOLLOW
	return cpu_shards_gather(params);
}
