/* Internal to run/: functions that connect the parts of a run. */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/run.h"

/* ---- steps (loop.c, update.c) ---- */

/*
 * Queues the next step. All ranks return the same: -EINTR if any was stopped; RUN_LOST if any's
 * feed failed or any lacks memory for the step's graph.
 */
int run_step(struct run *run);
/*
 * Queues the next update on a batch. The batch's memory may be released once the copy of
 * *ret_ticket is done.
 */
int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket);
/*
 * Collects results of pending steps, oldest first: all that are ready. Waits for more until at most
 * `down_to` steps are pending.
 */
int run_collect(struct run *run, unsigned down_to);
/* Adds a step's results to totals. */
void run_add(struct checkpoint_totals *totals, const struct device_results *results);
/* Sets the error for a device failure in the next step. what: the operation that failed. */
int run_fail_step(struct run *run, int code, const char *what);
/*
 * Describes a training batch for the device, as the batch of the next step. feed: NULL for a
 * synthetic batch.
 */
int run_train_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		    struct device_batch *ret_batch);
/* Waits until the device has read the batches in flight, and releases them. */
int run_release_input(struct run *run);

/*
 * Writes a checkpoint of the current step, unless the newest one is of it (save.c). All ranks call
 * it.
 */
int run_save(struct run *run);

/* ---- planning (plan_train.c, grad_accum.c) ---- */

/* True if the training graph has the image size and sample count of the next step. */
bool run_has_train_graph(const struct run *run);
/*
 * Plans the training graph for the next batch. With train.accumulate = auto, uses as few
 * micro-batches as fit.
 */
int run_plan_train(struct run *run);
/* Makes the evaluation graph fit an image size. Plans a new graph only if needed. */
int run_plan_eval(struct run *run, uint32_t height, uint32_t width);
/*
 * Freezes or thaws parameters if due, and then frees the training graphs; they must have no pending
 * steps.
 */
int run_move_freeze(struct run *run);
/*
 * Computes the first micro-batch of the next batch with the newly planned training graph and
 * discards the result. -ENOMEM if allocations outside the plan do not fit. Waits for no other rank,
 * so that all ranks reach grad_accum_fit() with their results.
 */
int run_warm_up(struct run *run);
/* Sets the initial number of micro-batches with train.accumulate = auto. */
int grad_accum_init(struct run *run);
/*
 * Calls plan(run), which plans graphs. With train.accumulate = auto, retries with more
 * micro-batches as long as it returns -ENOMEM on any rank. All ranks call this function. -ENOMEM if
 * the number of micro-batches is fixed or cannot grow.
 */
int grad_accum_fit(struct run *run, int (*plan)(struct run *run));
/* For a search: sets another batch size and divides it into `parts` micro-batches. */
void grad_accum_set(struct run_context *ctx, uint64_t batch_size, uint64_t parts);

/* ---- evaluation and export (evaluate/, report/export.c, report/onnx.c) ---- */

/*
 * Tries an evaluation with a first batch, because a failure of run_evaluate() hours later would
 * lose the steps since the last checkpoint.
 */
int run_try_evaluation(struct run *run);
/*
 * Evaluates all of data.val with the weights of network_eval_slot() and records the result in state
 * and log. All ranks return the same: -EINTR if any was stopped, RUN_LOST if any's feed failed.
 */
int run_evaluate(struct run *run);
/* The metrics of the run's evaluations. */
const struct metrics *run_metrics(const struct run *run);
/* Rank 0, with --evaluate: finds the weights file and reads its metadata. */
int run_find_weights(struct run *run);
/*
 * At the end of a run with train.swa: recomputes the batch norm statistics of the averaged weights.
 * All batches must have been released. Returns -EINTR and RUN_LOST as run_evaluate().
 */
int run_update_bn(struct run *run);
/*
 * Exports weights to the file `name` in the output folder, on rank 0; all ranks call it.
 * evaluation: their evaluation results as text, or NULL.
 */
int run_export(struct run *run, const char *name, const char *evaluation);
/* Returns the metadata to store with weights. The run owns the strings. */
struct checkpoint_about run_about(const struct run *run);
/* With --onnx: exports the network, with the weights evaluated last. */
int run_write_onnx(struct run *run);

/* ---- log lines and terminal (report/) ---- */

/* Converts steps to epochs; 0 while the number of steps per epoch is unknown. */
double run_epoch(const struct run *run, uint64_t step);
/* Writes the first line of the log. */
int run_start_line(struct run *run);
/* Writes a log line with the results of a step and means over the steps since the previous line. */
int run_step_line(struct run *run, const struct pending_step *pending,
		  const struct device_results *results);
/* At the end of an epoch: writes the epoch's line to the log and the terminal. */
int run_epoch_line(struct run *run);
/* Writes the last line of the log, and summary.json. */
int run_end_line(struct run *run, const char *outcome);
/* Redraws the progress bar or prints a progress line, if an update is due. */
void run_draw_progress(struct run *run);
/* Prints a hint, once per run, if training spends much of its time waiting for data. */
void run_hint_data_wait(struct run *run);
/* Name of the device's compute precision, such as "bf16". */
const char *run_precision(const struct run *run);
/* Formats a number for JSON; non-finite numbers become null. */
enum { RUN_NUMBER_TEXT = 32, RUN_LOSS_DIGITS = 9 };
void run_number_text(double number, int digits, char *ret_text);
