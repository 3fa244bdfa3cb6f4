/*
 * A training run: what main starts, and everything that belongs to it.
 *
 *     run_open    (open.c) daemon, datasets, device, model; fresh start or checkpoint; first
 *                 batch; plan
 *     run_train   the loop (loop.c): steps, evaluations, checkpoints, log, until the end or *stop
 *     run_close
 *
 * Several ranks (comm.h) run it side by side, each on its share of every batch. Rank 0 alone reads
 * checkpoints and writes files and progress; what it decides it passes on. They agree before every
 * step whether to make it, so all of them stop at the same one.
 *
 * One thread does it all; only *stop is written by a signal handler. Errors are sentences in
 * run->error.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/algorithms/freeze.h"
#include "trainer/algorithms/freeze_layers.h"
#include "trainer/algorithms/schedule.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/device.h"
#include "trainer/log/journal.h"
#include "trainer/log/progress.h"
#include "trainer/log/sink.h"
#include "trainer/model/model.h"
#include "trainer/recipe/recipe.h"
#include "trainer/run/data.h"
#include "trainer/run/ranks.h"

#define RUN_NO_STEP UINT64_MAX

enum { RUN_ERROR_MAX = RANKS_ERROR_MAX, RUN_PENDING_MAX = 8, RUN_HELD_MAX = 4 };

struct run_options {
	struct comm *comm;  /* never NULL */
	const char *socket; /* NULL: a private daemon */
	const char *output; /* folder of the run */
	bool resume;
	const char *resume_path; /* NULL: the newest in output */
	/* start afresh, or from resume_path, in a folder that holds a run, or goes beyond it */
	bool overwrite;
	bool allow_changes;          /* RECIPE_TRAJECTORY keys may differ from the checkpoint's */
	bool dry;                    /* make nothing on disk */
	const char *find_lr;         /* begins the names of what run_find_lr() writes; or NULL */
	const char *find_batch_size; /* and of what run_find_batch_size() writes */
	const char *predictions; /* with evaluate: begins the names of what it writes; or NULL */
	const char *onnx;      /* with evaluate: the file that the network is written to; or NULL */
	bool evaluate;         /* nothing but run_evaluate_alone(); dry and allow_changes, too */
	unsigned device_index; /* which of several GPUs; ranks of one machine count on from there */
	bool overfit_batch;    /* every step is on the first batch */
	bool check_gradients;  /* nothing but run_check_gradients() */
	bool detect_anomaly;
	bool profile;
	const char *trace; /* file of a trace (trace.c); or NULL */
	/* steps that it has, of those that are made; the first is 1 */
	uint64_t trace_first, trace_last;
	const volatile int *stop;
};

/* A graph for one size of images. */
struct run_graph {
	struct device_graph *graph;
	uint32_t count, height, width;
};

/* Whose logits are learned beside the labels, with train.teacher (teacher.c); else zeros. */
struct teacher {
	struct recipe recipe; /* of which the network counts */
	struct weights_facts facts;
	uint64_t mark; /* of file and network, never 0 */
	struct device_params *params;
	struct model *model;
	struct run_graph graph; /* for evaluation, of the size of run->train */
	/* [data_train_share()][classes] of the batch; kept: in the device's memory, before scale */
	float *logits;
	bool kept;
};

/* A step of the device whose results are awaited. */
struct run_pending {
	struct device_graph *graph;
	uint64_t device_step, step; /* step: the update that it is for */
	double lr;
	bool last;  /* it makes the update */
	bool again; /* of a second pass over the batch, whose losses are not told */
};

/* A batch that the device may still be reading. */
struct run_held {
	struct feed_batch batch;
	uint64_t ticket;
};

/* A feed, and its memory, as the device knows it. */
struct run_feed {
	struct feed *feed;
	const void *memory;  /* NULL: it does not */
	uint64_t reconnects; /* of the feed's batches that lie there */
	/*
	 * [data_train_share()] of the batch that came last, whose images are of this size before,
	 * with data.augment = device; else NULL
	 */
	struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
};

struct run {
	const struct recipe *recipe; /* own */
	/*
	 * as it was given, which owns the texts; with train.accumulate = auto, the number that was
	 * found
	 */
	struct recipe own;
	bool fits; /* train.accumulate = auto: what does not fit is computed in more parts */
	struct run_options options;
	struct comm *comm;
	char error[RUN_ERROR_MAX];
	bool agreed;     /* the failure is known to all ranks, and all have come back with it */
	bool everywhere; /* the others are about to find the same failure */
	/* after RUN_LOST: what this rank came to, with error; 0: it was another */
	int lost;

