/*
 * The environment of a run: recipe, options, ranks, device, progress, and the error to report.
 * Embedded in struct run, which wires a pointer to it into the other parts. Single-threaded; only a
 * signal handler writes *options.stop.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/device/device.h"
#include "trainer/log/progress.h"
#include "trainer/recipe/recipe.h"
#include "trainer/run/options.h"
#include "trainer/run/ranks.h"

enum { RUN_ERROR_MAX = RANKS_ERROR_MAX };

enum { RUN_STOPPED = 1, RUN_LOST = 2 };

struct run_context {
	const struct recipe *recipe; /* points to recipe_copy */
	/*
	 * the recipe as given; owns the strings. grad_accum.c sets the number of micro-batches
	 * found so far in it, and a search the batch size
	 */
	struct recipe recipe_copy;
	bool auto_accum; /* train.accumulate = auto: on -ENOMEM, try more micro-batches */
	struct run_options options;
	struct comm *comm;
	struct device *device;
	struct progress progress;
	char error[RUN_ERROR_MAX];
	bool agreed;     /* all ranks know of the failure and have returned it */
	bool everywhere; /* all ranks are about to find the same failure */
	/* after RUN_LOST: this rank's error code, with `error`; 0 if another rank failed */
	int lost;
};

/* Writes a sentence to ctx->error and returns code. */
#define run_fail(ctx, code, ...) sentence_fail((ctx)->error, RUN_ERROR_MAX, (code), __VA_ARGS__)
/* For a failure that all ranks find at the same step, from shared results. */
#define run_fail_everywhere(ctx, code, ...)                                                        \
	((ctx)->everywhere = true, run_fail((ctx), (code), __VA_ARGS__))

/* Text for a device failure with this code. */
const char *run_device_text(const struct run_context *ctx, int code);
/* Sums values[count] over ranks, in place. */
int run_sum(struct run_context *ctx, double *values, size_t count);
/*
 * Votes on what the ranks do next: 0 if `outcome` is 0 on every rank, -EINTR if it is that on any,
 * else RUN_LOST, with this rank's outcome in ctx->lost. Sums *count over ranks; NULL for none.
 */
int run_vote(struct run_context *ctx, int outcome, double *count);
/* This rank failed, or 0: returns RUN_LOST, or 0; the ranks have yet to agree. */
int run_lose(struct run_context *ctx, int code);
/* All ranks have found the failure `code`: returns it. */
int run_fail_agreed(struct run_context *ctx, int code);
/* Forgets a failure that does not end the run, and was reported. */
void run_clear_error(struct run_context *ctx);
/*
 * After RUN_LOST: returns the code of the first rank that failed, with its sentence, on all ranks.
 */
int run_report_lost(struct run_context *ctx);
/* Fails if there are several ranks, naming the option that supports only one. */
int run_refuse_ranks(struct run_context *ctx, const char *option);
