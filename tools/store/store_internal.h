/* A store's requests while they are under way. */
#pragma once

#include "tools/store/credentials.h"
#include "tools/store/hedge.h"
#include "tools/store/loop.h"
#include "tools/store/reply.h"
#include "tools/store/store.h"

#include <curl/curl.h>
#include <sys/queue.h>

enum { TRANSFER_ATTEMPTS = 2 }; /* at once */

/* A transfer's attempt: an HTTP request. */
struct attempt {
	struct transfer *transfer;
	CURL *easy;
	struct curl_slist *headers;
	struct reply reply;
	uint64_t at;     /* where in the transfer's range its next byte is */
	bool checked;    /* the reply is the range that was asked for */
	uint64_t queues; /* loop.queues when it began */
	int fault;       /* why the transfer cannot succeed, and its message */
	struct packimg_error fault_error;
	char curl_error[CURL_ERROR_SIZE];
};

struct transfer {
	struct store *store;
	TAILQ_ENTRY(transfer) link; /* in store->urgent, store->later or store->running */
	struct store_request request;
	uint64_t number; /* in the order in which transfers were submitted */
	int64_t submitted_ms;
	/*
	 * NULL: there is none. The second one hedges the first; the transfer takes each byte from
	 * the one that brings it first.
	 */
	struct attempt *attempts[TRANSFER_ATTEMPTS];
	uint64_t received;  /* bytes of the body that `take` has */
	unsigned failures;  /* in a row without a byte */
	int64_t failing_ms; /* when the first of them was */
	unsigned retries;
	bool renewed, moved; /* credentials were read again; the region was corrected */
	bool hedged;         /* since the last retry */
	int64_t start_ms;    /* when the next attempt begins; or when the first of them has */
};

TAILQ_HEAD(transfers, transfer);

enum { STORE_HOSTS = 8 }; /* whose latencies are known at a time */

struct host_latency {
	uint64_t host;
	double least_ms[2]; /* the shortest since since_ms, and in the period before; 0: none */
	int64_t since_ms;
};

struct store {
	struct store_options options;
	struct store_settings settings;
	struct store_credentials credentials;
	bool has_credentials; /* they have been looked for */
	CURLM *multi;
	struct loop loop;               /* of multi */
	struct transfers urgent, later; /* wait for a connection, or for start_ms; oldest first */
	bool promoted;                  /* promote_oldest(), since others began */
	struct transfers running;
	unsigned running_count; /* attempts */
	uint64_t running_bytes; /* of the running transfers, whole */
	uint64_t bytes_max;     /* of running_bytes, or the next one waits */
	struct hedging hedging;
	int64_t hedged_ms; /* when late requests were looked for */
	struct store_counters counters;
	struct host_latency hosts[STORE_HOSTS];
	int64_t connect_us;        /* that the last new connection took; 0: unknown */
	uint64_t submitted, ended; /* transfers since store_open() */
};

/* Makes attempt->easy. -ENOMEM, and errors of store_credentials_read(). */
int attempt_prepare(struct attempt *attempt, struct packimg_error *error);
/* Measures an attempt that has ended well: store->connect_us, and the latencies. */
void attempt_measure(const struct attempt *attempt);
