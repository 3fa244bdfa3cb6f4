/*
 * A dataset in a store, as loaderd-fetch serves it to this client: its files, which are filled
 * while feeds read them, and the connection that keeps it open. loaderd-fetch is started if it does
 * not run, and again when it has ended. An object belongs to one thread. After a fork the child has
 * no connection and only frees it. proto/SPEC.md, "Fetcher". Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"
#include "proto/client/forks.h"

#include <stdbool.h>
#include <stdint.h>

enum { FETCH_STALE = 1 /* outcome of fetch_attend() */ };

/* The wait for the first batch: what the fetcher says, and what was told of it. */
struct fetch_wait {
	uint64_t done, total; /* bytes of its samples; 0: not known */
	double rate, latency_ms;
	int64_t tell_ms; /* when a line is due */
	char text[FEED_ERROR_MAX];
};

struct fetched {
	int fd; /* connection to the fetcher; -1 once it has failed */
	struct fork_guard guard;
	struct frame_reader reader;
	char *url;
	char *shown;   /* the address, for people */
	bool answered; /* the fetcher of this connection has opened the dataset */
	/* connections of an attached feed that ended in a row; the feed resets it with each batch
	 */
	unsigned fruitless;
	unsigned connects;      /* connections so far */
	bool delivered;         /* a batch has come; set by the feed */
	struct fetch_wait wait; /* for the first batch */
	/* of the datasets in stores of its feed, which share a page: its number, and their count */
	uint32_t number, datasets;
	struct feed_filling filling; /* owned; -1 with facts only */
	int *files;                  /* [file_count], owned */
	uint32_t file_count, file_room;
};

/* What fetch_open() needs beside the address. */
struct fetch_options {
	bool facts;                /* headers and sections are enough */
	uint32_t number, datasets; /* as in struct fetched; 0 datasets count as 1 */
	int page;                  /* with several datasets: their page; -1 to have one made */
	uint32_t timeout_ms;       /* without a message of the fetcher; 0: CONNECTION_TIMEOUT_MS */
	/* as feed_options.fetching */
	int (*progress)(void *user, uint64_t done, uint64_t total);
	void *progress_user;
};

/*
 * Opens the dataset of an address, and waits until all but its samples is there. Errors of the
 * fetcher are passed on; the text is in error. The caller frees it with fetch_close().
 */
int fetch_open(const char *url, const struct fetch_options *options, struct fetched **ret_fetched,
	       char *error);
/*
 * Reads what the fetcher has to say. If it has ended, connects to another one, which goes on, and
 * may wait for its start. Returns 0; FETCH_STALE if the files are no longer those of the cache, so
 * that the dataset must be opened again; or a negative errno, never one that means to feeds "not
 * yet" or "reopen", if the dataset cannot be fetched any more.
 */
int fetch_attend(struct fetched *fetched, char *error);
/* For feed_wait_text(). */
const char *fetch_wait_text(struct fetched *fetched);
/* Returns the bytes of all files, in the store. */
uint64_t fetch_bytes(const struct fetched *fetched);
/* Accepts NULL. */
void fetch_close(struct fetched *fetched);

/*
 * Connects to the fetcher of this process's environment, starting one if nobody listens. `url` is
 * for error texts. Returns a non-blocking fd or a negative errno.
 */
int fetcher_connect(const char *url, int64_t deadline_ms, char *error);
/*
 * Sends a request that is not FetchOpen to the fetcher of this process's environment, and waits for
 * the reply, which the caller frees. `program` is for error texts.
 */
struct Loaderd__FetchRequest;
struct Loaderd__FetchReply;
int fetcher_ask(const char *program, const struct Loaderd__FetchRequest *request,
		struct Loaderd__FetchReply **ret_reply, char *error);
