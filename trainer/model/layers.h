/*
 * Layer builder for the network families (resnet.c, vit.c, ...): each call appends a layer,
 * declares its parameters and returns the index of its result; 0 is the input. The first error is
 * stored in the model and makes all later calls return -1, so families need no error checks.
 */
#pragma once

#include "trainer/model/model.h"
#include "trainer/model/networks.h"

enum {
	/*
	 * resnet_cifar with model.depth = 1202, deep stem, average-pooled shortcuts, blurs, squeeze
	 * and excite and dropout: 600 blocks of two convolutions and four more layers
	 */
	LAYERS_MAX = 3616,
	LAYER_PARAMS_MAX = 5,
};

enum layer_kind {
	LAYER_CONV,
	LAYER_NORM,
	LAYER_LAYER_NORM,
	LAYER_MAX_POOL,
	LAYER_AVERAGE_POOL,
	LAYER_GLOBAL_AVERAGE,
	LAYER_GLOBAL_MAX,
	LAYER_LINEAR,
	LAYER_DENSE, /* linear at each position */
	LAYER_ATTENTION,
	LAYER_TOKENS,
	LAYER_TAKE,
	LAYER_SCALE_ADD,
};

enum layer_init {
	LAYER_INIT_FAN_OUT, /* normal, sqrt(2 / (K R S)) (He et al. 2015, fan-out) */
	LAYER_INIT_FAN_IN,  /* uniform in +-1 / sqrt(fan-in) */
	LAYER_INIT_DIRAC,   /* as FAN_IN, but the first C outputs are the identity */
	LAYER_INIT_WHITEN,  /* from the covariance of image patches; frozen */
	LAYER_INIT_BLUR,    /* [1 2 1] / 4 in both dimensions; constant */
	/* normal with `deviation`; timm truncates at +-2, which has no effect at its deviations */
	LAYER_INIT_NORMAL,
	LAYER_INIT_CONSTANT,
};

struct layer_param {
	struct device_param *param;
	enum layer_init init;
	float constant;
	double bound;     /* for FAN_IN and biases */
	double deviation; /* for NORMAL */
};

struct layer {
	enum layer_kind kind;
	bool begins; /* first layer of a block */
	char name[DEVICE_NAME_MAX];
	int input, residual, gate; /* result indices; -1 for none */
	uint32_t channels;         /* of the result */
	/* as recorded, except residual; other kinds use some of the fields */
	struct device_conv_spec conv;
	struct device_norm norm; /* target of conv.norm; a layer norm uses only gamma and beta */
	struct device_pool_spec pool;
	uint32_t heads;                               /* of attention */
	struct device_param *positions, *class_token; /* of tokens */
	uint32_t side;                                /* of the position embeddings */
	uint32_t position;                            /* for LAYER_TAKE */
	struct device_param *gamma;                   /* for LAYER_SCALE_ADD */
	float drop_path, dropout;                     /* dropout also for attention */
};

struct model {
	struct device_params *params;
	int32_t (*depth)(const char *name); /* depth function of the family */
	struct layer *layers;               /* LAYERS_MAX */
	int layer_count;
	bool begins;               /* the next layer begins a block */
	struct layer_param *inits; /* LAYERS_MAX * LAYER_PARAMS_MAX */
	size_t init_count;
	float bn_epsilon, bn_momentum;
	bool bn_sync;
	uint32_t bn_ghost;
	float logit_scale, dropout;
	uint32_t side_min;
	int failed;  /* first negative errno */
	char *error; /* MODEL_ERROR_MAX bytes; valid only while the model is built */
};

struct layer_conv {
	const char *name; /* of the convolution; its weight is NAME.weight */
	/* name of the batch norm; NULL for none, then `bias` decides about a bias */
	const char *norm;
	int input;
	uint32_t channels, window, stride, pad;
	uint32_t groups; /* 0 counts as 1 */
	int residual;    /* 0 for none, since the input itself is never a residual */
	enum device_activation activation;
	enum layer_init init;
	bool bias;
	float gamma; /* initial value; usually 1 */
};
int layer_conv(struct model *model, const struct layer_conv *conv);

