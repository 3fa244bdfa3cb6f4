/* Internal to run/: functions that connect the parts of a run. */
#pragma once

#include "trainer/run/run.h"

/* ---- steps (loop.c, update.c) ---- */

/*
 * Queues the next step. -EINTR if a rank was stopped; RUN_LOST if a rank's feed failed, or its
 * memory is too small for the graph of this step. All ranks return the same.
 */
int run_step(struct run *run);
/*
 * Queues the next update on a batch. ret_ticket identifies the copy after which the batch's memory
 * may be released.
 */
int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket);
/*
 * Collects results of the oldest pending steps: those that are ready, and enough (waiting) that at
 * most down_to remain.
 */
int run_collect(struct run *run, unsigned down_to);
/* Adds a step's results to totals. */
void run_add(struct checkpoint_totals *totals, const struct device_results *results);
/* Sets the error for a device failure in the next step. */
int run_fail_step(struct run *run, int code, const char *what);
/*
 * Describes a batch of data.pipeline for the device, as the next step's; feed NULL for a synthetic
 * batch.
 */
int run_train_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		    struct device_batch *ret_batch);
/* Waits until the device has read the batches in flight, and releases them. */
int run_release_input(struct run *run);

/* ---- planning (plan_train.c, grad_accum.c) ---- */

/* True if the training graph has the size of the next batch. */
bool run_has_train_graph(const struct run *run);
/* Plans the training graph for the next batch; with train.accumulate = auto, in as few parts as
 * fit. */
int run_plan_train(struct run *run);
/* Makes the evaluation graph fit an image size; plans a new one only if needed. */
int run_plan_eval(struct run *run, uint32_t height, uint32_t width);
/* Freezes or thaws what is due; drops the training graphs then, in which no step may be pending. */
int run_move_freeze(struct run *run);
/*
 * Computes the first micro-batch of the next batch with the newly planned training graph and
 * discards the result. -ENOMEM if memory that is allocated outside the plan does not fit. No rank
 * waits here: all ranks reach grad_accum_fit() with their own result.
 */
int run_warm_up(struct run *run);
/* Sets the initial number of micro-batches with train.accumulate = auto. */
int grad_accum_init(struct run *run);
/*
 * Calls plan(run), which plans graphs. While it fails with -ENOMEM on any rank and train.accumulate
 * = auto, retries with more micro-batches. All ranks call it. -ENOMEM if the number is fixed or the
 * micro-batches cannot be smaller.
 */
int grad_accum_fit(struct run *run, int (*plan)(struct run *run));
/* For a search: sets another batch size, in `parts` micro-batches. */
void grad_accum_set(struct run_context *ctx, uint64_t batch_size, uint64_t parts);

/* ---- evaluation (evaluate.c, evaluate_alone.c, update_bn.c, onnx.c) ---- */

/*
 * Checks with a first batch that run_evaluate() will work, since a failure hours later would lose
 * the steps since the last checkpoint.
 */
int run_try_evaluation(struct run *run);
/*
 * Evaluates all of data.val with the weights of network_eval_slot() and records the result in state
 * and log. -EINTR if stopped, RUN_LOST if a rank's feed failed; the same on all ranks.
 */
int run_evaluate(struct run *run);
/* Rank 0, with `evaluate`: finds the weights file and reads its metadata. */
int run_find_weights(struct run *run);
/*
 * At the end of a run with train.swa, once all batches are released: recomputes the batch norm
 * statistics of the averaged weights. -EINTR, RUN_LOST as in run_evaluate().
 */
int run_update_bn(struct run *run);
/* Exports weights as NAME in the output folder. evaluation: their results, or NULL. */
int run_export(struct run *run, const char *name, const char *evaluation);
/* Metadata to store with the weights; the run owns the strings. */
struct checkpoint_about run_about(const struct run *run);
/* With --onnx: exports the network evaluated last. */
int run_write_onnx(struct run *run);

/* ---- log lines and terminal (console_log.c, hints.c) ---- */

/* Steps as epochs; 0 while the number of steps per epoch is unknown. */
double run_epoch(const struct run *run, uint64_t step);
/* Writes the first line of the log. */
int run_start_line(struct run *run);
/* Writes a step's log line, with means since the previous line. */
int run_step_line(struct run *run, const struct pending_step *pending,
		  const struct device_results *results);
/* At the end of an epoch: writes its line to the log and the terminal. */
int run_epoch_line(struct run *run);
/* Writes the last line of the log, and summary.json. */
int run_end_line(struct run *run, const char *outcome);
/* Updates progress when it is due. */
void run_draw_progress(struct run *run);
/* Once, if training waits for data. */
void run_hint_data_wait(struct run *run);
/* Compute precision of the device, such as "bf16". */
const char *run_precision(const struct run *run);
/* Formats a loss for JSON, which has no notation for non-finite numbers. */
enum { RUN_LOSS_TEXT = 32 };
void run_loss_text(double loss, char *ret_text);
