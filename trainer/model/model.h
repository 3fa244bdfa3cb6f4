/*
 * A network: declares its parameters in a store, and records its operations (ops.h) into a graph
 * for each image size and mode. A function of the network's family (layers.h) describes it and runs
 * for each graph.
 *
 * Parameters have torchvision's and timm's names ("layer1.0.conv1.weight", "bn1.running_mean",
 * "fc.bias"), so checkpoints are interchangeable. The model belongs to the thread that owns the
 * device; free it before its store. Initial weights depend only on seed and names.
 */
#pragma once

#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/recipe/recipe.h"

#include <stdint.h>

enum { MODEL_ERROR_MAX = 512 };

/* Parameter groups: indices into device_hyper's arrays. */
enum model_group {
	/* weights of convolutions and linear layers, with weight decay */
	MODEL_WEIGHTS = 0,
	MODEL_SCALES = 1, /* gamma of norms */
	/* biases of convolutions and linear layers; embeddings */
	MODEL_BIASES = 2,
	/* beta of norms; optim.bias_lr is a factor on their rate */
	MODEL_NORM_BIASES = 3,
	/* bias of the whitening convolution; see optim.whiten_bias_epochs */
	MODEL_WHITEN_BIAS = 4,
	MODEL_GROUPS = 5,
};

struct model;

/*
 * Creates the model and declares its parameters in an empty store. -EINVAL for an invalid key,
 * which error (MODEL_ERROR_MAX bytes) names.
 */
int model_new(const struct recipe_model *recipe, uint32_t classes, struct device_params *params,
	      struct model **ret_model, char *error);
/* True if the first layer is meant for small images (about 32 x 32). */
bool model_is_small(const struct recipe_model *recipe);
/* Accepts NULL. */
void model_free(struct model *model);

/* Images as delivered, for initial weights that depend on data (whitening). */
struct model_images {
	const uint8_t *pixels; /* [count][height][width][channels] */
	uint32_t count, height, width, channels;
	double mean[3], std[3]; /* 0..255 */
};

/* True if model_initialize() needs images. */
bool model_needs_images(const struct model *model);
/*
 * Writes the initial DEVICE_VALUE of every parameter. -EINVAL if images are needed but missing or
 * too small; other errors as device_param_write().
 */
int model_initialize(struct model *model, uint64_t seed, const struct model_images *images);
/* Initialises only parameters with constant values, which weights files may lack. */
int model_initialize_constants(struct model *model);

/*
 * Number of blocks from the parameter's block to the head, counted as in timm's group_matcher: 0
 * for the head, 1 for the last block, number of blocks + 1 for the stem.
 */
uint32_t model_blocks_after(const struct model *model, const struct device_param *param);

struct model_input {
	uint32_t count, height, width;
	double mean[3], std[3]; /* 0..255 */
	/* all fields except name and logit_scale, which the model sets */
	struct device_loss_spec loss;
	bool resamples; /* see device_input_spec */
};

/* Records input, network and loss into the graph. device_graph_plan() reports errors. */
void model_record(struct model *model, struct device_graph *graph, const struct model_input *input);
/* Factor on the logits, applied before the softmax. */
double model_logit_scale(const struct model *model);
/* Smallest side of input images that the network's strides allow. */
uint32_t model_side_min(const struct model *model);
