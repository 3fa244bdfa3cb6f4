/*
 * A training run and everything that belongs to it.
 *
 *     run_open    (open.c) daemon, datasets, device, model; fresh start or checkpoint; first
 *                 batch; plan
 *     run_train   the loop (loop.c): steps, evaluations, checkpoints, log, until the end or *stop
 *     run_close
 *
 * Several ranks (comm.h) run in parallel, each on its share of every batch. Only rank 0 reads
 * checkpoints and writes files and progress; it broadcasts its decisions. The ranks agree before
 * every step whether to make it, so all of them stop at the same step.
 *
 * Single-threaded; only a signal handler writes *stop. Errors are sentences in run->error.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/algorithms/freeze.h"
#include "trainer/algorithms/freeze_layers.h"
#include "trainer/algorithms/schedule.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/device.h"
#include "trainer/log/metrics_log.h"
#include "trainer/log/progress.h"
#include "trainer/log/sink.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"
#include "trainer/run/data.h"
#include "trainer/run/ranks.h"

#define RUN_NO_STEP UINT64_MAX

enum { RUN_ERROR_MAX = RANKS_ERROR_MAX, RUN_PENDING_MAX = 8, RUN_INFLIGHT_MAX = 4 };

struct run_options {
	struct comm *comm;  /* never NULL */
	const char *socket; /* NULL for a private daemon */
	const char *output; /* output folder */
	bool resume;
	const char *resume_path; /* NULL for the newest checkpoint in output */
	/*
	 * permit a fresh start, or a resume from resume_path, in a folder that holds another or a
	 * later run
	 */
	bool overwrite;
	bool allow_changes;  /* permit RECIPE_TRAJECTORY keys to differ from the checkpoint's */
	bool dry;            /* create nothing on disk */
	const char *find_lr; /* prefix of the files that run_find_lr() writes, or NULL */
	/* prefix of the files that run_find_batch_size() writes, or NULL */
	const char *find_batch_size;
	const char *predictions; /* with evaluate: prefix of the prediction files, or NULL */
	const char *onnx;        /* with evaluate: ONNX file to write, or NULL */
	bool evaluate;           /* only run_evaluate_alone(); implies dry and allow_changes */
	/* GPU of the first rank on a machine; other local ranks add their number */
	unsigned device_index;
	bool overfit_batch;   /* train every step on the first batch */
	bool check_gradients; /* only run_check_gradients() */
	bool detect_anomaly;
	bool profile;
	const char *trace; /* trace file (trace.c), or NULL */
	/* first and last step to trace, counted from 1 among the steps of this process */
	uint64_t trace_first, trace_last;
	const volatile int *stop;
};

/* A graph planned for one image size. */
struct run_graph {
	struct device_graph *graph;
	uint32_t count, height, width;
};

/* Teacher of train.teacher (teacher.c); all zeros without one. */
struct teacher {
	struct recipe recipe; /* only the network's keys matter */
	struct weights_metadata metadata;
	uint64_t mark; /* identifies weights file and network; never 0 */
	struct device_params *params;
	struct model *model;
	struct run_graph graph; /* evaluation graph of run->train's size */
	/* [data_train_share()][classes] of the batch. kept: in device memory, before logit_scale */
	float *logits;
	bool kept;
};

/* A queued device step whose results are still due. */
struct run_pending {
	struct device_graph *graph;
	uint64_t device_step, step; /* step: the update that the device step contributes to */
	double lr;
	bool last;  /* this step makes the update */
	bool again; /* second pass over the same batch; its loss is not reported */
};

/* A batch that the device may still be reading. */
struct run_inflight {
	struct feed_batch batch;
	uint64_t ticket;
};

/* A feed and the mapping of its ring that the device knows. */
struct run_feed {
	struct feed *feed;
	const void *memory;  /* NULL if no memory is registered with the device */
	uint64_t reconnects; /* the feed's reconnect count when `memory` was registered */
	/*
	 * with data.augment = device: [data_train_share()] deferred operations of the current
	 * batch, whose images arrive in the delivered size; else NULL
	 */
	struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
};

struct run {
	const struct recipe *recipe; /* points to recipe_copy */
	/*
	 * the recipe as given; owns the strings. With train.accumulate = auto it holds the number
	 * found so far
	 */
	struct recipe recipe_copy;
	bool auto_accum; /* train.accumulate = auto: on -ENOMEM, try more micro-batches */
	struct run_options options;
	struct comm *comm;
	char error[RUN_ERROR_MAX];
	bool agreed;     /* all ranks know of the failure and have returned it */
	bool everywhere; /* all ranks are about to find the same failure */
	/* after RUN_LOST: this rank's error code, with `error`; 0 if another rank failed */
	int lost;

