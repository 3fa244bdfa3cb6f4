/*
 * Shared code for tests that run the trainer as a process: creates a small dataset and a recipe in
 * a temporary directory, starts trainers there with one output directory per run, and compares the
 * runs' logs and files. A failure ends the test through cmocka's assertions. The environment
 * variables TRAINER and LOADERD name the programs; TRAINER_EMULATED names a trainer with an
 * emulated GPU.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"
#include "trainer/checkpoint/safetensors.h"

#include <jansson.h>
#include <stdbool.h>

enum { STEPS = 40, STOPPED = 3 /* exit status */ };

extern struct fixture fixture;
extern const char *trainer; /* program that runs use: TRAINER unless a test sets another one */
extern char validation[PATH_MAX + 64];
extern char said[65536]; /* output of the last finished run */

/*
 * Threads of each run, for trainer_setup(). The networks are so small that a second thread more
 * than doubles a run's CPU time.
 */
extern unsigned trainer_threads;
/*
 * cmocka group functions. trainer_setup_unbroken() also makes the run "unbroken", the reference for
 * other runs.
 */
int trainer_setup(void **state);
int trainer_setup_unbroken(void **state);
int trainer_teardown(void **state);

/*
 * Returns the path of `name` in the output directory of run `run`, in one of four static buffers
 * used in turn.
 */
const char *run_path(const char *run, const char *name);
bool exists(const char *run, const char *name);
/*
 * Starts the trainer with the output directory of `run` and redirects its standard error to a file
 * there. The arguments end with NULL.
 */
pid_t start(const char *run, ...);
/* Waits for the process; returns its exit status, or the negated signal number. */
int finish(pid_t pid, const char *run);
/* Runs the trainer to its end; returns the result of finish(). */
int run(const char *name, ...);
/* Like run(), on the emulated GPU. */
int run_emulated(const char *name, ...);
/*
 * run_killed() kills the run after `step` steps; run_interrupted() also resumes it and runs it to
 * its end.
 */
void run_killed(const char *name, unsigned step, ...);
int run_interrupted(const char *name, unsigned step, ...);

void expect(int status, int expected);
void expect_output(const char *text);
unsigned count_output(const char *text);

/* Losses in a log, as strings: one per step and one per evaluation. */
struct losses {
	char step[256][40], eval[256][120];
	unsigned steps, evals;
};

void read_log(const char *run, struct losses *losses);
/* Returns the first line of a run's log. The caller owns it. */
json_t *start_event(const char *run);
/*
 * Asserts that the log's last line records the end of the run with this outcome, and an error that
 * contains `error`; no error if that is NULL.
 */
void expect_end(const char *run, const char *outcome, const char *error);
void same_losses(const char *a, const char *b);
/* Returns the largest relative difference between the losses of two runs. */
double max_difference(const char *a, const char *b);
void same_file(const char *a, const char *b, const char *name);
/* Asserts that a file of a run contains the text. */
void expect_in_file(const char *run, const char *name, const char *text);
/* Loads a tensor's values into buffer number `place`, 0 .. 255. */
const void *values(unsigned place, struct safetensors *file, const char *name);

/* Waits until the log of a running run has a line for this step. */
void wait_for_step(const char *run, pid_t pid, unsigned step);
/*
 * Waits until a new run has removed this file of an earlier run in its directory. From then on the
 * log is the new run's.
 */
void wait_until_gone(const char *run, pid_t pid, const char *name);
