/*
 * Internal to checkpoint/: an open safetensors file, or an open sharded checkpoint (sharded.h),
 * whose tensors are read in the same way.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/checkpoint/safetensors.h"

#include <jansson.h>
#include <stdbool.h>

#define safetensors_fail(error, code, ...)                                                         \
	sentence_fail((error), SAFETENSORS_ERROR_MAX, (code), __VA_ARGS__)

struct sharded;

struct safetensors {
	int fd; /* of a file; else -1 */
	char *path;
	uint64_t size;
	json_t *header; /* owns names and metadata; the index of a sharded checkpoint */
	uint64_t header_bytes, header_values; /* of the text; about as many JSON values */
	const json_t *metadata;               /* in the header, or NULL */
	struct safetensors_tensor *tensors;
	const struct safetensors_tensor **by_name; /* the same tensors, sorted by name */
	size_t count;
	struct sharded *sharded; /* or NULL */
};

/* Opens a file as safetensors_open(), but no folder. */
int safetensors_open_file(const char *path, struct safetensors **ret_file, char *error);
/* Reads `size` bytes of an open file. -EBADMSG if it was truncated. */
int safetensors_read_at(const struct safetensors *file, void *ret_bytes, uint64_t size,
			uint64_t offset, char *error);

/* ---- for headers and indexes ---- */

/* Parses a JSON object with at most values_max values. offset: of the text in the file. */
int safetensors_parse(struct safetensors *file, const char *text, uint64_t size, uint64_t offset,
		      uint64_t values_max, char *error);
/* Checks that the values of file->metadata are texts. */
int safetensors_check_metadata(const struct safetensors *file, const char *key, char *error);
/* Reads dtype and shape of file->tensors[..], and computes its size. */
int safetensors_read_shape(const struct safetensors *file, const char *name, const json_t *json,
			   struct safetensors_tensor *tensor, char *error);
bool safetensors_read_count(const json_t *json, uint64_t *ret_value);
/* True if the name has control characters, which are refused since names are printed. */
bool safetensors_has_control(const char *name);
/* Sorts the tensors by name for lookups: files may have tens of thousands of tensors. */
int safetensors_sort_names(struct safetensors *file, char *error);
