/*
 * Several ranks with one GPU each: sums over ranks, and when they run in a step.
 *
 * All sums are queued on a separate stream in program order, which is the same on every rank,
 * because NCCL forbids different orders for one communicator. Events make each sum wait for its
 * input, and the compute stream wait for the result. Captured graphs contain sums and events.
 *
 * Sums over the group that holds a network together have a communicator of their own. The compute
 * stream cannot go on without them, so they are queued on it.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool cuda_ranks_several(const struct device_graph *graph)
{
	return ((const struct cuda_device *)graph->device)->collective &&
	       graph->options.mode == DEVICE_TRAIN;
}

/* ---- opening ---- */

static int ranks_open_stream(struct cuda_device *device, char *error)
{
	int r = gpu_stream_new(&device->reduce);

	device->ready = cuda_event(&r, false);
	device->reduced = cuda_event(&r, false);
	if (r < 0)
		snprintf(error, DEVICE_ERROR_MAX, "%s", gpu_error());
	return r;
}

static int ranks_new(struct cuda_device *device, char *error)
{
	const struct device_options *options = &device->base.options;
	int r = 0;

	if (device_world(&device->base) > 1)
		r = collective_new(options->comm, &device->collective, error);
	if (r == 0 && device->collective)
		r = ranks_open_stream(device, error);
	if (r == 0 && options->group && options->group->world > 1)
		r = collective_new(options->group, &device->group, error);
	if (r == 0 && device->collective && device->group)
		collective_watch(device->collective, device->group);
	return r;
}

int cuda_ranks_open(struct cuda_device *device, int result, char *error)
{
	const struct comm *group = device->base.options.group;
	int r = result;

	if (device_world(&device->base) == 1 && (!group || group->world == 1))
		return r;
	if (r == 0)
		r = ranks_new(device, error);
	/* a rank that silently fell back to another backend would block the others */
	r = cuda_ranks_meet(device, r, error);
	if (r == 0 && device->collective)
		r = collective_connect(device->collective, error);
	if (r == 0 && device->group)
		r = collective_connect(device->group, error);
	return r;
}

void cuda_ranks_close(struct cuda_device *device)
{
	gpu_event_free(device->ready);
	gpu_event_free(device->reduced);
	gpu_stream_free(device->reduce);
	collective_free(device->collective);
	collective_free(device->group);
}

/* ---- sums ---- */

static int ranks_check_of(struct cuda_device *device, const struct collective *collective, int r)
{
	if (r < 0)
		device_fail(&device->base, r, "%s", collective_error(collective));
	return r;
}

static int ranks_check(struct cuda_device *device, int r)
{
	return ranks_check_of(device, device->collective, r);
}

int cuda_ranks_wait(struct cuda_device *device, gpu_event event, const char *what)
{
	struct collective *collective = device->collective ? device->collective : device->group;

	if (!collective)
		return cuda_check(device, gpu_event_synchronize(event), what);
	return ranks_check_of(device, collective, collective_wait(collective, event));
}

/* In a warm-up, whose results are discarded, it does nothing. */
int cuda_ranks_sum_product(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct cuda_device *device = exec->device;
	const struct cuda_tensor *tensor =
		op->operands[CUDA_Y] ? op->operands[CUDA_Y] : op->operands[CUDA_DX];
	bool warms_up = exec->graph->options.mode == DEVICE_TRAIN &&
			(exec->variant & CUDA_VARIANT_WARMS_UP);

	if (warms_up)
		return 0;
	return ranks_check_of(device, device->group,
			      collective_sum_activations(device->group,
							 cuda_tensor_data(exec, tensor),
							 device_shape_elements(tensor->shape),
							 tensor->element, device->compute));
}

int cuda_ranks_sum_group(struct cuda_device *device, double *values, size_t count)
{
	return ranks_check_of(device, device->group,
			      collective_sum(device->group,
					     &(struct collective_range){values, count}, 1,
					     COMM_DOUBLE, device->compute));
}

int cuda_ranks_fork(struct cuda_device *device)
{
	int r = gpu_event_record(device->ready, device->compute);

	if (r == 0)
		r = gpu_stream_wait(device->reduce, device->ready);
	return cuda_check(device, r, "beginning a sum over ranks");
}

