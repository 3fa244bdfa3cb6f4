/*
 * The operations that a model records into a graph. One recorded operation is a unit that hardware
 * can fuse, not a textbook layer. Activations are NHWC; they and their gradients have the device's
 * precision, the loss is fp32.
 */
#ifndef TRAINER_DEVICE_OPS_H
#define TRAINER_DEVICE_OPS_H

#include "trainer/device/graph.h"

#include <stdbool.h>
#include <stdint.h>

enum device_activation {
	DEVICE_IDENTITY = 0,
	DEVICE_RELU = 1,
	DEVICE_GELU = 2,     /* exact: x * Phi(x) */
	DEVICE_LOGISTIC = 3, /* the sigmoid, 1 / (1 + e^-x), of gates */
	DEVICE_ACTIVATIONS
};

struct device_param;

/*
 * Recording functions return the result, owned by the graph. They return NULL on an error (shape
 * mismatch, missing parameter) and for a NULL input. device_graph_plan() reports the first error,
 * so models record without error checks. Names are copied; they appear in errors, profiles and
 * plans. The same recording serves both modes.
 */
struct device_shape device_value_shape(const struct device_value *value); /* zeros for NULL */

struct device_input_spec {
	const char *name;
	/* c: at most 4 for u8 batches, any number otherwise; backends may pad it */
	struct device_shape shape;
	float mean[4], std[4]; /* per channel in 0..255, for u8 batches: (x - mean) / std */
	bool gradient;         /* also compute the gradient of the input (tests) */
	/*
	 * batches may differ in size, drop rows and columns, and blend their samples (struct
	 * device_batch); false is faster
	 */
	bool resamples;
};
/* The uploaded batch, normalised: [n][h][w][c]. One per graph. */
struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec);

/*
 * Starts a block of the network, such as a residual block, which extends to the next call.
 * Operations before the first call form a block too.
 */
void device_begin_block(struct device_graph *graph);

struct device_norm {
	struct device_param *gamma, *beta; /* [K] */
	/*
	 * [K], buffers; if both are frozen, training normalises by them as evaluation does and
	 * leaves them unchanged
	 */
	struct device_param *running_mean, *running_var;
	float epsilon; /* added to the variance; 1e-5 usually */
	/*
	 * running = (1 - momentum) * running + momentum * batch, with unbiased variance for running
	 * and biased variance for normalising; 0.1 usually
	 */
	float momentum;
	/*
	 * use statistics of the global batch; otherwise each rank uses the statistics of its own
	 * samples and keeps its own running statistics
	 */
	bool synchronized;
	/*
	 * above 0: training normalises groups of at most this many samples by their own statistics
	 * (ghost batch normalization: Hoffer et al. 2017, arXiv:1705.08741, section 4). Each group
	 * in order updates the running statistics with momentum / groups, as Composer's
	 * GhostBatchNorm does. Not with synchronized
	 */
	uint32_t ghost;
};
/*
 * Number of groups of ghost batch normalization; 1 with ghost 0. All have *ret_each samples, except
 * that the last may be smaller.
 */
uint32_t device_norm_groups(uint32_t samples, uint32_t ghost, uint32_t *ret_each);

/*
 * y = activation(norm(conv(x, weight)) + residual), or activation(conv(x, weight) + bias +
 * residual) without a norm.
 */
struct device_conv_spec {
	const char *name;
	/*
	 * [K][R][S][C / groups] with C channels of x; K is a multiple of the resulting number of
	 * groups
	 */
	struct device_param *weight;
	struct device_param *bias;      /* [K] or NULL; must be NULL with a norm */
	const struct device_norm *norm; /* NULL for none */
	uint32_t stride;                /* in both dimensions, at least 1 */
	uint32_t pad;                   /* zeros on all four sides */
	uint32_t pad_extra; /* extra zeros at the bottom and right, as even windows need */
	struct device_value *residual; /* [n][p][q][K] or NULL */
	enum device_activation activation;
};
/*
 * x [n][h][w][C] -> [n][p][q][K], p = (h + 2 pad + pad_extra - R) / stride + 1, q likewise. The
 * number of groups is C divided by the weight's input channels; consecutive groups of output
 * channels read consecutive groups of input channels. One channel per group is a depthwise
 * convolution.
 */
