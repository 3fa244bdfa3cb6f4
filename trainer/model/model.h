/*
 * A network: a list of layers, made once from the recipe, that declares its parameters in a store
 * and records itself into as many graphs as there are sizes and modes. Layers stand in the units
 * that a device can fuse (device.h).
 *
 * Parameters bear the names that torchvision and timm give them ("layer1.0.conv1.weight",
 * "bn1.running_mean", "fc.bias"), so checkpoints load there and theirs load here. The model belongs
 * to the thread that owns the device; it must outlive no store: free it before. Initial weights
 * depend on seed and names alone.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdint.h>

enum { MODEL_ERROR_MAX = 512 };

/* Parameter groups: index into device_hyper's arrays. */
enum model_group {
	MODEL_WEIGHTS = 0,     /* of convolutions and matrices: with weight decay */
	MODEL_SCALES = 1,      /* gamma of norms */
	MODEL_BIASES = 2,      /* of convolutions and matrices; embeddings */
	MODEL_NORM_BIASES = 3, /* beta of norms: optim.bias_lr */
	MODEL_WHITEN_BIAS = 4, /* of the convolution that whitens: optim.whiten_bias_epochs */
	MODEL_GROUPS = 5,
};

struct model;

/*
 * Declares the parameters in an empty store. -EINVAL with a sentence (MODEL_ERROR_MAX bytes) naming
 * the key at fault.
 */
int model_new(const struct recipe_model *recipe, uint32_t classes, struct device_params *params,
	      struct model **ret_model, char *error);
/* Whether it is for images of 32 x 32 or so: by its first layer. */
bool model_is_small(const struct recipe_model *recipe);
/* Accepts NULL. */
void model_free(struct model *model);

/* Images as fed, for what depends on the data (whitening). */
struct model_images {
	const uint8_t *pixels; /* [count][height][width][channels] */
	uint32_t count, height, width, channels;
	double mean[3], std[3]; /* 0..255 */
};

/* Does model_initialize want images? */
bool model_wants_images(const struct model *model);
/*
 * Writes the initial DEVICE_VALUE of every parameter. -EINVAL: images are wanted and missing or too
 * small; or as device_param_write.
 */
int model_initialize(struct model *model, uint64_t seed, const struct model_images *images);
/* Only what the network's description says, which files need not have. */
int model_initialize_constants(struct model *model);

/*
 * Blocks from the parameter's own to the head, whose own are 0 behind it: of the last block 1, of
 * the first layers as many as there are blocks, and 1. Counted as timm's group_matcher does.
 */
uint32_t model_blocks_behind(const struct model *model, const struct device_param *param);

struct model_input {
	uint32_t count, height, width;
	double mean[3], std[3]; /* 0..255 */
	/* but for its name and logit_scale */
	struct device_loss_spec loss;
	bool resamples; /* as device_input_spec has it */
};

/* Records input, layers and loss; what is wrong device_graph_plan() says. */
void model_record(const struct model *model, struct device_graph *graph,
		  const struct model_input *input);
/* Factor on the logits before the softmax. */
double model_logit_scale(const struct model *model);
/* Smallest input side that the network's strides can take. */
uint32_t model_side_min(const struct model *model);
