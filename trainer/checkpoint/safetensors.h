/*
 * safetensors files: a u64 length (little endian), a JSON header of that many bytes, then the bytes
 * of named tensors without gaps.
 *
 * The writer writes the file atomically (atomic_file.h) from tensors that the caller provides one
 * by one. The reader reads the header once and validates everything on opening: lengths, types,
 * duplicate names, sizes against shapes, bounds, overlaps and gaps. Fixed limits bound the memory
 * for a header, whatever the file claims. Tensors are read on request, not mapped, so a failing
 * disk or a truncated file is an error instead of SIGBUS. Any thread may read an open file.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	SAFETENSORS_ERROR_MAX = 512,
	SAFETENSORS_RANK_MAX = 8,
	SAFETENSORS_HEADER_MAX = 32 << 20, /* bytes */
	/* maximum number of JSON values in the header; a tensor needs about eight */
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
	/* for writing: elements, row-major and little endian; NULL in an opened file */
	const void *data;
	uint64_t size;   /* bytes */
	uint64_t offset; /* of the first byte, from the start of an opened file */
};

struct safetensors_entry {
	const char *key, *value;
};

struct safetensors_writer {
	/* if a tensor's data is NULL, fill() provides it */
	const struct safetensors_tensor *tensors;
	size_t count;
	const struct safetensors_entry *metadata;
	size_t metadata_count;
	/* Returns the bytes of tensor `index`, valid until the next call; NULL on failure. */
	const void *(*fill)(void *user, size_t index);
	void *user;
};

/*
 * Writes a file atomically. On failure, a negative errno with a sentence in error
 * (SAFETENSORS_ERROR_MAX bytes); an existing file stays unchanged.
 */
int safetensors_write(const char *path, const struct safetensors_writer *writer, char *error);

struct safetensors;

/*
 * Opens a file, or the folder of a sharded checkpoint (sharded.h), whose tensors have no offset.
 * -EBADMSG if it is not valid; error says where and why.
 */
int safetensors_open(const char *path, struct safetensors **ret_file, char *error);
/* Accepts NULL. */
void safetensors_close(struct safetensors *file);
size_t safetensors_count(const struct safetensors *file);
/* In file order. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index);
/* NULL if not found. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
/* Reads all bytes of a tensor, row-major and little endian. -EBADMSG if the file was truncated. */
int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
		     void *ret_data, char *error);
/* Value in __metadata__; NULL if the key is absent. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);
/* All metadata, in the order of the file. The caller frees the list; NULL if out of memory. */
struct safetensors_entry *safetensors_entries(const struct safetensors *file, size_t *ret_count);
