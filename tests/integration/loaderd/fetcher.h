/*
 * Stands in for the process that fetches a dataset while a feed reads it (proto/SPEC.md, "Filling
 * files"): copies a local file into a sparse one, at a set pace, and fails as a plan says. A
 * failure of the test's own calls ends the test through cmocka's assertions.
 */
#pragma once

#include "proto/client/feed.h"
#include "proto/filling.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FETCHER_NONE UINT64_MAX

/* Zeros copy every sample once, those that are wished for first, as fast as possible. */
struct fetcher_plan {
	unsigned pace_us;     /* pause after each sample */
	bool wished_only;     /* copy only what is wished for */
	unsigned evictions;   /* samples taken away at random after each that was copied */
	uint64_t never;       /* a sample that never comes; FETCHER_NONE */
	uint64_t wrong;       /* a sample whose bytes come wrong; FETCHER_NONE */
	unsigned wrong_times; /* how often; UINT_MAX for always */
};

/* Counted by the process while it runs, and kept when it ends. */
struct fetcher_counts {
	_Atomic uint64_t copied, evicted, suspects, wrong;
};

struct fetcher {
	char source[PATH_MAX], mirror[PATH_MAX];
	struct feed_filling filling; /* for feed_options; owned */
	_Atomic uint8_t *turns;
	struct filling_page *page;
	uint64_t samples;
	struct fetcher_counts *counts;
	pid_t pid; /* 0 if it does not run */
};

/* Makes SOURCE.mirror, with everything of the file but the samples' bytes, and the memory files. */
void fetcher_init(struct fetcher *fetcher, const char *source);
/* Goes on with the mirror and the memory files of another one, which has ended. Takes map and page.
 */
void fetcher_adopt(struct fetcher *fetcher, const char *source, const char *mirror, int map,
		   int page);
void fetcher_deinit(struct fetcher *fetcher);
/* Returns a plan in which nothing fails. */
struct fetcher_plan fetcher_plan(void);
void fetcher_start(struct fetcher *fetcher, const struct fetcher_plan *plan);
/* Kills it wherever it is. Another one can be started, and goes on. */
void fetcher_kill(struct fetcher *fetcher);
/* Sets the feed's options for the mirror. */
void fetcher_use(const struct fetcher *fetcher, struct feed_options *options);
/* Waits until the worker wishes for a sample. */
void fetcher_wait_for_wish(const struct fetcher *fetcher);
