/*
 * Vision transformers (Dosovitskiy et al. 2020, arXiv:2010.11929; tiny and small: Touvron et al.
 * 2020, arXiv:2012.12877; LayerScale: Touvron et al. 2021, arXiv:2103.17239, section 2; 1b: the
 * sizes of ViT-g/14, Zhai et al. 2021, arXiv:2106.04560, but 22 heads of 64 channels instead of 16
 * of 88, which attention on a GPU does not take), with the structure and names of timm. Patches
 * become tokens. Blocks normalise before attention and before a two-layer perceptron. A last norm
 * precedes the head, whose input is the class token, or with model.pool = average the mean of the
 * patches, without a class token.
 *
 * With train.tensor, ranks have heads / N attention heads and a part of the perceptron's hidden
 * channels each (Shoeybi et al. 2019, arXiv:1909.08053, section 3). Everything else is whole.
 */
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/model/layers.h"

#include <errno.h>
#include <stdio.h>

/* Adds the last layer of a branch (1 or 2) and the sum with the block's input. */
static struct device_value *branch_end(struct builder *b, struct device_value *x,
				       struct device_value *input, int branch, float drop_path)
{
	float factor = (float)b->model->recipe.layer_scale;
	bool sums = factor > 0 || drop_path > 0;
	x = layer_dense(b, x,
			&(struct layer_dense){.name = branch == 1 ? "attn.proj" : "mlp.fc2",
					      .outputs = layer_channels(input),
					      .split = LAYER_SPLIT_INPUTS,
					      .residual = sums ? NULL : input});
	if (!sums)
		return x;
	return layer_scale(b, x,
			   &(struct layer_scale){
				   .name = branch == 1 ? "drop_path1" : "drop_path2",
				   .residual = input,
				   .gamma = branch == 1 ? "ls1.gamma" : "ls2.gamma",
				   .gamma_init = factor,
				   .drop_path = drop_path,
			   });
}

/* Channels between the two layers of the perceptron. */
static uint32_t hidden_channels(const struct model *model, uint32_t channels)
{
	uint32_t hidden = model->network->hidden;
	return hidden ? layer_width(model->recipe.width, hidden) : 4 * channels;
}

static struct device_value *block(struct builder *b, struct device_value *input, float drop_path)
{
	uint32_t channels = layer_channels(input);
	struct device_value *x = layer_layer_norm(b, input, "norm1");
	x = layer_dense(b, x,
			&(struct layer_dense){.name = "attn.qkv",
					      .outputs = 3 * channels,
					      .split = LAYER_SPLIT_OUTPUTS,
					      .ranges = 3});
	x = layer_attention(b, x, "attn", b->model->network->heads,
			    (float)b->model->recipe.attention_dropout);
	input = branch_end(b, x, input, 1, drop_path);
	x = layer_layer_norm(b, input, "norm2");
	x = layer_dense(b, x,
			&(struct layer_dense){.name = "mlp.fc1",
					      .outputs = hidden_channels(b->model, channels),
					      .split = LAYER_SPLIT_OUTPUTS,
					      .activation = DEVICE_GELU});
	return branch_end(b, x, input, 2, drop_path);
}

/* Turns patches into tokens. */
static struct device_value *stem(struct builder *b, struct device_value *x,
				 const struct recipe_model *recipe, uint32_t channels,
				 uint32_t patch)
{
	x = layer_conv(b, x,
		       &(struct layer_conv){
			       .name = "patch_embed.proj",
			       .channels = channels,
			       .window = patch,
			       .stride = patch,
			       .init = LAYER_INIT_FAN_IN,
			       .bias = true,
		       });
	return layer_pos_embed(b, x, "tokens", (uint32_t)recipe->image_size / patch,
			       recipe->pool == RECIPE_POOL_CLASS);
}

static void *fail_heads(struct builder *b, const struct network *network, unsigned group)
{
	char divisors[64] = "1";
	size_t length = 1;
	for (uint32_t i = 2; i <= network->heads && length < sizeof(divisors) - 8; i++)
		if (network->heads % i == 0)
			length += (size_t)snprintf(divisors + length, sizeof(divisors) - length,
						   "%s%u", i == network->heads ? " or " : ", ", i);
	return layer_fail(b, -EINVAL,
			  "train.tensor = %u does not divide the %u attention heads of model.name "
			  "= %s: use %s",
			  group, network->heads, network->name, divisors);
}

struct device_value *vit_record(struct builder *b, struct device_value *x)
{
	const struct network *network = b->model->network;
	const struct recipe_model *recipe = &b->model->recipe;
	uint32_t channels = layer_width(recipe->width, network->channels);
	uint32_t patch = network_patch(network, recipe);
	unsigned group = device_params_group(b->model->store);
	bool average = recipe->pool == RECIPE_POOL_AVERAGE;
	if (network->heads % group)
		return fail_heads(b, network, group);
	if (recipe->image_size < patch)
		return layer_fail(
			b, -EINVAL,
			"model.image_size = %u is smaller than a patch of model.patch = %u",
			(uint32_t)recipe->image_size, patch);
	if (channels % network->heads)
		return layer_fail(b, -EINVAL,
				  "model.width = %g makes %u channels, which %u heads of %s cannot "
				  "share: take a width of which they are a multiple",
				  recipe->width, channels, network->heads, network->name);
	x = stem(b, x, recipe, channels, patch);
	for (unsigned i = 0; i < network->blocks[0]; i++) {
		layer_scope(b, "blocks.%u", i);
		layer_block(b);
		x = block(b, x, layer_drop_path(recipe, i, network->blocks[0]));
	}
	layer_unscope(b);
	/* the norm is computed per token, so normalise only the token that is classified */
	x = average ? layer_global_average(b, x, "avgpool") : layer_select_token(b, x, "token", 0);
	/*
	 * for learning rate decay, timm counts "norm" as part of the last block, "fc_norm" of the
	 * head
	 */
	if (average)
		layer_head(b);
	x = layer_layer_norm(b, x, average ? "fc_norm" : "norm");
	layer_head(b);
	return layer_dense(b, layer_dropout(b, x),
			   &(struct layer_dense){.name = "head", .outputs = b->model->classes});
}
