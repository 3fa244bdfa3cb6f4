/*
 * cuDNN's backend descriptors with a sticky error: a builder creates, sets and finalizes them, and
 * does nothing after the first failure, so that graph construction needs no checks. It owns every
 * descriptor it has created; cuDNN references whatever finalized descriptors need, so all of them
 * may be destroyed once a plan exists.
 */
#pragma once

#include "trainer/device/device.h"

#include "trainer/device/cuda/cudnn/library.h"

#include <stdbool.h>
#include <stddef.h>

#define BACKEND_DESCRIPTORS 160 /* of one builder at most */

typedef cudnnBackendDescriptor_t descriptor;

struct backend {
	const struct cudnn_library *library;
	char *error;         /* DEVICE_ERROR_MAX bytes, set by the first failure */
	const char *subject; /* subject of error texts: a problem's name */
	int result; /* 0 or the first failure: -ENOENT: cuDNN does not support it; -ENOMEM, -EIO */
	descriptor descriptors[BACKEND_DESCRIPTORS];
	size_t count;
};

void backend_init(struct backend *backend, const struct cudnn_library *library, const char *subject,
		  char *error);
void backend_deinit(struct backend *backend);

/* NULL after a failure. */
descriptor backend_new(struct backend *backend, cudnnBackendDescriptorType_t type);
void backend_set(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		 cudnnBackendAttributeType_t type, int64_t count, const void *values);
/* Common cases. */
void backend_set_descriptor(struct backend *backend, descriptor of,
			    cudnnBackendAttributeName_t name, descriptor value);
void backend_set_int(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		     int64_t value);
void backend_finish(struct backend *backend, descriptor of, const char *what);
/* Reads at most `capacity` values and returns their number; 0 after a failure. */
int64_t backend_get(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		    cudnnBackendAttributeType_t type, int64_t capacity, void *ret_values);
/* Translates a status: -ENOENT, -ENOMEM, -EIO or 0; on an error writes a text about `what`. */
int backend_status(const struct cudnn_library *library, cudnnStatus_t status, const char *subject,
		   const char *what, char *error);
