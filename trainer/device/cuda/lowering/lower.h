/*
 * Lowering a recorded graph to a program (program_new()). One lowering walks the nodes forward,
 * then backward; the files of ops/ append the operations of their nodes with the functions below.
 * Tensor lifetimes are derived from the operations at the end.
 *
 * At level C a normalised activation y = relu(scale raw + bias) is fused away, i.e. has no tensor,
 * if every consumer applies it in a prologue on raw. So is the result of a norm that is only used
 * as another norm's residual (levels B and C): the sum uses scale2 raw2 + bias2.
 *
 * Failures are sticky: after the first, functions return dummy tensors and operations, so that
 * calls need no checks; lowering stops after the node. A pointer to an operation is valid until the
 * next one is appended. All state is private to one call of program_new().
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

/* What lowering has made for a node so far, for use by later operations. */
struct node_state {
	/*
	 * by role, made for the node itself or its consumers: statistics, scale and bias, their
	 * versions for prologues (PRESCALE, PREBIAS) in the program's element; positions of maxima;
	 * in backward, sums and factors of dz
	 */
	struct cuda_tensor *tensors[CUDA_ROLES];
	uint32_t finalize;          /* operation that writes scale and bias */
	struct cuda_tensor *raw;    /* input of norm, bias, residual and activation */
	struct cuda_tensor *before; /* level none: input of the activation */
	/* the forward convolution, until `plan` is used */
	struct conv_problem problem;
	struct conv_plan *plan;
	bool conv_emitted;  /* its convolution has been appended */
	bool fully_lowered; /* and has written the node's final result */
	bool reversed;      /* its backward pass has been appended */
	/*
	 * backward pass of a norm: the gradient that NORM_BACKWARD_APPLY reads. With
	 * `recomputes_dz` it is the gradient of the node's result and the operation applies the
	 * activation's derivative itself; otherwise the derivative is already applied. Set before
	 * the backward pass reaches the node if the epilogue of the consumer's data gradient
	 * computed it and its sums
	 */
	struct cuda_tensor *dz;
	bool recomputes_dz;
	/* max pool of the norm's result, whose gradient is computed with the norm's */
	const struct device_node *pool;
};

