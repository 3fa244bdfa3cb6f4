/*
 * Table of networks, one row each: the family that records it (layers.h), the recipe name
 * (model.name), and the parameters that distinguish members of a family.
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
	X(speednet, speednet, .stem = RECIPE_STEM_CIFAR, .one_stem = true, .side_min = 9,          \
	  .logit_scale = 1.0f / 9)
/* clang-format on */

struct network {
	const char *name;
	uint32_t channels;  /* of the first stage, in residual networks */
	uint32_t blocks[4]; /* blocks per stage; all 0: three stages sized by model.depth */
	bool bottlenecks;
	/*
	 * of the bottlenecks' 3 x 3: number of groups, and channels per group at 64 channels of the
	 * stage; 0 counts as 1 group of 64 (Xie et al. 2016, Zagoruyko and Komodakis 2016)
	 */
	uint32_t groups, group_width;
	int stem;          /* enum recipe_stem that `auto` selects; 0 for imagenet's */
	bool one_stem;     /* model.stem does not apply */
	uint32_t heads;    /* of attention */
	uint32_t patch;    /* side, unless model.patch sets it; 0 if the network has no patches */
	uint32_t side_min; /* of the input, that the strides allow; 0 for a patch's, or 1 */
	float logit_scale; /* factor on the logits; 0 counts as 1 */
};
