/*
 * The networks, a row each: what describes their layers (layers.h), the name in the recipe
 * (model.name), and what tells those of one family apart.
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
	X(resnet, resnet_cifar, .channels = 16, .stem = RECIPE_STEM_CIFAR)                         \
	X(speednet, speednet, .stem = RECIPE_STEM_CIFAR, .one_stem = true)
/* clang-format on */

struct network {
	const char *name;
	uint32_t channels;  /* residual ones: of the first stage, and blocks of each */
	uint32_t blocks[4]; /* none: of three stages, as many as model.depth says */
	bool bottlenecks;
	int stem;      /* enum recipe_stem that auto stands for; 0: imagenet's */
	bool one_stem; /* model.stem has no meaning */
};
