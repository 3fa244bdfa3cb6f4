/*
 * ConvNeXt (Liu, Mao, Wu, Feichtenhofer, Darrell, Xie 2022, arXiv:2201.03545), with timm's layout,
 * names and initial weights: blocks of a depthwise 7 x 7 convolution, a layer norm, and a two-layer
 * perceptron at each position, with LayerScale (from 1e-6) and stochastic depth.
 */
#include "trainer/model/layers.h"

#include <stdio.h>
#include <string.h>

struct name {
	char text[64];
};
static struct name name_of(const char *owner, const char *leaf)
{
	struct name name;
	snprintf(name.text, sizeof(name.text), "%.44s.%s", owner, leaf);
	return name;
}

/* Patch embedding: non-overlapping windows. */
static int patches(struct model *model, const char *name, int input, uint32_t channels,
		   uint32_t side)
{
	return layer_conv(model, &(struct layer_conv){
					 .name = name,
					 .input = input,
					 .channels = channels,
					 .window = side,
					 .stride = side,
					 .init = LAYER_INIT_NORMAL,
					 .bias = true,
				 });
}

static int block(struct model *model, const char *name, int input, float drop_path)
{
	uint32_t channels = layer_channels(model, input);
	struct name gamma = name_of(name, "gamma");
	int x = layer_conv(model, &(struct layer_conv){
					  .name = name_of(name, "conv_dw").text,
					  .input = input,
					  .channels = channels,
					  .window = 7,
					  .stride = 1,
					  .pad = 3,
					  .groups = channels,
					  .init = LAYER_INIT_NORMAL,
					  .bias = true,
				  });
	x = layer_layer_norm(model, name_of(name, "norm").text, x);
	x = layer_dense(model, &(struct layer_dense){.name = name_of(name, "mlp.fc1").text,
						     .input = x,
						     .outputs = 4 * channels,
						     .activation = DEVICE_GELU});
	x = layer_dense(model, &(struct layer_dense){.name = name_of(name, "mlp.fc2").text,
						     .input = x,
						     .outputs = channels});
	return layer_scale(model, &(struct layer_scale){
					  .name = name_of(name, "sum").text,
					  .input = x,
					  .residual = input,
					  .gamma = gamma.text,
					  .gamma_init = 1e-6f,
					  .drop_path = drop_path,
				  });
}

/*
 * By block: "stages.2.blocks.7.norm.weight"; a downsampling layer belongs to its stage's first
 * block.
 */
int32_t convnext_depth(const char *name)
{
	int stage = 0, number = 0;
	if (strncmp(name, "head.", 5) == 0)
		return DEPTH_HEAD;
	if (sscanf(name, "stages.%d.blocks.%d.", &stage, &number) < 1)
		return DEPTH_STEM;
	return 1 + stage * 1000 + number;
}

void convnext_describe(struct model *model, const struct network *network,
		       const struct recipe_model *recipe, uint32_t classes)
{
	uint32_t channels = layer_width(recipe->width, network->channels), number = 0, count = 0;
	int x = layer_layer_norm(model, "stem.1", patches(model, "stem.0", 0, channels, 4));

	for (unsigned s = 0; s < 4; s++)
		count += network->blocks[s];
	for (unsigned s = 0; s < 4; s++) {
		char name[40];
		channels = layer_width(recipe->width, network->channels << s);
		snprintf(name, sizeof(name), "stages.%u.downsample", s);
		layer_block(model);
		if (s) {
			x = layer_layer_norm(model, name_of(name, "0").text, x);
			x = patches(model, name_of(name, "1").text, x, channels, 2);
		}
		for (uint32_t b = 0; b < network->blocks[s]; b++, number++) {
			snprintf(name, sizeof(name), "stages.%u.blocks.%u", s, b);
			if (b)
				layer_block(model);
			x = block(model, name, x, layer_drop_path(recipe, number, count));
		}
	}
	x = layer_global(model, "head.global_pool", x, LAYER_GLOBAL_AVERAGE);
	x = layer_layer_norm(model, "head.norm", x);
	model->side_min = 32;
	layer_head(model, "head.fc", layer_dropped(model, x), classes);
}
