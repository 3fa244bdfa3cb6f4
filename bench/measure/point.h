/*
 * One measurement of loaderbench: a dataset, a pipeline, a batch size, a daemon with a number of
 * threads, and a number of client processes.
 *
 * point_measure() runs the whole measurement: daemon (private, unless a socket is given), client
 * processes, warm-up, window, results. The caller owns all strings. Single-threaded only: it forks
 * and changes the environment.
 */
#pragma once

#include <stdint.h>

#include "bench/measure/fetching.h"
#include "proto/client/feed.h"
#include "proto/limit.h"

enum {
	POINT_CLIENTS_MAX = 64,
	POINT_THREADS_MAX = 1024,
};

enum consume {
	CONSUME_NONE, /* release batches without reading them */
	CONSUME_READ, /* read every byte */
	/* copy every byte to private memory of the client, as for a device */
	CONSUME_COPY,
};

/* Common to all points of a run. */
struct settings {
	/* socket of a running daemon; NULL: start a private one for each point */
	const char *socket;
	const char *daemon; /* program of private daemons; NULL: as for feed_daemon_start() */
	double warmup_s, window_s;
	uint64_t seed;
	uint32_t slots; /* 0 lets the daemon choose */
	int stored_order;
	const char **values; /* [value_count] values to deliver in addition to images and labels */
	uint32_t value_count;
	int wanted;       /* nonzero: clients ask for each batch, see wants.h */
	int defers;       /* nonzero defers the transforms that a device can do to the clients */
	int no_reconnect; /* fail if the daemon goes away */
	enum consume consume;
	double step_s; /* how long a client holds each batch, to simulate a training step */
};

enum { POINT_PARTS_MAX = 64 };

/* The swept parameters. */
struct point {
	const char *dataset; /* of a mixture, that of its first part */
	/* NULL for a whole dataset; else a mixture of at most POINT_PARTS_MAX parts, or a choice */
	const struct feed_order *order;
	const char *pipeline;
	/* pixels substituted for {size} in the pipeline; 0 if the pipeline has no {size} */
	unsigned size;
	unsigned batch_size;
	unsigned threads; /* 0 means the daemon's default */
	unsigned clients;
	const char *isa; /* NULL lets the daemon choose */
};

/* Times are per image; fractions are of the window. */
struct measurement {
	double images_per_s;      /* sum over the clients */
	double bytes_per_s;       /* bytes of images delivered */
	double images_per_s_core; /* per core that the daemon's threads can use */
	double cpu_us;            /* CPU time of the whole daemon */
	double client_cpu_us;
	double stage_us[STAGE_COUNT];    /* time of the daemon's pool threads */
	double wait_p50_ms, wait_p99_ms; /* duration of feed_next() */
	double stall_client,
		/* fraction spent waiting: mean over the clients; mean over their feeds */
		stall_daemon;
	/*
	 * Fractions of the pool threads' time: running, asleep until stored bytes arrive,
	 * runnable but without a CPU, idle.
	 */
	double busy, waiting, queued, idle;
	double capacity_us; /* CPU time per image available to the threads */
	enum limit limit;
	/* patches of a batch, as a share of feed_order.batch_tokens; 0 without them */
	double token_fill;
	double private_mib; /* anonymous memory of the daemon (Pss_Anon) */
	double pss_mib;     /* PSS of the daemon: includes its share of mapped files and rings */
	double shared_mib;  /* memory of the rings */
	uint64_t images, batches, bad;
	uint64_t part_images[POINT_PARTS_MAX]; /* of a mixture */
	/*
	 * Reconnects of the clients in the window. If the daemon's process was replaced in the
	 * window, the daemon's values cover only the last process.
	 */
	uint64_t reconnects;
	unsigned threads;          /* of the daemon */
	char isa[16];              /* instruction set of the kernels in use */
	double memcpy_bytes_per_s; /* 0 if not measured */
	struct fetch_rates fetch;  /* of datasets in stores */
};

/* Returns 0, or a negative errno with a message in error (FEED_ERROR_MAX bytes). */
int point_measure(const struct settings *settings, const struct point *point,
		  struct measurement *ret_measurement, char *error);

/* Fills in the options of feed number `client` of a point. */
void point_feed_options(const struct settings *settings, const struct point *point,
			const char *socket, unsigned client, struct feed_options *ret_options);
/* Starts a private daemon for the point, with the point's cap on the instruction set. */
int point_daemon_start(const struct settings *settings, const struct point *point,
		       struct feed_daemon **ret_daemon, char *error);
/* Number of CPUs that this process may use. */
unsigned point_cores(void);
