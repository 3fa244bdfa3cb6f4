/*
 * safetensors files: named tensors behind a JSON header. A u64 length (little endian), that many
 * bytes of JSON, then the tensors' bytes without holes.
 *
 * The writer streams tensors that the caller describes, and makes the file appear whole or not at
 * all (whole_file.h). The reader checks everything when it
 * opens a file: lengths, types, duplicate names, sizes against shapes, bounds, overlaps and holes;
 * the header it reads once. Memory for a header is bounded by its limits, not by what a file says.
 * Tensors are read when they are asked for, not mapped: a disk that fails, or somebody who cuts the
 * file short, is an error and not the end of the process. Any thread may read a file that is open.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	SAFETENSORS_ERROR_MAX = 512,
	SAFETENSORS_RANK_MAX = 8,
	SAFETENSORS_HEADER_MAX = 32 << 20, /* bytes */
	/* of the header, as JSON counts them: a tensor takes about eight */
	SAFETENSORS_VALUES_MAX = 1 << 18,
};

enum safetensors_type {
	SAFETENSORS_BOOL,
	SAFETENSORS_U8,
	SAFETENSORS_I8,
	SAFETENSORS_U16,
	SAFETENSORS_I16,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_U32,
	SAFETENSORS_I32,
	SAFETENSORS_F32,
	SAFETENSORS_U64,
	SAFETENSORS_I64,
	SAFETENSORS_F64,
};

const char *safetensors_type_name(enum safetensors_type type);

struct safetensors_tensor {
	const char *name;
	enum safetensors_type type;
	unsigned rank;
	uint64_t shape[SAFETENSORS_RANK_MAX];
	/* to be written, row-major, little endian; NULL in a file that was opened */
	const void *data;
	uint64_t size;   /* bytes */
	uint64_t offset; /* of the first in a file that was opened */
};

struct safetensors_entry {
	const char *key, *value;
};

struct safetensors_writer {
	const struct safetensors_tensor *tensors; /* data may be NULL: fill is asked for it */
	size_t count;
	const struct safetensors_entry *metadata;
	size_t metadata_count;
	/*
	 * Makes the bytes of tensor `index`; the result must stay until the next call. NULL:
	 * failed.
	 */
	const void *(*fill)(void *user, size_t index);
	void *user;
};

/*
 * Writes a file. Negative errno with a sentence in error (SAFETENSORS_ERROR_MAX bytes); an older
 * file of that name then stays as it was.
 */
int safetensors_write(const char *path, const struct safetensors_writer *writer, char *error);

struct safetensors;

/* -EBADMSG: not a valid file, error says where and why. */
int safetensors_open(const char *path, struct safetensors **ret_file, char *error);
/* Accepts NULL. */
void safetensors_close(struct safetensors *file);
size_t safetensors_count(const struct safetensors *file);
/* In order of their bytes. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index);
/* NULL: no such tensor. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
/*
 * All bytes of a tensor of the file, row-major and little endian. -EBADMSG: the file has become
 * shorter.
 */
int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
		     void *ret_data, char *error);
/* Of __metadata__; NULL: no such key. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);
