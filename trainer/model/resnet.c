/*
 * Residual networks (He, Zhang, Ren, Sun 2015), in the layout and with the names of torchvision,
 * and of timm where torchvision has no such variant. ResNeXt: Xie, Girshick, Dollar, Tu, He 2016,
 * arXiv:1611.05431; wide ones: Zagoruyko, Komodakis 2016, arXiv:1605.07146; the deep stem and the
 * average in shortcuts: He, Zhang, Zhang, Zhang, Xie, Li 2018, arXiv:1812.01187, section 4
 * (ResNet-C and ResNet-D); squeeze and excite: Hu, Shen, Sun 2018, arXiv:1709.01507, section 3, as
 * timm's seresnet50 has it; stochastic depth: Huang, Sun, Liu, Sedra, Weinberger 2016,
 * arXiv:1603.09382, sections 3 and 4. resnet_cifar is section 4.2 of the first: three stages of 16,
 * 32 and 64 channels, with projections.
 */
#include "trainer/model/layers.h"

#include <stdio.h>
#include <string.h>

struct stage {
	uint32_t channels, blocks;
	bool bottlenecks;
	uint32_t groups, inner; /* of the bottlenecks' 3 x 3: groups and channels */
	bool stride_first;      /* stride in the preceding 1 x 1 */
	bool averages;          /* average pooling in shortcuts */
	bool blurs;             /* blur before strided convolutions */
	bool excites;
	uint32_t before, all; /* blocks in earlier stages, and in the network */
	float last_gamma;
	const struct recipe_model *recipe;
};

static uint32_t outputs_of(const struct stage *stage)
{
	return stage->channels * (stage->bottlenecks ? 4 : 1);
}

/* Joins the names of a block and a layer. */
struct name {
	char text[64];
};
static struct name name_of(const char *block, const char *leaf)
{
	struct name name;
	snprintf(name.text, sizeof(name.text), "%.40s.%s", block, leaf);
	return name;
}

/* A convolution with its norm in a residual block. 3 x 3 windows are padded. */
struct unit {
	const char *conv, *norm; /* names */
	uint32_t channels, window, stride;
	enum device_activation activation;
	uint32_t groups; /* 0 counts as 1 */
	int residual;
	bool last; /* last convolution of the block */
};

/* Composer's criterion, which excludes the image itself. */
static bool is_blurred(const struct model *model, int input)
{
	return layer_channels(model, input) >= 16;
}

static int unit(struct model *model, const char *block, int input, const struct stage *stage,
		const struct unit *unit)
{
	uint32_t stride = unit->stride;
	if (stage->blurs && stride > 1 && is_blurred(model, input)) {
		/*
		 * a 1 x 1 convolution with stride only reads every second position, so blur only
		 * there
		 */
		bool at_once = unit->window == 1;
		input = layer_blur(model, name_of(block, unit->conv).text, input,
				   at_once ? stride : 1);
		stride = at_once ? 1 : stride;
	}
	return layer_conv(model, &(struct layer_conv){
					 .name = name_of(block, unit->conv).text,
					 .norm = name_of(block, unit->norm).text,
					 .input = input,
					 .channels = unit->channels,
					 .window = unit->window,
					 .stride = stride,
					 .pad = unit->window / 2,
					 .groups = unit->groups,
					 .residual = unit->residual,
					 .activation = unit->activation,
					 .gamma = unit->last ? stage->last_gamma : 1,
				 });
}

/* timm numbers layers as if there were always an average pool. */
static int shortcut(struct model *model, const char *block, int x, const struct stage *stage,
		    uint32_t stride)
{
	struct device_pool_spec average = {.window = 2, .stride = 2, .pad_extra = 1};
	struct unit conv = {"downsample.0", "downsample.1", outputs_of(stage), 1, stride};

	if (stage->averages) {
		conv = (struct unit){"downsample.1", "downsample.2", outputs_of(stage), 1, 1};
		if (stride == 2)
			x = layer_pool(model, LAYER_AVERAGE_POOL,
				       name_of(block, "downsample.0").text, x, &average);
	}
	return unit(model, block, x, stage, &conv);
}

/* A convolution with bias, without norm. */
static int excitation(struct model *model, struct name name, int input, uint32_t channels,
		      enum device_activation activation)
{
	return layer_conv(model, &(struct layer_conv){
					 .name = name.text,
					 .input = input,
					 .channels = channels,
					 .window = 1,
					 .stride = 1,
					 .bias = true,
					 .activation = activation,
				 });
}

/*
 * Squeeze and excite: the gate of each sample and channel, with a sixteenth of the channels inside.
 */
static int gate(struct model *model, const char *block, int x)
{
	uint32_t channels = layer_channels(model, x);
	uint32_t narrow = (channels / 16 + 4) / 8 * 8;
	int y = layer_global(model, name_of(block, "se.pool").text, x, LAYER_GLOBAL_AVERAGE);
	y = excitation(model, name_of(block, "se.fc1"), y, narrow ? narrow : 8, DEVICE_RELU);
	return excitation(model, name_of(block, "se.fc2"), y, channels, DEVICE_LOGISTIC);
}

/* Ends a block whose sum is not fused into its last convolution. */
static int sum(struct model *model, const char *block, int x, const struct stage *stage,
	       int residual, float drop_path)
{
	return layer_scale(model, &(struct layer_scale){
					  .name = name_of(block, "sum").text,
					  .input = x,
					  .residual = residual,
					  .gate = stage->excites ? gate(model, block, x) : 0,
					  .drop_path = drop_path,
					  .activation = DEVICE_RELU,
				  });
}

