#include "trainer/estimate/mesh_schedule.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the store ---- */

static bool is_weight(const struct device_param *param)
{
	return param->spec.kind == DEVICE_CONV_WEIGHT || param->spec.kind == DEVICE_LINEAR_WEIGHT;
}

static bool is_in_bucket(const struct bucket *bucket, const struct device_param *param)
{
	return param->offset >= bucket->offset && param->offset < bucket->offset + bucket->count;
}

/* Elements of a rank of a trained parameter, which starts on a cache line; 0 if not trained. */
static uint64_t trained_elements(const struct device_param *param)
{
	return device_param_trains(param) ? (param->elements + 15) / 16 * 16 : 0;
}

/* Trained elements of a rank in a bucket: of weights alone, or of all parameters. */
static uint64_t bucket_elements(const struct mesh_plan *plan, const struct bucket *bucket,
				bool weights)
{
	const struct device_params *params = plan->program->graph->params;
	uint64_t elements = 0;
	for (size_t i = 0; i < params->count; i++)
		if (is_in_bucket(bucket, params->items[i]) &&
		    (!weights || is_weight(params->items[i])))
			elements += trained_elements(params->items[i]);
	return elements;
}

/* Weights of a rank in the block that is `after` blocks before the head. */
static uint64_t block_weights(const struct mesh_plan *plan, uint32_t after)
{
	const struct device_params *params = plan->program->graph->params;
	uint64_t elements = 0;
	for (size_t i = 0; i < params->count; i++)
		if (is_weight(params->items[i]) &&
		    model_blocks_after(plan->model, params->items[i]) == after)
			elements += trained_elements(params->items[i]);
	return elements;
}

static uint32_t count_blocks(const struct mesh_plan *plan)
{
	const struct device_params *params = plan->program->graph->params;
	uint32_t count = 0;
	for (size_t i = 0; i < params->count; i++) {
		uint32_t after = model_blocks_after(plan->model, params->items[i]);
		count = after >= count ? after + 1 : count;
	}
	return count;
}

/* Bytes of a parameter in all slots, and of its copy. */
static uint64_t param_bytes(const struct mesh_plan *plan, const struct device_param *param)
{
	uint64_t slots = 0, elements = (param->elements + 15) / 16 * 16;
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++)
		slots += device_param_takes(param, slot);
	bool copied = is_weight(param) && plan->program->element != CUDA_F32;
	return elements * sizeof(float) * slots + (copied ? 2 * elements : 0);
}

void mesh_plan_store(struct mesh_plan *plan, const struct buckets *buckets)
{
	const struct device_params *params = plan->program->graph->params;
	struct mesh_store store = {.copies = plan->program->element != CUDA_F32};
	for (enum device_slot slot = 0; slot < DEVICE_SLOTS; slot++)
		if (slot >= DEVICE_STATE && slot < DEVICE_STATE + DEVICE_STATES_MAX)
			store.states += device_params_have(params, slot);
		else if (slot != DEVICE_VALUE && slot != DEVICE_GRAD)
			store.averages += device_params_have(params, slot);
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];
		uint64_t elements = trained_elements(param);
		*(is_weight(param) ? &store.weights : &store.others) += elements;
		if (!elements)
			store.whole_bytes += param_bytes(plan, param);
	}
	for (uint32_t i = 0; i < buckets->count; i++) {
		uint64_t elements = bucket_elements(plan, &buckets->items[i], true);
		store.bucket = elements > store.bucket ? elements : store.bucket;
	}
	store.gathered = shards_gathered_limit(params);
	plan->store = store;
}

/* ---- the step ---- */

/* A group of data ranks on one machine shares its links with the tensor groups. */
enum link_number { LINK_MACHINE, LINK_NETWORK, LINKS };

struct schedule {
	const struct mesh_plan *plan;
	const struct cuda_program *program;
	const struct buckets *buckets;
	uint32_t *complete;   /* [buckets->count] operation that completes each */
	double *bucket_bytes; /* [buckets->count] of gradients, if sharded of weights alone */
	double *block_bytes;  /* [blocks] of values */
	double *block_ready;  /* [blocks] when its values are there; below 0 if not gathered */
	int32_t *block_of_op; /* [op_count] whose values it reads; below 0 if of none */
	uint32_t blocks;
	double now;            /* when the last operation so far ends */
	double link[LINKS];    /* when each link is free again */
	double busy, computed; /* seconds of communication and of computation */
	double summed;         /* bytes sent for norms and tensor groups */
};

