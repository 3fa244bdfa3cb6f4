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
 * struct run holds the parts of a run. Each part has a header with the functions that write it; the
 * rest of run/ connects them. Single-threaded; only a signal handler writes *stop. Errors are
 * sentences in run->ctx.error.
 */
#pragma once

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

/* What a search or a check changes in training steps. Written by it only; else zeros. */
struct step_hook {
	/* factor on learning rates; with it, a loss that is not finite is no error. 0: none */
	double lr_factor;
	/* called with each batch before its step, to inspect gradients; NULL for none */
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
	 * a line, evaluate.c records evaluations
	 */
	struct checkpoint_state state;
	struct checkpoint *checkpoint; /* to resume from; only while the run opens */
	bool resumed;
	bool data_wait_hinted; /* the hint about waiting for data was printed (hints.c) */
};

/*
 * Returns 0, or a negative errno with run->ctx.error set on all ranks. Call run_close() in either
 * case.
 */
int run_open(struct run *run, const struct recipe *recipe, const struct run_options *options);
void run_close(struct run *run);

/* Prints a summary for people: model, sizes, memory, steps. */
void run_describe(const struct run *run, FILE *file);

/* Prints one line for each setting that could be faster or better; nothing if there is none. */
void run_print_hints(const struct run *run, FILE *file);

/*
 * Returns 0 when finished, RUN_STOPPED when *stop was set and a checkpoint holds the state, or a
 * negative errno with run->ctx.error. A feed failure also leaves a checkpoint, since the state
 * computed before it is sound.
 */
int run_train(struct run *run);

/* The following replace run_train(). */

/*
 * Evaluates the weights that a run would begin with. Rank 0 writes the result to file as one line
 * of JSON.
 */
int run_evaluate_alone(struct run *run, FILE *file);
/*
 * For a recipe whose learning rate is 1 throughout: searches for a better rate (find_lr.c). Rank 0
 * writes a table and a plot, and the suggested rate to file.
 */
int run_find_lr(struct run *run, FILE *file);
/*
 * On one rank: measures which batch sizes fit, their speed, and the gradient noise scale
 * (find_batch.c). Writes a table and a plot, and the suggestion to file.
 */
int run_find_batch_size(struct run *run, FILE *file);
/*
 * For a recipe without regularisation and with a constant rate: checks that the model can memorise
 * the first batch (overfit.c). -EDOM if it cannot.
 */
int run_overfit_batch(struct run *run, FILE *file);
/*
 * Compares the gradients of the first batch with finite differences of the loss and prints a line
 * for each parameter to file (check_gradients.c). -EDOM if any disagree.
 */
int run_check_gradients(struct run *run, FILE *file);
