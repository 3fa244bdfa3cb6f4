/*
 * The output folder of a run: the logs in it, and which of its checkpoints the run can resume from.
 * Rank 0 writes; other ranks only record saved_step. output_folder.c checks and claims the folder,
 * output.c writes its files other than checkpoints. Written by these functions only.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/log/metrics_log.h"
#include "trainer/log/sink.h"
#include "trainer/run/context.h"

#include <stdio.h>

#define RUN_NO_STEP UINT64_MAX

struct output {
	struct run_context *ctx;
	const struct checkpoint_state *state;
	struct metrics_log *metrics;        /* NULL in a dry run and on ranks other than 0 */
	struct metrics_log *samples;        /* with log.samples */
	struct sink *sinks[LOG_SINK_COUNT]; /* the configured sinks */
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
 * Refuses to resume from an older checkpoint while the folder holds newer ones, which would pass
 * for this run's.
 */
int output_check_later(struct output *output, uint64_t step);
/* All ranks: allocates what output_write_samples() needs. */
int output_init_samples(struct output *output);
/* Creates and locks the folder, opens the logs and truncates them to the current step. */
int output_open(struct output *output, bool resumed);
/* Removes files of other runs and of steps after the current one. Call with the folder locked. */
int output_clear(struct output *output, bool resumed);
void output_close(struct output *output);
/* Path of a file in the folder; CHECKPOINT_PATH_MAX bytes. */
int output_path(struct output *output, const char *name, char *ret_path);

/* ---- its files ---- */

/* Records that a checkpoint of this step exists; RUN_NO_STEP for none. */
void output_set_saved(struct output *output, uint64_t step);
/* Describes from which checkpoint the run can resume. */
void output_describe_saved(const struct output *output, char *ret_text, size_t size);
/*
 * For a write failure, described by `sentence`: appends from which checkpoint the run can resume,
 * and how. `sentence` must not be the context's error.
 */
int output_fail_write(struct output *output, int code, const char *sentence);
/* Ends a line of log.jsonl, and passes it to the sinks. */
int output_end_line(struct output *output);
/*
 * All ranks: writes the line of a step in samples.jsonl: sample ids of all ranks in batch order,
 * which does not depend on the number of ranks. ids[count]: this rank's.
 */
int output_write_samples(struct output *output, uint64_t step, const uint64_t *ids, size_t count);
/*
 * Writes the last line of log.jsonl for a run that failed with code and the context's error, and
 * keeps that error if the write fails.
 */
void output_end_failed(struct output *output, int code);
/* Flushes the logs to disk. */
int output_sync(struct output *output);
/* Writes a text file atomically. print returns 0 or a negative errno. */
int output_write_text(struct output *output, const char *name,
		      int (*print)(const void *data, FILE *file), const void *data);
/* Exports the weights of a slot as `name`. */
int output_export(struct output *output, const char *name, struct device_params *params,
		  enum device_slot slot, const struct checkpoint_about *about);
