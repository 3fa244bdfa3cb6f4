/*
 * Table of networks, one row each: the family that records the network (layers.h), its name in the
 * recipe (model.name), and the parameters that distinguish it within the family.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define NETWORKS(X)                                                                                \
	X(resnet, resnet18, .channels = 64, .blocks = {2, 2, 2, 2})                                \
	X(resnet, resnet34, .channels = 64, .blocks = {3, 4, 6, 3})                                \
	X(resnet, resnet50, .channels = 64, .blocks = {3, 4, 6, 3}, .bottlenecks = true)           \
	X(resnet, resnet101, .channels = 64, .blocks = {3, 4, 23, 3}, .bottlenecks = true)         \
	X(resnet, resnet152, .channels = 64, .blocks = {3, 8, 36, 3}, .bottlenecks = true)         \
	X(resnet, resnext50_32x4d, .channels = 64, .blocks = {3, 4, 6, 3}, .bottlenecks = true,    \
	  .groups = 32, .group_width = 4)                                                          \
	X(resnet, resnext101_32x8d, .channels = 64, .blocks = {3, 4, 23, 3}, .bottlenecks = true,  \
	  .groups = 32, .group_width = 8)                                                          \
	X(resnet, resnext101_64x4d, .channels = 64, .blocks = {3, 4, 23, 3}, .bottlenecks = true,  \
	  .groups = 64, .group_width = 4)                                                          \
	X(resnet, wide_resnet50_2, .channels = 64, .blocks = {3, 4, 6, 3}, .bottlenecks = true,    \
	  .group_width = 128)                                                                      \
	X(resnet, wide_resnet101_2, .channels = 64, .blocks = {3, 4, 23, 3}, .bottlenecks = true,  \
	  .group_width = 128)                                                                      \
	X(resnet, resnet_cifar, .channels = 16, .stem = RECIPE_STEM_CIFAR)                         \
	X(convnext, convnext_tiny, .channels = 96, .blocks = {3, 3, 9, 3}, .side_min = 32)         \
	X(vit, vit_tiny_patch16, .channels = 192, .blocks = {12}, .heads = 3, .patch = 16)         \
	X(vit, vit_small_patch16, .channels = 384, .blocks = {12}, .heads = 6, .patch = 16)        \
	X(vit, vit_base_patch16, .channels = 768, .blocks = {12}, .heads = 12, .patch = 16)        \
	X(vit, vit_large_patch16, .channels = 1024, .blocks = {24}, .heads = 16, .patch = 16)      \
	X(vit, vit_1b_patch14, .channels = 1408, .hidden = 6144, .blocks = {40}, .heads = 22,      \
	  .patch = 14)                                                                             \
	X(speednet, speednet, .stem = RECIPE_STEM_CIFAR, .one_stem = true, .side_min = 9,          \
	  .logit_scale = 1.0f / 9)
/* clang-format on */

struct network {
	const char *name;
	/* channels of the first stage; of each token in vision transformers */
	uint32_t channels;
	uint32_t blocks[4]; /* blocks per stage; all 0: three stages sized by model.depth */
	bool bottlenecks;
	/*
	 * the bottlenecks' 3 x 3 convolution: number of groups, and channels per group in a stage
	 * of 64 channels; 0 means 1 group of 64 (Xie et al. 2016, Zagoruyko and Komodakis 2016)
	 */
	uint32_t groups, group_width;
	/* enum recipe_stem that `auto` selects; 0 for imagenet */
	int stem;
	bool one_stem;  /* model.stem does not apply */
	uint32_t heads; /* number of attention heads */
	/* channels between the two layers of a transformer's perceptron; 0 for 4 x channels */
	uint32_t hidden;
	uint32_t patch; /* default of model.patch; 0 if the network has no patches */
	/* smallest input side that the strides allow; 0: the patch, or 1 without patches */
	uint32_t side_min;
	float logit_scale; /* factor on the logits; 0 means 1 */
};