static uint32_t completion(const struct schedule *s, const struct bucket *bucket)
{
	for (uint32_t i = s->program->op_count; i-- > 0;)
		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct cuda_op *op = &s->program->ops[i];
			const struct cuda_tensor *tensor = op->operands[role];
			if (tensor && tensor->storage == CUDA_IN_PARAMETER &&
			    tensor->slot == DEVICE_GRAD && is_in_bucket(bucket, tensor->param) &&
			    cuda_op_writes(op, (enum cuda_role)role))
				return i;
		}
	return 0;
}

static int32_t block_read(const struct schedule *s, const struct cuda_op *op)
{
	for (int role = 0; role < CUDA_ROLES; role++) {
		const struct cuda_tensor *tensor = op->operands[role];
		if (tensor && tensor->storage != CUDA_IN_ARENA && tensor->slot == DEVICE_VALUE &&
		    is_weight(tensor->param) && device_param_trains(tensor->param))
			return (int32_t)model_blocks_after(s->plan->model, tensor->param);
	}
	return -1;
}

static int schedule_init(struct schedule *s)
{
	const struct mesh_plan *plan = s->plan;
	uint32_t last = 0, ops = s->program->op_count, count = s->buckets->count;
	s->blocks = count_blocks(plan);
	s->complete = calloc(count + 1, sizeof(*s->complete));
	s->bucket_bytes = calloc(count + 1, sizeof(*s->bucket_bytes));
	s->block_bytes = calloc(s->blocks + 1, sizeof(*s->block_bytes));
	s->block_ready = calloc(s->blocks + 1, sizeof(*s->block_ready));
	s->block_of_op = calloc(ops + 1, sizeof(*s->block_of_op));
	if (!s->complete || !s->bucket_bytes || !s->block_bytes || !s->block_ready ||
	    !s->block_of_op)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t own = completion(s, &s->buckets->items[i]);
		/* buckets are summed in order */
		last = own > last ? own : last;
		s->complete[i] = last;
		s->bucket_bytes[i] = 4 * (double)bucket_elements(plan, &s->buckets->items[i],
								 plan->shard != MESH_SHARD_NONE);
	}
	for (uint32_t i = 0; i < s->blocks; i++)
		s->block_bytes[i] = mesh_value_bytes(&plan->store, (double)block_weights(plan, i));
	for (uint32_t i = 0; i < ops; i++)
		s->block_of_op[i] = block_read(s, &s->program->ops[i]);
	return 0;
}

static void schedule_deinit(struct schedule *s)
{
	free(s->complete);
	free(s->bucket_bytes);
	free(s->block_bytes);
	free(s->block_ready);
	free(s->block_of_op);
}

/* Runs a collective as soon as its link is free. Returns when it ends. */
static double communicate(struct schedule *s, const struct mesh_ring *ring, double bytes, bool sums)
{
	double *link = &s->link[ring->local < ring->ranks ? LINK_NETWORK : LINK_MACHINE];
	double seconds = mesh_ring_seconds(ring, bytes, sums);
	*link = (*link > s->now ? *link : s->now) + seconds;
	s->busy += seconds;
	return *link;
}

static void wait_until(struct schedule *s, double time)
{
	s->now = time > s->now ? time : s->now;
}

/* A sum of activations or statistics, for which computation waits. */
static void sum_now(struct schedule *s, const struct mesh_ring *ring, double bytes)
{
	if (ring->ranks == 1)
		return;
	wait_until(s, communicate(s, ring, bytes, true));
	s->summed += mesh_ring_bytes(bytes, ring->ranks, true);
}

static void gather(struct schedule *s, int32_t block)
{
	s->block_ready[block] = communicate(s, &s->plan->data, s->block_bytes[block], false);
}

/* train.shard = parameters: waits for the values of an operation's block, and starts the next's. */
static void gather_for(struct schedule *s, uint32_t at, int32_t *block)
{
	int32_t next = s->block_of_op[at];
	if (next < 0 || next == *block)
		return;
	*block = next;
	if (s->block_ready[next] < 0)
		gather(s, next);
	wait_until(s, s->block_ready[next]);
	for (uint32_t i = at + 1; i < s->program->op_count; i++) {
		int32_t other = s->block_of_op[i];
		if (other < 0 || other == next)
			continue;
		gather(s, other);
		break;
	}
	s->block_ready[next] = -1; /* dropped when the next block begins */
}

