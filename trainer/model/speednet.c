/*
 * A small network without shortcuts for 32 x 32 images that learns in few epochs, after Keller
 * Jordan's airbench ("94% on CIFAR-10 in 3.29 seconds", 2024): patches whitened by a fixed 2 x 2
 * convolution, three groups of two 3 x 3 convolutions that start as identities, norms without a
 * scale, pooling before the norm, a global maximum, and logits divided by 9.
 */
#include "trainer/model/layers.h"

#include <stdio.h>
#include <string.h>

static int conv(struct model *model, const char *name, int x, uint32_t channels)
{
	return layer_conv(model, &(struct layer_conv){.name = name,
						      .input = x,
						      .channels = channels,
						      .window = 3,
						      .stride = 1,
						      .pad = 1,
						      .init = LAYER_INIT_DIRAC});
}

static int group(struct model *model, unsigned number, int x, uint32_t channels,
		 enum device_activation activation)
{
	char name[32];
	layer_block(model);
	snprintf(name, sizeof(name), "group%u.conv1", number);
	x = conv(model, name, x, channels);
	snprintf(name, sizeof(name), "group%u.pool", number);
	x = layer_pool(model, LAYER_MAX_POOL, name, x,
		       &(struct device_pool_spec){.window = 2, .stride = 2});
	snprintf(name, sizeof(name), "group%u.bn1", number);
	x = layer_norm(model, name, x, true, activation);
	snprintf(name, sizeof(name), "group%u.conv2", number);
	x = conv(model, name, x, channels);
	snprintf(name, sizeof(name), "group%u.bn2", number);
	return layer_norm(model, name, x, true, activation);
}

/* The number of the group, e.g. 2 for "group2.conv1.weight". */
int32_t speednet_depth(const char *name)
{
	int group = 0;
	if (strncmp(name, "fc.", 3) == 0)
		return DEPTH_HEAD;
	return sscanf(name, "group%d.", &group) == 1 ? group : DEPTH_STEM;
}

void speednet_describe(struct model *model, const struct network *network,
		       const struct recipe_model *recipe, uint32_t classes)
{
	enum { WINDOW = 2, PATCH = WINDOW * WINDOW * 3 };
	static const uint32_t channels[] = {64, 256, 256};
	enum device_activation activation =
		recipe->activation == RECIPE_ACTIVATION_GELU ? DEVICE_GELU : DEVICE_RELU;
	int x = layer_conv(model,
			   &(struct layer_conv){
				   .name = "whiten",
				   .channels = 2 * PATCH,
				   .window = WINDOW,
				   .stride = 1,
				   .activation = activation,
				   .init = recipe->whiten ? LAYER_INIT_WHITEN : LAYER_INIT_FAN_OUT,
				   .bias = true,
			   });
	for (unsigned i = 0; i < 3; i++)
		x = group(model, i + 1, x, layer_width(recipe->width, channels[i]), activation);
	x = layer_global(model, "maxpool", x, LAYER_GLOBAL_MAX);
	model->logit_scale = 1.0f / 9;
	model->side_min = 9;
	layer_linear(model, "fc", layer_dropped(model, x), classes, false);
}
