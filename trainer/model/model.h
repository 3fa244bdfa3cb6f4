/*
 * A network: declares its parameters in a store, and records its operations (device.h) into a graph
 * for each size and mode. There is no other description of it: a function of its family (layers.h)
 * runs for each graph.
 *
 * Parameters have torchvision's and timm's names ("layer1.0.conv1.weight", "bn1.running_mean",
 * "fc.bias"), so checkpoints are interchangeable. The model belongs to the thread that owns the
 * device; free it before its store. Initial weights depend only on seed and names.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdint.h>

enum { MODEL_ERROR_MAX = 512 };

/* Parameter groups: indices into device_hyper's arrays. */
enum model_group {
	MODEL_WEIGHTS = 0,     /* convolutions and matrices; weight decay applies */
	MODEL_SCALES = 1,      /* gamma of norms */
	MODEL_BIASES = 2,      /* of convolutions and matrices; also embeddings */
	MODEL_NORM_BIASES = 3, /* beta of norms: optim.bias_lr */
	MODEL_WHITEN_BIAS = 4, /* of the whitening convolution: optim.whiten_bias_epochs */
	MODEL_GROUPS = 5,
};

struct model;

/*
 * Builds the model and declares its parameters in an empty store. -EINVAL: error (MODEL_ERROR_MAX
 * bytes) names the key at fault.
 */
int model_new(const struct recipe_model *recipe, uint32_t classes, struct device_params *params,
	      struct model **ret_model, char *error);
/* True if the first layer is meant for small images (about 32 x 32). */
bool model_is_small(const struct recipe_model *recipe);
/* Accepts NULL. */
void model_free(struct model *model);

/* Images as fed, for data-dependent initial weights (whitening). */
struct model_images {
	const uint8_t *pixels; /* [count][height][width][channels] */
	uint32_t count, height, width, channels;
	double mean[3], std[3]; /* 0..255 */
};

/* True if model_initialize() needs images. */
bool model_wants_images(const struct model *model);
/*
 * Writes the initial DEVICE_VALUE of every parameter. -EINVAL if needed images are missing or too
 * small; other errors as device_param_write().
 */
int model_initialize(struct model *model, uint64_t seed, const struct model_images *images);
/* Initialises only constant parameters, which checkpoint files may lack. */
int model_initialize_constants(struct model *model);

/*
 * Blocks from the parameter's block to the head: 0 for the head, 1 for the last block, and number
 * of blocks + 1 for the first layers. Counted as in timm's group_matcher.
 */
uint32_t model_blocks_behind(const struct model *model, const struct device_param *param);

struct model_input {
	uint32_t count, height, width;
	double mean[3], std[3]; /* 0..255 */
	/* without name and logit_scale, which the model sets */
	struct device_loss_spec loss;
	bool resamples; /* see device_input_spec */
};

/* Records input, network and loss; device_graph_plan() reports errors. */
void model_record(struct model *model, struct device_graph *graph, const struct model_input *input);
/* Factor on the logits before the softmax. */
double model_logit_scale(const struct model *model);
/* Smallest input side that the network's strides allow. */
uint32_t model_side_min(const struct model *model);
