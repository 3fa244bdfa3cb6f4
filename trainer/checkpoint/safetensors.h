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

/* clang-format off */
#define SAFETENSORS_TYPES(X) /* with the bytes of an element */                                    \
	X(BOOL, 1) X(U8, 1) X(I8, 1) X(U16, 2) X(I16, 2) X(F16, 2) X(BF16, 2)                      \
	X(U32, 4) X(I32, 4) X(F32, 4) X(U64, 8) X(I64, 8) X(F64, 8)
/* clang-format on */

enum safetensors_type {
#define TYPE(name, size) SAFETENSORS_##name,
	SAFETENSORS_TYPES(TYPE)
#undef TYPE
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
