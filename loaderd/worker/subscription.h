/*
 * A subscription: one client's feed as the server keeps it, around the batcher that makes its
 * batches. Made on a job thread in three steps: its files, its shared memory, and, once the
 * client has mapped that, its start. Used by the control thread; closed on a job thread again
 * once the pool has let go of it.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/config.h"
#include "loaderd/worker/registry.h"
#include "proto/feed.pb-c.h"

struct session;

enum { SUBSCRIPTION_TEXT_MAX = 1024 };

struct subscription {
	uint64_t id;
	char *name, *pipeline;
	struct session *session; /* whose it is, and which it does not outlive */
	struct dataset *dataset;
	struct batcher_options options; /* until there is a batcher */
	int *direct;                    /* as in options.io */
	struct batcher *batcher;
	bool writable;  /* the client may write its ring */
	uint64_t bytes; /* of its ring, and of what it reads into; 0: it has none */
	uint32_t batch_size;
};

/* Why a request was refused, ready for the Error message. */
struct refusal {
	int code; /* positive errno */
	const char *field;
	int position;
	char text[SUBSCRIPTION_TEXT_MAX];
};

/*
 * The first step: everything but memory. Of the dataset's files fds those that are kept are set to
 * -1; the caller closes the rest. Negative errno with the refusal filled in. May take as long as
 * the storage takes.
 */
int subscription_new(const Loaderd__OpenFeed *request, struct session *session, uint64_t feed_id,
		     int *fds, uint32_t count, struct subscription **ret_subscription,
		     struct refusal *refusal);
/* How many of the files the second step should also have opened with O_DIRECT. */
uint32_t subscription_wants_direct(const struct subscription *subscription);
/*
 * The second step; descriptors that are kept are set to -1. After an error subscription_free() is
 * all that is left to do.
 */
int subscription_start(struct subscription *subscription, int *direct, uint32_t count,
		       struct refusal *refusal);
/*
 * The third step, once the client has mapped its ring. EINVAL: it has left out pages. As
 * subscription_start().
 */
int subscription_mapped(struct subscription *subscription, struct refusal *refusal);
/* The batcher is in no pool. Accepts NULL. */
void subscription_free(struct subscription *subscription);
__attribute__((format(printf, 4, 5))) int
refuse_request(struct refusal *refusal, int code, const char *field, const char *format, ...);
