#include "trainer/device/cuda/cudnn/backend.h"

#include "trainer/device/device.h"

#include <errno.h>
#include <stdio.h>

int backend_status(const struct cudnn_library *library, cudnnStatus_t status, const char *subject,
		   const char *what, char *error)
{
	size_t version = library->cudnnGetVersion();
	char words[512] = "";

	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	library->cudnnGetLastErrorString(words, sizeof(words));
	snprintf(error, DEVICE_ERROR_MAX, "cuDNN %zu.%zu.%zu, %s: %s: %s%s%s", version / 10000,
		 version / 100 % 100, version % 100, subject, what,
		 library->cudnnGetErrorString(status), words[0] ? ": " : "", words);
	if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
		return -ENOENT;
	if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	    status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		return -ENOMEM;
	return -EIO;
}

static void backend_check(struct backend *backend, cudnnStatus_t status, const char *what)
{
	backend->result =
		backend_status(backend->library, status, backend->subject, what, backend->error);
}

void backend_init(struct backend *backend, const struct cudnn_library *library, const char *subject,
		  char *error)
{
	backend->library = library;
	backend->subject = subject;
	backend->error = error;
	backend->result = 0;
	backend->count = 0;
}

/* Destroys the descriptors created after the first `count`. */
static void backend_release(struct backend *backend, size_t count)
{
	while (backend->count > count)
		backend->library->cudnnBackendDestroyDescriptor(
			backend->descriptors[--backend->count]);
}

void backend_deinit(struct backend *backend)
{
	backend_release(backend, 0);
}

descriptor backend_new(struct backend *backend, cudnnBackendDescriptorType_t type)
{
	descriptor made = NULL;

	if (backend->result < 0)
		return NULL;
	if (backend->count == BACKEND_DESCRIPTORS) {
		snprintf(backend->error, DEVICE_ERROR_MAX, "%s: more than %d descriptors",
			 backend->subject, BACKEND_DESCRIPTORS);
		backend->result = -E2BIG;
		return NULL;
	}
	backend_check(backend, backend->library->cudnnBackendCreateDescriptor(type, &made),
		      "cudnnBackendCreateDescriptor");
	if (backend->result < 0)
		return NULL;
	backend->descriptors[backend->count++] = made;
	return made;
}

void backend_set(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		 cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	char what[64];

	if (backend->result < 0)
		return;
	snprintf(what, sizeof(what), "cudnnBackendSetAttribute %d", (int)name);
	backend_check(backend,
		      backend->library->cudnnBackendSetAttribute(of, name, type, count, values),
		      what);
}

void backend_set_descriptor(struct backend *backend, descriptor of,
			    cudnnBackendAttributeName_t name, descriptor value)
{
	backend_set(backend, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void backend_set_int(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		     int64_t value)
{
	backend_set(backend, of, name, CUDNN_TYPE_INT64, 1, &value);
}

void backend_finish(struct backend *backend, descriptor of, const char *what)
{
	if (backend->result == 0)
		backend_check(backend, backend->library->cudnnBackendFinalize(of), what);
}

int64_t backend_get(struct backend *backend, descriptor of, cudnnBackendAttributeName_t name,
		    cudnnBackendAttributeType_t type, int64_t capacity, void *ret_values)
{
	int64_t count = 0;
	char what[64];

	if (backend->result < 0)
		return 0;
	snprintf(what, sizeof(what), "cudnnBackendGetAttribute %d", (int)name);
	backend_check(backend,
		      backend->library->cudnnBackendGetAttribute(of, name, type, capacity, &count,
								 ret_values),
		      what);
	if (backend->result < 0)
		return 0;
	return count < capacity ? count : capacity;
}
