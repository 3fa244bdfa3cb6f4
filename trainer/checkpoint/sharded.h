/*
 * Sharded checkpoints: a folder with one safetensors file of each rank that had something to write,
 * and an index that tells for each tensor which elements are in which file.
 *
 * The index is JSON, as Hugging Face's model.safetensors.index.json, but tensors are divided among
 * files:
 *
 *	{"version": 1, "id": "1f03...",
 *	 "metadata": {"trainer.step": "100", ...},
 *	 "tensors": {
 *	  "blocks.0.attn.proj.weight": {
 *	   "dtype": "F32", "shape": [192, 192], "slices": 2, "blocks": 192,
 *	   "ranges": [
 *	    {"file": "checkpoint-00001-of-00002.safetensors",
 *	     "slice": 0, "first": 0, "count": 18432}, ...]}, ...}}
 *
 * metadata: that of a whole checkpoint. shape: as in a whole checkpoint. layout, if present, is
 * "channels_last": a convolution of shape [O][I][H][W] is stored as [O][H][W][I]. Without slices,
 * ranges count the tensor's elements; with them, those of a slice: the tensor is a sequence of
 * `blocks` blocks, each of `slices` equal runs, and a slice is its run of each block. The ranges
 * have each element of each slice once. A file has the range as a tensor of the same name with one
 * dimension, and as metadata trainer.checkpoint, the index's id, and trainer.step.
 *
 * safetensors_open() opens such a folder, checks every figure of the index against the files and
 * reads tensors as from a whole checkpoint.
 */
#pragma once

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/parts.h"

#include <stdbool.h>

#define SHARDED_INDEX "checkpoint.safetensors.index.json"

enum {
	SHARDED_VERSION = 1,
	SHARDED_INDEX_MAX = 128 << 20, /* bytes */
	SHARDED_VALUES_MAX = 1 << 21,  /* JSON values in the index; a range needs four */
	SHARDED_SLICES_MAX = 1 << 16,  /* ranks that a tensor is split over */
	SHARDED_ID_MAX = 33,           /* with the NUL */
	SHARDED_FILE_MAX = 64,         /* length of a file's name, with the NUL */
};

struct sharded;

/* True for folders. */
bool sharded_is(const char *path);
/* -EBADMSG if index and files are not valid or do not belong together; error says where and why. */
int sharded_open(const char *folder, struct safetensors **ret_file, char *error);
void sharded_free(struct sharded *sharded); /* accepts NULL */
/* The id of an open sharded checkpoint; NULL for a whole file. */
const char *sharded_id(const struct safetensors *file);
/* True if the tensor is stored as [O][H][W][I]. */
bool sharded_is_channels_last(const struct safetensors *file,
			      const struct safetensors_tensor *tensor);
/* As safetensors_read(). */
int sharded_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
		 void *ret_data, char *error);
/*
 * Reads a part of a tensor, in the layout in which it is stored, from the files that have it. The
 * tensor's element count must divide by part->slices * part->blocks. values + part->first is the
 * part's first element.
 */
int sharded_read_part(const struct safetensors *file, const struct safetensors_tensor *tensor,
		      const struct device_part *part, float *ret_values, char *error);
/* Name of the file of a rank; SHARDED_FILE_MAX bytes. */
void sharded_file_name(unsigned rank, unsigned ranks, char *ret_name);