struct layer_scale {
	const char *name;
	int input;
	int residual, gate; /* 0 for none */
	const char *gamma;  /* name of a per-channel parameter, or NULL */
	float gamma_init;
	float drop_path, dropout;
	enum device_activation activation;
};
/* As device_scale_add(). */
int layer_scale(struct model *model, const struct layer_scale *scale);
/* Applies model.dropout before the head. */
int layer_dropped(struct model *model, int input);
/*
 * Stochastic depth: drop probability of block `number` of `count`, linear from 0 for the first to
 * model.drop_path for the last, as in timm.
 */
float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count);

/* Makes the next layer the first of a block (device_block()); a block has a single input. */
void layer_block(struct model *model);

/* Channels of a result or of the input. */
uint32_t layer_channels(const struct model *model, int value);

/*
 * Low-pass filters the input against aliasing and subsamples it by `stride`: 3 x 3, depthwise
 * (Zhang 2019, arXiv:1904.11486). owner: the layer that it precedes.
 */
int layer_blur(struct model *model, const char *owner, int input, uint32_t stride);

/* A separate batch norm; frozen_gamma keeps gamma at 1. */
int layer_norm(struct model *model, const char *name, int input, bool frozen_gamma,
	       enum device_activation activation);
/* pool->pad_extra: extra padding at the bottom and right. */
int layer_pool(struct model *model, enum layer_kind kind, const char *name, int input,
	       const struct device_pool_spec *pool);
int layer_global(struct model *model, const char *name, int input, enum layer_kind kind);
int layer_linear(struct model *model, const char *name, int input, uint32_t outputs, bool bias);
/* Layer norm over the channels of each position; epsilon is timm's 1e-6. */
int layer_layer_norm(struct model *model, const char *name, int input);
/* A linear layer at each position, with a zero-initialised bias. */
struct layer_dense {
	const char *name;
	int input;
	uint32_t outputs;
	int residual; /* 0 for none */
	enum device_activation activation;
	double deviation; /* of the normal initial weights; 0 counts as timm's 0.02 */
};
int layer_dense(struct model *model, const struct layer_dense *dense);

/* Attention on q, k and v from one fused linear layer; see device_attention(). */
int layer_attention(struct model *model, const char *name, int input, uint32_t heads,
		    float dropout);
/*
 * Positions as tokens, with timm's cls_token (optional) and pos_embed for side * side positions;
 * parameters have these names.
 */
int layer_tokens(struct model *model, const char *name, int input, uint32_t side, bool class_token);
int layer_take(struct model *model, const char *name, int input, uint32_t position);
/* layer_linear() with a bias and timm's initial values for transformer heads. */
int layer_head(struct model *model, const char *name, int input, uint32_t outputs);

__attribute__((format(printf, 3, 4))) int layer_fail(struct model *model, int code,
						     const char *format, ...);
/* Channels scaled by a width factor and rounded to a multiple of 8, at least 8. */
uint32_t layer_width(double factor, uint32_t channels);

/*
 * Depth of a parameter, derived from its name by the family: equal within a block, greater than in
 * earlier blocks. DEPTH_LAST: same as the last block.
 */
enum { DEPTH_STEM = 0, DEPTH_LAST = INT32_MAX - 1, DEPTH_HEAD = INT32_MAX };

/* Families; they report errors through layer_fail(). */
void resnet_describe(struct model *model, const struct network *network,
		     const struct recipe_model *recipe, uint32_t classes);
int32_t resnet_depth(const char *name);
void speednet_describe(struct model *model, const struct network *network,
		       const struct recipe_model *recipe, uint32_t classes);
int32_t speednet_depth(const char *name);
void convnext_describe(struct model *model, const struct network *network,
		       const struct recipe_model *recipe, uint32_t classes);
int32_t convnext_depth(const char *name);
void vit_describe(struct model *model, const struct network *network,
		  const struct recipe_model *recipe, uint32_t classes);
int32_t vit_depth(const char *name);
/* Resolves model.stem; never returns RECIPE_STEM_AUTO. */
enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe);

/*
 * Whitening weights [outputs][R][S][3] for the R x S patches of normalised images (decorrelated,
 * unit variance): eigenvectors of their covariance over sqrt(eigenvalue + 5e-4), largest first,
 * then their negatives (as in Page's and Jordan's CIFAR-10 speed runs). outputs = 2 R S 3. -EINVAL
 * if there are fewer pixels than a patch; -ENOMEM.
 */
int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights);