struct device_value *device_conv(struct device_graph *graph, struct device_value *x,
				 const struct device_conv_spec *spec);

/*
 * y = activation(norm(x) + residual), for networks that normalise before the convolution. residual
 * may be NULL.
 */
struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation);

struct device_layer_norm_spec {
	const char *name;
	struct device_param *gamma, *beta; /* [c] of x */
	float epsilon; /* 0 counts as 1e-6, the value in timm's vision transformers */
};
/*
 * y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with mean and biased variance over the
 * channels of each position (Ba, Kiros, Hinton 2016, arXiv:1607.06450); the same in evaluation.
 */
struct device_value *device_layer_norm(struct device_graph *graph, struct device_value *x,
				       const struct device_layer_norm_spec *spec);

struct device_attention_spec {
	const char *name;
	/* must divide a third of qkv's channels; in a divided store, of this rank */
	uint32_t heads;
	/*
	 * probability p that an attention weight is zeroed; the others are scaled by 1 / (1 - p).
	 * Unused in evaluation
	 */
	float dropout;
};
/*
 * Multi-head self-attention over the T = h w positions of a sample (Vaswani et al. 2017, section
 * 3.2, arXiv:1706.03762): y = softmax(q k^T / sqrt(D)) v. qkv is [n][h][w][3 heads D] with the
 * order of one fused linear layer: q, k, v outermost, then heads. The result is [n][h][w][heads D].
 * T x T matrices are never stored: backward recomputes them from the saved log-sum-exp of each
 * query.
 */
struct device_value *device_attention(struct device_graph *graph, struct device_value *qkv,
				      const struct device_attention_spec *spec);

struct device_pos_embed_spec {
	const char *name;
	/*
	 * [T][c], T = h * w, plus 1 with a class token. If grid_side is not 0: embeddings for
	 * grid_side * grid_side positions, resized if x has another size (pos_embed.h)
	 */
	struct device_param *positions;
	uint32_t grid_side;
	struct device_param *class_token; /* [1][c], prepended as token 0; NULL for none */
};
/*
 * x [n][h][w][c] -> [n][1][T][c]: turns positions, row by row, into tokens and adds position
 * embeddings (Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1).
 */
struct device_value *device_pos_embed(struct device_graph *graph, struct device_value *x,
				      const struct device_pos_embed_spec *spec);
/* [n][h][w][c] -> [n][1][1][c]: selects one position, numbered row by row from 0. */
struct device_value *device_select_token(struct device_graph *graph, const char *name,
					 struct device_value *x, uint32_t position);

struct device_pool_spec {
	const char *name;
	/*
	 * in both dimensions; pad < window. Max ignores padding; average divides by the elements
	 * inside x
	 */
	uint32_t window, stride, pad;
	uint32_t pad_extra; /* extra padding at the bottom and right; pad + pad_extra < window */
};
struct device_value *device_max_pool(struct device_graph *graph, struct device_value *x,
				     const struct device_pool_spec *spec);
struct device_value *device_average_pool(struct device_graph *graph, struct device_value *x,
					 const struct device_pool_spec *spec);
/* [n][h][w][c] -> [n][1][1][c] */
struct device_value *device_global_average_pool(struct device_graph *graph, const char *name,
						struct device_value *x);
struct device_value *device_global_max_pool(struct device_graph *graph, const char *name,
					    struct device_value *x);

struct device_linear_spec {
	const char *name;
	/* [O][I], I = h * w * c of x, in that order; I = c with by_position */
	struct device_param *weight;
	struct device_param *bias;     /* [O] or NULL */
	bool by_position;              /* apply the layer at each position, as for tokens */
	struct device_value *residual; /* same shape as the result, or NULL */
	enum device_activation activation;
};
/*
 * y = activation(x weight^T + bias + residual): x [n][h][w][c] -> [n][1][1][O], or [n][h][w][O]
 * with by_position.
 */
struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec);