	struct predictions *predictions; /* of an evaluation that keeps them */
	bool eval_bytes;                 /* what was evaluated last is u8 */
	bool advised;                    /* of waiting for data */
	bool warned;                     /* of what went wrong in planning */

	struct weights_facts weights; /* that are evaluated alone */
	struct data data;
	struct run_feed feed;
	/* batches are copied by way of memory of the device's own: announce none */
	bool staged;
	struct feed_batch batch; /* the next one, if has_batch */
	bool has_batch;
	uint64_t bad;         /* samples of it that were substituted, on all ranks */
	uint64_t *sample_ids; /* [batch_size] with log.samples */
	/* of this rank's share of the batch, with train.mixup or train.cutmix: [data_train_share()]
	 */
	struct {
		struct device_blend *blends;
		int32_t *labels2;
		float *shares;
	} mixed;
	uint32_t *picks; /* with data.colout: rows, then columns */
	/* with train.selective_backprop: what is kept of a batch, [select_count()] but for losses
	 */
	struct {
		float *losses;   /* of all samples */
		uint32_t *picks; /* of them */
		void *images;    /* copies, at least until the copy of `ticket` is done */
		size_t size;     /* bytes of them that there is room for */
		int32_t *labels;
		struct deferred *deferred;
		uint64_t ticket; /* 0: none */
	} kept;
	float *balanced; /* [classes] with train.class_weights = balanced, else NULL */

	struct device *device;
	struct device_params *params;
	struct model *model;
	struct run_graph train, eval;
	struct run_graph kept_train; /* with train.selective_backprop: for what is kept */
	struct teacher teacher;
	struct run_pending pending[RUN_PENDING_MAX]; /* oldest first */
	unsigned pending_count;
	/* of the update whose last results are awaited: its micro-batches so far */
	struct device_results parts;
	struct run_held held[RUN_HELD_MAX];
	unsigned held_count, held_max; /* the feed has a slot more, for the next batch */

	struct freeze freeze;
	struct freeze_layers freeze_layers;
	struct schedule schedule;
	uint64_t steps, eval_every, checkpoint_every; /* in steps; 0: only at the end */
	struct checkpoint *checkpoint; /* that the run goes on from, while it opens */
	bool resumed;
	struct checkpoint_state state;
	const char *outcome; /* once the run has come to its end, finished or stopped */
	char why[256];       /* it ends before its last epoch; or empty */
	uint64_t saved_step; /* of the last checkpoint, or RUN_NO_STEP */
	/* rank 0: of the newest one in the output folder when the run opened */
	uint64_t found_step;

	struct journal *journal;            /* NULL in a dry run, and but for rank 0 */
	struct journal *samples;            /* with log.samples */
	struct sink *sinks[LOG_SINK_COUNT]; /* of the journal, those that are wanted */
	struct progress progress;
	struct trace *trace;  /* while steps are traced */
	uint64_t trace_after; /* the step that the run began at */
	/* updates since the last step line: a gradient was not finite */
	uint64_t skipped;
	double mark;                    /* since when train_seconds lacks the time */
	double line_seconds, line_wait; /* state's, at the last step line */
	uint64_t line_images;
	double last_loss, last_lr;
	/* factor on learning rates, while one or a batch size is looked for; else 0 */
	double find_rate;
	/*
	 * called with each batch before it is trained on, by which run_find_batch_size() and
	 * run_check_gradients() look at gradients; else NULL
	 */
	int (*observe)(struct run *run, const struct device_batch *batch);
	struct find_noise *noise; /* theirs */
	struct check *check;
	double rate; /* images per second over the last lines */
};

/* 0, or a negative errno with run->error set and agreed; run_close is due in either case. */
int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options);
void run_close(struct run *run);

/* What will be run, for a person: model, sizes, memory, steps. */
void run_describe(const struct run *run, FILE *file);

/* What could be faster or better, a line each; nothing where all is well. */
void run_advise(const struct run *run, FILE *file);

enum { RUN_STOPPED = 1, RUN_LOST = 2 };
/*
 * 0: finished; RUN_STOPPED: *stop was set and a checkpoint holds the state; negative errno with
 * run->error. One holds it too where a feed failed, for what was computed before is sound.
 */
