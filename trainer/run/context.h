/*
 * The environment of a run: recipe, options, ranks, device, progress, and the error to report.
 * Embedded in struct run; the other parts of the run point to it. Single-threaded; only a signal
 * handler writes *options.stop.
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
	 * copy of the given recipe, with the original's strings; grad_accum.c stores the number of
	 * micro-batches in it, and a search the batch size
	 */
	struct recipe recipe_copy;
	bool auto_accum; /* train.accumulate = auto: on -ENOMEM, try more micro-batches */
	struct run_options options;
	struct comm *comm; /* all ranks */
	/*
	 * the mesh of train.tensor: the ranks that hold the network together, or NULL; and one rank
	 * of each such group, which share each batch. Without groups, data_comm is comm
	 */
	struct comm *group_comm, *data_comm;
	struct device *device;
	struct progress progress;
	char error[RUN_ERROR_MAX];
	bool agreed;        /* every rank knows of the failure and returns the same code */
	bool on_every_rank; /* every rank is about to detect the same failure by itself */
	/* after RUN_LOST: this rank's error code, described in `error`; 0 if another rank failed */
	int lost;
};

/* Writes a sentence to ctx->error and returns code. */
#define run_fail(ctx, code, ...) sentence_fail((ctx)->error, RUN_ERROR_MAX, (code), __VA_ARGS__)
/* As run_fail(), for a failure that all ranks detect at the same step, from shared results. */
#define run_fail_everywhere(ctx, code, ...)                                                        \
	((ctx)->on_every_rank = true, run_fail((ctx), (code), __VA_ARGS__))

/* Error string for a failure of the device with this code. */
const char *run_device_text(const struct run_context *ctx, int code);
/* Forms the mesh. Fails, on all ranks, if train.tensor does not divide their number. */
int run_open_mesh(struct run_context *ctx);
void run_close_mesh(struct run_context *ctx);
/* Sums values[count] over all ranks, in place; over those that share each batch. */
int run_sum(struct run_context *ctx, double *values, size_t count);
int run_sum_batch(struct run_context *ctx, double *values, size_t count);
/*
 * Before the ranks of a group compute together: returns `outcome`, but RUN_LOST if that is 0 and
 * another rank's is not.
 */
int run_vote_group(struct run_context *ctx, int outcome);
/*
 * Votes on how the ranks continue. Returns -EINTR if any rank's `outcome` is -EINTR, else RUN_LOST
 * if any is another error, else 0. Sets ctx->lost to this rank's error other than -EINTR, or 0.
 * Sums *count over ranks unless count is NULL.
 */
int run_vote(struct run_context *ctx, int outcome, double *count);
/*
 * Records this rank's failure `code` in ctx->lost, before the ranks agree. Returns RUN_LOST, or 0
 * if code is 0.
 */
int run_set_lost(struct run_context *ctx, int code);
/* Records that all ranks know of the failure `code`, and returns it. */
int run_fail_agreed(struct run_context *ctx, int code);
/* Clears the error after a failure that was reported and does not end the run. */
void run_clear_error(struct run_context *ctx);
/*
 * After RUN_LOST: returns the code of the first rank that failed, and sets its sentence on all
 * ranks.
 */
int run_report_lost(struct run_context *ctx);
/* Fails if there are several ranks; the error names `option`, which supports only one. */
int run_refuse_ranks(struct run_context *ctx, const char *option);
