/*
 * A subscription: one client's feed as the server keeps it, around the batcher that makes its batches. Opened on a chores thread
 * (files, shared memory), used by the control thread, closed on a chores thread again once the pool has let go of it.
 */
#pragma once

#include "access.h"
#include "batch.h"
#include "config.h"
#include "feed.pb-c.h"
#include "registry.h"

enum { SUBSCRIPTION_TEXT_MAX = 1024 };

/* Shared memory in use, counted when it is asked for. Any thread. */
struct memory_account {
	pthread_mutex_t mutex;
	uint64_t limit, used;
};

struct subscription {
	uint64_t id;
	char *name, *pipeline;
	struct registry *registry;
	struct dataset *dataset;
	struct batcher *batcher;
	struct memory_account *account;
	uint64_t bytes; /* taken from the account */
	uint32_t batch_size;
};

/* Why a request was refused, ready for the Error message. */
struct refusal {
	int code; /* positive errno */
	const char *field;
	int position;
	char text[SUBSCRIPTION_TEXT_MAX];
};

struct subscription_context {
	const struct config *config;
	struct registry *registry;
	struct memory_account *account;
	const struct access_peer *peer;
	uint64_t user_bytes_left; /* what this user may still take */
	unsigned workers;
	void (*doorbell)(void *user);
	void *user;
};

/* Negative errno with the refusal filled in. May take as long as disk and memory take. */
int subscription_new(const Loaderd__OpenFeed *request, const struct subscription_context *context,
		     struct subscription **ret_subscription, struct refusal *refusal);
/* The batcher is in no pool. Accepts NULL. */
void subscription_free(struct subscription *subscription);
__attribute__((format(printf, 4, 5))) int refuse_request(struct refusal *refusal, int code, const char *field,
							 const char *format, ...);
