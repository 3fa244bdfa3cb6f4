/*
 * Layers for the network families (resnet.c, vit.c, ...). A family has one function, which records
 * the network into a graph. It runs once when the model is created, to declare the parameters, and
 * then once for each graph. Each layer declares its parameters in the first run, looks them up in
 * the same order in later runs, and records its operation (ops.h).
 *
 * The builder stores the first error. Later calls do nothing and return NULL, so families need no
 * error checks. Names of layers and parameters are relative to the builder's scope.
 *
 * To add an operation, add a function here and in layers.c. To add a network of a known family, add
 * a row to networks.h; to add a family, also add a file with its function.
 */
#pragma once

#include "trainer/device/ops.h"
#include "trainer/model/model.h"
#include "trainer/model/networks.h"

enum layer_init {
	LAYER_INIT_FAN_OUT, /* normal, sqrt(2 / (K R S)) (He et al. 2015, fan-out) */
	LAYER_INIT_FAN_IN,  /* uniform in +-1 / sqrt(fan-in) */
	LAYER_INIT_DIRAC,   /* as FAN_IN, but the first C outputs are the identity (Dirac) */
	LAYER_INIT_WHITEN,  /* from the covariance of image patches; frozen */
	LAYER_INIT_BLUR,    /* [1 2 1] / 4 in both dimensions; constant */
	/* normal; timm truncates it at +-2, which has no effect at the deviations used */
	LAYER_INIT_NORMAL,
	LAYER_INIT_CONSTANT,
};

/* The model's data for a parameter, besides its device_param_spec. */
struct layer_param {
	struct device_param *param;
	enum layer_init init;
	/* bound (FAN_IN, DIRAC), standard deviation (NORMAL) or value (CONSTANT) */
	double value;
	uint32_t block; /* block number, from 1; 0 for the stem, LAYER_HEAD for the head */
};
#define LAYER_HEAD UINT32_MAX

struct builder;

struct model {
	const struct network *network;
	struct device_value *(*record)(struct builder *b, struct device_value *images);
	struct recipe_model recipe; /* strings may be invalid after model_new() */
	uint32_t classes;
	float logit_scale;
	struct device_params *store;
	struct layer_param *params; /* [param_count], in order of declaration */
	size_t param_count, param_capacity;
	uint32_t blocks;
};

/* The state of one run of the family's function. */
struct builder {
	struct model *model;
	struct device_graph *graph;
	bool declares;      /* true in the run that declares the parameters */
	size_t param_count; /* in other runs: number of parameters looked up so far */
	uint32_t blocks;    /* number of blocks begun so far */
	bool head;          /* the next layer belongs to the head */
	char scope[64];     /* prefix of names, such as "layer1.0", or "" */
	int failed;         /* first negative errno */
	char *error;        /* MODEL_ERROR_MAX bytes */
};

/* Stores the error and returns NULL. */
__attribute__((format(printf, 3, 4))) void *layer_fail(struct builder *b, int code,
						       const char *format, ...);
/* Sets the prefix of subsequent names, without the final dot. */
__attribute__((format(printf, 2, 3))) void layer_scope(struct builder *b, const char *format, ...);
/* Removes the prefix of subsequent names. */
void layer_unscope(struct builder *b);
/* The next layer begins a block, which has a single input (device_begin_block()). */
void layer_block(struct builder *b);
/* The next layer begins the head, for model_blocks_after(). */
void layer_head(struct builder *b);

/* Number of channels of a value. */
uint32_t layer_channels(const struct device_value *value);
/* Number of channels times a width factor, rounded to a multiple of 8, at least 8. */
uint32_t layer_width(double factor, uint32_t channels);
/*
 * Stochastic depth: drop probability of block `number` of `count`, linear from 0 for the first to
 * model.drop_path for the last, as in timm.
 */
float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count);

struct layer_conv {
	const char *name; /* name of the convolution; its weight is NAME.weight */
	/* name of the batch norm; NULL for none, in which case `bias` adds a bias */
	const char *norm;
	uint32_t channels, window, pad;
	uint32_t stride, groups;       /* 0 counts as 1 */
	struct device_value *residual; /* or NULL */
	enum device_activation activation;
	enum layer_init init;
	bool bias;
	bool zero_gamma; /* initialise the norm's gamma to 0 instead of 1 */
};
struct device_value *layer_conv(struct builder *b, struct device_value *x,
				const struct layer_conv *conv);
