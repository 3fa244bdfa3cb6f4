/*
 * How the families (resnet.c, speednet.c) describe themselves: each call appends a layer, declares
 * its parameters and returns the number of its result. 0 is the input. The first mistake is kept in
 * the model and makes everything after it return -1, so a family is described without a check per
 * line.
 */
#pragma once

#include "trainer/model/model.h"
#include "trainer/model/networks.h"

enum {
	/* of resnet_cifar with model.depth = 1202, deep stem, averages in shortcuts and blurs */
	LAYERS_MAX = 1215,
	LAYER_PARAMS_MAX = 5,
};

enum layer_kind {
	LAYER_CONV,
	LAYER_NORM,
	LAYER_MAX_POOL,
	LAYER_AVERAGE_POOL,
	LAYER_GLOBAL_AVERAGE,
	LAYER_GLOBAL_MAX,
	LAYER_LINEAR,
};

enum layer_init {
	LAYER_INIT_FAN_OUT, /* normal, sqrt(2 / (K R S)) (He et al. 2015, fan-out) */
	LAYER_INIT_FAN_IN,  /* uniform in +-1 / sqrt(fan-in) */
	LAYER_INIT_DIRAC,   /* as FAN_IN, but the first C outputs pass their input on */
	LAYER_INIT_WHITEN,  /* from the covariance of the data's patches; frozen */
	LAYER_INIT_BLUR,    /* [1 2 1] / 4 both ways; constant */
	LAYER_INIT_CONSTANT,
};

struct layer_param {
	struct device_param *param;
	enum layer_init init;
	float constant;
	double bound; /* of FAN_IN and of a bias */
};

struct layer {
	enum layer_kind kind;
	char name[DEVICE_NAME_MAX];
	int input, residual; /* numbers of results; residual -1: none */
	uint32_t channels;   /* of the result */
	/* as it is recorded, but for the residual; other kinds have some of it, too */
	struct device_conv_spec conv;
	struct device_norm norm; /* of conv.norm */
	struct device_pool_spec pool;
};

struct model {
	struct device_params *params;
	struct layer *layers; /* LAYERS_MAX */
	int layer_count;
	struct layer_param *inits; /* LAYERS_MAX * LAYER_PARAMS_MAX */
	size_t init_count;
	float bn_epsilon, bn_momentum;
	bool bn_sync;
	float logit_scale;
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

__attribute__((format(printf, 3, 4))) int layer_fail(struct model *model, int code,
						     const char *format, ...);
/* Channels scaled by a width factor: a multiple of 8, at least 8. */
uint32_t layer_width(double factor, uint32_t channels);

/* Families; what is wrong goes through layer_fail. */
void resnet_describe(struct model *model, const struct network *network,
		     const struct recipe_model *recipe, uint32_t classes);
void speednet_describe(struct model *model, const struct network *network,
		       const struct recipe_model *recipe, uint32_t classes);
/* Never RECIPE_STEM_AUTO. */
enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe);

/*
 * Weights [outputs][R][S][3] that decorrelate the R x S patches of normalised images and give them
 * unit variance: eigenvectors of their covariance over sqrt(eigenvalue + 5e-4), largest first, then
 * their negatives (as in Page's and Jordan's CIFAR-10 speed runs). outputs = 2 R S 3. -EINVAL:
 * fewer pixels than a patch; -ENOMEM.
 */
int whiten_weights(const struct model_images *images, uint32_t window, float *ret_weights);