	struct predictions *predictions; /* with --predictions, else NULL */
	bool eval_bytes;                 /* the last evaluated batch was u8 */
	bool hinted;                     /* the advice about waiting for data was printed */
	bool warned;                     /* the planning warning was printed */

	struct weights_metadata weights; /* the weights to evaluate, with `evaluate` */
	struct data data;
	struct run_feed feed;
	/* the device stages every batch in its own pinned memory; register no feed memory */
	bool staged;
	struct feed_batch batch; /* next batch, valid if has_batch */
	bool has_batch;
	uint64_t bad;         /* substituted samples of the batch, summed over ranks */
	uint64_t *sample_ids; /* [batch_size] with log.samples */
	/*
	 * with train.mixup or train.cutmix: [data_train_share()] each, for this rank's share of the
	 * batch
	 */
	struct {
		struct device_blend *blends;
		int32_t *labels2;
		float *shares;
	} mix;
	uint32_t *picks; /* with data.colout: kept rows, then kept columns */
	/*
	 * with train.selective_backprop: the kept part of a batch, [select_count()] except losses
	 */
	struct {
		float *losses;   /* of all samples of the batch */
		uint32_t *picks; /* indices of the kept samples */
		void *images;    /* copies; in use until the copy of `ticket` is done */
		size_t size;     /* capacity of images in bytes */
		int32_t *labels;
		struct deferred *deferred;
		uint64_t ticket; /* 0 if no copy is under way */
	} selected;
	float *class_weights; /* [classes] with train.class_weights = balanced, else NULL */

	struct device *device;
	struct device_params *params;
	struct model *model;
	struct run_graph train, eval;
	struct run_graph
		selected_train; /* with train.selective_backprop: graph for the kept samples */
	struct teacher teacher;
	struct run_pending pending[RUN_PENDING_MAX]; /* oldest first */
	unsigned pending_count;
	/* sums over the micro-batches so far of the update whose results are being collected */
	struct device_results accum;
	struct run_inflight inflight[RUN_INFLIGHT_MAX];
	/* the feed has inflight_max + 1 slots: one more for the next batch */
	unsigned inflight_count, inflight_max;

	struct freeze freeze;
	struct freeze_layers freeze_layers;
	struct schedule schedule;
	uint64_t steps, eval_every, checkpoint_every; /* in steps; 0 for only at the end */
	struct checkpoint *checkpoint;                /* to resume from; only while the run opens */
	bool resumed;
	struct checkpoint_state state;
	const char *outcome; /* set when the run ends: finished or stopped */
	char why[256];       /* why the run ends before its last epoch, or "" */
	uint64_t saved_step; /* step of the last checkpoint, or RUN_NO_STEP */
	/* rank 0: step of the newest checkpoint in the output folder when the run opened */
	uint64_t found_step;

	struct metrics_log *metrics;        /* NULL in a dry run and on ranks other than 0 */
	struct metrics_log *samples;        /* with log.samples */
	struct sink *sinks[LOG_SINK_COUNT]; /* the configured sinks */
	struct progress progress;
	struct trace *trace;  /* not NULL while steps are traced */
	uint64_t trace_after; /* step that the run began at */
	/* updates skipped since the last step line because a gradient was not finite */
	uint64_t skipped;
	double mark;                    /* clock value up to which train_seconds is accounted */
	double line_seconds, line_wait; /* the state's values at the last step line */
	uint64_t line_images;
	double last_loss, last_lr;
	/* factor on learning rates during a search for a rate or batch size; else 0 */
	double find_rate;
	/*
	 * called with each batch before the step; run_find_batch_size() and run_check_gradients()
	 * use it to inspect gradients; else NULL
	 */
	int (*observe)(struct run *run, const struct device_batch *batch);
	struct find_noise *noise; /* argument of observe */
	struct check *check;
	double rate; /* images per second over the last lines */
};

/*
 * Returns 0, or a negative errno with run->error set on all ranks. Call run_close() in either case.
 */
int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options);
void run_close(struct run *run);

/* Prints a summary for people: model, sizes, memory, steps. */
void run_describe(const struct run *run, FILE *file);

/* Prints one line for each setting that could be faster or better; nothing if there is none. */
void run_print_hints(const struct run *run, FILE *file);