static int block(struct model *model, const char *name, int input, const struct stage *stage,
		 uint32_t stride, bool project, float drop_path)
{
	bool sums = stage->excites || drop_path > 0;
	uint32_t first = stage->stride_first ? stride : 1, outputs = outputs_of(stage);
	uint32_t inner = stage->inner, groups = stage->groups;
	int residual = project ? shortcut(model, name, input, stage, stride) : input;
	int added = sums ? 0 : residual;
	enum device_activation last = sums ? DEVICE_IDENTITY : DEVICE_RELU;
	const struct unit basic[] = {
		{"conv1", "bn1", outputs, 3, stride, DEVICE_RELU},
		{"conv2", "bn2", outputs, 3, 1, last, 1, added, true},
	};
	const struct unit bottleneck[] = {
		{"conv1", "bn1", inner, 1, first, DEVICE_RELU},
		{"conv2", "bn2", inner, 3, stride / first, DEVICE_RELU, groups},
		{"conv3", "bn3", outputs, 1, 1, last, 1, added, true},
	};
	int x = input;

	for (unsigned i = 0; i < (stage->bottlenecks ? 3 : 2); i++)
		x = unit(model, name, x, stage, stage->bottlenecks ? &bottleneck[i] : &basic[i]);
	return sums ? sum(model, name, x, stage, residual, drop_path) : x;
}

static int stage(struct model *model, unsigned number, int x, uint32_t inputs,
		 const struct stage *stage)
{
	for (uint32_t b = 0; b < stage->blocks; b++) {
		char name[40];
		uint32_t stride = b || number == 1 ? 1 : 2;
		bool project = stride != 1 || (!b && inputs != outputs_of(stage));
		snprintf(name, sizeof(name), "layer%u.%u", number, b);
		layer_block(model);
		x = block(model, name, x, stage, stride, project,
			  layer_drop_path(stage->recipe, stage->before + b, stage->all));
	}
	return x;
}

static int stem_conv(struct model *model, const char *name, const char *norm, int input,
		     uint32_t channels, uint32_t window, uint32_t stride)
{
	return layer_conv(model, &(struct layer_conv){
					 .name = name,
					 .norm = norm,
					 .input = input,
					 .channels = channels,
					 .window = window,
					 .stride = stride,
					 .pad = window / 2,
					 .activation = DEVICE_RELU,
					 .gamma = 1,
				 });
}

static int stem(struct model *model, uint32_t channels, enum recipe_stem kind, bool blurs)
{
	uint32_t narrow = layer_width(0.5, channels);
	int x = 0;
	if (kind == RECIPE_STEM_CIFAR)
		return stem_conv(model, "conv1", "bn1", x, channels, 3, 1);
	if (kind == RECIPE_STEM_DEEP) {
		x = stem_conv(model, "conv1.0", "conv1.1", x, narrow, 3, 2);
		x = stem_conv(model, "conv1.3", "conv1.4", x, narrow, 3, 1);
		x = stem_conv(model, "conv1.6", "bn1", x, channels, 3, 1);
	} else {
		x = stem_conv(model, "conv1", "bn1", x, channels, 7, 2);
	}
	blurs = blurs && is_blurred(model, x);
	x = layer_pool(model, LAYER_MAX_POOL, "maxpool", x,
		       &(struct device_pool_spec){.window = 3, .stride = blurs ? 1 : 2, .pad = 1});
	return blurs ? layer_blur(model, "maxpool", x, 2) : x;
}

/* Channels of the bottlenecks' 3 x 3 in a stage. */
static uint32_t inner_channels(const struct network *network, uint32_t channels)
{
	uint32_t each = channels * (network->group_width ? network->group_width : 64) / 64;
	return (network->groups ? network->groups : 1) * (each ? each : 1);
}

/* By block: "layer3.1.conv2.weight". */
int32_t resnet_depth(const char *name)
{
	int stage = 0, block = 0;
	if (strncmp(name, "fc.", 3) == 0)
		return DEPTH_HEAD;
	return sscanf(name, "layer%d.%d.", &stage, &block) == 2 ? stage * 1000 + block : DEPTH_STEM;
}

void resnet_describe(struct model *model, const struct network *network,
		     const struct recipe_model *recipe, uint32_t classes)
{
	uint32_t by_depth = (uint32_t)(recipe->depth - 2) / 6;
	uint32_t channels = layer_width(recipe->width, network->channels);
	uint32_t before = 0, all = 0;
	int x = stem(model, channels, network_stem(network, recipe),
		     recipe->blur == RECIPE_BLUR_ALL);
	for (unsigned s = 0; s < 4; s++)
		all += *network->blocks ? network->blocks[s] : s < 3 ? by_depth : 0;
	for (unsigned s = 0; s < (*network->blocks ? 4 : 3); s++) {
		struct stage next = {
			.channels = layer_width(recipe->width, network->channels << s),
			.blocks = *network->blocks ? network->blocks[s] : by_depth,
			.bottlenecks = network->bottlenecks,
			.groups = network->groups,
			.stride_first = recipe->stride_in == RECIPE_STRIDE_IN_1X1,
			.averages = recipe->downsample == RECIPE_DOWNSAMPLE_AVERAGE,
			.blurs = recipe->blur != RECIPE_BLUR_NONE,
			.excites = recipe->squeeze_excite,
			.before = before,
			.all = all,
			.last_gamma = recipe->zero_init ? 0 : 1,
			.recipe = recipe,
		};
		next.inner = inner_channels(network, next.channels);
		x = stage(model, s + 1, x, channels, &next);
		channels = outputs_of(&next);
		before += next.blocks;
	}
	x = layer_global(model, "avgpool", x, LAYER_GLOBAL_AVERAGE);
	layer_linear(model, "fc", layer_dropped(model, x), classes, true);
}
