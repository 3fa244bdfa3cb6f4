/*
 * How the families (resnet.c, vit.c, speednet.c) describe themselves: each call appends a layer,
 * declares its parameters and returns the number of its result. 0 is the input. The first mistake
 * is kept in the model and makes everything after it return -1, so a family is described without a
 * check per line.
 */
#pragma once

#include "trainer/model/model.h"
#include "trainer/model/networks.h"

enum {
	/*
	 * of resnet_cifar with model.depth = 1202, deep stem, averages in shortcuts, blurs,
	 * squeeze and excite and dropout: 600 blocks of two convolutions and four layers more
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
	LAYER_DENSE, /* linear by position */
	LAYER_ATTENTION,
	LAYER_TOKENS,
	LAYER_TAKE,
	LAYER_SCALE_ADD,
};

enum layer_init {
	LAYER_INIT_FAN_OUT, /* normal, sqrt(2 / (K R S)) (He et al. 2015, fan-out) */
	LAYER_INIT_FAN_IN,  /* uniform in +-1 / sqrt(fan-in) */
	LAYER_INIT_DIRAC,   /* as FAN_IN, but the first C outputs pass their input on */
	LAYER_INIT_WHITEN,  /* from the covariance of the data's patches; frozen */
	LAYER_INIT_BLUR,    /* [1 2 1] / 4 both ways; constant */
	/* as the deviation says; timm's, which cuts off at +-2, has nothing there to cut */
	LAYER_INIT_NORMAL,
	LAYER_INIT_CONSTANT,
};

struct layer_param {
	struct device_param *param;
	enum layer_init init;
	float constant;
	double bound;     /* of FAN_IN and of a bias */
	double deviation; /* of NORMAL */
};

struct layer {
	enum layer_kind kind;
	bool begins; /* a block */
	char name[DEVICE_NAME_MAX];
	int input, residual, gate; /* numbers of results; -1: none */
	uint32_t channels;         /* of the result */
	/* as it is recorded, but for the residual; other kinds have some of it, too */
	struct device_conv_spec conv;
	struct device_norm norm; /* of conv.norm; a layer norm has gamma and beta of it */
	struct device_pool_spec pool;
	uint32_t heads;                               /* of attention */
	struct device_param *positions, *class_token; /* of tokens */
	uint32_t side;                                /* of positions */
	uint32_t position;                            /* that is taken */
	struct device_param *gamma;                   /* of a scale, and: */
	float drop_path, dropout;                     /* the latter of attention, too */
};

struct model {
	struct device_params *params;
	int32_t (*depth)(const char *name); /* its family's */
	struct layer *layers;               /* LAYERS_MAX */
	int layer_count;
	bool begins;               /* the next layer, a block */
	struct layer_param *inits; /* LAYERS_MAX * LAYER_PARAMS_MAX */
	size_t init_count;
	float bn_epsilon, bn_momentum;
	bool bn_sync;
	uint32_t bn_ghost;
	float logit_scale, dropout;
	uint32_t side_min;
	int failed;  /* first negative errno */
	char *error; /* while it is described, MODEL_ERROR_MAX bytes */
};

struct layer_conv {
	const char *name; /* of the convolution; its weight is NAME.weight */
	const char *norm; /* name of the batch norm, NULL: none, and then a bias if `bias` */
	int input;
	uint32_t channels, window, stride, pad;
	uint32_t groups; /* 0 counts as 1 */
	int residual;    /* 0: none, since nothing adds the input itself */
	enum device_activation activation;
	enum layer_init init;
	bool bias;
	float gamma; /* initial; 1 usually */
};
int layer_conv(struct model *model, const struct layer_conv *conv);

struct layer_scale {
	const char *name;
	int input;
	int residual, gate; /* 0: none */
	const char *gamma;  /* name of a parameter for each channel, or NULL */
	float gamma_init;
	float drop_path, dropout;
	enum device_activation activation;
};
/* As device_scale_add(). */
int layer_scale(struct model *model, const struct layer_scale *scale);
/* What the head reads: with model.dropout, without so many of its elements in training. */
int layer_dropped(struct model *model, int input);
/*
 * Of stochastic depth, how likely block `number` of `count` is to be dropped: from 0 for the first
 * on in equal steps to model.drop_path for the last, as timm has it.
 */
float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count);

/* The next layer is the first of a block (device_block()): to it, one thing comes in. */
void layer_block(struct model *model);

/* Of a result, or of the input. */
uint32_t layer_channels(const struct model *model, int value);

/*
 * The input without its highest frequencies, which a stride would fold into lower ones, at every
 * `stride`-th position: each channel by itself, over 3 x 3 (Zhang 2019, arXiv:1904.11486). owner:
 * the layer that it is for.
 */
int layer_blur(struct model *model, const char *owner, int input, uint32_t stride);

/* A norm of its own; frozen_gamma: gamma stays 1. */
int layer_norm(struct model *model, const char *name, int input, bool frozen_gamma,
	       enum device_activation activation);
/* pad_extra: below and to the right beyond pad. */
int layer_pool(struct model *model, enum layer_kind kind, const char *name, int input,
	       const struct device_pool_spec *pool);
int layer_global(struct model *model, const char *name, int input, enum layer_kind kind);
int layer_linear(struct model *model, const char *name, int input, uint32_t outputs, bool bias);
/* Each position by itself, over its channels; epsilon is timm's, 1e-6. */
int layer_layer_norm(struct model *model, const char *name, int input);
/* A linear layer at each position, with a bias that is 0 at first. */
struct layer_dense {
	const char *name;
	int input;
	uint32_t outputs;
	int residual; /* 0: none, as of layer_conv */
	enum device_activation activation;
	double deviation; /* of the initial weights, normal; 0 counts as timm's 0.02 */
};
int layer_dense(struct model *model, const struct layer_dense *dense);

/* Of q, k and v, as one layer makes them; as device_attention(). */
int layer_attention(struct model *model, const char *name, int input, uint32_t heads,
		    float dropout);
/*
 * Places as tokens, with timm's cls_token, if it is asked for, and pos_embed, of side * side
 * places, under these names.
 */
int layer_tokens(struct model *model, const char *name, int input, uint32_t side, bool class_token);
int layer_take(struct model *model, const char *name, int input, uint32_t position);
/* layer_linear() with a bias, as timm starts the heads of transformers. */
int layer_head(struct model *model, const char *name, int input, uint32_t outputs);

__attribute__((format(printf, 3, 4))) int layer_fail(struct model *model, int code,
						     const char *format, ...);
/* Channels scaled by a width factor: a multiple of 8, at least 8. */
uint32_t layer_width(double factor, uint32_t channels);

/*
 * How deep a parameter of this name lies, which the families say: as much as any other of the same
 * block, more than those of blocks before. DEPTH_LAST: as the last block's.
 */
enum { DEPTH_STEM = 0, DEPTH_LAST = INT32_MAX - 1, DEPTH_HEAD = INT32_MAX };

/* Families; what is wrong goes through layer_fail. */
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
/* Never RECIPE_STEM_AUTO. */
enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe);

/*
 * Weights [outputs][R][S][3] that decorrelate the R x S patches of normalised images and give them
 * unit variance: eigenvectors of their covariance over sqrt(eigenvalue + 5e-4), largest first, then
 * their negatives (as in Page's and Jordan's CIFAR-10 speed runs). outputs = 2 R S 3. -EINVAL:
 * fewer pixels than a patch; -ENOMEM.
 */
int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights);
