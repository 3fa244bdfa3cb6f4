/*
 * What tests of the trainer as a process share: a small dataset and a recipe for it in a temporary
 * folder, trainers that are started there with their output in folders of their own, and
 * comparisons of what runs have logged and left. Failures end the test through cmocka's assertions.
 * TRAINER and LOADERD name the programs, TRAINER_EMULATED a trainer whose GPU is emulated.
 */
#pragma once

#include "tests/integration/loaderd/loaderd_fixture.h"
#include "trainer/checkpoint/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>

enum { STEPS = 40, STOPPED = 3 /* exit status */ };

extern struct fixture fixture;
extern const char *trainer; /* the program that is started: TRAINER, unless a test sets another */
extern char validation[PATH_MAX + 64];
extern char said[65536]; /* by the run that finished last */

/*
 * cmocka group functions. The second also makes the run "unbroken", which others are compared with.
 */
int trainer_setup(void **state);
int trainer_setup_unbroken(void **state);
int trainer_teardown(void **state);

/* Path of NAME in the folder of run RUN; one of four, the oldest of which is overwritten. */
const char *in(const char *run, const char *name);
bool exists(const char *run, const char *name);
/*
 * Starts the trainer with its output in RUN; standard error goes to a file there. Arguments end
 * with NULL.
 */
pid_t start(const char *run, ...);
/* Waits; returns the exit status, or minus the signal. */
int finish(pid_t pid, const char *run);
/* Runs to the end. */
int run(const char *name, ...);
/* The same on the emulated GPU. */
int run_emulated(const char *name, ...);
/* The same, but killed after so many steps; and resumed, to the end. */
void run_killed(const char *name, unsigned step, ...);
int run_interrupted(const char *name, unsigned step, ...);

void expect(int status, int expected);
void expect_said(const char *text);
unsigned times_said(const char *text);

/* What a log says about losses: one text per step, and one per evaluation. */
struct losses {
	char step[256][40], eval[256][120];
	unsigned steps, evals;
};

void read_log(const char *run, struct losses *losses);
/* What a run's log begins with; the caller's. */
json_t *start_of(const char *run);
/*
 * Its last line is the run's end, with this outcome, and an error that holds the text, or none
 * where error is NULL.
 */
void expect_end(const char *run, const char *outcome, const char *error);
void same_losses(const char *a, const char *b);
/* How far the losses of two runs are apart at most, as a share. */
double apart(const char *a, const char *b);
void same_file(const char *a, const char *b, const char *name);
/* A file that a run has left has the text. */
void expect_in_file(const char *run, const char *name, const char *text);
/* Of a tensor, in one of the 256 places that there are for them. */
const void *values(unsigned place, struct safetensors *file, const char *name);

/* Waits until the log of a run that goes on has a line of this step. */
void wait_for_step(const char *run, pid_t pid, unsigned step);
/* Waits until a run that goes on has removed what another left; its log is its own then. */
void wait_until_gone(const char *run, pid_t pid, const char *name);
