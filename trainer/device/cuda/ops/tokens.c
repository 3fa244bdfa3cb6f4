/*
 * Tokens (a class token before positions, and embeddings added) and taking a token: single
 * operations, unless position embeddings are resized.
 */
#include "trainer/device/cuda/kernels/tokens.h"
#include "trainer/device/cuda/ops/internal.h"
#include "trainer/device/pos_embed.h"

/* Position embeddings, or their gradient, at the size of the node's x. */
static struct cuda_tensor *resized_positions(struct lowering *l, const struct device_node *node,
					     const char *what)
{
	const struct device_shape *y = &node->y->shape;

	return lower_tensor(l, node, what, (struct device_shape){1, 1, y->w, y->c}, CUDA_F32);
}

static void lower_pos_embed_forward(struct lowering *l, const struct device_node *node)
{
	struct pos_embed_size size;
	struct cuda_tensor *resized = NULL;
	struct cuda_op *op;

	if (device_node_resizes(node, &size)) {
		resized = resized_positions(l, node, "positions");
		op = lower_op(l, CUDA_OP_RESIZE_POSITIONS, node);
		op->operands[CUDA_POSITIONS] = lower_param(l, node->positions, DEVICE_VALUE);
		op->operands[CUDA_Y] = resized;
	}
	op = lower_single_forward(l, node, CUDA_OP_POS_EMBED);
	if (resized)
		op->operands[CUDA_POSITIONS] = resized;
}

static void lower_pos_embed_backward(struct lowering *l, const struct device_node *node)
{
	struct cuda_op *op = lower_single_backward(l, node, CUDA_OP_POS_EMBED_BACKWARD);
	struct cuda_tensor *slot = op->operands[CUDA_DPOSITIONS], *dx = op->operands[CUDA_DX];
	uint64_t adds = op->adds & ROLE(DPOSITIONS);
	struct cuda_tensor *resized = NULL;
	struct pos_embed_size size;

	if (slot && device_node_resizes(node, &size)) {
		resized = resized_positions(l, node, "positions' gradient");
		op->adds &= ~adds;
		op->operands[CUDA_DPOSITIONS] = resized;
	}
	lower_contribute_dx(l, node, dx);
	if (!resized)
		return;
	op = lower_op(l, CUDA_OP_RESIZE_POSITIONS_BACKWARD, node);
	op->operands[CUDA_DY] = resized;
	op->operands[CUDA_DPOSITIONS] = slot;
	op->adds = adds;
}

const struct node_lowering lower_pos_embed = {lower_pos_embed_forward, lower_pos_embed_backward};

const struct node_lowering lower_select_token = {.forward_op = CUDA_OP_SELECT_TOKEN,
						 .backward_op = CUDA_OP_SELECT_TOKEN_BACKWARD};

static int execute_tokens(struct cuda_exec *exec, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct tokens_arguments *arguments) = {
		[CUDA_OP_POS_EMBED] = tokens_forward,
		[CUDA_OP_POS_EMBED_BACKWARD] = tokens_backward,
		[CUDA_OP_SELECT_TOKEN] = tokens_take,
		[CUDA_OP_SELECT_TOKEN_BACKWARD] = tokens_take_backward,
	};
	const struct device_node *node = op->node;
	const struct device_shape *x = &node->x->shape;
	const struct cuda_tensor *y = op->operands[op->operands[CUDA_Y] ? CUDA_Y : CUDA_DY];
	struct tokens_arguments arguments = {
		.x = cuda_at(exec, op, CUDA_X),
		.dy = cuda_at(exec, op, CUDA_DY),
		.y = cuda_at(exec, op, CUDA_Y),
		.dx = cuda_at(exec, op, CUDA_DX),
		.positions = cuda_at(exec, op, CUDA_POSITIONS),
		.class_token = cuda_at(exec, op, CUDA_CLASS_TOKEN),
		.dpositions = cuda_at(exec, op, CUDA_DPOSITIONS),
		.dclass_token = cuda_at(exec, op, CUDA_DCLASS_TOKEN),
		/* the intermediate tensor of resized positions is not an accumulated gradient */
		.add_positions = op->operands[CUDA_DPOSITIONS] &&
				 op->operands[CUDA_DPOSITIONS]->param &&
				 cuda_adds(exec, op, CUDA_DPOSITIONS),
		.add_class_token = cuda_adds(exec, op, CUDA_DCLASS_TOKEN),
		.n = x->n,
		.places = x->h * x->w,
		.tokens = node->y->shape.h * node->y->shape.w,
		.channels = x->c,
		.taken = node->position,
		.element = y->element,
	};

	return launchers[op->kind](&exec->device->kernels, &arguments);
}

/* X, POSITIONS F [, CLASS_TOKEN F] -> Y, see device_pos_embed() */
const struct cuda_op_def cuda_pos_embed_op = {"tokens", ROLE(X) | ROLE(POSITIONS), ROLE(Y),
					      .may_read = ROLE(CLASS_TOKEN),
					      .execute = execute_tokens};

/* DY -> [DX] and the gradients of positions and class token, each absent if frozen */
const struct cuda_op_def cuda_pos_embed_backward_op = {
	"tokens backward", ROLE(DY), 0,
	.may_write = ROLE(DX) | ROLE(DPOSITIONS) | ROLE(DCLASS_TOKEN), .execute = execute_tokens};

static int execute_resize(struct cuda_exec *exec, const struct cuda_op *op)
{
	bool backward = op->kind == CUDA_OP_RESIZE_POSITIONS_BACKWARD;
	struct tokens_resize arguments = {
		.from = cuda_at(exec, op, backward ? CUDA_DY : CUDA_POSITIONS),
		.to = cuda_at(exec, op, backward ? CUDA_DPOSITIONS : CUDA_Y),
		.add = backward && cuda_adds(exec, op, CUDA_DPOSITIONS),
	};

	device_node_resizes(op->node, &arguments.size);
	return (backward ? tokens_resize_backward : tokens_resize)(&exec->device->kernels,
								   &arguments);
}

/* POSITIONS -> Y F, resized to the node's x (pos_embed.h) for TOKENS */
const struct cuda_op_def cuda_resize_positions_op = {"resize positions", ROLE(POSITIONS), ROLE(Y),
						     .constant = true, .execute = execute_resize};

/* DY F, the gradient of RESIZE_POSITIONS' Y -> DPOSITIONS */
const struct cuda_op_def cuda_resize_positions_backward_op = {
	"resize positions backward", ROLE(DY), ROLE(DPOSITIONS), .execute = execute_resize};

/* X -> Y, the token at the node's position */
const struct cuda_op_def cuda_select_token_op = {"take", ROLE(X), ROLE(Y),
						 .execute = execute_tokens};

/* DY -> DX, which is 0 at the other positions */
const struct cuda_op_def cuda_select_token_backward_op = {"take backward", ROLE(DY), ROLE(DX),
							  .execute = execute_tokens};