int cuda_ranks_join(struct cuda_device *device)
{
	int r = gpu_event_record(device->reduced, device->reduce);

	if (r == 0)
		r = gpu_stream_wait(device->compute, device->reduced);
	return cuda_check(device, r, "waiting for a sum over ranks");
}

/*
 * Queues an all-reduce after all computation queued so far. Does nothing in a warm-up, whose
 * results are discarded.
 */
static int ranks_start_sum(struct cuda_exec *exec, const struct collective_range *ranges,
			   uint32_t count, enum comm_element element)
{
	struct cuda_device *device = exec->device;

	if (exec->variant & CUDA_VARIANT_WARMS_UP)
		return 0;
	int r = cuda_ranks_fork(device);
	if (r < 0)
		return r;
	return ranks_check(
		device, collective_sum(device->collective, ranges, count, element, device->reduce));
}

/* Makes later computation wait for all sums so far. */
static int ranks_join(struct cuda_exec *exec)
{
	return exec->variant & CUDA_VARIANT_WARMS_UP ? 0 : cuda_ranks_join(exec->device);
}

/* ---- planning ---- */

static bool ranks_has_param(const struct bucket *bucket, const struct device_param *param)
{
	return param->offset >= bucket->offset && param->offset < bucket->offset + bucket->count;
}

static bool ranks_in_bucket(const struct bucket *bucket, const struct cuda_tensor *tensor)
{
	return tensor && tensor->storage == CUDA_IN_PARAMETER && tensor->slot == DEVICE_GRAD &&
	       ranks_has_param(bucket, tensor->param);
}

/* True if the operation writes a gradient of the bucket. */
static bool ranks_writes(const struct cuda_op *op, const struct bucket *bucket)
{
	for (int role = 0; role < CUDA_ROLES; role++)
		if (ranks_in_bucket(bucket, op->operands[role]) &&
		    cuda_op_writes(op, (enum cuda_role)role))
			return true;
	return false;
}

/*
 * Returns the index of the last operation that writes a gradient of the bucket; 0 if there is none.
 */
static uint32_t ranks_completion(const struct cuda_program *program, const struct bucket *bucket)
{
	for (uint32_t i = program->op_count; i-- > 0;)
		if (ranks_writes(&program->ops[i], bucket))
			return i;
	return 0;
}

/*
 * Buckets are all-reduced in an order that depends only on the graph. Fusion may complete a bucket
 * later than one that follows it, which then waits.
 */
static int ranks_plan_buckets(struct cuda_exec *exec)
{
	struct cuda_ranks *ranks = &exec->ranks;
	uint32_t last = 0;
	int r = buckets_plan(&ranks->buckets, exec->graph, exec->device->base.bucket_elements);

	for (uint32_t i = 0; i < ranks->buckets.count && r == 0; i++) {
		uint32_t own = ranks_completion(exec->program, &ranks->buckets.items[i]);

		last = own > last ? own : last;
		ranks->complete[i] = last;
	}
	return r;
}

/* ---- gradients that ranks keep parts of ---- */

/*
 * Such gradients are written to memory of their bucket. Buckets share memory one after the other;
 * two are always in turn, so that one is summed while backward fills the other.
 */
#define BUCKETS_IN_TURN 2

static bool ranks_divide(const struct cuda_exec *exec)
{
	return cuda_ranks_several(exec->graph) && exec->graph->params->has_optimizer &&
	       shards_divide_slot(exec->graph->params, DEVICE_GRAD);
}

/* The first operation whose launch writes a gradient of the bucket. */
static uint32_t ranks_beginning(const struct cuda_program *program, const struct bucket *bucket)
{
	uint32_t i = 0;

	while (i + 1 < program->op_count && !ranks_writes(&program->ops[i], bucket))
		i++;
	/* the first of several conversions launches all of them */
	while (i && program->ops[i].kind == CUDA_OP_WEIGHT_GRADIENT &&
	       !program->ops[i].batch.launched)
		i--;
	return i;
}

/* Memory for a bucket that is written from `begin` on: that of an earlier one if that is summed. */
static uint32_t ranks_choose_turn(const struct cuda_ranks *ranks, uint32_t begin)
{
	uint32_t best = ranks->turn_count;

	for (uint32_t i = 0; i < ranks->turn_count && ranks->turn_count >= BUCKETS_IN_TURN; i++) {
		uint32_t last = ranks->turns[i].last;

		if (ranks->complete[last] < begin &&
		    (best == ranks->turn_count ||
		     ranks->complete[last] < ranks->complete[ranks->turns[best].last]))
			best = i;
	}
	return best;
}

