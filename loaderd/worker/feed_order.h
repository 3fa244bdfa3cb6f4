/*
 * Makes the order of a feed that asks for parts: reads the lists of its choices, which the client
 * has sent as memory files, evaluates filters, and sets up the sampler. Once per feed, on a job
 * thread: lists, filters and classes take time in proportion to the samples.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/io/dataset.h"
#include "loaderd/order/sampler.h"
#include "loaderd/worker/fd_transfer.h"
#include "loaderd/worker/subscription.h"

/*
 * Sets *ret_sampler from request->parts, of which there is at least one; sampler_deinit() frees it.
 * The lists of part p are groups of `files`. pipeline: that of the request, whose patches count as
 * tokens. Sets progress while it evaluates filters and counts tokens. Returns
 * -errno with the refusal filled in; -ECANCELED soon after it has been cancelled.
 */
int feed_order_make(const Loaderd__OpenFeed *request, const struct pipeline *pipeline,
		    struct fd_transfer *files, struct dataset *dataset, const struct config *config,
		    struct opening_progress *progress, struct sampler *ret_sampler,
		    struct refusal *refusal);
/*
 * Takes time in proportion to the lists. Returns a hash of what determines which samples come at
 * which position, but the seed, shuffling and the content of the datasets: equal hashes mean that a
 * position can be resumed.
 */
uint64_t feed_order_hash(const struct sampler *sampler);
