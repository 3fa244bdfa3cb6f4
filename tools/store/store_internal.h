/* A store's requests while they are under way. */
#pragma once

#include "tools/store/credentials.h"
#include "tools/store/reply.h"
#include "tools/store/store.h"

#include <curl/curl.h>

struct transfer {
	struct store *store;
	struct transfer *next; /* in store->waiting or store->running */
	struct store_request request;
	struct reply reply; /* of the attempt */
	CURL *easy;         /* of the attempt; NULL between attempts */
	struct curl_slist *headers;
	uint64_t received; /* bytes of the body that `take` has */
	unsigned failures; /* in a row without a byte */
	unsigned retries;
	bool renewed, moved; /* credentials were read again; the region was corrected */
	bool checked;        /* the attempt's reply is the range that was asked for */
	int64_t start_ms;    /* when the next attempt begins */
	int fault;           /* why the transfer cannot succeed, and its message */
	struct packimg_error fault_error;
	char curl_error[CURL_ERROR_SIZE]; /* of the attempt */
};

struct store {
	struct store_options options;
	struct store_settings settings;
	struct store_credentials credentials;
	bool has_credentials; /* they have been looked for */
	CURLM *multi;
	struct transfer *waiting; /* for a connection, or for start_ms; oldest first */
	struct transfer *running;
	unsigned running_count;
	struct store_counters counters;
	uint64_t ended; /* transfers since store_open() */
};

/* Makes transfer->easy for an attempt. -ENOMEM, and errors of store_credentials_read(). */
int transfer_prepare(struct transfer *transfer, struct packimg_error *error);
