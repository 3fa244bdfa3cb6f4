/*
 * The files of a dataset, which the client opens with its own rights and sends to the daemon as
 * descriptors when that asks for them. The daemon itself opens no path. proto/SPEC.md, "Files".
 * Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"

#include <stdint.h>

/*
 * Sends a request and waits for the reply as connection_request() does, handing over the dataset's
 * files as the daemon asks for them. path is absolute; NULL: of a request without files. Errors of
 * opening them are the kernel's word for this process, with a sentence in error.
 */
int files_request(struct connection *connection, const Loaderd__Request *request, const char *text,
		  const char *path, int64_t deadline_ms, Loaderd__Reply **ret_reply, char *error);
