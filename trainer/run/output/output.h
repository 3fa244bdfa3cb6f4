/*
 * The output folder of a run: its logs, and the checkpoints from which the run can resume. Rank 0
 * writes files; other ranks only record saved_step. output_folder.c checks and claims the folder;
 * output.c writes its files other than checkpoints. Only the functions below write the struct.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/params.h"
#include "trainer/log/metrics_log.h"
#include "trainer/log/sink.h"
#include "trainer/run/context.h"

#include <stdio.h>

#define RUN_NO_STEP UINT64_MAX

struct output {
	struct run_context *ctx;
	const struct checkpoint_state *state;
	struct metrics_log *metrics;        /* NULL in a dry run and on ranks other than 0 */
	struct metrics_log *samples;        /* with log.samples, else NULL */
	struct sink *sinks[LOG_SINK_COUNT]; /* the configured formats, else NULL */
	uint64_t *sample_ids;               /* [data.batch_size] with log.samples */
	uint64_t saved_step;                /* step of the last checkpoint, or RUN_NO_STEP */
	/* rank 0: step of the newest checkpoint in the folder when the run opened, or RUN_NO_STEP
	 */
	uint64_t found_step;
};

/* ---- the folder ---- */

/* Refuses a folder that holds another run, unless this run resumes or may overwrite it. */
int output_check_folder(struct output *output);
/*
 * Refuses to resume from an older checkpoint while the folder contains newer ones of another
 * continuation, which --resume would otherwise use.
 */
int output_check_later(struct output *output, uint64_t step);
/* All ranks: allocates what output_write_sample_ids() needs. */
int output_init_samples(struct output *output);
/* Creates and locks the folder, opens the logs and truncates them to the current step. */
int output_open(struct output *output, bool resumed);
/* Removes files of other runs and of steps after the current one. The folder must be locked. */
int output_clear(struct output *output, bool resumed);
void output_close(struct output *output);
/* Path of a file in the folder; CHECKPOINT_PATH_MAX bytes. */
int output_path(struct output *output, const char *name, char *ret_path);

/* ---- its files ---- */

/* Records the step of the newest checkpoint of this run; RUN_NO_STEP if there is none. */
void output_set_saved(struct output *output, uint64_t step);
/* Describes the checkpoint from which the run can resume. */
void output_describe_saved(const struct output *output, char *ret_text, size_t size);
/*
 * Reports a failed write, described by `sentence`: appends the checkpoint from which the run can
 * resume, and how. `sentence` must not point to the context's error. Returns code.
 */
int output_fail_write(struct output *output, int code, const char *sentence);
/* Ends a line of log.jsonl and passes it to the sinks. */
int output_end_line(struct output *output);
/*
 * All ranks: writes a step's line in samples.jsonl. It contains the sample ids of all ranks in
 * batch order, so it does not depend on the number of ranks. ids[count]: of this rank.
 */
int output_write_sample_ids(struct output *output, uint64_t step, const uint64_t *ids,
			    size_t count);
/*
 * Writes the last line of log.jsonl for a run that failed with `code` and the context's error.
 * Keeps that error even if the write fails.
 */
void output_end_failed(struct output *output, int code);
/* Flushes the logs to disk. */
int output_sync(struct output *output);
/* Writes a text file atomically. print returns 0 or a negative errno. */
int output_write_text(struct output *output, const char *name,
		      int (*print)(const void *data, FILE *file), const void *data);
/* Exports the weights of a slot to the file `name`. */
int output_export(struct output *output, const char *name, struct device_params *params,
		  enum device_slot slot, const struct checkpoint_about *about);
