/*
 * Requests to object stores: the S3 API and plain HTTP(S), by libcurl. One thread uses a store and
 * everything that belongs to it; requests proceed only inside store_run() and the functions that
 * call it.
 *
 * Reading is by ranges of one version of an object: later requests carry If-Match (or
 * If-Unmodified-Since) with what the first reply has said, and a reply of another version ends with
 * -ESTALE. A body that ends early is continued where it ended.
 *
 * Retried: failed connections, time-outs, 408, 425, 429, 500, 502, 503, 504 and 509. Delays begin
 * at 50 ms and double up to 5 s, each a random part of that ("full jitter": Brooker 2015,
 * "Exponential Backoff And Jitter"); Retry-After is obeyed up to a minute. A request ends after
 * STORE_FAILURES_MAX failures without a byte between them; and options.patience_ms after the first
 * of them, if the store has said the object's size before. Credentials that have expired are read
 * again once for each request.
 *
 * With options.hedge a range that is late is requested a second time while the first request goes
 * on. Each byte is taken from the one that brings it first; the other one is cancelled at the end.
 *
 * Redirects are followed for unsigned requests only, and never from https:// to http://.
 *
 * Functions return 0 or a negative errno with a message that names the object: -ENOENT, -EACCES,
 * -ESTALE (replaced), -EBADMSG (a reply that breaks the protocol), -ECONNABORTED (retries used up),
 * -EIO (any other status), -EINVAL, -ENOMEM, -EINTR (options.stopped).
 */
#pragma once

#include "tools/store/address.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STORE_CONNECTIONS_MAX = 512,
	STORE_CONNECTIONS_FEW = 8, /* requests that bytes do not limit, store_set_limits() */
	STORE_FAILURES_MAX = 10,   /* in a row, of one request */
	STORE_RETRIES_MAX = 100,   /* of one request */
	STORE_POLL_MAX = 1024,     /* descriptors of store_poll() */
	STORE_PATHS_MAX = 8,       /* of store_paths() */
	STORE_VERSION_MAX = 256,   /* bytes of an ETag or a date, terminator included */
};

#define STORE_SIZE_UNKNOWN UINT64_MAX

struct store;

struct store_options {
	unsigned connections; /* requests at once, 1 .. STORE_CONNECTIONS_MAX; 0 for 16 */
	/* how long an object that has been read must fail, beside STORE_FAILURES_MAX */
	unsigned patience_ms;
	bool hedge;            /* a range that is late is requested a second time, hedge.h */
	bool (*stopped)(void); /* true ends all requests with -EINTR; may be NULL */
};

/* Counts since store_open(). */
struct store_counters {
	uint64_t requests; /* retries and hedges included */
	uint64_t retries;
	uint64_t hedges; /* requests for ranges that another one was late with */
	uint64_t bytes;  /* of bodies received */
	/*
	 * from a request to the first byte of its reply, smoothed, without replies that have waited
	 * until others were read; 0: unknown
	 */
	double latency_ms;
	/* the shortest of the last 10 to 20 seconds, of the farthest host; 0: unknown */
	double least_ms;
};

/* One version of an object. The caller allocates it. */
struct store_object {
	struct store_address address;
	uint64_t size; /* bytes; STORE_SIZE_UNKNOWN before the first reply */
	/* the set file that has told the size before the first reply (set.h), else NULL; not owned
	 */
	const char *described_by;
	/* of the first reply: a strong ETag, or the time of modification; "" if it had neither */
	char etag[STORE_VERSION_MAX], modified[STORE_VERSION_MAX];
	char region[64]; /* that the bucket is in, if the store has said so; else "" */
};

enum store_method {
	STORE_GET,
	STORE_HEAD,
	STORE_PUT,
	STORE_POST,
	STORE_DELETE,
};

/* What a finished request has brought; valid during the call of `done`. */
struct store_result {
	int status; /* 0 or a negative errno */
	const struct packimg_error *error;
	const char *etag;  /* of the reply, "" without one */
	const char *reply; /* the body of a reply to anything but GET, terminated; at most 64 KiB */
};

/* All pointers are valid until `done` has been called. */
struct store_request {
	struct store_object *object;
	enum store_method method;
	const char *query;     /* "NAME=VALUE&...", encoded, or NULL; of s3:// only */
	uint64_t offset, size; /* of GET: a range, at least one byte */
	/* begins before those that are not; these have turns, too, when they have waited for a
	 * second */
	bool urgent;
	/* of GET: the range may end behind the end of the object, which is not known yet */
	bool size_unknown;
	const void *body; /* of PUT and POST */
	size_t body_size;
	/* Takes the body of GET, from its begin on, each byte once. An error ends the request. */
	int (*take)(void *context, const void *bytes, size_t size);
	void (*done)(void *context, const struct store_result *result);
	void *context;
};

int store_open(const struct store_options *options, struct store **ret_store,
	       struct packimg_error *error);
/* Ends requests without calling `done`. NULL is accepted. */
void store_close(struct store *store);
struct store_counters store_counters(const struct store *store);
/*
 * The files and folders that requests read: certificates, and where credentials are read again.
 * They may not exist. Returns their number. The texts belong to the store and the environment.
 */
unsigned store_paths(const struct store *store, const char *paths[STORE_PATHS_MAX]);
/*
 * Lets requests begin from now on while fewer than `connections`, 1 .. STORE_CONNECTIONS_MAX, are
 * under way, and either fewer than STORE_CONNECTIONS_FEW or requests for fewer than `bytes`. In the
 * beginning bytes have no limit.
 */
void store_set_limits(struct store *store, unsigned connections, uint64_t bytes);

/* Parses the address; makes no request. store_object_deinit() frees it. */
int store_object_init(struct store_object *object, const char *address,
		      struct packimg_error *error);
/* Accepts a zeroed object. */
void store_object_deinit(struct store_object *object);
/* Adds a request, which is copied. -ENOMEM. */
int store_submit(struct store *store, const struct store_request *request);
/*
 * Works until a request has ended, at most timeout_ms if that is not negative. Returns the number
 * of requests that have not ended.
 */
int store_run(struct store *store, int timeout_ms);

/*
 * Works once: starts and ends what can be, and waits for at most timeout_ms until there is more, or
 * until one of the descriptors, at most STORE_POLL_MAX, is readable, which its revents then say.
 */
int store_poll(struct store *store, struct pollfd *fds, unsigned count, int timeout_ms);
/* Makes a store_poll() of another thread return. Any thread. */
void store_wake(struct store *store);
/* Makes one request and waits for it; `done` may be NULL. */
int store_ask(struct store *store, const struct store_request *request,
	      struct packimg_error *error);
