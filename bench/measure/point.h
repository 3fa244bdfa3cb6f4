/*
 * point: one measurement of loaderbench: a dataset through a pipeline at a batch size, by a daemon
 * with so many threads, consumed by so many processes at once.
 *
 * A point is measured by point_measure() from start to end: daemon (private, unless a socket is
 * given), client processes, warm-up, window, figures. The caller owns all strings. Not for use by
 * several threads at a time: it forks and changes the environment.
 */
#pragma once

#include <stdint.h>

#include "proto/client/feed.h"
#include "proto/limit.h"

enum {
	POINT_CLIENTS_MAX = 64,
	POINT_THREADS_MAX = 1024,
};

enum consume {
	CONSUME_NONE, /* batches are taken and given back */
	CONSUME_READ, /* every byte is read */
	/* every byte is copied to memory of the client's own, as a copy to a device would */
	CONSUME_COPY,
};

/* The same for all points of a run. */
struct settings {
	const char *socket; /* of a running daemon; NULL: a private one for each point */
	const char *daemon; /* program for private ones; NULL: as feed_daemon_start finds it */
	double warmup_s, window_s;
	uint64_t seed;
	uint32_t slots; /* 0: the daemon chooses */
	int stored_order;
	int defers;       /* leaves to clients what of the pipeline a device can do */
	int no_reconnect; /* fail where a daemon goes away */
	enum consume consume;
	double step_s; /* that a client holds each batch, as a training step would */
};

/* What is swept. */
struct point {
	const char *dataset;
	const char *pipeline;
	unsigned size; /* pixels, what {size} stood for in the pipeline; 0: nothing did */
	unsigned batch_size;
	unsigned threads; /* 0: the daemon's default */
	unsigned clients;
	const char *isa; /* NULL: as the daemon chooses */
};

/* Times are per image, shares are of the window. */
struct measurement {
	double images_per_s;      /* all clients together */
	double bytes_per_s;       /* of images handed over */
	double images_per_s_core; /* by the cores that the daemon's threads can occupy */
	double cpu_us;            /* CPU time of the whole daemon */
	double client_cpu_us;
	double stage_us[STAGE_COUNT];    /* of the daemon's threads */
	double wait_p50_ms, wait_p99_ms; /* from asking for a batch to having it */
	double stall_client,
		stall_daemon; /* share of time waiting: mean of the clients, mean of their feeds */
	/*
	 * Shares of the daemon's threads' time: used, asleep until stored bytes came, ready while
	 * others had the CPUs, with nothing to do.
	 */
	double busy, waiting, queued, idle;
	double capacity_us; /* CPU time per image that they could have had */
	enum limit limit;
	double private_mib; /* anonymous memory of the daemon, proportional */
	double pss_mib;     /* the daemon with its share of mapped files and rings */
	double shared_mib;  /* rings */
	uint64_t images, batches, bad;
	/* of clients in the window; then the daemon's figures are of the last one alone */
	uint64_t reconnects;
	unsigned threads;          /* of the daemon */
	char isa[16];              /* kernels in use */
	double memcpy_bytes_per_s; /* 0: not measured */
};

/* 0 or a negative errno with a sentence in error (FEED_ERROR_MAX bytes). */
int point_measure(const struct settings *settings, const struct point *point,
		  struct measurement *ret_measurement, char *error);

/* Options of feed number `client` of a point. */
void point_feed_options(const struct settings *settings, const struct point *point,
			const char *socket, unsigned client, struct feed_options *ret_options);
/* Starts a private daemon for the point, its instruction set capped as the point asks. */
int point_daemon_start(const struct settings *settings, const struct point *point,
		       struct feed_daemon **ret_daemon, char *error);
/* CPUs that this process may use. */
unsigned point_cores(void);
