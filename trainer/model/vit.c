/*
 * Vision transformers (Dosovitskiy et al. 2020, arXiv:2010.11929; the tiny and small ones: Touvron
 * et al. 2020, arXiv:2012.12877; LayerScale: Touvron
 * et al. 2021, arXiv:2103.17239, section 2), in the layout and with the names of timm: patches
 * become tokens, blocks normalise before attention and before a perceptron of two layers, and the
 * last norm comes before what is classified: the class token, or (model.pool = average) the mean of
 * the patches, without one.
 */
#include "trainer/model/layers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct name {
	char text[64];
};
static struct name name_of(unsigned block, const char *leaf)
{
	struct name name;
	snprintf(name.text, sizeof(name.text), "blocks.%u.%s", block, leaf);
	return name;
}

static int dense(struct model *model, unsigned block, const char *leaf, int input, uint32_t outputs,
		 int residual, enum device_activation activation)
{
	return layer_dense(model, &(struct layer_dense){.name = name_of(block, leaf).text,
							.input = input,
							.outputs = outputs,
							.residual = residual,
							.activation = activation});
}

struct block {
	unsigned number;
	uint32_t heads;
	float layer_scale; /* initial value of the per-channel factor; 0 for none */
	float drop_path, attention_dropout;
};

/* Last layer of a branch (1 or 2), and its sum with the input. */
static int ending(struct model *model, const struct block *block, int branch, int x, int input)
{
	const char *leaf = branch == 1 ? "attn.proj" : "mlp.fc2";
	uint32_t channels = layer_channels(model, input);
	bool scales = block->layer_scale > 0;
	if (!scales && block->drop_path <= 0)
		return dense(model, block->number, leaf, x, channels, input, DEVICE_IDENTITY);
	x = dense(model, block->number, leaf, x, channels, 0, DEVICE_IDENTITY);
	struct name gamma = name_of(block->number, branch == 1 ? "ls1.gamma" : "ls2.gamma");
	return layer_scale(model, &(struct layer_scale){
					  .name = name_of(block->number,
							  branch == 1 ? "drop_path1" : "drop_path2")
							  .text,
					  .input = x,
					  .residual = input,
					  .gamma = scales ? gamma.text : NULL,
					  .gamma_init = block->layer_scale,
					  .drop_path = block->drop_path,
				  });
}

static int block(struct model *model, const struct block *block, int input)
{
	uint32_t channels = layer_channels(model, input);
	unsigned number = block->number;
	int x = layer_layer_norm(model, name_of(number, "norm1").text, input);
	x = dense(model, number, "attn.qkv", x, 3 * channels, 0, DEVICE_IDENTITY);
	x = layer_attention(model, name_of(number, "attn").text, x, block->heads,
			    block->attention_dropout);
	input = ending(model, block, 1, x, input);
	x = layer_layer_norm(model, name_of(number, "norm2").text, input);
	x = dense(model, number, "mlp.fc1", x, 4 * channels, 0, DEVICE_GELU);
	return ending(model, block, 2, x, input);
}

/* Turns patches into tokens. */
static int stem(struct model *model, const struct recipe_model *recipe, uint32_t channels,
		uint32_t patch)
{
	uint32_t side = (uint32_t)recipe->image_size / patch;
	int x = layer_conv(model, &(struct layer_conv){
					  .name = "patch_embed.proj",
					  .channels = channels,
					  .window = patch,
					  .stride = patch,
					  .init = LAYER_INIT_FAN_IN,
					  .bias = true,
				  });
	return layer_tokens(model, "tokens", x, side, recipe->pool == RECIPE_POOL_CLASS);
}

/* By block: "blocks.3.norm1.weight"; the last norm is the last block's. */
int32_t vit_depth(const char *name)
{
	int block = 0;
	if (strncmp(name, "head.", 5) == 0 || strncmp(name, "fc_norm.", 8) == 0)
		return DEPTH_HEAD;
	if (strncmp(name, "norm.", 5) == 0)
		return DEPTH_LAST;
	return sscanf(name, "blocks.%d.", &block) == 1 ? block + 1 : DEPTH_STEM;
}

void vit_describe(struct model *model, const struct network *network,
		  const struct recipe_model *recipe, uint32_t classes)
{
	uint32_t channels = layer_width(recipe->width, network->channels);
	uint32_t patch = recipe->patch ? (uint32_t)recipe->patch : 16;
	bool average = recipe->pool == RECIPE_POOL_AVERAGE;
	if (recipe->image_size < patch)
		layer_fail(model, -EINVAL,
			   "model.image_size = %u is smaller than a patch of model.patch = %u",
			   (uint32_t)recipe->image_size, patch);
	if (channels % network->heads)
		layer_fail(model, -EINVAL,
			   "model.width = %g makes %u channels, which %u heads of %s cannot share: "
			   "take a width of which they are a multiple",
			   recipe->width, channels, network->heads, network->name);
	int x = stem(model, recipe, channels, patch);
	for (unsigned b = 0; b < network->blocks[0]; b++) {
		struct block next = {
			.number = b,
			.heads = network->heads,
			.layer_scale = (float)recipe->layer_scale,
			.drop_path = layer_drop_path(recipe, b, network->blocks[0]),
			.attention_dropout = (float)recipe->attention_dropout,
		};
		layer_block(model);
		x = block(model, &next, x);
	}
	/* the norm is per token, so it suffices to normalise the one that is classified */
	if (average)
		x = layer_global(model, "avgpool", x, LAYER_GLOBAL_AVERAGE);
	else
		x = layer_take(model, "token", x, 0);
	x = layer_layer_norm(model, average ? "fc_norm" : "norm", x);
	model->side_min = patch;
	layer_head(model, "head", layer_dropped(model, x), classes);
}