static void ranks_take_turns(struct cuda_exec *exec)
{
	struct cuda_ranks *ranks = &exec->ranks;

	for (uint32_t i = 0; i < ranks->buckets.count; i++) {
		const struct bucket *bucket = &ranks->buckets.items[i];

		if (!bucket->scatters)
			continue;
		ranks->begin[i] = ranks_beginning(exec->program, bucket);
		ranks->turn[i] = ranks_choose_turn(ranks, ranks->begin[i]);
		struct cuda_turn *turn = &ranks->turns[ranks->turn[i]];
		ranks->waits[i] = ranks->turn[i] < ranks->turn_count;
		ranks->turn_count += !ranks->waits[i];
		turn->last = i;
		turn->elements = bucket->count > turn->elements ? bucket->count : turn->elements;
	}
}

static int ranks_plan_memory(struct cuda_exec *exec)
{
	struct cuda_ranks *ranks = &exec->ranks;
	const struct device_params *params = exec->graph->params;
	int r = 0;

	ranks->gradients = calloc(params->count + 1, sizeof(*ranks->gradients));
	if (!ranks->gradients)
		return -ENOMEM;
	ranks_take_turns(exec);
	for (uint32_t i = 0; i < ranks->turn_count; i++) {
		struct cuda_turn *turn = &ranks->turns[i];

		turn->memory = cuda_allocate(&r, turn->elements * sizeof(float));
		turn->summed = cuda_event(&r, false);
	}
	for (uint32_t b = 0; b < ranks->buckets.count && r == 0; b++) {
		const struct bucket *bucket = &ranks->buckets.items[b];

		for (size_t i = 0; i < params->count && bucket->scatters; i++)
			if (ranks_has_param(bucket, params->items[i]))
				ranks->gradients[i] = ranks->turns[ranks->turn[b]].memory +
						      (params->items[i]->offset - bucket->offset);
	}
	return r;
}

float *cuda_ranks_gradient(const struct cuda_exec *exec, const struct device_param *param)
{
	return exec->ranks.gradients ? exec->ranks.gradients[param->index] : NULL;
}

/* Makes backward wait for the sum of the bucket whose memory the operation begins to write. */
static int ranks_wait_turn(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct cuda_ranks *ranks = &exec->ranks;
	uint32_t index = (uint32_t)(op - exec->program->ops);
	int r = 0;

	if (!ranks->gradients || (exec->variant & CUDA_VARIANT_WARMS_UP))
		return 0;
	for (uint32_t i = 0; i < ranks->buckets.count && r == 0; i++)
		if (ranks->waits[i] && ranks->begin[i] == index)
			r = gpu_stream_wait(exec->device->compute,
					    ranks->turns[ranks->turn[i]].summed);
	return cuda_check(exec->device, r, "waiting for a sum over ranks");
}

/* Zeroes gradients of a bucket's memory that no operation writes. */
static int ranks_zero_untouched(struct cuda_exec *exec, uint32_t index)
{
	const struct device_params *params = exec->graph->params;
	const struct bucket *bucket = &exec->ranks.buckets.items[index];
	int r = 0;

	for (size_t i = 0; i < params->count && r == 0; i++)
		if (ranks_has_param(bucket, params->items[i]) && exec->ranks.untouched[i])
			r = gpu_fill(exec->ranks.gradients[i], 0,
				     params->items[i]->elements * sizeof(float),
				     exec->device->compute);
	return cuda_check(exec->device, r, "gradients");
}

/* Sums a bucket's memory, and adds this rank's part to the store. */
static int ranks_start_divided(struct cuda_exec *exec, uint32_t index)
{
	struct cuda_device *device = exec->device;
	struct cuda_turn *turn = &exec->ranks.turns[exec->ranks.turn[index]];
	struct device_params *params = exec->graph->params;
	const struct bucket *bucket = &exec->ranks.buckets.items[index];
	int r = ranks_zero_untouched(exec, index);

	if (r == 0)
		r = cuda_ranks_fork(device);
	if (r == 0)
		r = ranks_check(device,
				collective_reduce_scatter(device->collective, turn->memory,
							  bucket->count / params->shards.world,
							  COMM_FLOAT, device->reduce));
	if (r < 0)
		return r;
	r = cuda_add_part(params, bucket, turn->memory);
	if (r == 0)
		r = gpu_event_record(turn->summed, device->reduce);
	return cuda_check(device, r, "gradients");
}

