/*
 * Layers for the network families (resnet.c, vit.c, ...). A family has one function, which records
 * the network into a graph. It runs once for each graph, and once more when the model is made, to
 * declare the parameters: each layer declares its parameters in that first run, finds them in the
 * same order in all later ones, and records its operation (device.h).
 *
 * The first error is stored in the builder. Later calls do nothing and return NULL, so families
 * need no error checks. Names of layers and parameters are relative to the builder's scope.
 *
 * An operation that is new to device.h needs one function here and in layers.c; a network of a
 * known family needs a row of networks.h, a new family also a file with its function.
 */
#pragma once

#include "trainer/model/model.h"
#include "trainer/model/networks.h"

enum layer_init {
	LAYER_INIT_FAN_OUT, /* normal, sqrt(2 / (K R S)) (He et al. 2015, fan-out) */
	LAYER_INIT_FAN_IN,  /* uniform in +-1 / sqrt(fan-in) */
	LAYER_INIT_DIRAC,   /* as FAN_IN, but the first C outputs are the identity */
	LAYER_INIT_WHITEN,  /* from the covariance of image patches; frozen */
	LAYER_INIT_BLUR,    /* [1 2 1] / 4 in both dimensions; constant */
	/* normal; timm truncates at +-2, which has no effect at its deviations */
	LAYER_INIT_NORMAL,
	LAYER_INIT_CONSTANT,
};

/* What the model knows of a parameter beyond device_param_spec. */
struct layer_param {
	struct device_param *param;
	enum layer_init init;
	double value;   /* bound (FAN_IN, DIRAC), deviation (NORMAL) or CONSTANT */
	uint32_t block; /* number of its block, from 1; 0 for the stem, LAYER_HEAD for the head */
};
#define LAYER_HEAD UINT32_MAX

struct builder;

struct model {
	const struct network *network;
	struct device_value *(*record)(struct builder *b, struct device_value *images);
	struct recipe_model recipe; /* strings may be gone after model_new() */
	uint32_t classes;
	float logit_scale;
	struct device_params *store;
	struct layer_param *params; /* [param_count], in order of declaration */
	size_t param_count, param_capacity;
	uint32_t blocks;
};

/* One run of the family's function. */
struct builder {
	struct model *model;
	struct device_graph *graph;
	bool declares;      /* this is the run that declares the parameters */
	size_t param_count; /* parameters found so far, otherwise */
	uint32_t blocks;    /* begun so far */
	bool head;          /* the next layer belongs to the head */
	char scope[64];     /* "layer1.0", or "" */
	int failed;         /* first negative errno */
	char *error;        /* MODEL_ERROR_MAX bytes */
};

/* Returns NULL. */
__attribute__((format(printf, 3, 4))) void *layer_fail(struct builder *b, int code,
						       const char *format, ...);
/* Sets the prefix of the names that follow, without the dot. */
__attribute__((format(printf, 2, 3))) void layer_scope(struct builder *b, const char *format, ...);
/* The names that follow have no prefix. */
void layer_unscope(struct builder *b);
/* Makes the next layer the first of a block (device_begin_block()); a block has a single input. */
void layer_block(struct builder *b);
/* Makes the next layer the first of the head, for model_blocks_behind(). */
void layer_head(struct builder *b);

/* Channels of a value. */
uint32_t layer_channels(const struct device_value *value);
/* Channels scaled by a width factor and rounded to a multiple of 8, at least 8. */
uint32_t layer_width(double factor, uint32_t channels);
/*
 * Stochastic depth: drop probability of block `number` of `count`, linear from 0 for the first to
 * model.drop_path for the last, as in timm.
 */
float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count);

struct layer_conv {
	const char *name; /* of the convolution; its weight is NAME.weight */
	/* name of the batch norm; NULL for none, then `bias` decides about a bias */
	const char *norm;
	uint32_t channels, window, pad;
	uint32_t stride, groups;       /* 0 counts as 1 */
	struct device_value *residual; /* or NULL */
	enum device_activation activation;
	enum layer_init init;
	bool bias;
	bool zero_gamma; /* of the norm: starts at 0 instead of 1 */
};
struct device_value *layer_conv(struct builder *b, struct device_value *x,
				const struct layer_conv *conv);
