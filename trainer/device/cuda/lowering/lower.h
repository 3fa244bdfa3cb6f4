/*
 * Between the files that make programs (program_new). One lowering walks the nodes of a graph
 * forward, then backward, and appends operations; tensors get their lifetimes from the operations
 * at the end.
 *
 * At level C a normalised activation y = relu(scale raw + bias) is "virtual" where every consumer
 * takes raw through a prologue: it has no tensor. So is the result of a norm that is only another
 * norm's residual (levels B and C): the sum takes it as scale2 raw2 + bias2.
 *
 * Failures are sticky: after the first one, functions return scratch tensors and operations that
 * nothing reads, so that not every call needs a check; lowering stops after the node. A pointer to
 * an operation is valid until the next one is appended. All private to one call of program_new().
 */
#pragma once

#include "trainer/device/cuda/lowering/program.h"

struct lower_node {
	const struct device_node *node;
	/*
	 * what it has made so far for operations of its own, or of its consumers, that take it in
	 * this role: statistics, scale and bias, and the same for prologues (PRESCALE, PREBIAS), of
	 * the program's element; positions of maxima; backward, sums and factors of dz
	 */
	struct cuda_tensor *has[CUDA_ROLES];
	uint32_t finalize;          /* the operation that writes scale and bias */
	struct cuda_tensor *raw;    /* what norm, bias, residual and activation start from */
	struct cuda_tensor *before; /* level none: what the activation starts from */
	/* of the forward convolution, while `plan` waits to be used */
	struct conv_problem problem;
	struct conv_plan *plan;
	bool convolved; /* its convolution is appended already */
	bool complete;  /* and wrote the node's result, nothing follows */
	bool reversed;  /* its backward pass is appended already */
	/*
	 * backward, of nodes with a norm: how far the gradient of the result has come, before the
	 * activation or, with `anew`, after it; NULL unless the epilogue of the consumer's data
	 * gradient has computed it and its sums already
	 */
	struct cuda_tensor *dz;
	bool anew;
	/* max pool that takes the norm's result, and leaves its gradient to the norm */
	struct lower_node *pool;
};

struct lower_value {
	const struct device_value *value;
	struct cuda_tensor *y; /* NULL: virtual, or not lowered yet */
	bool kept;             /* readable after a step */
	/* consumers whose contribution to the gradient is still to come */
	uint32_t uses_left;
	/* [gradient_count] contributions of consumers; a third is added to the first two at once */
	struct cuda_tensor *gradients[2];
	uint32_t gradient_count;
};

/* A weight gradient whose conversion waits for others. */
struct lower_gathered {
	const struct device_node *node;
	struct cuda_tensor *result;
};

struct lowering {
	const struct device_graph *graph;
	const struct program_options *options;
	struct cuda_program *program;
	struct lower_value *values;    /* [value_count] */
	struct lower_node *nodes;      /* [node_count] */
	bool *gradient_written;        /* [parameters] by an operation appended before */
	struct cuda_tensor *workspace; /* NULL: none needed so far */
	struct lower_gathered gathered[CUDA_GATHERED_MAX]; /* [gathered_count] */
	uint32_t gathered_count;
	uint64_t gathered_bytes;
	uint32_t input_channels; /* of the input's tensor, padding included */
	bool training, keep_all, backward;
	int failure;
	char *error;
	struct cuda_op scratch_op;
	struct cuda_tensor scratch_tensor;
};

/* ---- building (program.c) ---- */

/* In the arena. `what` is appended to the node's name. Never NULL. */
struct cuda_tensor *lower_tensor(struct lowering *l, const struct device_node *node,
				 const char *what, struct device_shape shape,
				 enum cuda_element element);
/* fp32 [groups of its norm][channels of its result], which the node has from now on in that role.
 */
struct cuda_tensor *lower_vector(struct lowering *l, struct lower_node *n, enum cuda_role role,
				 const char *what);
/* Bytes: positions of maxima. */
struct cuda_tensor *lower_index(struct lowering *l, const struct device_node *node,
				struct device_shape shape, uint32_t element_bytes);
/* A slot of a parameter; the same tensor whenever it is asked for. */
struct cuda_tensor *lower_param(struct lowering *l, struct device_param *param,
				enum device_slot slot);
/* Its copy in the program's element with `channels` input channels. */
struct cuda_tensor *lower_weights(struct lowering *l, struct device_param *param,
				  uint32_t channels);
/* Appends an operation; operands and the rest are the caller's to fill in. Never NULL. */
struct cuda_op *lower_op(struct lowering *l, enum cuda_op_kind kind,
			 const struct device_node *node);
/* What the node has of that role, or the value of the parameter of its norm. NULL: neither. */
struct cuda_tensor *lower_operand(struct lowering *l, const struct lower_node *n,
				  enum cuda_role role);
/* Makes these the operation's operands of these roles (bits). */
void lower_take(struct lowering *l, struct cuda_op *op, const struct lower_node *n, uint64_t roles);
/* The role is a parameter's gradient: sets the operand and whether it must be added to. */
void lower_gradient_slot(struct lowering *l, struct cuda_op *op, enum cuda_role role,
			 struct device_param *param);