enum { RUN_STOPPED = 1, RUN_LOST = 2 };
/*
 * Returns 0 when finished, RUN_STOPPED when *stop was set and a checkpoint holds the state, or a
 * negative errno with run->error. A feed failure also leaves a checkpoint, since the state computed
 * before it is sound.
 */
int run_train(struct run *run);

/*
 * Replaces run_train(), for a recipe whose learning rate is 1 throughout: searches for a better
 * rate (find_lr.c). Rank 0 writes a table and a plot, and the suggested rate to file.
 */
int run_find_lr(struct run *run, FILE *file);

/*
 * Replaces run_train(), on one rank: measures which batch sizes fit, their speed, and the gradient
 * noise scale (find_batch.c). Writes a table and a plot, and the suggestion to file.
 */
int run_find_batch_size(struct run *run, FILE *file);

/*
 * Replaces run_train(), for a recipe without regularisation and with a constant rate: checks that
 * the model can memorise the first batch (overfit.c). -EDOM if it cannot.
 */
int run_overfit_batch(struct run *run, FILE *file);
/*
 * Compares the gradients of the first batch with finite differences of the loss and prints a line
 * for each parameter to file (check_gradients.c). -EDOM if any disagree.
 */
int run_check_gradients(struct run *run, FILE *file);

/* ---- internal to run/ ---- */

#define run_fail(run, code, ...) sentence_fail((run)->error, RUN_ERROR_MAX, (code), __VA_ARGS__)
/* For a failure that all ranks find at the same step, from shared results. */
#define run_fail_everywhere(run, code, ...)                                                        \
	((run)->everywhere = true, run_fail((run), (code), __VA_ARGS__))
/* Text for a device failure with this code. */
const char *run_device_text(const struct run *run, int code);
/* Adds a step's results to totals. */
void run_add(struct checkpoint_totals *totals, const struct device_results *results);
/*
 * Collects results of the oldest pending steps: those that are ready, and enough (waiting) that at
 * most down_to remain.
 */
int run_collect(struct run *run, unsigned down_to);
/*
 * Queues the next step. -EINTR if a rank was stopped; RUN_LOST if a rank's feed failed, or its
 * memory is too small for the graph of this step. All ranks return the same.
 */
int run_step(struct run *run);
/*
 * Queues the next update on a batch (update.c). ret_ticket identifies the copy after which the
 * batch's memory may be released.
 */
int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket);
/*
 * Computes the first micro-batch of run->batch with the newly planned run->train and discards the
 * result. -ENOMEM if memory that is allocated outside the plan does not fit. No rank waits here:
 * all ranks reach run_plan_to_fit() with their own result.
 */
int run_warm_up(struct run *run);
/* Allocates room for the samples that train.selective_backprop keeps; -EINVAL if it cannot. */
int run_open_selection(struct run *run);
void run_close_selection(struct run *run);
/*
 * With train.selective_backprop, when due (select.c): reduces batch to its kept samples, to be
 * trained with run->selected_train; otherwise *ret_graph is run->train. ret_ticket as in
 * run_update().
 */
int run_select(struct run *run, struct device_batch *batch, struct run_graph **ret_graph,
	       uint64_t *ret_ticket);
/* Returns micro-batch `part` (from 0) of the batch, of run->train's size. */
struct device_batch run_slice(const struct run *run, const struct device_batch *batch,
			      uint32_t part);
/*
 * At the end of a run with train.swa, once all batches are released: recomputes the batch norm
 * statistics of the averaged weights (update_bn.c). -EINTR, RUN_LOST as in run_evaluate().
 */
int run_update_bn(struct run *run);
/* Sets run->error for a device failure in the next step. */
int run_fail_step(struct run *run, int code, const char *what);
/*
 * After an evaluation: returns true, and sets run->why, if the evaluation ends the run
 * (early_stopping.c). The same on all ranks.
 */
bool run_stops_early(struct run *run);
/* Sums values[count] over ranks, in place. */
int run_sum(struct run *run, double *values, size_t count);
/* True if run->train has the size of the next batch. */
bool run_has_train_graph(const struct run *run);
/* Plans run->train for the next batch; with train.accumulate = auto, in as few parts as fit. */
int run_train_graph(struct run *run);
/* Sets the initial number of micro-batches with train.accumulate = auto (grad_accum.c). */
int run_init_grad_accum(struct run *run);
/*
 * Calls plan(run), which plans graphs. While it fails with -ENOMEM on any rank and train.accumulate
 * = auto, retries with more micro-batches. All ranks call it. -ENOMEM if the number is fixed or the
 * micro-batches cannot be smaller.
 */
