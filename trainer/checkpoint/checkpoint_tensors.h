/*
 * Internal to checkpoint/: copies tensors between a parameter store and safetensors files.
 * Convolutions are [K][R][S][C] on the host and [K][C][R][S] in files. The name of a tensor is the
 * parameter's with a prefix for each slot. Call the functions from the thread that owns the device.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"

/* Writes a sentence (CHECKPOINT_ERROR_MAX bytes) and returns the code. */
#define checkpoint_fail(error, code, ...)                                                          \
	sentence_fail((error), CHECKPOINT_ERROR_MAX, (code), __VA_ARGS__)

/* Transposes each of k matrices [rows][columns]. */
void checkpoint_transpose(size_t k, size_t rows, size_t columns, const float *from, float *to);

struct checkpoint_name {
	char text[2 * DEVICE_NAME_MAX];
};
/* A tensor of a checkpoint: one slot of a parameter. */
struct checkpoint_source {
	struct device_param *param;
	enum device_slot slot;
	struct checkpoint_name name;
};
struct checkpoint_list {
	struct checkpoint_source *sources;
	struct safetensors_tensor *tensors; /* with the shapes in files, without data */
	size_t count;
};
/*
 * Lists a checkpoint's tensors, in the order of its file. If `only` is not NULL, lists just slot
 * *only, without name prefixes. -ENOMEM.
 */
int checkpoint_list_init(struct checkpoint_list *list, const struct device_params *params,
			 const enum device_slot *only);
void checkpoint_list_deinit(struct checkpoint_list *list);
/* True for slots that checkpoints contain; gradients are not saved. */
bool checkpoint_has_slot(const struct device_param *param, enum device_slot slot);
/* NULL, with a sentence in error, if the tensor is missing or has another type or shape. */
const struct safetensors_tensor *checkpoint_find_tensor(const struct safetensors *source,
							const char *path,
							const struct device_params *params,
							const struct device_param *param,
							enum device_slot slot, char *error);

/* Metadata entries stored with weights. */
enum { CHECKPOINT_COLOUR_TEXT = 96, CHECKPOINT_ABOUT_MAX = 5 };
struct checkpoint_metadata {
	struct safetensors_entry entries[CHECKPOINT_ABOUT_MAX];
	/* storage for entry values */
	char mean[CHECKPOINT_COLOUR_TEXT], std[CHECKPOINT_COLOUR_TEXT];
};
/* Fills the entries, which may point into `about`, and returns their number. */
size_t checkpoint_describe(const struct checkpoint_about *about,
			   struct checkpoint_metadata *metadata);

/*
 * Writes a file with every slot of every parameter. If `only` is not NULL, writes just slot *only,
 * without name prefixes. Negative errno with a sentence in error.
 */
int checkpoint_write_tensors(const char *path, struct device_params *params,
			     const enum device_slot *only, const struct safetensors_entry *metadata,
			     size_t metadata_count, char *error);
/*
 * Writes the index of a sharded checkpoint, after all ranks have written their files, and checks
 * these against it.
 */
int checkpoint_write_index(const char *folder, struct device_params *params, const char *id,
			   const struct safetensors_entry *metadata, size_t metadata_count,
			   char *error);
/*
 * Restores every slot of every parameter. -EBADMSG if a tensor is missing or has another type or
 * shape. path: file name for errors.
 */
int checkpoint_restore_tensors(const struct safetensors *source, const char *path,
			       struct device_params *params, char *error);

/* As checkpoint_restore_tensors(), of a sharded checkpoint: fills what this rank has. */
int checkpoint_restore_lead(const struct checkpoint *checkpoint, struct device_params *params,
			    char *error);

/*
 * Reads a floating-point tensor as floats. narrow: buffer for elements of 16 bits before their
 * conversion.
 */
int checkpoint_read_elements(const struct safetensors *source,
			     const struct safetensors_tensor *tensor, size_t count, void *narrow,
			     float *ret_values, char *error);
/* -EBADMSG if one of the tensor's values[count] is not finite. */
int checkpoint_check_finite(const char *path, const struct safetensors_tensor *tensor,
			    const float *values, size_t count, char *error);
/*
 * Reads position embeddings of another size and resizes them (trainer/device/pos_embed.h). -ENOENT
 * if the tensor does not contain position embeddings of a square grid.
 */
int checkpoint_import_pos_embed(const struct safetensors *source, const char *path,
				const struct safetensors_tensor *tensor, struct device_param *param,
				char *error);
