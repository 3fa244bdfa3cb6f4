/*
 * Passes a dataset's files to the daemon. The client opens them with its own credentials and sends
 * the fds when the daemon asks for them; the daemon itself opens no path. proto/SPEC.md, "Files".
 * Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"

#include <stdint.h>

/*
 * Like connection_request(), but also sends the dataset's files when the daemon asks for them. path
 * is absolute, or NULL for a request without files. Errors of open() are passed on, with a sentence
 * in error.
 */
int files_request(struct connection *connection, const Loaderd__Request *request, const char *text,
		  const char *path, int64_t deadline_ms, Loaderd__Reply **ret_reply, char *error);
