/*
 * The memory files of a feed whose datasets are still being filled: asks the client for maps and
 * page, and checks them. proto/SPEC.md, "Filling files". On the thread of the caller.
 */
#pragma once

#include "loaderd/io/filling.h"
#include "loaderd/worker/fd_transfer.h"
#include "loaderd/worker/subscription.h"

/* Ends the sentence about a dataset that does not open. */
#define FILLING_NEEDS "; all but the samples must be there before a feed opens"

/* Refuses requests for files that are being filled which this daemon cannot serve. -errno. */
int filling_files_admit(const Loaderd__OpenFeed *request, struct refusal *refusal);
/* Adds these files to those that the client is asked for. -ENOMEM. */
int filling_files_ask(const Loaderd__OpenFeed *request, struct fd_transfer *files);
/*
 * Refuses a dataset if the first or the last record of the index of a part that is being filled is
 * missing: the records in between are checked when they are used.
 */
int filling_files_check(const Loaderd__OpenFeed *request, struct dataset *dataset,
			struct refusal *refusal);
/*
 * Takes over the maps' descriptors, maps the page, and refuses files that are not as proto/SPEC.md
 * says. options: without maps and page.
 */
int filling_files_open(const Loaderd__OpenFeed *request, struct fd_transfer *files,
		       const struct filling_options *options, struct filling **ret_filling,
		       struct refusal *refusal);