int run_train(struct run *run);

/*
 * In place of run_train(), with a recipe whose learning rate is 1 throughout: looks for a better
 * one (find_lr.c). Rank 0 writes a table and a picture, and to file what they suggest.
 */
int run_find_lr(struct run *run, FILE *file);

/*
 * In place of run_train(), alone: which batch sizes fit and how fast they are, and the gradient
 * noise scale (find_batch.c). Writes a table and a picture, and to file what they suggest.
 */
int run_find_batch_size(struct run *run, FILE *file);

/*
 * In place of run_train(), with a recipe that does not regularise and a rate that stays: whether
 * the first batch can be learned by heart (overfit.c). -EDOM: it cannot.
 */
int run_overfit_batch(struct run *run, FILE *file);
/*
 * Compares the gradients of the first batch with differences of the loss, on file, a line for each
 * parameter (check_gradients.c). -EDOM: some are not alike.
 */
int run_check_gradients(struct run *run, FILE *file);

/* ---- between the files of the run ---- */

#define run_fail(run, code, ...) sentence_fail((run)->error, RUN_ERROR_MAX, (code), __VA_ARGS__)
/* Of what all ranks find at the same step, from results that they share. */
#define run_fail_everywhere(run, code, ...)                                                        \
	((run)->everywhere = true, run_fail((run), (code), __VA_ARGS__))
/* What the device says of a failure. */
const char *run_device_text(const struct run *run, int code);
/* Adds a step's results. */
void run_add(struct checkpoint_totals *totals, const struct device_results *results);
/*
 * Takes the results of the oldest steps: those that are there, and with down_to, as many as it
 * takes to leave no more than that.
 */
int run_collect(struct run *run, unsigned down_to);
/*
 * Queues the next step. -EINTR: a rank was stopped; RUN_LOST: a rank's feed failed, or its memory
 * is too small for what the step is computed by from here on. Known to all ranks.
 */
int run_step(struct run *run);
/*
 * Queues the next update on a batch (update.c). ret_ticket names the copy after which the batch's
 * memory may be released.
 */
int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket);
/*
 * With run->train, just planned, computes the first micro-batch of run->batch to no effect:
 * -ENOMEM, there is no memory for what steps take besides. Others have then no other number of
 * micro-batches to find, since all ranks come to run_fit() with what this came to.
 */
int run_rehearse(struct run *run);
/* Makes room for what train.selective_backprop keeps of a batch; -EINVAL: it cannot be had. */
int run_open_kept(struct run *run);
void run_close_kept(struct run *run);
/*
 * With train.selective_backprop, if it is due (select.c): batch becomes what is kept of it, to be
 * trained on by the graph, run->kept_train, else run->train. ret_ticket as of run_update().
 */
int run_select(struct run *run, struct device_batch *batch, struct run_graph **ret_graph,
	       uint64_t *ret_ticket);
/* Its slices of run->train's size, micro-batch `part` from 0 on. */
struct device_batch run_slice(const struct run *run, const struct device_batch *batch,
			      uint32_t part);
/*
 * At the end of a run with train.swa, whose batches are all given back: computes the statistics of
 * the mean's batch norms anew (settle.c). -EINTR, RUN_LOST: as run_evaluate().
 */
int run_settle(struct run *run);
/* What a failure of the device in the next step says. */
int run_fail_step(struct run *run, int code, const char *what);
/*
 * After an evaluation: whether it ends the run, and then why (enough.c). All ranks find the same.
 */
bool run_has_enough(struct run *run);
/* Adds values[count] over ranks. */
int run_sum(struct run *run, double *values, size_t count);
/* Whether run->train is for the next batch. */
bool run_has_train_graph(const struct run *run);
/* run->train for the next batch; with train.accumulate = auto, in as many parts as fit. */
int run_train_graph(struct run *run);
/* Where the run begins: how many micro-batches, if it is to find that (micro.c). */
int run_begin_micro(struct run *run);
/*
 * plan(run), which plans graphs; while that fails with -ENOMEM on a rank and the run finds the
 * number of micro-batches itself, again with more of them. All ranks call it. -ENOMEM: they cannot
 * be made smaller, or their number is given.
 */
