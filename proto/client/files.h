/*
 * Passes a dataset's files to the daemon. The client opens them with its own credentials and sends
 * the fds when the daemon asks for them; the daemon itself opens no path. proto/SPEC.md, "Files".
 * Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"
#include "proto/client/fetch.h"

#include <stdint.h>

/* What belongs to a request: a dataset, the lists of its choice, and what fills its files. */
struct file_source {
	const char *path; /* absolute */
	const int *lists; /* by Loaderd__PartFile, -1 for none; NULL if there are none at all */
	const struct feed_filling *filling; /* NULL: the files are complete */
	const struct fetched *fetched;      /* has the files; NULL: they are opened by path */
};

/*
 * Like connection_request(), but also sends the files of the request's parts when the daemon asks
 * for them; count is 0 for a request without files. Errors of open() are passed on, with a sentence
 * in error. While the daemon reports progress, *deadline_ms moves on.
 */
int files_request(struct connection *connection, const Loaderd__Request *request, const char *text,
		  const struct file_source *sources, uint32_t count, int64_t *deadline_ms,
		  Loaderd__Reply **ret_reply, char *error);
/* Returns the size of a dataset's files together; 0 if one is missing. */
uint64_t files_bytes(const char *path);
