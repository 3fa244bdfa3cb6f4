/* Writes objects to S3. One thread. */
#pragma once

#include "tools/store/store.h"

/*
 * Writes a file as an object: in one request, or in parts of at least 8 MiB, many at once. The
 * object appears, or is replaced, when all is there. After an error nothing of it is left: parts
 * are removed (AbortMultipartUpload). on_bytes (may be NULL) is called with the number of bytes
 * that have arrived. Errors as of store.h; -ENOTSUP for an address that is not s3://; -EFBIG above
 * 5 TiB.
 */
int store_upload(struct store *store, struct store_object *object, int fd, uint64_t size,
		 void (*on_bytes)(void *context, uint64_t bytes), void *context,
		 struct packimg_error *error);
/* Returns 1 if the object exists, 0 if not. */
int store_exists(struct store *store, struct store_object *object, struct packimg_error *error);
/* Removes an object, also when options.stopped says true. */
int store_delete(struct store *store, struct store_object *object, struct packimg_error *error);