/* Starts to sum a bucket that is complete, if it is due in this step. */
static int ranks_start_bucket(struct cuda_exec *exec, uint32_t index)
{
	struct cuda_device *device = exec->device;
	const struct device_params *params = exec->graph->params;
	const struct bucket *bucket = &exec->ranks.buckets.items[index];
	float *gradients = ((struct cuda_params *)params->backend)->slots[DEVICE_GRAD];

	if (exec->variant & CUDA_VARIANT_WARMS_UP)
		return 0;
	if (exec->ranks.gradients && bucket->scatters)
		return ranks_start_divided(exec, index);
	if (!(exec->variant & CUDA_VARIANT_UPDATES))
		return 0;
	if (!bucket->scatters)
		return ranks_start_sum(
			exec,
			&(struct collective_range){
				gradients + shards_whole_offset(params, bucket->offset),
				bucket->count},
			1, COMM_FLOAT);
	int r = cuda_ranks_fork(device);
	if (r < 0)
		return r;
	return ranks_check(device,
			   collective_reduce_scatter(device->collective, gradients + bucket->offset,
						     bucket->count / params->shards.world,
						     COMM_FLOAT, device->reduce));
}

/*
 * FNV-1a hash of the order of sums and gathers, of both communicators. Each is identified by its
 * bucket or by its node.
 */
static uint64_t ranks_digest(const struct cuda_exec *exec)
{
	const struct cuda_ranks *ranks = &exec->ranks;
	uint64_t digest = 0xcbf29ce484222325;
	uint32_t bucket = 0;

	for (uint32_t i = 0; i < exec->program->op_count; i++) {
		const struct cuda_op *op = &exec->program->ops[i];

		if (cuda_ranks_sums(exec, op) || (op->kind == CUDA_OP_MATMUL && op->matmul.sums))
			digest = (digest ^ (BUCKETS_MAX + op->node->index)) * 0x100000001b3;
		else if (op->kind == CUDA_OP_LOSS)
			digest = (digest ^ (BUCKETS_MAX - 1)) * 0x100000001b3;
		else if (op->kind == CUDA_OP_GATHER)
			digest = (digest ^ ~(uint64_t)op->gather.bucket) * 0x100000001b3;
		for (; bucket < ranks->buckets.count && ranks->complete[bucket] == i; bucket++)
			digest = (digest ^ bucket) * 0x100000001b3;
	}
	return digest;
}

int cuda_ranks_plan(struct cuda_exec *exec)
{
	int r = cuda_gathers_plan(exec);

	if (r < 0 || !cuda_ranks_several(exec->graph))
		return r;
	for (uint32_t i = 0; i < exec->program->op_count; i++)
		if (exec->program->ops[i].kind == CUDA_OP_LOSS)
			exec->ranks.loss = &exec->program->ops[i];
	exec->ranks.totals = cuda_allocate(&r, sizeof(*exec->ranks.totals));
	if (r == 0 && exec->graph->params->has_optimizer)
		r = ranks_plan_buckets(exec);
	return r == 0 && ranks_divide(exec) ? ranks_plan_memory(exec) : r;
}

/*
 * Compares the order of sums on all ranks. Different GPUs or libraries may lead to different
 * programs, and with different orders ranks would sum unrelated data.
 */
static int ranks_compare_over(struct cuda_exec *exec, struct comm *comm)
{
	uint64_t mine = ranks_digest(exec);
	int r = 0;

	for (unsigned rank = 0; rank < comm->world; rank++) {
		uint64_t shared = mine;
		int sent = comm_broadcast(comm, &shared, sizeof(shared), rank);

		if (sent < 0)
			return device_fail(&exec->device->base, sent, "%s", comm_error(comm));
		if (r == 0 && shared != mine)
			r = device_fail(&exec->device->base, -ENOTSUP,
					"rank %u has planned its step in another order than rank "
					"%u; have all ranks use GPUs of one kind with the same "
					"libraries, or --fusion none",
					rank, comm->rank);
	}
	return r;
}

