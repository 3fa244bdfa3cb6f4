/*
 * Residual networks (He, Zhang, Ren, Sun 2015), with the structure and names of torchvision, or of
 * timm where torchvision has no such variant. Variants:
 * - resnet_cifar: section 4.2 of the paper; three stages of 16, 32 and 64 channels, with
 *   projections
 * - ResNeXt: Xie, Girshick, Dollar, Tu, He 2016, arXiv:1611.05431
 * - wide networks: Zagoruyko, Komodakis 2016, arXiv:1605.07146
 * - deep stem and average pooling in shortcuts: He, Zhang, Zhang, Zhang, Xie, Li 2018,
 *   arXiv:1812.01187, section 4 (ResNet-C and ResNet-D)
 * - squeeze and excite: Hu, Shen, Sun 2018, arXiv:1709.01507, section 3, as in timm's seresnet50
 * - stochastic depth: Huang, Sun, Liu, Sedra, Weinberger 2016, arXiv:1603.09382, sections 3 and 4
 */
#include "trainer/device/ops.h"
#include "trainer/model/layers.h"

/* Output channels of a block in a stage of `channels`. */
static uint32_t outputs_of(const struct network *network, uint32_t channels)
{
	return channels * (network->bottlenecks ? 4 : 1);
}

/* Channels of a bottleneck's 3 x 3 convolution in a stage of `channels`. */
static uint32_t inner_of(const struct network *network, uint32_t channels)
{
	uint32_t each = channels * (network->group_width ? network->group_width : 64) / 64;
	return (network->groups ? network->groups : 1) * (each ? each : 1);
}

/* A convolution with its norm in a residual block. 3 x 3 windows are padded. */
struct conv_norm {
	const char *name, *norm; /* names */
	uint32_t channels, window, stride;
	enum device_activation activation;
	uint32_t groups; /* 0 counts as 1 */
	struct device_value *residual;
	bool last; /* last convolution of the block */
};

/* Composer's criterion: excludes the image, which has fewer channels. */
static bool is_blurred(const struct device_value *x)
{
	return layer_channels(x) >= 16;
}

static struct device_value *conv_norm(struct builder *b, struct device_value *x,
				      const struct conv_norm *conv)
{
	const struct recipe_model *recipe = &b->model->recipe;
	uint32_t stride = conv->stride;
	if (recipe->blur != RECIPE_BLUR_NONE && stride > 1 && is_blurred(x)) {
		/*
		 * A 1 x 1 convolution with a stride ignores the positions in between, so the blur
		 * subsamples in its place.
		 */
		bool at_once = conv->window == 1;
		x = layer_blur(b, x, conv->name, at_once ? stride : 1);
		stride = at_once ? 1 : stride;
	}
	return layer_conv(b, x,
			  &(struct layer_conv){
				  .name = conv->name,
				  .norm = conv->norm,
				  .channels = conv->channels,
				  .window = conv->window,
				  .stride = stride,
				  .pad = conv->window / 2,
				  .groups = conv->groups,
				  .residual = conv->residual,
				  .activation = conv->activation,
				  .zero_gamma = conv->last && recipe->zero_init,
			  });
}

/* Layer numbers are timm's, which count an average pool even if there is none. */
static struct device_value *shortcut(struct builder *b, struct device_value *x, uint32_t outputs,
				     uint32_t stride)
{
	struct device_pool_spec average = {.window = 2, .stride = 2, .pad_extra = 1};
	if (b->model->recipe.downsample != RECIPE_DOWNSAMPLE_AVERAGE)
		return conv_norm(
			b, x,
			&(struct conv_norm){"downsample.0", "downsample.1", outputs, 1, stride});
	if (stride == 2)
		x = layer_average_pool(b, x, "downsample.0", &average);
	return conv_norm(b, x, &(struct conv_norm){"downsample.1", "downsample.2", outputs, 1, 1});
}

/* A convolution with bias, without norm. */
static struct device_value *excitation(struct builder *b, struct device_value *x, const char *name,
				       uint32_t channels, enum device_activation activation)
{
	return layer_conv(b, x,
			  &(struct layer_conv){
				  .name = name,
				  .channels = channels,
				  .window = 1,
				  .bias = true,
				  .activation = activation,
			  });
}

/*
 * Squeeze and excite: returns a gate for each sample and channel. The hidden layer has a sixteenth
 * of the channels.
 */
static struct device_value *gate(struct builder *b, struct device_value *x)
{
	uint32_t channels = layer_channels(x);
	uint32_t narrow = (channels / 16 + 4) / 8 * 8;
	x = layer_global_average(b, x, "se.pool");
	x = excitation(b, x, "se.fc1", narrow ? narrow : 8, DEVICE_RELU);
	return excitation(b, x, "se.fc2", channels, DEVICE_LOGISTIC);
}

