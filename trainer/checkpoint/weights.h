/*
 * Metadata of a weights file that an evaluation needs: normalisation of images and class names.
 * Files written by the trainer contain it (struct checkpoint_about), so an evaluation needs no
 * training set. In other programs' files, only the number of classes is known, from the shape of
 * the last layer.
 */
#pragma once

#include "trainer/checkpoint/class_names.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>

enum { WEIGHTS_FILE_MAX = 512 };

/* Plain data. Only rank 0 has class_names. */
struct weights_metadata {
	char file[WEIGHTS_FILE_MAX]; /* file name, for errors */
	uint32_t classes;            /* outputs of the last layer; 0 if there is none */
	bool normalised;        /* the file has a normalisation, so training images were bytes */
	double mean[3], std[3]; /* R, G, B in 0..255; std is 0 if unknown */
	/* the file has class names; without `normalised`, its training images were floats */
	bool named;
	struct class_names class_names;
};

/*
 * Reads any safetensors file. -EBADMSG if the file or its metadata is invalid. error has
 * CHECKPOINT_ERROR_MAX bytes.
 */
int weights_read(const char *path, struct weights_metadata *ret_metadata, char *error);
/* Reads only the class names, from an open file. *ret_names is unchanged if there are none. */
int weights_class_names(const struct safetensors *source, const char *path,
			struct class_names *ret_names, char *error);
/* If the file has no normalisation, copies the recipe's: older checkpoints have it only there. */
void weights_complete_normalisation(struct weights_metadata *metadata,
				    const struct recipe_data *recipe);
void weights_deinit(struct weights_metadata *metadata);
