/*
 * Datasets that a command writes to a store: written into a temporary folder in $TMPDIR, or
 * /var/tmp, first, and sent when they are complete. Main thread only.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>

struct remote_output;

/*
 * Prepares for an s3:// address that ends in .pimg, and returns the path to write to instead, which
 * the output keeps. Unless force is set, -EEXIST if there is such an object. Other errors as of
 * store.h; -ENOTSUP if packimg was built without stores.
 */
int remote_output_new(const char *address, bool force, struct remote_output **ret_output,
		      const char **ret_path, struct packimg_error *error);
/*
 * Sends the file, or the shards of the set, the first one last: a set without it does not open. If
 * that fails, removes what has been sent. Shows progress on standard error unless quiet.
 */
int remote_output_send(struct remote_output *output, bool quiet, struct packimg_error *error);
/* Removes the temporary files. NULL is accepted. */
void remote_output_free(struct remote_output *output);