uint64_t mesh_group_bytes(const struct cuda_op *op)
{
	const struct cuda_tensor *result =
		op->operands[CUDA_Y] ? op->operands[CUDA_Y] : op->operands[CUDA_DX];
	return op->kind == CUDA_OP_MATMUL && op->matmul.sums ? result->bytes : 0;
}

static void run_op(struct schedule *s, const struct cuda_op *op)
{
	const struct mesh_plan *plan = s->plan;
	uint32_t each;
	if (op->node->has_norm && op->node->norm.synchronized && cuda_op_def(op)->across_ranks)
		sum_now(s, &plan->data,
			2.0 * sizeof(float) * op->node->y->shape.c *
				device_node_groups(op->node, &each));
	double seconds =
		roofline_seconds(plan->device, s->program->element, op->flops, (double)op->bytes);
	s->now += seconds;
	s->computed += seconds;
	sum_now(s, &plan->tensor, (double)mesh_group_bytes(op));
}

static void run_micro_batch(struct schedule *s, bool reduces)
{
	const struct mesh_plan *plan = s->plan;
	bool gathers = plan->shard == MESH_SHARD_PARAMETERS;
	int32_t block = -1;
	uint32_t bucket = 0;
	for (uint32_t i = 0; i < s->blocks; i++)
		s->block_ready[i] = -1;
	for (uint32_t i = 0; i < s->program->op_count; i++) {
		if (gathers)
			gather_for(s, i, &block);
		run_op(s, &s->program->ops[i]);
		for (; reduces && bucket < s->buckets->count && s->complete[bucket] <= i; bucket++)
			communicate(s, &plan->data, s->bucket_bytes[bucket],
				    plan->shard == MESH_SHARD_NONE);
	}
}

/* The update, and the collectives that follow it. */
static void run_update(struct schedule *s)
{
	const struct mesh_plan *plan = s->plan;
	bool shares = plan->shard != MESH_SHARD_NONE;
	double seconds = plan->update_seconds / (shares ? plan->data.ranks : 1);
	for (int i = 0; i < LINKS; i++)
		wait_until(s, s->link[i]);
	s->now += seconds;
	s->computed += seconds;
	if (plan->shard != MESH_SHARD_OPTIMIZER && plan->shard != MESH_SHARD_GRADIENTS)
		return;
	for (uint32_t i = 0; i < s->buckets->count; i++)
		wait_until(s, communicate(s, &plan->data,
					  mesh_value_bytes(&plan->store, s->bucket_bytes[i] / 4),
					  false));
}

int mesh_schedule(const struct mesh_plan *plan, const struct buckets *buckets,
		  struct mesh_step *ret_step)
{
	struct schedule s = {.plan = plan, .program = plan->program, .buckets = buckets};
	bool often = plan->shard == MESH_SHARD_GRADIENTS || plan->shard == MESH_SHARD_PARAMETERS;
	int r = schedule_init(&s);
	if (r < 0) {
		schedule_deinit(&s);
		return r;
	}
	for (uint32_t i = 0; i < plan->micro_batches; i++)
		run_micro_batch(&s, often || i + 1 == plan->micro_batches);
	if (plan->shard != MESH_SHARD_NONE)
		communicate(&s, &plan->data, 4 * (double)plan->store.others, true);
	for (int i = 0; i < LINKS; i++)
		wait_until(&s, s.link[i]);
	/* other passes over the batch, as SAM makes, take as long */
	s.now *= plan->passes;
	s.busy *= plan->passes;
	s.computed *= plan->passes;
	for (int i = 0; i < LINKS; i++)
		s.link[i] = 0;
	run_update(&s);
	double exposed = s.now - s.computed;
	*ret_step = (struct mesh_step){
		.seconds = s.now + plan->other_seconds,
		.exposed = exposed,
		/* rounding may leave less than nothing */
		.hidden = s.busy > exposed ? s.busy - exposed : 0,
		.sent = mesh_sent_of_store(&plan->store, plan->shard, plan->data.ranks,
					   plan->micro_batches),
	};
	ret_step->sent.sums = (ret_step->sent.sums + s.summed) * plan->passes;
	ret_step->sent.reduce_scatters *= plan->passes;
	ret_step->sent.all_gathers *= plan->passes;
	schedule_deinit(&s);
	return 0;
}
