/*
 * Residual networks (He, Zhang, Ren, Sun 2015). ResNet-18 to -152 in the layout and with the names
 * of torchvision's "v1.5": the stride of a bottleneck is in its 3 x 3. resnet_cifar is the paper's
 * section 4.2: three stages of 16, 32 and 64 channels, with projections.
 */
#include "trainer/model/layers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct stage {
	uint32_t channels, blocks, stride;
};

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

static int projection(struct model *model, const char *block, int input, uint32_t channels,
		      uint32_t stride)
{
	return unit(model, block, input, &(struct unit){0, channels, 1, stride, 0, 1});
}

static int basic_block(struct model *model, const char *block, int input, uint32_t channels,
		       uint32_t stride, bool project, float last_gamma)
{
	int shortcut = project ? projection(model, block, input, channels, stride) : input;
	int x = unit(model, block, input, &(struct unit){1, channels, 3, stride, 0, 1});
	return unit(model, block, x, &(struct unit){2, channels, 3, 1, shortcut, last_gamma});
}

static int bottleneck(struct model *model, const char *block, int input, uint32_t channels,
		      uint32_t stride, bool project, float last_gamma)
{
	int shortcut = project ? projection(model, block, input, 4 * channels, stride) : input;
	int x = unit(model, block, input, &(struct unit){1, channels, 1, 1, 0, 1});
	x = unit(model, block, x, &(struct unit){2, channels, 3, stride, 0, 1});
	return unit(model, block, x, &(struct unit){3, 4 * channels, 1, 1, shortcut, last_gamma});
}

static int stages(struct model *model, const struct stage *list, unsigned count, int input,
		  uint32_t channels, bool bottlenecks, bool zero_init)
{
	float last_gamma = zero_init ? 0 : 1;
	int x = input;
	for (unsigned s = 0; s < count; s++) {
		uint32_t outputs = list[s].channels * (bottlenecks ? 4 : 1);
		for (uint32_t b = 0; b < list[s].blocks; b++) {
			char block[40];
			uint32_t stride = b ? 1 : list[s].stride;
			bool project = stride != 1 || channels != outputs;
			snprintf(block, sizeof(block), "layer%u.%u", s + 1, b);
			x = (bottlenecks ? bottleneck : basic_block)(
				model, block, x, list[s].channels, stride, project, last_gamma);
			channels = outputs;
		}
	}
	return x;
}

static int head(struct model *model, int x, uint32_t classes)
{
	x = layer_global(model, "avgpool", x, LAYER_GLOBAL_AVERAGE);
	return layer_linear(model, "fc", x, classes, true) < 0 ? -EINVAL : 0;
}

static int stem(struct model *model, uint32_t channels, bool large)
{
	int x = layer_conv(model, &(struct layer_conv){
					  .name = "conv1",
					  .norm = "bn1",
					  .channels = channels,
					  .window = large ? 7 : 3,
					  .stride = large ? 2 : 1,
					  .pad = large ? 3 : 1,
					  .activation = DEVICE_RELU,
					  .gamma = 1,
				  });
	return large ? layer_max_pool(model, "maxpool", x, 3, 2, 1) : x;
}

int resnet_describe(struct model *model, const struct recipe_model *recipe, uint32_t classes)
{
	static const struct {
		const char *name;
		bool bottlenecks;
		uint32_t blocks[4];
	} nets[] = {
		{"resnet18", false, {2, 2, 2, 2}},  {"resnet34", false, {3, 4, 6, 3}},
		{"resnet50", true, {3, 4, 6, 3}},   {"resnet101", true, {3, 4, 23, 3}},
		{"resnet152", true, {3, 8, 36, 3}},
	};
	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
		if (strcmp(nets[i].name, recipe->name) != 0)
			continue;
		struct stage list[4];
		for (unsigned s = 0; s < 4; s++)
			list[s] = (struct stage){layer_width(recipe->width, 64u << s),
						 nets[i].blocks[s], s ? 2 : 1};
		bool large = recipe->stem != RECIPE_STEM_CIFAR;
		uint32_t channels = list[0].channels;
		int x = stem(model, channels, large);
		x = stages(model, list, 4, x, channels, nets[i].bottlenecks, recipe->zero_init);
		return head(model, x, classes);
	}
	return layer_fail(model, -EINVAL, "model.name = \"%s\" is no ResNet", recipe->name);
}

int resnet_cifar_describe(struct model *model, const struct recipe_model *recipe, uint32_t classes)
{
	uint32_t blocks = (uint32_t)(recipe->depth - 2) / 6;
	struct stage list[3];
	for (unsigned s = 0; s < 3; s++)
		list[s] = (struct stage){layer_width(recipe->width, 16u << s), blocks, s ? 2 : 1};
	int x = stem(model, list[0].channels, recipe->stem == RECIPE_STEM_IMAGENET);
	x = stages(model, list, 3, x, list[0].channels, false, recipe->zero_init);
	return head(model, x, classes);
}
