/*
 * Lowering a recorded graph to a program (program_new()). It walks the nodes forward, then
 * backward; the files of ops/ append the operations of their nodes with the functions below. At the
 * end tensor lifetimes are derived from the operations.
 *
 * Some results are "fused away": they have no tensor, because the operations that read them
 * recompute them.
 * - Level C: y = relu(scale raw + bias), if every consumer applies this in a prologue on raw.
 * - Levels B and C: the result of a norm that is used only as the residual of another norm, which
 *   adds scale2 raw2 + bias2 instead.
 *
 * Failures are sticky: after the first, functions return dummy tensors and operations, so that
 * callers need no checks, and lowering stops after the current node. A pointer to an operation is
 * valid until the next operation is appended. All state belongs to one call of program_new().
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

/* State of a node during lowering, read by operations appended later. */
struct node_state {
	/*
	 * by role: tensors that operations of the node or of its consumers share. Forward:
	 * statistics, scale and bias, their copies for prologues in the program's element type
	 * (PRESCALE, PREBIAS), positions of maxima. Backward: sums, and the coefficients of
	 * NORM_BACKWARD_APPLY
	 */
	struct cuda_tensor *tensors[CUDA_ROLES];
	uint32_t finalize;          /* index of the operation that writes scale and bias */
	struct cuda_tensor *raw;    /* input of norm, bias, residual and activation */
	struct cuda_tensor *before; /* level none: input of the activation */
	/* the forward convolution, until `plan` is used */
	struct conv_problem problem;
	struct conv_plan *plan;
	bool conv_emitted;  /* the convolution has been appended */
	bool fully_lowered; /* the epilogue of that operation computes the result */
	bool reversed;      /* the backward pass has been appended */
	/*
	 * backward pass of a norm: the gradient that NORM_BACKWARD_APPLY reads. Without
	 * `recomputes_dz` it already includes the derivative of the activation; with it, it is the
	 * gradient of the node's result, and the operation applies the derivative. If the epilogue
	 * of a consumer's data gradient computes dz and its sums, dz is set before the backward
	 * pass reaches the node
	 */
	struct cuda_tensor *dz;
	bool recomputes_dz;
	/*
	 * the max pool that reads the norm's result, if its backward pass continues into the norm
	 */
	const struct device_node *pool;
};

struct value_state {
	struct cuda_tensor *y; /* NULL if fused away or not yet lowered */
	bool kept;             /* readable after a step */
	/* number of consumers that have not yet contributed to the gradient */
	uint32_t uses_left;
	/*
	 * [gradient_count] contributions of consumers; a third one is added to the sum of the first
	 * two at once
	 */
	struct cuda_tensor *gradients[2];
	uint32_t gradient_count;
};

/* A weight gradient whose conversion is launched together with others (ops/weights.c). */
struct batched_gradient {
	const struct device_node *node;
	struct cuda_tensor *result;
};

struct lowering {
	const struct device_graph *graph;
	const struct program_options *options;
	struct cuda_program *program;
	struct value_state *values;    /* [value_count] */
	struct node_state *nodes;      /* [node_count] */
	bool *gradient_written;        /* [parameters] an appended operation writes it */
	struct cuda_tensor *workspace; /* NULL if not needed so far */
	struct batched_gradient batch[CUDA_GRADIENT_BATCH_MAX]; /* [batch_count] */
	uint32_t batch_count;
	uint64_t batch_bytes;
	uint32_t input_channels; /* channels of the input tensor, padding included */
	bool training, keep_all, backward;
	int failure;
	char *error;
	struct cuda_op scratch_op;
	struct cuda_tensor scratch_tensor;
};

/*
 * How a kind of node is lowered. For each direction either a function, or the kind of a single
 * operation, whose operands are those that its definition names. The backward function is called
 * once per active node, when the gradient of the node's result has all contributions; it may append
 * nothing.
 */
struct node_lowering {
	void (*forward)(struct lowering *l, const struct device_node *node);
	void (*backward)(struct lowering *l, const struct device_node *node);
	enum cuda_op_kind forward_op, backward_op;
};

/* The object lower_NAME for each node kind, in its file of ops/. */
#define NODE(kind, name) extern const struct node_lowering lower_##name;
DEVICE_NODES(NODE)
#undef NODE

/* ---- building (build.c) ---- */