static struct device_value *block(struct builder *b, struct device_value *input, uint32_t channels,
				  uint32_t stride, bool project, float drop_path)
{
	const struct network *network = b->model->network;
	const struct recipe_model *recipe = &b->model->recipe;
	/* the sum is a separate operation, not the last convolution's residual */
	bool sums = recipe->squeeze_excite || drop_path > 0;
	uint32_t first = recipe->stride_in == RECIPE_STRIDE_IN_1X1 ? stride : 1;
	uint32_t outputs = outputs_of(network, channels), inner = inner_of(network, channels);
	struct device_value *x = input;
	struct device_value *residual = project ? shortcut(b, input, outputs, stride) : input;
	struct device_value *added = sums ? NULL : residual;
	enum device_activation last = sums ? DEVICE_IDENTITY : DEVICE_RELU;
	const struct conv_norm basic[] = {
		{"conv1", "bn1", outputs, 3, stride, DEVICE_RELU},
		{"conv2", "bn2", outputs, 3, 1, last, 1, added, true},
	};
	const struct conv_norm bottleneck[] = {
		{"conv1", "bn1", inner, 1, first, DEVICE_RELU},
		{"conv2", "bn2", inner, 3, stride / first, DEVICE_RELU, network->groups},
		{"conv3", "bn3", outputs, 1, 1, last, 1, added, true},
	};

	for (unsigned i = 0; i < (network->bottlenecks ? 3 : 2); i++)
		x = conv_norm(b, x, network->bottlenecks ? &bottleneck[i] : &basic[i]);
	if (!sums)
		return x;
	return layer_scale(b, x,
			   &(struct layer_scale){
				   .name = "sum",
				   .residual = residual,
				   .gate = recipe->squeeze_excite ? gate(b, x) : NULL,
				   .drop_path = drop_path,
				   .activation = DEVICE_RELU,
			   });
}

static struct device_value *stem_conv(struct builder *b, struct device_value *x, const char *name,
				      const char *norm, uint32_t channels, uint32_t window,
				      uint32_t stride)
{
	return layer_conv(b, x,
			  &(struct layer_conv){
				  .name = name,
				  .norm = norm,
				  .channels = channels,
				  .window = window,
				  .stride = stride,
				  .pad = window / 2,
				  .activation = DEVICE_RELU,
			  });
}

static struct device_value *stem(struct builder *b, struct device_value *x, uint32_t channels,
				 enum recipe_stem kind, bool blurs)
{
	uint32_t narrow = layer_width(0.5, channels);
	if (kind == RECIPE_STEM_CIFAR)
		return stem_conv(b, x, "conv1", "bn1", channels, 3, 1);
	if (kind == RECIPE_STEM_DEEP) {
		x = stem_conv(b, x, "conv1.0", "conv1.1", narrow, 3, 2);
		x = stem_conv(b, x, "conv1.3", "conv1.4", narrow, 3, 1);
		x = stem_conv(b, x, "conv1.6", "bn1", channels, 3, 1);
	} else {
		x = stem_conv(b, x, "conv1", "bn1", channels, 7, 2);
	}
	blurs = blurs && is_blurred(x);
	x = layer_max_pool(
		b, x, "maxpool",
		&(struct device_pool_spec){.window = 3, .stride = blurs ? 1 : 2, .pad = 1});
	return blurs ? layer_blur(b, x, "maxpool", 2) : x;
}

/* Number of blocks in stage `number`, from 0; 0 past the last stage. */
static uint32_t blocks_of(const struct model *model, unsigned number)
{
	if (*model->network->blocks)
		return model->network->blocks[number];
	return number < 3 ? (uint32_t)(model->recipe.depth - 2) / 6 : 0;
}

struct device_value *resnet_record(struct builder *b, struct device_value *x)
{
	const struct network *network = b->model->network;
	const struct recipe_model *recipe = &b->model->recipe;
	uint32_t number = 0, count = 0; /* number of blocks so far, and in total */
	x = stem(b, x, layer_width(recipe->width, network->channels), network_stem(network, recipe),
		 recipe->blur == RECIPE_BLUR_ALL);
	for (unsigned s = 0; s < 4; s++)
		count += blocks_of(b->model, s);
	for (unsigned s = 0; s < 4; s++) {
		uint32_t channels = layer_width(recipe->width, network->channels << s);
		for (uint32_t i = 0; i < blocks_of(b->model, s); i++, number++) {
			uint32_t stride = i || !s ? 1 : 2;
			bool project = stride != 1 ||
				       (!i && layer_channels(x) != outputs_of(network, channels));
			layer_scope(b, "layer%u.%u", s + 1, i);
			layer_block(b);
			x = block(b, x, channels, stride, project,
				  layer_drop_path(recipe, number, count));
		}
	}
	layer_unscope(b);
	x = layer_global_average(b, x, "avgpool");
	layer_head(b);
	return layer_linear(b, layer_dropout(b, x), "fc", b->model->classes, true);
}