int run_fit(struct run *run, int (*plan)(struct run *run));
/* Whether running statistics are among the parameters. */
bool run_has_batch_norms(const struct run *run);
/* Makes room for what train.mixup and train.cutmix draw for a batch; -EINVAL: it has no pairs. */
int run_open_mix(struct run *run);
/* With train.class_weights = balanced, all ranks: what that comes to (balance.c). */
int run_balance(struct run *run);
struct labels;
/*
 * Reads the labels of a dataset, which is to be the one that the daemon has found. counts: as
 * labels_count().
 */
int run_read_labels(struct run *run, const char *path, const struct uuid *found, uint64_t *counts,
		    struct labels *ret_labels);
/* Rank 0: says how many samples of the datasets have no label; fails where none has. */
int run_say_unlabelled(struct run *run);
/* Refuses several ranks for what an option has one do. */
int run_refuse_ranks(struct run *run, const char *option);
/* Whether the files of what is asked for to be found can be written, before it is looked for. */
int run_check_found(struct run *run);
/*
 * A file of what was found, `name` and `ending`; what was asked for by `option` stands in errors.
 */
int run_put_found(struct run *run, const char *option, const char *name, const char *ending,
		  void (*write)(const void *found, FILE *file), const void *found);
/* Whether images of training are blended or thinned out on the device. */
bool run_resamples(const struct run *run);
/* run->train or run->eval for images of a size: as it is, or made anew. */
int run_graph_for(struct run *run, enum device_mode mode, uint32_t count, uint32_t height,
		  uint32_t width);
/*
 * Whether train.freeze lets something go at this step, or train.freeze_level takes hold of it; and
 * doing it: the training graph is then planned anew, when it is needed. Nothing may be under way in
 * it.
 */
bool run_freeze_is_due(const struct run *run);
int run_move_freeze(struct run *run);
/* Those that are evaluated and exported: averaged, where that is asked for. */
enum device_slot run_weights(const struct run *run);
/*
 * The batch that came last of a feed as the device takes it; feed NULL: one that was made up.
 * -EINVAL when pipeline and model do not fit.
 */
int run_device_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		     const char *pipeline_key, struct device_batch *ret_batch);
/*
 * With data.augment = device, takes from a batch that has just come what the device is to do to
 * its images, and gives it the size that they have then (defer.c). -EBADMSG: it cannot be.
 */
int run_take_deferred(struct run *run, struct run_feed *feed, struct feed_batch *batch,
		      char *error);
/*
 * Opens a feed (data_feed) and announces its ring to the device, so that batches are copied from
 * where they lie: mapped read-only, or else writable. Where neither can be had the run goes on,
 * slower. A line says so once, and why; the feeds that follow are opened in the way that was found.
 * run_close_feed() takes both back.
 */
int run_open_feed(struct run *run, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed);
void run_close_feed(struct run *run, const struct run_feed *feed);
/*
 * data_next(). Where it comes from another daemon than the one before, says so in progress and log,
 * and announces the memory that it lies in.
 */
int run_next_batch(struct run *run, struct run_feed *feed, struct feed_batch *batch,
		   double *wait_seconds, char *error);
/*
 * Finds what would keep run_evaluate() from working, from a first batch: hours later it would cost
 * what was trained since the last checkpoint.
 */
int run_try_evaluation(struct run *run);
/*
 * Evaluates all of data.val with the current (or averaged) weights, and notes the outcome in state
 * and journal. -EINTR: stopped; RUN_LOST: a rank's feed failed. All ranks know of both.
 */
int run_evaluate(struct run *run);
/* Rank 0, where evaluation is all: finds the weights and what they say of themselves. */
int run_find_weights(struct run *run);
/* All ranks: what they say. */
int run_share_weights(struct run *run);
/*
 * In place of run_train(): the weights that a run would begin with, once. Rank 0 writes the result
 * to file, a line of JSON.
 */
int run_evaluate_alone(struct run *run, FILE *file);

/* ---- distillation (teacher.c); without train.teacher nothing ---- */

/* Rank 0, before a checkpoint is gone on from: what the teacher is. */
int run_find_teacher(struct run *run);
/* Refuses a checkpoint of a run with another one. */
int run_check_teacher(struct run *run);
/* All ranks: makes its parameters; rank 0: reads them; all: shares them. */
int run_make_teacher(struct run *run);
int run_fill_teacher(struct run *run);
int run_share_teacher(struct run *run);
/* Its graph for what run->train takes, and room for its logits. */
int run_plan_teacher(struct run *run);
void run_drop_teacher(struct run *run);
void run_close_teacher(struct run *run);
/*
 * Has it see all of the batch, as it is to be trained on, and adds its logits. Waits for them where
 * the device does not keep them.
 */