struct value_state {
	struct cuda_tensor *y; /* NULL if fused away or not yet lowered */
	bool kept;             /* readable after a step */
	/* consumers whose contribution to the gradient is missing */
	uint32_t uses_left;
	/*
	 * [gradient_count] contributions of consumers; a third one is immediately added to the
	 * first two
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
	bool *gradient_written;        /* [parameters] an appended operation has written it */
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
 * How a kind of node is lowered, each way: by a function, or to a single operation with the
 * operands that its definition names. Backward happens once per active node, when all contributions
 * to its result's gradient exist; there may be nothing to do.
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
/* Adds an fp32 tensor [norm groups][channels of the result] as the node's tensor of that role. */
struct cuda_tensor *lower_vector(struct lowering *l, const struct device_node *node,
				 enum cuda_role role, const char *what);
/* Adds a tensor of bytes: positions of maxima. */
struct cuda_tensor *lower_index(struct lowering *l, const struct device_node *node,
				struct device_shape shape, uint32_t element_bytes);
/* A slot of a parameter; always the same tensor. */
struct cuda_tensor *lower_param(struct lowering *l, struct device_param *param,
				enum device_slot slot);
/* The parameter's copy in the program's element with `channels` input channels. */
struct cuda_tensor *lower_weights(struct lowering *l, struct device_param *param,
				  uint32_t channels);
/* Appends an operation; the caller fills in operands and the rest. Never NULL. */
struct cuda_op *lower_op(struct lowering *l, enum cuda_op_kind kind,
			 const struct device_node *node);
/* The node's tensor of that role, or its parameter's value; NULL if neither exists. */
struct cuda_tensor *lower_operand(struct lowering *l, const struct device_node *node,
				  enum cuda_role role);
/* Sets the operation's operands of these roles (bit mask) from the node. */
void lower_set_operands(struct lowering *l, struct cuda_op *op, const struct device_node *node,
			uint64_t roles);
/* Sets a parameter gradient as operand, and whether it must be accumulated. */
void lower_set_param_gradient(struct lowering *l, struct cuda_op *op, enum cuda_role role,
			      struct device_param *param);
/* Gives the operation the shared workspace. */
void lower_set_workspace(struct lowering *l, struct cuda_op *op, uint64_t bytes);
int lower_fail(struct lowering *l, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Logs a fallback: a pattern of this level has no plan. */
void lower_log_fallback(struct lowering *l, const struct device_node *node,
			const struct conv_problem *problem, const char *instead);

/* ---- values and their gradients (gradients.c) ---- */

/* The value's tensor; NULL for NULL, and if it is fused away. */
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
/* Sets all contributions, at most two, as DY and DY2. */
void lower_set_dy(struct lowering *l, struct cuda_op *op, const struct device_value *value);
/* Sums all contributions into one tensor. */
struct cuda_tensor *lower_summed_gradient(struct lowering *l, const struct device_value *value);
/* Before a node's backward pass: completes the gradients of its outputs. */
void lower_output_gradients(struct lowering *l, const struct device_node *node);

/* ---- nodes (lower.c) ---- */

/*
 * True if the node runs as in evaluation, with its norm using running statistics. Also true in
 * training if the node needs no backward pass and has no norm whose running statistics move.
 */
bool lower_infers(const struct lowering *l, const struct device_node *node);
/* Appends the node's backward pass, unless that has happened. */
void lower_node_backward(struct lowering *l, const struct device_node *node);
/* Appends the operation that is the node's forward pass, with the operands that its kind has. */
struct cuda_op *lower_single_forward(struct lowering *l, const struct device_node *node,
				     enum cuda_op_kind kind);
/* The same for backward; the caller contributes the operation's DX. */
struct cuda_op *lower_single_backward(struct lowering *l, const struct device_node *node,
				      enum cuda_op_kind kind);
/* Contributes a gradient to that of the node's x; NULL for none. */
void lower_contribute_dx(struct lowering *l, const struct device_node *node,
			 struct cuda_tensor *dx);

/* ---- finishing a program ---- */

/*
 * Repeats forward operations in backward for device_graph_options.recompute (recompute.c). -ENOMEM.
 */
int program_recompute(struct cuda_program *program);
/* Completes a program whose operations are all appended: written, bytes, lifetimes, arena. */
int program_finish(struct cuda_program *program, bool keep_all);

/* ---- convolutions and linear layers (ops/conv.c, ops/weights.c) ---- */

/*
 * True if the forward convolution has a plan with this prologue; keeps it until the node is
 * lowered. `early`: before its residual exists.
 */
bool lower_conv_fuses_prologue(struct lowering *l, const struct device_node *node,
			       enum conv_prologue prologue, bool early);
/*
 * Appends the convolution with the (dual) scale-bias-add-ReLU of `producer` as prologue, which also
 * writes the result of `producer`.
 */
void lower_conv_with_sum(struct lowering *l, const struct device_node *node,
			 const struct device_node *producer);
void lower_drop_plan(struct lowering *l, const struct device_node *node);
/* Chooses the channels of the input tensor: padded if only then its convolutions have plans. */
uint32_t lower_choose_input_channels(struct lowering *l);
/* Appends the batched conversions of weight gradients. */
void lower_flush_gradients(struct lowering *l);

/* ---- norm, residual, activation (ops/norm_act.c, ops/norm_act_backward.c) ---- */

/* Lowers everything after raw. */
void lower_norm_act_forward(struct lowering *l, const struct device_node *node);
/* Returns the gradient of raw, given that of the node's result; NULL if it is not needed. */
struct cuda_tensor *lower_norm_act_backward(struct lowering *l, const struct device_node *node);
/* Appends y = act(scale raw + bias [+ residual]) as one operation. */
void lower_apply(struct lowering *l, const struct device_node *node, struct cuda_tensor *y);
/* The norm's scale and bias for prologues. */
void lower_prologue_vectors(struct lowering *l, const struct device_node *node);
/* True if the gradient needs the norm's sums. */
bool lower_norm_differentiates(const struct device_node *node);
/*
 * True if the norm has one scale and bias for all samples, as level C requires; ghost groups run at
 * level B.
 */
bool lower_norm_is_whole(const struct device_node *node);

/* ---- fusion across nodes (fuse.c) ---- */

/*
 * True if the node's result gets no tensor: at level C if every consumer applies the norm in a
 * prologue, at B and C if it is only another norm's residual.
 */
bool lower_is_fused_away(struct lowering *l, const struct device_node *node);
/*
 * Level C: if possible, appends a 1 x 1 convolution that computes the node's result in its
 * prologue; true if it did.
 */
bool lower_sums_in_next(struct lowering *l, const struct device_node *node);
/*
 * Level C: the node of a norm if x = relu(norm(raw) [+ residual]) and the data gradient about to be
 * appended is the last contribution to x's gradient, with at most one earlier tensor: then its
 * epilogue may include the ReLU and the norm (CONV_RELU_NORM). Else NULL.
 */
const struct device_node *lower_norm_before(struct lowering *l, const struct device_value *x);
/*
 * Level C, before the backward pass of a convolution with stride 1: first appends that of strided
 * convolutions with the same x, since only the data gradient of this one can include addition, ReLU
 * and norm.
 */
void lower_strided_readers_first(struct lowering *l, const struct device_node *node);