struct node_state *node_state(struct lowering *l, const struct device_node *node);
struct value_state *value_state(struct lowering *l, const struct device_value *value);
/* Adds an arena tensor named after the node and `what`. Never NULL. */
struct cuda_tensor *lower_tensor(struct lowering *l, const struct device_node *node,
				 const char *what, struct device_shape shape,
				 enum cuda_element element);
/*
 * Adds an fp32 tensor [norm groups][channels of the node's result] and sets it as the node's tensor
 * of that role.
 */
struct cuda_tensor *lower_vector(struct lowering *l, const struct device_node *node,
				 enum cuda_role role, const char *what);
/* Adds a tensor of unsigned integers: positions of maxima. */
struct cuda_tensor *lower_index(struct lowering *l, const struct device_node *node,
				struct device_shape shape, uint32_t element_bytes);
/* Returns the tensor of a slot of a parameter, always the same one. */
struct cuda_tensor *lower_param(struct lowering *l, struct device_param *param,
				enum device_slot slot);
/*
 * Returns the tensor of the parameter's copy in the program's element type, with `channels` input
 * channels. Of a weight that is gathered: its place in the bucket, or a padded copy of that.
 */
struct cuda_tensor *lower_weights(struct lowering *l, struct device_param *param,
				  uint32_t channels);
/* Appends an operation; the caller fills in operands and the rest. Never NULL. */
struct cuda_op *lower_op(struct lowering *l, enum cuda_op_kind kind,
			 const struct device_node *node);
/* Returns the node's tensor of that role, or the parameter of that role; NULL if neither exists. */
struct cuda_tensor *lower_operand(struct lowering *l, const struct device_node *node,
				  enum cuda_role role);
/* Sets the operation's operands of these roles (bit mask) from the node. */
void lower_set_operands(struct lowering *l, struct cuda_op *op, const struct device_node *node,
			uint64_t roles);
/* Sets a parameter gradient as operand, and whether it must be accumulated. */
void lower_set_param_gradient(struct lowering *l, struct cuda_op *op, enum cuda_role role,
			      struct device_param *param);
/*
 * Sets the workspace that all operations share as operand, and enlarges it to `bytes` if it is
 * smaller. Sets none for 0 bytes.
 */
