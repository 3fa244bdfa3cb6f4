/*
 * ConvNeXt (Liu, Mao, Wu, Feichtenhofer, Darrell, Xie 2022, arXiv:2201.03545), with timm's
 * structure, names and initial weights. A block has a depthwise 7 x 7 convolution, a layer norm and
 * a two-layer perceptron at each position, with LayerScale (initially 1e-6) and stochastic depth.
 */
#include "trainer/device/ops.h"
#include "trainer/model/layers.h"

/* Convolution with non-overlapping windows (patch embedding). */
static struct device_value *patches(struct builder *b, struct device_value *x, const char *name,
				    uint32_t channels, uint32_t side)
{
	return layer_conv(b, x,
			  &(struct layer_conv){
				  .name = name,
				  .channels = channels,
				  .window = side,
				  .stride = side,
				  .init = LAYER_INIT_NORMAL,
				  .bias = true,
			  });
}

static struct device_value *block(struct builder *b, struct device_value *input, float drop_path)
{
	uint32_t channels = layer_channels(input);
	struct device_value *x = layer_conv(b, input,
					    &(struct layer_conv){
						    .name = "conv_dw",
						    .channels = channels,
						    .window = 7,
						    .pad = 3,
						    .groups = channels,
						    .init = LAYER_INIT_NORMAL,
						    .bias = true,
					    });
	x = layer_layer_norm(b, x, "norm");
	x = layer_dense(b, x,
			&(struct layer_dense){.name = "mlp.fc1",
					      .outputs = 4 * channels,
					      .activation = DEVICE_GELU});
	x = layer_dense(b, x, &(struct layer_dense){.name = "mlp.fc2", .outputs = channels});
	return layer_scale(b, x,
			   &(struct layer_scale){
				   .name = "sum",
				   .residual = input,
				   .gamma = "gamma",
				   .gamma_init = 1e-6f,
				   .drop_path = drop_path,
			   });
}

/* The downsampling layer is part of the stage's first block. */
static struct device_value *stage(struct builder *b, struct device_value *x, unsigned number,
				  uint32_t channels, uint32_t before, uint32_t all)
{
	layer_block(b);
	if (number) {
		layer_scope(b, "stages.%u.downsample", number);
		x = layer_layer_norm(b, x, "0");
		x = patches(b, x, "1", channels, 2);
	}
	for (uint32_t i = 0; i < b->model->network->blocks[number]; i++) {
		layer_scope(b, "stages.%u.blocks.%u", number, i);
		if (i)
			layer_block(b);
		x = block(b, x, layer_drop_path(&b->model->recipe, before + i, all));
	}
	return x;
}

struct device_value *convnext_record(struct builder *b, struct device_value *x)
{
	const struct network *network = b->model->network;
	double width = b->model->recipe.width;
	uint32_t before = 0, all = 0;

	x = patches(b, x, "stem.0", layer_width(width, network->channels), 4);
	x = layer_layer_norm(b, x, "stem.1");
	for (unsigned s = 0; s < 4; s++)
		all += network->blocks[s];
	for (unsigned s = 0; s < 4; s++) {
		x = stage(b, x, s, layer_width(width, network->channels << s), before, all);
		before += network->blocks[s];
	}
	layer_scope(b, "head");
	layer_head(b);
	x = layer_global_average(b, x, "global_pool");
	x = layer_dropout(b, layer_layer_norm(b, x, "norm"));
	return layer_dense(b, x, &(struct layer_dense){.name = "fc", .outputs = b->model->classes});
}
