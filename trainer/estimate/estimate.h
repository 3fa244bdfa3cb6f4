/*
 * `trainer --plan DEVICE.json RECIPE`: prints, layer by layer, the operations that a GPU runs in
 * one step of a recipe, and a lower bound on their time (device/cuda/lowering/roofline.h). With
 * --ranks=N, prints how N GPUs can divide the step instead (meshes.h). The GPU need not be present.
 * Opens no dataset and trains nothing.
 *
 * DEVICE.json describes the GPU with the keys of cuDNN's device properties (deviceName, deviceVer,
 * multiProcessorCount, totalGlobalMem ...) and an object "roofline" with the keys
 * "bytes_per_second", "flops_per_second" (an object with "fp32", "tf32", "fp16", "bf16") and
 * "source". estimate_device.h describes "links", which --ranks needs.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdio.h>

enum { ESTIMATE_ERROR_MAX = 2048, ESTIMATE_SIDE_MAX = 16384, ESTIMATE_RANKS_MAX = 65536 };

struct estimate_options {
	const char *device; /* path of DEVICE.json */
	/*
	 * side of the square input images; 0 for the size that data.pipeline produces or, if that
	 * is unknown, 32 for small models and 224 for others
	 */
	uint32_t size;
	uint32_t ranks; /* GPUs that train together; 0 and 1: one */
};

/*
 * Prints the plan to `file`. -ENOTSUP if built without the CUDA toolkit and cuDNN, -EINVAL for an
 * error in DEVICE.json or the recipe. `error` receives a sentence of up to ESTIMATE_ERROR_MAX
 * bytes.
 */
int estimate_recipe(const struct recipe *recipe, const struct estimate_options *options, FILE *file,
		    char *error);

/*
 * Returns the side of the square images that a pipeline (loaderd(1)) produces, as set by the last
 * transform with an image size. Returns 0 if the side is uncertain: no transform sets a size, or
 * the last one pads, has several sizes or unequal sides, or fixes only one side.
 */
uint32_t pipeline_side(const char *pipeline);

/*
 * Returns the device description for cuDNN: the file's JSON without "roofline" and "links". The
 * caller frees it.
 */
int estimate_device_properties(const char *path, char **ret_properties, char *error);

struct engines;
/*
 * Implements estimate_recipe() with the given engines, so that tests can replace them. Prints
 * engines->name.
 */
int estimate_with(const struct recipe *recipe, const struct estimate_options *options,
		  const struct engines *engines, FILE *file, char *error);