int cuda_ranks_compare(struct cuda_exec *exec)
{
	const struct device_options *options = &exec->device->base.options;
	int r = cuda_ranks_several(exec->graph) ? ranks_compare_over(exec, options->comm) : 0;

	/* compare even after a failure, since the rest of the group waits for it */
	int compared = exec->graph->params->group ? ranks_compare_over(exec, options->group) : 0;
	return r < 0 ? r : compared;
}

void cuda_ranks_release(struct cuda_exec *exec)
{
	gpu_free(exec->ranks.totals);
	for (uint32_t i = 0; i < exec->ranks.turn_count; i++) {
		gpu_free(exec->ranks.turns[i].memory);
		gpu_event_free(exec->ranks.turns[i].summed);
	}
	free(exec->ranks.gradients);
	free(exec->ranks.untouched);
	cuda_gathers_release(exec);
}

/* ---- steps ---- */

bool cuda_ranks_sums(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_ranks_several(exec->graph) && op->node->has_norm &&
	       op->node->norm.synchronized && cuda_op_def(op)->across_ranks;
}

int cuda_ranks_sum_norm(struct cuda_exec *exec, const struct cuda_op *op)
{
	static const enum cuda_role roles[] = {CUDA_SUM, CUDA_PRODUCTS};
	struct collective_range ranges[2];
	int r;

	for (int i = 0; i < 2; i++) {
		const struct cuda_tensor *tensor = op->operands[roles[i]];

		ranges[i].values = cuda_tensor_data(exec, tensor);
		ranges[i].count = tensor->shape.c;
	}
	r = ranks_start_sum(exec, ranges, 2, COMM_FLOAT);
	return r < 0 ? r : ranks_join(exec);
}

int cuda_ranks_begin_step(struct cuda_exec *exec)
{
	struct loss_totals *totals = exec->ranks.totals;

	exec->ranks.started = 0;
	if (!cuda_ranks_several(exec->graph) || !exec->ranks.loss)
		return 0;
	struct loss_arguments arguments = cuda_loss_arguments(exec, exec->ranks.loss);
	int r = loss_count(&exec->device->kernels, &arguments);
	if (r < 0)
		return cuda_check(exec->device, r, "counting labels");
	return ranks_start_sum(exec, &(struct collective_range){&totals->samples, 2}, 1,
			       COMM_DOUBLE);
}

int cuda_ranks_before(struct cuda_exec *exec, const struct cuda_op *op)
{
	int r = ranks_wait_turn(exec, op);

	if (r == 0)
		r = cuda_gathers_before(exec, op);
	if (r < 0)
		return r;
	return cuda_ranks_several(exec->graph) && op->kind == CUDA_OP_LOSS ? ranks_join(exec) : 0;
}

int cuda_ranks_after_op(struct cuda_exec *exec, uint32_t index)
{
	struct cuda_ranks *ranks = &exec->ranks;
	int r = 0;

	if (!cuda_ranks_several(exec->graph))
		return 0;
	if (exec->program->ops[index].kind == CUDA_OP_LOSS)
		r = ranks_start_sum(exec, &(struct collective_range){&ranks->totals->loss, 3}, 1,
				    COMM_DOUBLE);
	if (!(exec->variant & CUDA_VARIANT_UPDATES) &&
	    (!ranks->gradients || (exec->variant & CUDA_VARIANT_FORWARD)))
		return r;
	while (r == 0 && ranks->started < ranks->buckets.count &&
	       ranks->complete[ranks->started] <= index)
		r = ranks_start_bucket(exec, ranks->started++);
	return r;
}

int cuda_ranks_end_step(struct cuda_exec *exec)
{
	/* a captured stream must not wait for one outside the capture */
	if (!cuda_ranks_several(exec->graph) || (!exec->ranks.loss && !exec->ranks.started))
		return 0;
	int r = ranks_join(exec);
	if (r < 0 || !exec->ranks.loss)
		return r;
	struct loss_arguments arguments = cuda_loss_arguments(exec, exec->ranks.loss);
	return cuda_check(exec->device, loss_share(&exec->device->kernels, &arguments),
			  "results of all ranks");
}