int run_plan_to_fit(struct run *run, int (*plan)(struct run *run));
/* True if the model has running statistics. */
bool run_has_batch_norms(const struct run *run);
/*
 * Allocates what train.mixup and train.cutmix draw for a batch; -EINVAL if samples cannot be
 * paired.
 */
int run_open_mix(struct run *run);
/* With train.class_weights = balanced: computes the weights on all ranks (class_weights.c). */
int run_init_class_weights(struct run *run);
struct labels;
/*
 * Reads the labels of a dataset and checks that it is the one the daemon opened (`found`). counts
 * as in labels_count().
 */
int run_read_labels(struct run *run, const char *path, const struct uuid *found, uint64_t *counts,
		    struct labels *ret_labels);
/* Rank 0: reports how many samples have no label; fails if none has one. */
int run_report_unlabelled(struct run *run);
/* Fails if there are several ranks, naming the option that supports only one. */
int run_refuse_ranks(struct run *run, const char *option);
/* Checks that the --find-* output files are writable before the search starts. */
int run_check_results(struct run *run);
/* Writes one output file of a search, `name` followed by `ending`; errors name `option`. */
int run_write_result(struct run *run, const char *option, const char *name, const char *ending,
		     void (*write)(const void *found, FILE *file), const void *found);
/* True if the device blends, resizes or thins out training images. */
bool run_resamples(const struct run *run);
/* Makes run->train or run->eval fit an image size; plans a new graph only if needed. */
int run_graph_for(struct run *run, enum device_mode mode, uint32_t count, uint32_t height,
		  uint32_t width);
/*
 * run_freeze_is_due() is true if train.freeze thaws parameters, or train.freeze_level freezes more
 * layers, at this step. run_move_freeze() applies the change and drops the training graph, which is
 * planned again when needed; no step may be pending in it.
 */
bool run_freeze_is_due(const struct run *run);
int run_move_freeze(struct run *run);
/* The weights to evaluate and export: an average if the recipe keeps one. */
enum device_slot run_weights(const struct run *run);
/*
 * Describes the feed's current batch for the device; feed NULL for a synthetic batch. -EINVAL if
 * pipeline and model do not fit.
 */
int run_device_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		     const char *pipeline_key, struct device_batch *ret_batch);
/*
 * With data.augment = device: copies the deferred operations out of a new batch and sets the
 * batch's size to the one after them (defer.c). -EBADMSG if they are invalid.
 */
int run_take_deferred(struct run *run, struct run_feed *feed, struct feed_batch *batch,
		      char *error);
/*
 * Opens a feed (data_feed) and registers its ring with the device, so that batches are copied
 * straight from the mapping: read-only if possible, else writable. If neither works, the run goes
 * on with slower staged copies. The outcome is reported once and used for later feeds.
 * run_close_feed() undoes both.
 */
int run_open_feed(struct run *run, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed);
void run_close_feed(struct run *run, const struct run_feed *feed);
/*
 * data_next(). After a reconnect to another daemon, reports it in progress and log and registers
 * the new mapping.
 */
int run_next_batch(struct run *run, struct run_feed *feed, struct feed_batch *batch,
		   double *wait_seconds, char *error);
/*
 * Checks with a first batch that run_evaluate() will work, since a failure hours later would lose
 * the steps since the last checkpoint.
 */
int run_try_evaluation(struct run *run);
/*
 * Evaluates all of data.val with the weights of run_weights() and records the result in state and
 * log. -EINTR if stopped, RUN_LOST if a rank's feed failed; the same on all ranks.
 */
int run_evaluate(struct run *run);
/* Rank 0, with `evaluate`: finds the weights file and reads its metadata. */
int run_find_weights(struct run *run);
/* All ranks: broadcasts that metadata. */
int run_share_weights(struct run *run);
/*
 * Replaces run_train(): evaluates the weights that a run would begin with. Rank 0 writes the result
 * to file as one line of JSON.
 */
int run_evaluate_alone(struct run *run, FILE *file);

/* ---- distillation (teacher.c); no-ops without train.teacher ---- */

/* Rank 0, before the checkpoint is used: reads the teacher's network and metadata. */
int run_find_teacher(struct run *run);
/* Refuses a checkpoint of a run with another teacher. */
int run_check_teacher(struct run *run);
/* Create the parameters (all ranks), read them (rank 0), broadcast them (all ranks). */
int run_make_teacher(struct run *run);
int run_fill_teacher(struct run *run);
int run_share_teacher(struct run *run);
/* Plans its graph for run->train's input and allocates its logits. */
int run_plan_teacher(struct run *run);
void run_drop_teacher(struct run *run);
void run_close_teacher(struct run *run);
/*
 * Runs the teacher on the whole batch, after augmentation, and adds its logits to the batch. Waits
 * for them unless they stay on the device.
 */