struct device_scale_add_spec {
	const char *name;
	struct device_value *residual; /* same shape as x, or NULL for 0 */
	/* Factors of x; an absent factor counts as 1. */
	struct device_param *gamma; /* [c], one for each channel of x (LayerScale: Touvron et al.
				       2021, section 2.3) */
	/* [n][1][1][c] (squeeze and excite: Hu et al. 2018, section 3) */
	struct device_value *gate;
	/*
	 * probability p that a sample's x is zeroed; the others are scaled by 1 / (1 - p)
	 * (stochastic depth: Huang et al. 2016). Neither drop_path nor dropout applies in
	 * evaluation
	 */
	float drop_path;
	/* probability that an element of x is zeroed, likewise scaled (Srivastava et al. 2014) */
	float dropout;
	enum device_activation activation; /* identity or ReLU */
};
/* y = activation(residual + s x), where s is the product of the given factors. */
struct device_value *device_scale_add(struct device_graph *graph, struct device_value *x,
				      const struct device_scale_add_spec *spec);

/* Loss of a sample; t is its target per class, z its logits. */
enum device_loss_kind {
	DEVICE_SOFTMAX = 0, /* cross-entropy: - sum of t log softmax(z) */
	/*
	 * binary cross-entropy, mean over the classes of
	 * -t log(sigmoid(z)) - (1 - t) log(1 - sigmoid(z))
	 */
	DEVICE_SIGMOID = 1,
	/*
	 * Kullback-Leibler divergence, sum of t (log t - log softmax(z / temperature)), times
	 * temperature^2 to keep the gradient scale (Hinton et al. 2015)
	 */
	DEVICE_KL = 2,
	/* for regression, with DEVICE_DENSE only: mean over the outputs of (z - t)^2 */
	DEVICE_SQUARED = 3,
	/*
	 * the same with, instead of the square, (z - t)^2 / 2 where |z - t| < 1 and |z - t| - 1/2
	 * elsewhere (Huber 1964, "Robust Estimation of a Location Parameter", with a threshold of
	 * 1)
	 */
	DEVICE_HUBER = 4,
};

/* Where targets come from. */
enum device_targets {
	DEVICE_LABELS = 0, /* 1 for the sample's label, 0 elsewhere */
	/* weight shares[i] for the first label, 1 - shares[i] for the second */
	DEVICE_TWO_LABELS = 1,
	DEVICE_DENSE = 2, /* a number per class: struct device_batch.targets */
};

struct device_loss_spec {
	const char *name;
	/* label smoothing: (1 - smoothing) * target + smoothing / classes; not for regression */
	float smoothing;
	float logit_scale; /* multiplies the logits; 0 counts as 1 */
	enum device_loss_kind kind;
	enum device_targets targets;
	float temperature; /* for DEVICE_KL; 0 counts as 1 */
	/*
	 * [classes], copied: factors on the loss terms of each class; not with DEVICE_KL, nor for
	 * regression. NULL for all 1
	 */
	const float *class_weights;
	/*
	 * distillation (Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2), with weight w (0
	 * for none) and temperature T (0 counts as 1). With the loss L above, and
	 * p = softmax(device_batch.teacher / T), the loss of a sample becomes
	 * (1 - w) * L + w * T^2 * sum of p (log p - log softmax(z / T)). Not for regression
	 */
	float teacher_weight, teacher_temperature;
};
/*
 * Records the loss of logits [n][1][1][classes] against the batch's targets, and ends the graph.
 * Softmax and divergence need at least two classes.
 * The loss is the mean over the samples that have a target; in training, over those of the global
 * batch. Also counts samples whose label is among the 1 and 5 largest logits; of equal logits, the
 * lower class ranks first. With two labels the one with the larger share counts. With dense targets
 * the batch's label counts, or without one the class with the largest target. Softmax with class
 * weights and labels (one or two) divides by the sum of the labels' weights instead of the number
 * of samples, as torch.nn.CrossEntropyLoss does; a teacher's term still divides by the number of
 * samples. A sample with label -1 has no loss and no gradient. Returns logits.
 */
struct device_value *device_loss(struct device_graph *graph, struct device_value *logits,
				 const struct device_loss_spec *spec);

#endif