/*
 * Low-pass filters the input against aliasing and subsamples it by `stride`: 3 x 3, depthwise
 * (Zhang 2019, arXiv:1904.11486). owner: the layer that it precedes.
 */
struct device_value *layer_blur(struct builder *b, struct device_value *x, const char *owner,
				uint32_t stride);
/* A separate batch norm, whose gamma is frozen at 1. */
struct device_value *layer_batch_norm(struct builder *b, struct device_value *x, const char *name,
				      enum device_activation activation);
/* Layer norm over the channels of each position; epsilon is timm's 1e-6. */
struct device_value *layer_layer_norm(struct builder *b, struct device_value *x, const char *name);

/* `spec` without a name. */
struct device_value *layer_max_pool(struct builder *b, struct device_value *x, const char *name,
				    const struct device_pool_spec *spec);
struct device_value *layer_average_pool(struct builder *b, struct device_value *x, const char *name,
					const struct device_pool_spec *spec);
struct device_value *layer_global_average(struct builder *b, struct device_value *x,
					  const char *name);
struct device_value *layer_global_max(struct builder *b, struct device_value *x, const char *name);

/* A linear layer on a sample's one position, with PyTorch's initial values. */
struct device_value *layer_linear(struct builder *b, struct device_value *x, const char *name,
				  uint32_t outputs, bool bias);
/* A linear layer at each position, with timm's initial values: a bias of 0 and normal weights. */
struct layer_dense {
	const char *name;
	uint32_t outputs;
	struct device_value *residual; /* or NULL */
	enum device_activation activation;
};
struct device_value *layer_dense(struct builder *b, struct device_value *x,
				 const struct layer_dense *dense);

/* Attention on q, k and v from one fused linear layer; see device_attention(). */
struct device_value *layer_attention(struct builder *b, struct device_value *qkv, const char *name,
				     uint32_t heads, float dropout);
/*
 * Positions as tokens, with timm's cls_token (optional) and pos_embed for side * side positions;
 * parameters have these names.
 */
struct device_value *layer_pos_embed(struct builder *b, struct device_value *x, const char *name,
				     uint32_t side, bool class_token);
/* See device_select_token(). */
struct device_value *layer_select_token(struct builder *b, struct device_value *x, const char *name,
					uint32_t position);

struct layer_scale {
	const char *name;
	struct device_value *residual, *gate; /* or NULL */
	const char *gamma;                    /* name of the per-channel factor */
	float gamma_init;                     /* its initial value; 0 for no such factor */
	float drop_path;
	enum device_activation activation;
};
/* As device_scale_add(). */
struct device_value *layer_scale(struct builder *b, struct device_value *x,
				 const struct layer_scale *scale);
/* Applies model.dropout before the head. */
struct device_value *layer_dropout(struct builder *b, struct device_value *x);

/* Families: record the network and return the logits. */
struct device_value *resnet_record(struct builder *b, struct device_value *images);
struct device_value *speednet_record(struct builder *b, struct device_value *images);
struct device_value *convnext_record(struct builder *b, struct device_value *images);
struct device_value *vit_record(struct builder *b, struct device_value *images);

/* Resolves model.stem; never returns RECIPE_STEM_AUTO. */
enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe);
/* Side of the patches that an image is cut into; 0 if the network has none. */
uint32_t network_patch(const struct network *network, const struct recipe_model *recipe);

/*
 * Whitening weights [outputs][R][S][3] for the R x S patches of normalised images (decorrelated,
 * unit variance): eigenvectors of their covariance over sqrt(eigenvalue + 5e-4), largest first,
 * then their negatives (as in Page's and Jordan's CIFAR-10 speed runs). outputs = 2 R S 3. -EINVAL
 * if there are fewer pixels than a patch; -ENOMEM.
 */
int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights);
