/* Command-line options of a run. Plain values, fixed before run_open(). */
#pragma once

#include "trainer/device/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

struct run_options {
	struct comm *comm;  /* never NULL */
	const char *socket; /* NULL for a private daemon */
	const char *output; /* output folder */
	bool resume;
	const char *resume_path; /* NULL for the newest checkpoint in output */
	/*
	 * permit a fresh start in a folder that contains another run, or a resume from resume_path
	 * in one that contains later checkpoints
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
	/* GPU index of a machine's first rank; other ranks add their index on the machine */
	unsigned device_index;
	bool overfit_batch;   /* train every step on the first batch */
	bool check_gradients; /* only run_check_gradients() */
	bool detect_anomaly;
	bool profile;
	const char *trace; /* trace file (trace.c), or NULL */
	/* first and last step to trace, counted from 1 at the first step of this process */
	uint64_t trace_first, trace_last;
	const volatile int *stop;
};
