/*
 * Weights of convolutions and linear layers: the form in which the forward pass reads them, and the
 * conversion of their gradients to fp32, several in one launch.
 */
#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/cuda/ops/internal.h"

/* ---- lowering: forward ---- */

/*
 * Evaluation: returns the weights in the program's element type, multiplied by the norm's scale if
 * the norm is folded into them. In that case tensors[CUDA_BIAS] becomes the norm's bias, in the
 * element type of the operation that adds it.
 */
static struct cuda_tensor *evaluation_weights(struct lowering *l, const struct device_node *node,
					      uint32_t channels)
{
	struct node_state *state = node_state(l, node);
	bool divided = device_param_is_sharded(node->weight, DEVICE_VALUE);
	struct cuda_tensor *master = divided ? lower_weights(l, node->weight, channels)
					     : lower_param(l, node->weight, DEVICE_VALUE);
	bool folds = node->has_norm && l->options->fusion != DEVICE_FUSION_NONE;
	struct device_shape shape = master->shape;

	if (!folds && master->element == l->options->element && shape.c == channels)
		return master;
	shape.c = channels;
	struct cuda_tensor *folded = lower_tensor(l, node, "weights", shape, l->options->element);
	if (folds)
		state->tensors[CUDA_BIAS] = lower_tensor(
			l, node, "bias", (struct device_shape){1, 1, 1, node->y->shape.c},
			state->problem.epilogue == CONV_BIAS ? l->options->element : CUDA_F32);
	struct cuda_op *op = lower_op(l, CUDA_OP_FOLD, node);
	op->operands[CUDA_W] = master;
	op->operands[CUDA_W16] = folded;
	if (folds)
		lower_set_operands(l, op, node, cuda_op_roles(CUDA_OP_NORM_RUNNING));
	return folded;
}

struct cuda_tensor *lower_forward_weights(struct lowering *l, const struct device_node *node,
					  uint32_t channels)
{
	bool folds = lower_infers(l, node) && (!l->training || node->has_norm);

	return folds ? evaluation_weights(l, node, channels)
		     : lower_weights(l, node->weight, channels);
}

/*
 * Returns the bias in the element type of the result that it is added to. Evaluation may read
 * several slots of a store, so it converts the bias like the weights.
 */
struct cuda_tensor *lower_forward_bias(struct lowering *l, const struct device_node *node,
				       enum cuda_element element)
{
	struct cuda_tensor *master = lower_param(l, node->bias, DEVICE_VALUE);

	if (element == CUDA_F32)
		return master;
	if (l->training)
		return lower_weights(l, node->bias, node->y->shape.c);
	struct cuda_tensor *bias = lower_tensor(l, node, "bias", master->shape, element);
	struct cuda_op *op = lower_op(l, CUDA_OP_FOLD, node);
	op->operands[CUDA_W] = master;
	op->operands[CUDA_W16] = bias;
	return bias;
}

/* ---- lowering: gradients ---- */

void lower_set_weight_gradient(struct lowering *l, struct cuda_op *op,
			       const struct device_node *node, struct cuda_tensor *result)
{
	if (result) {
		op->operands[CUDA_DW] = result;
		return;
	}
	lower_set_param_gradient(l, op, CUDA_DW, node->weight);
	/* a bucket's memory is added to only if the weight is shared; tuning stores to ADDEND */
	if (op->kind == CUDA_OP_MATMUL && !op->adds &&
	    device_param_is_sharded(node->weight, DEVICE_GRAD))
		return;
	op->operands[CUDA_ADDEND] = lower_tensor(l, node, "weight gradient to add",
						 op->operands[CUDA_DW]->shape, CUDA_F32);
}

/*
 * Limit on the bytes of batched gradients, because they occupy memory, and with several ranks delay
 * all-reduces. In 16 bits this is 2 Mi elements, fewer than in an all-reduce. A tensor of that size
 * gets a launch of its own.
 */
#define BATCH_BYTES_MAX (4u << 20)

/* Appends one launch for the batched gradients, except those with padding. */
void lower_flush_gradients(struct lowering *l)
{
	uint32_t count = l->batch_count;

	for (uint32_t i = 0; i < count; i++) {
		struct cuda_op *op = lower_op(l, CUDA_OP_WEIGHT_GRADIENT, l->batch[i].node);

		op->operands[CUDA_X] = l->batch[i].result;
		op->batch.launched = i ? 0 : count;
		lower_set_param_gradient(l, op, CUDA_DW, l->batch[i].node->weight);
	}
	l->batch_count = 0;
	l->batch_bytes = 0;
}

static bool is_batched(const struct lowering *l, const struct device_param *weight)
{
	for (uint32_t i = 0; i < l->batch_count; i++)
		if (l->batch[i].node->weight == weight)
			return true;
	return false;
}