int run_teach(struct run *run, struct device_batch *batch);
/* Adds any, for a pass that is not after the loss. */
void run_teach_nothing(const struct run *run, struct device_batch *batch);
/*
 * Where a loss is not finite: whether logits that the device keeps are why. Those of the last batch
 * that was queued, so of a teacher that often has such; "" where it has none. ret_text:
 * RUN_LESSON_TEXT bytes.
 */
enum { RUN_LESSON_TEXT = 128 };
void run_judge_teacher(const struct run *run, char *ret_text);

/* ---- what an evaluation makes of each image (predictions.c) ---- */

/* With --predictions, before it; several ranks are refused. */
int run_open_predictions(struct run *run);
void run_close_predictions(struct run *run);
/* logits: [batch->count][classes] */
int run_add_predictions(struct run *run, const struct feed_batch *batch, const float *logits);
/* Files of images, classes and what they are taken for. Without --predictions nothing. */
int run_write_predictions(struct run *run);

/* ---- what steps do (trace.c) ---- */

/* Rank 0, before the first step: -EINVAL, the run ends before what is to be traced. */
int run_open_trace(struct run *run);
/* Before each step: begins the trace or writes it, where that is due. */
void run_trace_step(struct run *run);
/* Writes what was traced as yet, if anything. Failures are said, and no more. */
void run_end_trace(struct run *run);
/* When what the loop does begins; and at its end its name. Nothing while there is no trace. */
uint64_t run_span_begin(const struct run *run);
__attribute__((format(printf, 3, 4))) void run_span_end(const struct run *run, uint64_t begin_ns,
							const char *format, ...);

/* ---- the network for others (onnx.c) ---- */

/* With --onnx, of what was evaluated last. */
int run_write_onnx(struct run *run);

/* ---- what it says (lines.c) ---- */

/* Epochs that so many steps are; of 0 also where it is not known how many make one. */
double run_epoch(const struct run *run, uint64_t step);
/* The log's line of a step, of the mean since the line before. */
int run_step_line(struct run *run, const struct run_pending *pending,
		  const struct device_results *results);
/* The line of an epoch, where one ends, for the log and on the terminal. */
int run_epoch_line(struct run *run);
/* Once, where training waits for data (advice.c). */
void run_advise_of_wait(struct run *run);
/* Progress, when it is time for it. */
void run_show(struct run *run);
/* summary.json, for run_put(). */
int run_print_summary(const struct run *run, FILE *file);
/* What the device computes in: "bf16". */
const char *run_precision(const struct run *run);
/* A loss in JSON, which has no word for one that is not finite. */
enum { RUN_LOSS_TEXT = 32 };
void run_loss_text(double loss, char *ret_text);

/* ---- the output folder (output.c) ---- */

/* The folder must not hold another run, unless this one goes on with it or may replace it. */
int run_check_folder(struct run *run);
/*
 * A run that goes on from an older checkpoint than the newest must not take what came after it for
 * its own.
 */
int run_check_later(struct run *run, uint64_t step);
/*
 * Makes the folder this run's: its lock, its logs, nothing of another run or of steps that are yet
 * to be made.
 */
int run_open_output(struct run *run);
/*
 * Of a file that could not be written, which the sentence names, with the reason: adds from which
 * checkpoint the run can go on, and how. The sentence must not be run->error.
 */
int run_fail_write(struct run *run, int code, const char *sentence);
/*
 * The last line of log.jsonl, of a run that failed with code and error. Where it cannot be written,
 * that error is still what is said.
 */
void run_end_failed(struct run *run, int code);
/* Ends a line, of log.jsonl or samples.jsonl. */
int run_end_line(struct run *run, struct journal *journal, const char *name);
/* Has what the logs say on the disk. */
int run_sync_logs(struct run *run);
/* What goes with the weights; texts are the run's. */
struct checkpoint_about run_about(const struct run *run);
/* Weights for others, to NAME in the output folder. evaluation: what they are worth, or NULL. */
int run_export(struct run *run, const char *name, const char *evaluation);
/*
 * A text file in the output folder, which appears complete or not at all. print returns 0 or a
 * negative errno.
 */
int run_put(struct run *run, const char *name, int (*print)(const struct run *run, FILE *file));
