/*
 * `trainer --plan DEVICE.json RECIPE`: what a GPU that need not be here would run for one step of a
 * recipe, layer by layer, and how long that takes at least (device/cuda/roofline.h). No dataset is
 * opened, nothing is trained.
 *
 * DEVICE.json describes the GPU as cuDNN's device properties do (deviceName, deviceVer,
 * multiProcessorCount, totalGlobalMem ...), with one key more: "roofline" {"bytes_per_second",
 * "flops_per_second" {"fp32", "tf32", "fp16", "bf16"}, "source"}.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdio.h>

enum { PLAN_ERROR_MAX = 2048, PLAN_SIDE_MAX = 16384 };

struct plan_options {
	const char *device; /* path of DEVICE.json */
	/*
	 * images of size x size; 0: as data.pipeline makes them, or else what the model's stem is
	 * made for
	 */
	uint32_t size;
};

/*
 * -ENOTSUP: built without CUDA's toolkit, whose cuDNN is asked for plans; -EINVAL: a mistake in the
 * file or the recipe. error: a sentence, PLAN_ERROR_MAX bytes.
 */
int plan_recipe(const struct recipe *recipe, const struct plan_options *options, FILE *file,
		char *error);

/*
 * The side of the squares that a pipeline (loaderd(1)) makes, by the last of its steps that makes
 * images of a size. 0: it is not certain, for that step has several sizes, or unequal sides, or
 * there is none.
 */
uint32_t plan_pipeline_side(const char *pipeline);

/* The device as cuDNN reads it: the file less its roofline. The caller frees it. */
int plan_properties(const char *path, char **ret_properties, char *error);

struct engines;
/*
 * What plan_recipe() does with the device's engines; for tests, whose engines are others.
 * engines->name is printed.
 */
int plan_with(const struct recipe *recipe, const struct plan_options *options,
	      const struct engines *engines, FILE *file, char *error);
