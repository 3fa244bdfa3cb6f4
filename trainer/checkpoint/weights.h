/*
 * Metadata of a weights file that an evaluation needs: normalisation of images and class names.
 * Files written by this program contain it (struct checkpoint_about), so no training set is needed;
 * files of other programs only have the shape of the last layer.
 */
#pragma once

#include "trainer/checkpoint/class_names.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>

enum { WEIGHTS_FILE_MAX = 512 };

/* Plain data, except class_names, which only rank 0 has. */
struct weights_metadata {
	char file[WEIGHTS_FILE_MAX]; /* for errors */
	uint32_t classes;            /* of the last layer; 0 if there is none */
	bool normalised;             /* the file gives a normalisation, so images were bytes */
	double mean[3], std[3];      /* R, G, B in 0..255; std is 0 if unknown */
	/* class names are given; then a missing normalisation means that there was none */
	bool named;
	struct class_names class_names;
};

/*
 * Reads any safetensors file. -EBADMSG if invalid or with malformed metadata. error has
 * CHECKPOINT_ERROR_MAX bytes.
 */
int weights_read(const char *path, struct weights_metadata *ret_metadata, char *error);
/* The same for an open file. *ret_names is unchanged if the file names no classes. */
int weights_class_names(const struct safetensors *source, const char *path,
			struct class_names *ret_names, char *error);
/*
 * Takes the normalisation from a recipe if the file gives none: older checkpoints have it only
 * there, if it was set.
 */
void weights_complete_normalisation(struct weights_metadata *metadata,
				    const struct recipe_data *recipe);
void weights_deinit(struct weights_metadata *metadata);
