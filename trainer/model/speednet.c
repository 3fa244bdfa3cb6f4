/*
 * A small network without shortcuts for 32 x 32 images that learns in few epochs, after Keller
 * Jordan's airbench ("94% on CIFAR-10 in 3.29 seconds", 2024): a fixed 2 x 2 convolution that
 * whitens patches, three groups of two 3 x 3 convolutions initialised to the identity, norms
 * without gamma, pooling before the norm, a global maximum, and logits divided by 9.
 */
#include "trainer/device/ops.h"
#include "trainer/model/layers.h"

static struct device_value *conv(struct builder *b, struct device_value *x, const char *name,
				 uint32_t channels)
{
	return layer_conv(b, x,
			  &(struct layer_conv){.name = name,
					       .channels = channels,
					       .window = 3,
					       .pad = 1,
					       .init = LAYER_INIT_DIRAC});
}

static struct device_value *group(struct builder *b, struct device_value *x, unsigned number,
				  uint32_t channels, enum device_activation activation)
{
	struct device_pool_spec pool = {.window = 2, .stride = 2};
	layer_scope(b, "group%u", number);
	layer_block(b);
	x = conv(b, x, "conv1", channels);
	x = layer_max_pool(b, x, "pool", &pool);
	x = layer_batch_norm(b, x, "bn1", activation);
	x = conv(b, x, "conv2", channels);
	return layer_batch_norm(b, x, "bn2", activation);
}

struct device_value *speednet_record(struct builder *b, struct device_value *x)
{
	enum { WINDOW = 2, PATCH = WINDOW * WINDOW * 3 };
	static const uint32_t channels[] = {64, 256, 256};
	const struct recipe_model *recipe = &b->model->recipe;
	enum device_activation activation =
		recipe->activation == RECIPE_ACTIVATION_GELU ? DEVICE_GELU : DEVICE_RELU;
	x = layer_conv(b, x,
		       &(struct layer_conv){
			       .name = "whiten",
			       .channels = 2 * PATCH,
			       .window = WINDOW,
			       .activation = activation,
			       .init = recipe->whiten ? LAYER_INIT_WHITEN : LAYER_INIT_FAN_OUT,
			       .bias = true,
		       });
	for (unsigned i = 0; i < 3; i++)
		x = group(b, x, i + 1, layer_width(recipe->width, channels[i]), activation);
	layer_unscope(b);
	x = layer_global_max(b, x, "maxpool");
	layer_head(b);
	return layer_linear(b, layer_dropout(b, x), "fc", b->model->classes, false);
}
