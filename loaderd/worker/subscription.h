/*
 * A subscription: one client's feed in the server, around the batcher that makes its batches.
 * Created on a job thread in three steps: open its files, allocate its shared memory, and start it
 * once the client has mapped that memory. Used by the control thread; freed on a job thread after
 * the pool has released it.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/config.h"
#include "loaderd/order/sampler.h"
#include "loaderd/worker/fd_transfer.h"
#include "loaderd/worker/order_status.h"
#include "loaderd/worker/registry.h"
#include "proto/feed.pb-c.h"

#include <stdatomic.h>

struct session;

/* How far a job that opens a feed is. The job writes `done` and `total`, the control thread reads.
 */
struct opening_progress {
	_Atomic uint64_t done, total; /* samples examined; total is 0 until it is known */
	_Atomic bool cancelled;       /* set by the control thread: the client is gone */
};

enum { SUBSCRIPTION_TEXT_MAX = 1024 };

struct subscription {
	uint64_t id;
	char *name, *pipeline;
	struct session *session; /* the owner; outlives the subscription */
	struct dataset *dataset;
	struct sampler sampler;       /* options.order.sampler, if the feed asked for parts */
	uint64_t order_hash;          /* of the sampler; 0 without one */
	struct order_choices choices; /* of the request's parts, for status */
	bool ordered; /* lists have been read, of an order that may have been refused */
	/* arguments of batcher_new(); pipeline is NULL once the batcher owns it */
	struct batcher_options options;
	int *direct;             /* owned; options.io.direct points to it */
	struct filling *filling; /* owned; options.io.filling; NULL unless files are being filled */
	struct batcher *batcher;
	bool writable;  /* the client may map the ring writable */
	uint64_t bytes; /* charged for ring and read-ahead; 0 if there is no ring */
	uint32_t batch_size;
};

/* The error of a refused request, as sent in the Error message. */
struct refusal {
	int code; /* positive errno */
	const char *field;
	int position;
	uint64_t left; /* if the ring is too large: bytes that are left, 0 if not to be told */
	char text[SUBSCRIPTION_TEXT_MAX];
};

/*
 * First step: opens the datasets and checks the request; allocates no ring. Sets the fds that it
 * keeps to -1; the caller closes the rest. Returns -errno with the refusal filled in. Blocks for as
 * long as the storage does.
 */
int subscription_new(const Loaderd__OpenFeed *request, struct session *session, uint64_t feed_id,
		     struct fd_transfer *files, struct opening_progress *progress,
		     struct subscription **ret_subscription, struct refusal *refusal);
/*
 * Adds to an empty transfer the files that subscription_start() wants opened with O_DIRECT as well:
 * none without io_uring, else the first ones of the feed. -ENOMEM.
 */
int subscription_ask_direct(const struct subscription *subscription, struct fd_transfer *files);
/*
 * Second step: allocates the ring, creates the batcher and asks the supervisor to send the ring to
 * the client. direct: what subscription_ask_direct() asked for; fds that it keeps are set to -1.
 * After an error, call subscription_free().
 */
int subscription_start(struct subscription *subscription, struct fd_transfer *direct,
		       struct refusal *refusal);
/*
 * Third step, once the client has mapped its ring. Refuses with EINVAL if the client has not
 * faulted in all pages. Errors as for subscription_start().
 */
int subscription_mapped(struct subscription *subscription, struct refusal *refusal);
/* Call it when the batcher is in no pool any more. Accepts NULL. */
void subscription_free(struct subscription *subscription);
__attribute__((format(printf, 4, 5))) int
refuse_request(struct refusal *refusal, int code, const char *field, const char *format, ...);