int run_teacher_forward(struct run *run, struct device_batch *batch);
/* Adds arbitrary logits, for a pass whose loss is not used. */
void run_attach_teacher_logits(const struct run *run, struct device_batch *batch);
/*
 * Explains a non-finite loss: describes non-finite teacher logits kept on the device, or "" if
 * there are none. Looks at the batch queued last, so it only catches a teacher that often has such
 * logits. ret_text: RUN_DIAGNOSIS_TEXT bytes.
 */
enum { RUN_DIAGNOSIS_TEXT = 128 };
void run_diagnose_teacher(const struct run *run, char *ret_text);

/* ---- predictions of an evaluation (predictions.c) ---- */

/* With --predictions, before the evaluation; refuses several ranks. */
int run_open_predictions(struct run *run);
void run_close_predictions(struct run *run);
/* logits: [batch->count][classes] */
int run_add_predictions(struct run *run, const struct feed_batch *batch, const float *logits);
/* Writes the files of images, classes and predictions. No-op without --predictions. */
int run_write_predictions(struct run *run);

/* ---- tracing (trace.c) ---- */

/* Rank 0, before the first step. -EINVAL if the run ends before the steps to trace. */
int run_open_trace(struct run *run);
/* Before each step: starts the trace or writes it, when due. */
void run_trace_step(struct run *run);
/* Writes the spans traced so far, if any. Failures are reported but not returned. */
void run_end_trace(struct run *run);
/* Bracket a span of the loop; the name is given at its end. No-ops while no trace is active. */
uint64_t run_span_begin(const struct run *run);
__attribute__((format(printf, 3, 4))) void run_span_end(const struct run *run, uint64_t begin_ns,
							const char *format, ...);

/* ---- ONNX export (onnx.c) ---- */

/* With --onnx: exports the network evaluated last. */
int run_write_onnx(struct run *run);

/* ---- log lines (console_log.c) ---- */

/* Steps as epochs; 0 while the number of steps per epoch is unknown. */
double run_epoch(const struct run *run, uint64_t step);
/* Writes a step's log line, with means since the previous line. */
int run_step_line(struct run *run, const struct run_pending *pending,
		  const struct device_results *results);
/* At the end of an epoch: writes its line to the log and the terminal. */
int run_epoch_line(struct run *run);
/* Once, if training waits for data (hints.c). */
void run_hint_data_wait(struct run *run);
/* Updates progress when it is due. */
void run_draw_progress(struct run *run);
/* summary.json, for run_put(). */
int run_print_summary(const struct run *run, FILE *file);
/* Compute precision of the device, such as "bf16". */
const char *run_precision(const struct run *run);
/* Formats a loss for JSON, which has no notation for non-finite numbers. */
enum { RUN_LOSS_TEXT = 32 };
void run_loss_text(double loss, char *ret_text);

/* ---- the output folder (output.c) ---- */

/* Refuses an output folder that holds another run, unless this run resumes or may overwrite it. */
int run_check_folder(struct run *run);
/*
 * Refuses to resume from an older checkpoint while the folder holds newer ones, which would pass
 * for this run's.
 */
int run_check_later(struct run *run, uint64_t step);
/*
 * Takes over the output folder: locks it, opens the logs, removes files of other runs and of steps
 * after the current one.
 */
int run_open_output(struct run *run);
/*
 * For a write failure, described by `sentence`: appends from which checkpoint the run can resume,
 * and how. `sentence` must not be run->error.
 */
int run_fail_write(struct run *run, int code, const char *sentence);
/*
 * Writes the last line of log.jsonl for a run that failed with code and run->error, and keeps that
 * error if the write fails.
 */
void run_end_failed(struct run *run, int code);
/* Ends a line of log.jsonl or samples.jsonl. */
int run_end_line(struct run *run, struct metrics_log *metrics, const char *name);
/* Flushes the logs to disk. */
int run_sync_logs(struct run *run);
/* Metadata to store with the weights; the run owns the strings. */
struct checkpoint_about run_about(const struct run *run);
/* Exports weights as NAME in the output folder. evaluation: their results, or NULL. */
int run_export(struct run *run, const char *name, const char *evaluation);
/* Writes a text file in the output folder atomically. print returns 0 or a negative errno. */
int run_put(struct run *run, const char *name, int (*print)(const struct run *run, FILE *file));
