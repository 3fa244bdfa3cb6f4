/*
 * Residual networks (He, Zhang, Ren, Sun 2015). ResNet-18 to -152 in the layout and with the names
 * of torchvision's "v1.5": the stride of a bottleneck is in its 3 x 3. resnet_cifar is the paper's
 * section 4.2: three stages of 16, 32 and 64 channels, with projections.
 */
#include "trainer/model/layers.h"

#include <stdio.h>

struct stage {
	uint32_t channels, blocks;
	bool bottlenecks;
	float last_gamma;
};

static uint32_t outputs_of(const struct stage *stage)
{
	return stage->channels * (stage->bottlenecks ? 4 : 1);
}

/* Joins a block's name and a layer's. */
struct name {
	char text[64];
};
static struct name name_of(const char *block, const char *leaf)
{
	struct name name;
	snprintf(name.text, sizeof(name.text), "%.40s.%s", block, leaf);
	return name;
}

/* Of a residual block; `number` of its main path, 0: its shortcut. Windows of 3 are padded. */
struct unit {
	unsigned number;
	uint32_t channels, window, stride;
	int residual;
	float gamma;
};

static int unit(struct model *model, const char *block, int input, const struct unit *unit)
{
	char conv[16] = "downsample.0", norm[16] = "downsample.1";
	if (unit->number) {
		snprintf(conv, sizeof(conv), "conv%u", unit->number);
		snprintf(norm, sizeof(norm), "bn%u", unit->number);
	}
	return layer_conv(model, &(struct layer_conv){
					 .name = name_of(block, conv).text,
					 .norm = name_of(block, norm).text,
					 .input = input,
					 .channels = unit->channels,
					 .window = unit->window,
					 .stride = unit->stride,
					 .pad = unit->window / 2,
					 .residual = unit->residual,
					 .activation = unit->number ? DEVICE_RELU : DEVICE_IDENTITY,
					 .gamma = unit->gamma,
				 });
}

static int block(struct model *model, const char *name, int input, const struct stage *stage,
		 uint32_t stride, bool project)
{
	uint32_t channels = stage->channels, outputs = outputs_of(stage);
	int shortcut = input, x = input;
	if (project)
		shortcut = unit(model, name, input, &(struct unit){0, outputs, 1, stride, 0, 1});
	if (stage->bottlenecks)
		x = unit(model, name, x, &(struct unit){1, channels, 1, 1, 0, 1});
	x = unit(model, name, x,
		 &(struct unit){stage->bottlenecks ? 2 : 1, channels, 3, stride, 0, 1});
	return unit(model, name, x,
		    &(struct unit){stage->bottlenecks ? 3 : 2, outputs, stage->bottlenecks ? 1 : 3,
				   1, shortcut, stage->last_gamma});
}

static int stage(struct model *model, unsigned number, int x, uint32_t inputs,
		 const struct stage *stage)
{
	for (uint32_t b = 0; b < stage->blocks; b++) {
		char name[40];
		uint32_t stride = b || number == 1 ? 1 : 2;
		bool project = stride != 1 || (!b && inputs != outputs_of(stage));
		snprintf(name, sizeof(name), "layer%u.%u", number, b);
		x = block(model, name, x, stage, stride, project);
	}
	return x;
}

static int stem(struct model *model, uint32_t channels, bool small)
{
	int x = layer_conv(model, &(struct layer_conv){
					  .name = "conv1",
					  .norm = "bn1",
					  .channels = channels,
					  .window = small ? 3 : 7,
					  .stride = small ? 1 : 2,
					  .pad = small ? 1 : 3,
					  .activation = DEVICE_RELU,
					  .gamma = 1,
				  });
	return small ? x : layer_max_pool(model, "maxpool", x, 3, 2, 1);
}

void resnet_describe(struct model *model, const struct network *network,
		     const struct recipe_model *recipe, uint32_t classes)
{
	uint32_t by_depth = (uint32_t)(recipe->depth - 2) / 6;
	uint32_t channels = layer_width(recipe->width, network->channels);
	int x = stem(model, channels, network_is_small(network, recipe));
	for (unsigned s = 0; s < (*network->blocks ? 4 : 3); s++) {
		struct stage next = {
			.channels = layer_width(recipe->width, network->channels << s),
			.blocks = *network->blocks ? network->blocks[s] : by_depth,
			.bottlenecks = network->bottlenecks,
			.last_gamma = recipe->zero_init ? 0 : 1,
		};
		x = stage(model, s + 1, x, channels, &next);
		channels = outputs_of(&next);
	}
	x = layer_global(model, "avgpool", x, LAYER_GLOBAL_AVERAGE);
	layer_linear(model, "fc", x, classes, true);
}