/*
 * Low-pass filters the input against aliasing and subsamples it by `stride`: a depthwise 3 x 3
 * convolution (Zhang 2019, arXiv:1904.11486). owner: name of the layer after it.
 */
struct device_value *layer_blur(struct builder *b, struct device_value *x, const char *owner,
				uint32_t stride);
/* A batch norm without convolution; its gamma is frozen at 1. */
struct device_value *layer_batch_norm(struct builder *b, struct device_value *x, const char *name,
				      enum device_activation activation);
/* Layer norm over the channels of each position; epsilon is timm's 1e-6. */
struct device_value *layer_layer_norm(struct builder *b, struct device_value *x, const char *name);

/* Max pooling by `spec`, whose name is ignored. */
struct device_value *layer_max_pool(struct builder *b, struct device_value *x, const char *name,
				    const struct device_pool_spec *spec);
struct device_value *layer_average_pool(struct builder *b, struct device_value *x, const char *name,
					const struct device_pool_spec *spec);
struct device_value *layer_global_average(struct builder *b, struct device_value *x,
					  const char *name);
struct device_value *layer_global_max(struct builder *b, struct device_value *x, const char *name);

/* A linear layer for values with a single position per sample, with PyTorch's initial values. */
struct device_value *layer_linear(struct builder *b, struct device_value *x, const char *name,
				  uint32_t outputs, bool bias);
/* The dimension of the weight that a divided store splits (device_params_divide()). */
enum layer_split { LAYER_WHOLE = 0, LAYER_SPLIT_OUTPUTS = 1, LAYER_SPLIT_INPUTS = 2 };
/* A linear layer applied at each position, with timm's initial values: bias 0, normal weights. */
struct layer_dense {
	const char *name;
	uint32_t outputs; /* of the whole layer */
	enum layer_split split;
	uint32_t ranges;               /* of outputs that are split each; 0 counts as 1 */
	struct device_value *residual; /* or NULL */
	enum device_activation activation;
};
struct device_value *layer_dense(struct builder *b, struct device_value *x,
				 const struct layer_dense *dense);

/*
 * Attention on q, k and v, computed by one fused linear layer; see device_attention(). heads: of
 * the whole layer.
 */
struct device_value *layer_attention(struct builder *b, struct device_value *qkv, const char *name,
				     uint32_t heads, float dropout);
/*
 * Turns positions into tokens: optionally prepends timm's cls_token, then adds pos_embed for a
 * square of side x side positions. The parameters have these names.
 */
struct device_value *layer_pos_embed(struct builder *b, struct device_value *x, const char *name,
				     uint32_t side, bool class_token);
/* See device_select_token(). */
struct device_value *layer_select_token(struct builder *b, struct device_value *x, const char *name,
					uint32_t position);

struct layer_scale {
	const char *name;
	struct device_value *residual, *gate; /* or NULL */
	const char *gamma;                    /* name of the factor per channel */
	float gamma_init;                     /* initial value of the factor; 0 for no factor */
	float drop_path;
	enum device_activation activation;
};
/* Scales and adds; see device_scale_add(). */
struct device_value *layer_scale(struct builder *b, struct device_value *x,
				 const struct layer_scale *scale);
/* Applies model.dropout before the head. */
struct device_value *layer_dropout(struct builder *b, struct device_value *x);

/* Functions of the families: record the network and return the logits. */
struct device_value *resnet_record(struct builder *b, struct device_value *images);
struct device_value *speednet_record(struct builder *b, struct device_value *images);
struct device_value *convnext_record(struct builder *b, struct device_value *images);
struct device_value *vit_record(struct builder *b, struct device_value *images);

/* Resolves model.stem; never returns RECIPE_STEM_AUTO. */
enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe);
/* Side of the patches into which the network cuts images; 0 if it has no patches. */
uint32_t network_patch(const struct network *network, const struct recipe_model *recipe);

/*
 * Whitening weights [outputs][R][S][3] for the R x S patches of normalised images, where R = S =
 * window and outputs = 2 * R * S * 3. The filters are the eigenvectors of the patches' covariance,
 * each divided by sqrt(eigenvalue + 5e-4), largest eigenvalue first; then the same filters negated
 * (as in Page's and Jordan's CIFAR-10 speed runs). The results are decorrelated with unit variance.
 * -EINVAL if there are fewer pixels than a patch; -ENOMEM.
 */
int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights);