/* Gives the operation the shared workspace. */
void lower_workspace(struct lowering *l, struct cuda_op *op, uint64_t bytes);
int lower_fail(struct lowering *l, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* One line of the program's log: a pattern of this level had no plan. */
void lower_note(struct lowering *l, const struct device_node *node,
		const struct conv_problem *problem, const char *instead);
/*
 * Repeats operations of the forward pass in backward, as device_graph_options.recompute asks for
 * (recompute.c). -ENOMEM.
 */
int program_recompute(struct cuda_program *program);
/* What follows when all operations are there: written, bytes, lifetimes, arena. */
int program_finish(struct cuda_program *program, bool keep_all);

/* ---- values (lower.c) ---- */

/* NULL for NULL */
struct lower_value *lower_value(struct lowering *l, const struct device_value *value);
/* once; only active nodes whose result's gradient has all its contributions */
void lower_node_backward(struct lowering *l, struct lower_node *n);
struct lower_node *lower_node(struct lowering *l, const struct device_node *node);
/* Makes the tensor of a value. `what` it is to the node, as lower_tensor() has it. */
struct cuda_tensor *lower_output(struct lowering *l, const struct device_value *value,
				 const char *what, enum cuda_element element);
/* That of a node's result. */
struct cuda_tensor *lower_result(struct lowering *l, const struct device_node *node,
				 enum cuda_element element);
/* Hands one consumer's contribution to the gradient of a value on. */
void lower_contribute(struct lowering *l, const struct device_value *value,
		      struct cuda_tensor *gradient);
/* All contributions, at most two, as DY and DY2. */
void lower_set_gradients(struct lowering *l, struct cuda_op *op, const struct device_value *value);
/* All contributions as one tensor. */
struct cuda_tensor *lower_whole_gradient(struct lowering *l, const struct device_value *value);
bool lower_trains(const struct device_param *param);
/*
 * Whether the node runs as in evaluation, its norm by running statistics: in training, too, where
 * nothing of it or before it is trained.
 */
bool lower_infers(const struct lowering *l, const struct device_node *node);

/* ---- convolutions and linear layers (lower_conv.c, lower_conv_backward.c, lower_linear.c) ---- */

/* Appends the convolution, after what fusion decided about its input; sets raw or the result. */
void lower_conv_forward(struct lowering *l, struct lower_node *n);
/* From the gradient of raw: weights', bias's and input's. */
void lower_conv_backward(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy);
/* Appends the conversions of weight gradients that wait. */
void lower_flush_gradients(struct lowering *l);
void lower_linear_forward(struct lowering *l, struct lower_node *n);
void lower_linear_backward(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy);
/*
 * Whether the forward convolution has a plan with this prologue; remembers it for
 * lower_conv_forward(). `early`: before its residual is there.
 */
bool lower_conv_takes(struct lowering *l, struct lower_node *n, enum conv_prologue prologue,
		      bool early);
/*
 * Appends the convolution with the (dual) scale-bias-add-ReLU of `producer` in its prologue, which
 * also writes the result of `producer`.
 */
void lower_conv_with_sum(struct lowering *l, struct lower_node *n, struct lower_node *producer);
void lower_forget_plan(struct lowering *l, struct lower_node *n);
/* Channels for the input's tensor, padded if its convolutions have plans only then. */
uint32_t lower_choose_input_channels(struct lowering *l);

/* ---- norm, residual, activation (lower_norm.c) ---- */

/* What follows raw. */
void lower_post_forward(struct lowering *l, struct lower_node *n);
/* From the gradient of the node's result to that of raw: returned, NULL when nothing wants it. */
struct cuda_tensor *lower_post_backward(struct lowering *l, struct lower_node *n);
/* Appends y = act(scale raw + bias [+ residual]) as one operation. */
void lower_apply(struct lowering *l, struct lower_node *n, struct cuda_tensor *y);
/* The norm's scale and bias for prologues. */
void lower_prologue_vectors(struct lowering *l, struct lower_node *n);
/* Does the gradient need the norm's sums at all? */
bool lower_norm_differentiates(struct lowering *l, struct lower_node *n);

/*
 * Whether its norm has one scale and bias for all samples, as patterns of level C have to; one of
 * groups runs as at level B.
 */
bool lower_norm_is_whole(const struct device_node *node);

/* ---- scale and add (lower_scale_add.c) ---- */

void lower_scale_add_forward(struct lowering *l, struct lower_node *n);
void lower_scale_add_backward(struct lowering *l, struct lower_node *n);

/* ---- fusion across nodes (lower_fuse.c) ---- */

/*
 * Level C: every consumer takes the result through a prologue; B and C: it is only another norm's
 * residual.
 */
bool lower_stays_virtual(struct lowering *l, struct lower_node *n);
/* Level C: a 1 x 1 convolution computes the node's result in its prologue. Appended if so. */
bool lower_sums_in_next(struct lowering *l, struct lower_node *n);
/*
 * Level C: whether x = relu(norm(raw) [+ residual]) and the data gradient that is appended now is
 * the last contribution to x's gradient, with at most one tensor of earlier ones: then its epilogue
 * may include the ReLU and the norm (CONV_RELU_NORM).
 */
bool lower_norm_before(struct lowering *l, const struct device_value *x,
		       struct lower_node **ret_producer);
/*
 * Level C, before the backward pass of a convolution `n` of stride 1: appends that of strided ones
 * with the same x, whose data gradients can't include an addition, the ReLU and the norm as that of
 * `n` can.
 */
void lower_let_others_first(struct lowering *l, struct lower_node *n);