void lower_convert_gradient(struct lowering *l, const struct device_node *node,
			    struct cuda_tensor *result)
{
	bool padded = result->shape.c != node->weight->shape[3];

	/* a parameter that is shared by layers is converted separately */
	if (padded || is_batched(l, node->weight))
		lower_flush_gradients(l);
	l->batch[l->batch_count++] = (struct batched_gradient){node, result};
	l->batch_bytes += result->bytes;
	if (padded || l->batch_count == CUDA_GRADIENT_BATCH_MAX ||
	    l->batch_bytes >= BATCH_BYTES_MAX)
		lower_flush_gradients(l);
}

/* ---- execution ---- */

/* The same shape except for padded channels on either side. */
static struct elementwise_copy execute_conversion(const struct cuda_exec *exec,
						  const struct cuda_op *op, enum cuda_role from,
						  enum cuda_role to, bool add)
{
	const struct cuda_tensor *a = op->operands[from], *b = op->operands[to];

	return (struct elementwise_copy){
		.from = cuda_at(exec, op, from),
		.to = cuda_at(exec, op, to),
		.rows = cuda_rows(a),
		.from_columns = a->shape.c,
		.to_columns = b->shape.c,
		.from_element = a->element,
		.to_element = b->element,
		.add = add,
	};
}

static int execute_fold(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W], *to = op->operands[CUDA_W16];
	struct elementwise_fold arguments = {
		.w = cuda_at(exec, op, CUDA_W),
		.w_element = w->element,
		.gamma = cuda_at(exec, op, CUDA_GAMMA),
		.beta = cuda_at(exec, op, CUDA_BETA),
		.running_mean = cuda_at(exec, op, CUDA_RUNNING_MEAN),
		.running_var = cuda_at(exec, op, CUDA_RUNNING_VAR),
		.epsilon = op->node->norm.epsilon,
		.to = cuda_at(exec, op, CUDA_W16),
		.bias = cuda_at(exec, op, CUDA_BIAS),
		.k = w->shape.n,
		.positions = w->shape.h * w->shape.w,
		.from_columns = w->shape.c,
		.to_columns = to->shape.c,
		.to_element = to->element,
		.bias_element =
			op->operands[CUDA_BIAS] ? op->operands[CUDA_BIAS]->element : CUDA_F32,
	};

	if (!arguments.gamma) {
		struct elementwise_copy copy =
			execute_conversion(exec, op, CUDA_W, CUDA_W16, false);

		return elementwise_copy(&exec->device->kernels, &copy);
	}
	return elementwise_fold(&exec->device->kernels, &arguments);
}

/*
 * For evaluation: W (F master, value or EMA as the step selects; E in a sharded store), GAMMA,
 * BETA, RUNNING_MEAN, RUNNING_VAR -> W16 E = W scale_k, BIAS = beta - mean scale. Without GAMMA,
 * W16 = W. W16 may have more input channels than W; the extra ones are 0.
 */
const struct cuda_op_def cuda_fold_op = {
	.name = "fold",
	.reads = ROLE(W),
	.writes = ROLE(W16),
	.may_write = ROLE(BIAS),
	.constant = true,
	.execute = execute_fold,
};

_Static_assert(CUDA_GRADIENT_BATCH_MAX == ELEMENTWISE_COPIES_MAX, "a batch is one launch");

static int execute_weight_gradient(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct elementwise_copies copies = {.count = op->batch.launched};

	for (uint32_t i = 0; i < copies.count; i++)
		copies.list[i] = execute_conversion(exec, &op[i], CUDA_X, CUDA_DW,
						    cuda_adds(exec, &op[i], CUDA_DW));
	if (copies.count == 1)
		return elementwise_copy(&exec->device->kernels, &copies.list[0]);
	return copies.count ? elementwise_copies(&exec->device->kernels, &copies) : 0;
}

/*
 * X (E or F, possibly with padding channels) -> DW, the parameter's gradient slot, accumulated or
 * stored. One launch handles several.
 */
const struct cuda_op_def cuda_weight_gradient_op = {
	"weight gradient", ROLE(X), ROLE(DW), .minor = true, .execute = execute_weight_gradient};

/*
 * True if this step must add the product to the contents of DW, so that the product is stored in
 * ADDEND.
 */
static bool uses_addend(const struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *dw = op->operands[CUDA_DW];

	return dw && dw->storage == CUDA_IN_PARAMETER && cuda_adds(exec, op, CUDA_DW);
}

void *cuda_weight_gradient(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_at(exec, op, uses_addend(exec, op) ? CUDA_ADDEND : CUDA_DW);
}

int cuda_add_weight_gradient(struct cuda_exec *exec, const struct cuda_op *op)
{
	if (!uses_addend(exec, op))
		return 0;
	struct elementwise_copy copy = execute_conversion(exec, op, CUDA_ADDEND, CUDA_DW, true);
	return elementwise_copy(&exec->device->kernels, &copy);
}