void lower_set_workspace(struct lowering *l, struct cuda_op *op, uint64_t bytes);
int lower_fail(struct lowering *l, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Logs a fallback: the pattern of this fusion level has no plan, and `instead` runs. */
void lower_log_fallback(struct lowering *l, const struct device_node *node,
			const struct conv_problem *problem, const char *instead);

/* ---- values and their gradients (gradients.c) ---- */

/* Returns the value's tensor; NULL if the value is NULL or fused away. */
struct cuda_tensor *lower_value(struct lowering *l, const struct device_value *value);
/* Creates a value's tensor; `what` as in lower_tensor(). */
struct cuda_tensor *lower_output(struct lowering *l, const struct device_value *value,
				 const char *what, enum cuda_element element);
/* Creates the tensor of a node's result. */
struct cuda_tensor *lower_result(struct lowering *l, const struct device_node *node,
				 enum cuda_element element);
/* Creates the tensor of the gradient of the node's x. */
struct cuda_tensor *lower_dx(struct lowering *l, const struct device_node *node);
/* Adds one consumer's contribution to the gradient of a value. */
void lower_contribute(struct lowering *l, const struct device_value *value,
		      struct cuda_tensor *gradient);
/* Sets the contributions to the value's gradient, at most two, as operands DY and DY2. */
void lower_set_dy(struct lowering *l, struct cuda_op *op, const struct device_value *value);
/*
 * Returns the value's gradient as one tensor; appends an addition if there are two contributions.
 */
struct cuda_tensor *lower_summed_gradient(struct lowering *l, const struct device_value *value);
/* Before a node's backward pass: completes the gradients of its outputs. */
void lower_output_gradients(struct lowering *l, const struct device_node *node);

/* ---- nodes (lower.c) ---- */

/*
 * True if the node runs as in evaluation, where norms use running statistics. In training this is
 * the case if the node needs no backward pass and its norm, if any, does not update running
 * statistics.
 */
bool lower_infers(const struct lowering *l, const struct device_node *node);
/* Appends the node's backward pass, unless that has happened. */
void lower_node_backward(struct lowering *l, const struct device_node *node);
/* Appends the single operation of the forward pass, with the operands that its definition names. */
struct cuda_op *lower_single_forward(struct lowering *l, const struct device_node *node,
				     enum cuda_op_kind kind);
/*
 * As lower_single_forward(), for the backward pass. The caller contributes DX of the operation to
 * the gradient of x.
 */
struct cuda_op *lower_single_backward(struct lowering *l, const struct device_node *node,
				      enum cuda_op_kind kind);
/* Contributes a tensor to the gradient of the node's x; does nothing if it is NULL. */
void lower_contribute_dx(struct lowering *l, const struct device_node *node,
			 struct cuda_tensor *dx);

/* ---- finishing a program ---- */

/*
 * Repeats forward operations in the backward pass, for device_graph_options.recompute
 * (recompute.c). Returns 0 or -ENOMEM.
 */
int program_recompute(struct cuda_program *program);
/*
 * Inserts the gathers of a store's weights (device/gathers.h) and copies with padding (gathers.c);
 * after program_recompute().
 */
void lower_gathers(struct lowering *l);
/*
 * Completes a program after the last operation was appended: fills in `written`, bytes, lifetimes
 * and the arena.
 */
int program_finish(struct cuda_program *program, bool keep_all);

/* ---- convolutions and linear layers (ops/conv.c, ops/weights.c) ---- */

/*
 * True if the forward convolution has a plan with this prologue. Keeps the plan until the node is
 * lowered. early: called before the residual of the node itself exists.
 */
bool lower_conv_fuses_prologue(struct lowering *l, const struct device_node *node,
			       enum conv_prologue prologue, bool early);
/*
 * Appends the convolution with the sum at the end of the block `producer` as prologue (scale-bias-
 * add-ReLU or its dual form). The operation also stores the result of `producer`.
 */
void lower_conv_with_sum(struct lowering *l, const struct device_node *node,
			 const struct device_node *producer);
void lower_drop_plan(struct lowering *l, const struct device_node *node);
/*
 * Chooses the number of channels of the input tensor: padded only if the convolutions that read it
 * have no plans otherwise.
 */
uint32_t lower_choose_input_channels(struct lowering *l);
/* Appends the batched conversions of weight gradients. */
void lower_flush_gradients(struct lowering *l);

/* ---- norm, residual, activation (ops/norm_act.c, ops/norm_act_backward.c) ---- */

/* Lowers the node's norm, residual and activation, which follow raw. */
void lower_norm_act_forward(struct lowering *l, const struct device_node *node);
/* Returns the gradient of raw, given that of the node's result; NULL if it is not needed. */
struct cuda_tensor *lower_norm_act_backward(struct lowering *l, const struct device_node *node);
/* Appends y = activation(scale raw + bias [+ residual]) as one operation. */
void lower_apply(struct lowering *l, const struct device_node *node, struct cuda_tensor *y);
/* Adds copies of the norm's scale and bias for prologues (PRESCALE, PREBIAS). */
void lower_prologue_vectors(struct lowering *l, const struct device_node *node);
/*
 * True if the gradient of raw depends on sums over the batch, because the norm uses batch
 * statistics.
 */
bool lower_norm_differentiates(const struct device_node *node);
/*
 * True if the norm has one scale and bias for all samples, as level C requires. A norm with ghost
 * groups is lowered as at level B.
 */
bool lower_norm_is_whole(const struct device_node *node);

/* ---- fusion across nodes (fuse.c) ---- */

/* True if the node's result is fused away (see the top of this file). */
bool lower_is_fused_away(struct lowering *l, const struct device_node *node);
/*
 * Level C: if possible, appends a 1 x 1 convolution that computes the node's result in its
 * prologue, and returns true.
 */
bool lower_sums_in_next(struct lowering *l, const struct device_node *node);
/*
 * Level C: returns the node that produces x if the epilogue of the data gradient about to be
 * appended may continue into that node (CONV_RELU_NORM), else NULL. This requires that x =
 * relu(norm(raw) [+ residual]), and that the data gradient is the last contribution to the gradient
 * of x, after at most one other.
 */
const struct device_node *lower_norm_before(struct lowering *l, const struct device_value *x);
/*
 * Level C: called before the backward pass of a convolution of stride 1. Appends that of strided
 * convolutions with the same x first, because only a data gradient of stride 1 can include the
 * addition together with ReLU and norm.
 */
void lower_strided_readers_first(struct lowering *l, const struct device_node *node);
