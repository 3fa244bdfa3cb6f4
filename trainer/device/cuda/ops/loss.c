/* The loss, which also makes the gradient of the logits. */
#include "trainer/device/cuda/kernels/loss.h"
#include "trainer/device/cuda/ops/internal.h"

static void lower_loss_forward(struct lowering *l, const struct device_node *node)
{
	struct cuda_op *op = lower_op(l, CUDA_OP_LOSS, node);

	op->operands[CUDA_X] = lower_value(l, node->x);
	if (!node->x->active)
		return;
	/* all inputs of the gradient are available here */
	struct cuda_tensor *dx = lower_dx(l, node);
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

const struct node_lowering lower_loss = {.forward = lower_loss_forward};

struct loss_arguments cuda_loss_arguments(const struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *logits = op->operands[CUDA_X];
	const struct cuda_tensor *dlogits = op->operands[CUDA_DX];
	const struct device_loss_spec *loss = &op->node->loss;

	return (struct loss_arguments){
		.step = exec->arguments,
		.state = ((struct cuda_params *)exec->graph->params->backend)->state,
		.logits = cuda_at(exec, op, CUDA_X),
		.dlogits = cuda_at(exec, op, CUDA_DX),
		.results = exec->results,
		.workspace = cuda_workspace(exec, op),
		.n = logits->shape.n,
		.classes = op->node->x->shape.c,
		.logits_stride = logits->shape.c,
		.dlogits_stride = dlogits ? dlogits->shape.c : 0,
		.logits_element = logits->element,
		.dlogits_element = dlogits ? dlogits->element : CUDA_F32,
		.kind = loss->kind,
		.targets = loss->targets,
		.plain = device_loss_is_plain(loss),
		.smoothing = loss->smoothing,
		.logit_scale = loss->logit_scale,
		.temperature = loss->temperature,
		.teacher_weight = loss->teacher_weight,
		.teacher_temperature = loss->teacher_temperature,
		.class_weights = exec->class_weights,
		.losses = exec->losses,
		.totals = exec->ranks.totals,
	};
}

static uint64_t workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return loss_workspace(op->operands[CUDA_X]->shape.n);
}

static int execute_loss(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct loss_arguments arguments = cuda_loss_arguments(exec, op);

	return loss_forward(&exec->device->kernels, &arguments);
}

/*
 * X: logits, F (from a linear layer) or E -> results of the step. Training: [DX E], the gradient of
 * the mean loss times the loss scale.
 */
const struct cuda_op_def cuda_loss_op = {
	"loss", ROLE(X), 0, .may_write = ROLE(DX), .execute = execute_loss, .workspace = workspace};
