/*
 * The part of the DLPack ABI that the Python module exports: CPU tensors, unversioned and versioned
 * (1.0). Layouts follow the specification at dmlc.github.io/dlpack; the names are ours.
 */
#pragma once

#include <stdint.h>

enum {
	DLPACK_CPU = 1, /* device type */
	DLPACK_INT = 0, /* type codes */
	DLPACK_UINT = 1,
	DLPACK_FLOAT = 2,
	DLPACK_BFLOAT = 4,
};

struct dlpack_tensor {
	void *data;
	struct {
		int32_t type, id;
	} device;
	int32_t dimensions;
	struct {
		uint8_t code, bits;
		uint16_t lanes;
	} type;
	int64_t *shape;
	int64_t *strides; /* in elements */
	uint64_t byte_offset;
};

struct dlpack_managed {
	struct dlpack_tensor tensor;
	void *context;
	void (*deleter)(struct dlpack_managed *self);
};

struct dlpack_managed_versioned {
	uint32_t version_major, version_minor;
	void *context;
	void (*deleter)(struct dlpack_managed_versioned *self);
	uint64_t flags;
	struct dlpack_tensor tensor;
};
