/*
 * Between the files of the checkpoint: a store's tensors in safetensors files. Convolutions are
 * [K][R][S][C] on the host and [K][C][R][S] in files; each slot has a prefix of its own to the
 * parameter's name. Functions belong to the thread that owns the device.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

/* Writes the sentence, CHECKPOINT_ERROR_MAX bytes, and returns the code. */
#define checkpoint_fail(error, code, ...)                                                          \
	sentence_fail((error), CHECKPOINT_ERROR_MAX, (code), __VA_ARGS__)

/* Metadata that goes with weights. */
enum { CHECKPOINT_COLOUR_TEXT = 96, CHECKPOINT_ABOUT_MAX = 5 };
struct checkpoint_metadata {
	struct safetensors_entry entries[CHECKPOINT_ABOUT_MAX];
	char mean[CHECKPOINT_COLOUR_TEXT], std[CHECKPOINT_COLOUR_TEXT]; /* texts of entries */
};
/* Fills entries, which also lead into about; returns how many. */
size_t checkpoint_describe(const struct checkpoint_about *about,
			   struct checkpoint_metadata *metadata);

/*
 * A file of every slot that a parameter has, or without prefixes of slot *only of each. Negative
 * errno with a sentence in error.
 */
int checkpoint_write_tensors(const char *path, struct device_params *params,
			     const enum device_slot *only, const struct safetensors_entry *metadata,
			     size_t metadata_count, char *error);
/*
 * Every slot that a parameter has; what is missing, or of another type or shape, is -EBADMSG. path:
 * of the source, for errors.
 */
int checkpoint_restore_tensors(const struct safetensors *source, const char *path,
			       struct device_params *params, char *error);

/* Elements of a floating-point tensor as floats; `narrow` has room for what is to be widened. */
int checkpoint_read_elements(const struct safetensors *source,
			     const struct safetensors_tensor *tensor, size_t count, void *narrow,
			     float *ret_values, char *error);
/*
 * Position embeddings of another size than the model's, resized (trainer/device/positions.h).
 * -ENOENT: they are none, or not of a square.
 */
int checkpoint_import_positions(const struct safetensors *source, const char *path,
				const struct safetensors_tensor *tensor, struct device_param *param,
				char *error);
