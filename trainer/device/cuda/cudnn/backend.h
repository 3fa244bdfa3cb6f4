/*
 * Builder for cuDNN backend descriptors with a sticky error: it creates, sets and finalizes
 * descriptors, and does nothing after the first failure, so code that builds a graph needs no
 * checks. The builder owns every descriptor it created. Finalized descriptors keep internal
 * references to their parts, so all of them may be destroyed once a plan exists.
 */
#pragma once

#include "trainer/device/cuda/cudnn/library.h"

#include <stdbool.h>
#include <stddef.h>

#define BACKEND_DESCRIPTORS 160 /* maximum per builder */

typedef cudnnBackendDescriptor_t descriptor;

struct backend {
	const struct cudnn_library *library;
	char *error;         /* DEVICE_ERROR_MAX bytes; holds the text of the first failure */
	const char *subject; /* problem name, the subject of error texts */
	/* 0, or the first failure: -ENOENT if cuDNN does not support the request, -ENOMEM, -EIO */
	int result;
	descriptor descriptors[BACKEND_DESCRIPTORS];
	size_t count;
};

void backend_init(struct backend *backend, const struct cudnn_library *library, const char *subject,
		  char *error);
void backend_deinit(struct backend *backend);

/* Returns NULL after a failure. */
descriptor backend_new(struct backend *backend, cudnnBackendDescriptorType_t type);
void backend_set(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		 cudnnBackendAttributeType_t type, int64_t count, const void *values);
/* Shorthands for a single value. */
void backend_set_descriptor(struct backend *backend, descriptor of,
			    cudnnBackendAttributeName_t name, descriptor value);
void backend_set_int(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		     int64_t value);
void backend_finish(struct backend *backend, descriptor of, const char *what);
/* Reads at most `capacity` values and returns their number; 0 after a failure. */
int64_t backend_get(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		    cudnnBackendAttributeType_t type, int64_t capacity, void *ret_values);
/*
 * Converts a status to -ENOENT, -ENOMEM, -EIO or 0. On failure also writes an error text about
 * `what`.
 */
int backend_status(const struct cudnn_library *library, cudnnStatus_t status, const char *subject,
		   const char *what, char *error);
