/*
 * A training run and all its parts.
 *
 *     run_open    (open.c) opens daemon, datasets, device and model; starts afresh or from a
 *                 checkpoint; gets the first batch and plans the graphs
 *     run_train   (loop.c) steps, evaluates, writes checkpoints and logs, until the end or *stop
 *     run_close
 *
 * Several ranks (comm.h) run in parallel, each on its part of every batch. Only rank 0 reads
 * checkpoints and writes files and progress; it broadcasts its decisions. Before every step, the
 * ranks agree on making it, so all stop at the same step.
 *
 * struct run contains the parts of a run. The functions in a part's header write it; the rest of
 * run/ connects the parts. Single-threaded; only a signal handler writes *stop. Errors are
 * sentences in run->ctx.error.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/context.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/evaluate/evaluation.h"
#include "trainer/run/input/input.h"
#include "trainer/run/network/augment.h"
#include "trainer/run/network/network.h"
#include "trainer/run/network/selection.h"
#include "trainer/run/network/teacher.h"
#include "trainer/run/output/meter.h"
#include "trainer/run/output/output.h"
#include "trainer/run/output/tracer.h"
#include "trainer/run/run_length.h"
#include "trainer/run/step_queue.h"

/* Changes to training steps by a search or a check, which alone writes it; all zeros otherwise. */
struct step_hook {
	/* factor on learning rates; 0 for none. If set, a non-finite loss is not an error */
	double lr_factor;
	/* called with each batch before its step, to read gradients; NULL for none */
	int (*before)(void *data, const struct device_batch *batch);
	void *data;
};

struct run {
	struct run_context ctx;
	struct data data;
	struct feeds feeds;
	struct input input;
	struct network network;
	struct teacher teacher;
	struct augment augment;
	struct selection selection;
	struct step_queue queue;
	struct evaluation evaluation;
	struct output output;
	struct tracer tracer;
	struct meter meter;
	struct run_length length;
	struct early_stopping early_stopping;
	struct step_hook hook;
	/*
	 * counters, saved in checkpoints: loop.c counts steps, console_log.c resets the sums after
	 * each log line, evaluate.c records evaluations
	 */
	struct checkpoint_state state;
	struct checkpoint *checkpoint; /* checkpoint to resume from; NULL after run_open() */
	bool resumed;
	bool data_wait_hinted; /* the hint about waiting for data was printed (hints.c) */
};

/*
 * Returns 0, or a negative errno with run->ctx.error set on all ranks. Call run_close() in both
 * cases.
 */
int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options);
void run_close(struct run *run);

/* Prints a summary for people: model, sizes, memory, steps. */
void run_describe(const struct run *run, FILE *file);

/* Prints one line for each setting that could be faster or more accurate. */
void run_print_hints(const struct run *run, FILE *file);

/*
 * Returns 0 when finished, RUN_STOPPED if *stop was set and a checkpoint was written, or a negative
 * errno with run->ctx.error. A feed failure also writes a checkpoint, since the state before it is
 * sound.
 */
int run_train(struct run *run);

/* The following replace run_train(). */

/*
 * Evaluates the weights with which a run would begin. Rank 0 writes the result to file as one line
 * of JSON.
 */
int run_evaluate_alone(struct run *run, FILE *file);
/*
 * Searches for a learning rate (find_lr.c). The recipe's rate must be 1 throughout. Rank 0 writes a
 * table and a plot, and the suggested rate to file.
 */
int run_find_lr(struct run *run, FILE *file);
/*
 * On one rank: measures which batch sizes fit into device memory, their speed, and the gradient
 * noise scale (find_batch.c). Writes a table and a plot, and the suggested size to file.
 */
int run_find_batch_size(struct run *run, FILE *file);
/*
 * Checks that the model can memorise the first batch (overfit.c). The recipe must have no
 * regularisation and a constant rate. -EDOM if it cannot.
 */
int run_overfit_batch(struct run *run, FILE *file);
/*
 * Compares the gradients of the first batch with finite differences of the loss
 * (check_gradients.c). Prints a line for each parameter to file. -EDOM if any differ.
 */
int run_check_gradients(struct run *run, FILE *file);
