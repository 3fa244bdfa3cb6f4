/*
 * `trainer --plan DEVICE.json RECIPE`: prints, layer by layer, which operations a GPU would run for
 * one step of a recipe, and a lower bound on their time (device/cuda/lowering/roofline.h). The GPU
 * need not be present. Opens no dataset and trains nothing.
 *
 * DEVICE.json describes the GPU with the keys of cuDNN's device properties (deviceName, deviceVer,
 * multiProcessorCount, totalGlobalMem ...), plus "roofline": {"bytes_per_second",
 * "flops_per_second" {"fp32", "tf32", "fp16", "bf16"}, "source"}.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdio.h>

enum { ESTIMATE_ERROR_MAX = 2048, ESTIMATE_SIDE_MAX = 16384 };

struct estimate_options {
	const char *device; /* path of DEVICE.json */
	/*
	 * side of the square input images; 0 for the size that data.pipeline produces or, if that
	 * is unknown, 32 for small models and 224 for others
	 */
	uint32_t size;
};

/*
 * Prints the plan to `file`. -ENOTSUP if built without the CUDA toolkit and cuDNN, -EINVAL for a
 * mistake in the file or the recipe. `error` receives a sentence of up to ESTIMATE_ERROR_MAX bytes.
 */
int estimate_recipe(const struct recipe *recipe, const struct estimate_options *options, FILE *file,
		    char *error);

/*
 * Returns the side of the square images that a pipeline (loaderd(1)) produces, from the last
 * transform that sets an image size. Returns 0 if the side is not certain: that step has several
 * sizes or unequal sides, or there is no such transform.
 */
uint32_t pipeline_side(const char *pipeline);

/*
 * Returns the device description that cuDNN reads: the file without "roofline". The caller frees
 * it.
 */
int estimate_device_properties(const char *path, char **ret_properties, char *error);

struct engines;
/* Implements estimate_recipe() with the given engines; tests pass their own. Prints engines->name.
 */
int estimate_with(const struct recipe *recipe, const struct estimate_options *options,
		  const struct engines *engines, FILE *file, char *error);
