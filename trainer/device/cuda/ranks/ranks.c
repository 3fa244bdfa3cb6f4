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

#include <errno.h>
#include <stdio.h>

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

int cuda_ranks_sum_split(struct cuda_device *device, double *value)
{
	return ranks_check_of(device, device->group,
			      collective_sum(device->group, &(struct collective_range){value, 1}, 1,
					     COMM_DOUBLE, device->compute));
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
	int r = gpu_event_record(device->ready, device->compute);
	if (r == 0)
		r = gpu_stream_wait(device->reduce, device->ready);
	if (r < 0)
		return cuda_check(device, r, "beginning a sum over ranks");
	return ranks_check(
		device, collective_sum(device->collective, ranges, count, element, device->reduce));
}

/* Makes later computation wait for all sums so far. */
static int ranks_join(struct cuda_exec *exec)
{
	struct cuda_device *device = exec->device;

	if (exec->variant & CUDA_VARIANT_WARMS_UP)
		return 0;
	int r = gpu_event_record(device->reduced, device->reduce);
	if (r == 0)
		r = gpu_stream_wait(device->compute, device->reduced);
	return cuda_check(device, r, "waiting for a sum over ranks");
}

/* ---- planning ---- */

static bool ranks_in_bucket(const struct bucket *bucket, const struct cuda_tensor *tensor)
{
	return tensor && tensor->storage == CUDA_IN_PARAMETER && tensor->slot == DEVICE_GRAD &&
	       tensor->param->offset >= bucket->offset &&
	       tensor->param->offset < bucket->offset + bucket->count;
}

/*
 * Returns the index of the last operation that writes a gradient of the bucket; 0 if there is none.
 */
static uint32_t ranks_completion(const struct cuda_program *program, const struct bucket *bucket)
{
	for (uint32_t i = program->op_count; i-- > 0;)
		for (int role = 0; role < CUDA_ROLES; role++)
			if (ranks_in_bucket(bucket, program->ops[i].operands[role]) &&
			    cuda_op_writes(&program->ops[i], (enum cuda_role)role))
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

/*
 * FNV-1a hash of the order of sums, of both communicators. A sum is identified by its bucket or by
 * its node.
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
		for (; bucket < ranks->buckets.count && ranks->complete[bucket] == i; bucket++)
			digest = (digest ^ bucket) * 0x100000001b3;
	}
	return digest;
}

int cuda_ranks_plan(struct cuda_exec *exec)
{
	int r = 0;

	if (!cuda_ranks_several(exec->graph))
		return 0;
	for (uint32_t i = 0; i < exec->program->op_count; i++)
		if (exec->program->ops[i].kind == CUDA_OP_LOSS)
			exec->ranks.loss = &exec->program->ops[i];
	exec->ranks.totals = cuda_allocate(&r, sizeof(*exec->ranks.totals));
	if (r == 0 && exec->graph->params->has_optimizer)
		r = ranks_plan_buckets(exec);
	return r;
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
	return cuda_ranks_several(exec->graph) && op->kind == CUDA_OP_LOSS ? ranks_join(exec) : 0;
}

int cuda_ranks_after_op(struct cuda_exec *exec, uint32_t index)
{
	struct cuda_ranks *ranks = &exec->ranks;
	const struct buckets *buckets = &ranks->buckets;
	float *gradients = ((struct cuda_params *)exec->graph->params->backend)->slots[DEVICE_GRAD];
	int r = 0;

	if (!cuda_ranks_several(exec->graph))
		return 0;
	if (exec->program->ops[index].kind == CUDA_OP_LOSS)
		r = ranks_start_sum(exec, &(struct collective_range){&ranks->totals->loss, 3}, 1,
				    COMM_DOUBLE);
	if (!(exec->variant & CUDA_VARIANT_UPDATES))
		return r;
	while (r == 0 && ranks->started < buckets->count &&
	       ranks->complete[ranks->started] <= index) {
		const struct bucket *bucket = &buckets->items[ranks->started++];

		r = ranks_start_sum(
			exec, &(struct collective_range){gradients + bucket->offset, bucket->count},
			1, COMM_FLOAT);
	}
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
