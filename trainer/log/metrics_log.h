/*
 * log.jsonl: one strict JSON object per line. Each line is appended with one write, so a killed run
 * leaves at most one torn line, the last.
 *
 * Every object has "event", "step" (number of steps made, never decreasing) and "time" (seconds
 * since 1970). Losses are doubles that read back exactly; "..._hex" repeats them in C's hexadecimal
 * notation. NaN and infinity, which JSON lacks, are written as null. A resumed run first truncates
 * the log to its checkpoint, so the log reads as if the run had never stopped. The open file is
 * locked, so that two trainers cannot share a folder. The loop owns the log and uses it from its
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METRICS_LOG_ERROR_MAX = 512, METRICS_LOG_NUMBERS_MAX = 32, METRICS_LOG_TEXTS_MAX = 8 };

struct metrics_log;

/* A line without its lists, as passed to sinks. */
struct metrics_log_line {
	const char *event;
	uint64_t step;
	double time; /* seconds since 1970 */
	struct metrics_log_number {
		const char *key;
		double value;
	} numbers[METRICS_LOG_NUMBERS_MAX]; /* in the order added */
	size_t count;
	struct metrics_log_text {
		const char *key, *value;
	} texts[METRICS_LOG_TEXTS_MAX];
	size_t text_count;
};

/* Opens path for appending and locks it, keeping its contents. */
int metrics_log_open(const char *path, struct metrics_log **ret_metrics, char *error);
/* Removes lines of steps beyond `step` and a torn last line; if `fresh`, removes all lines. */
int metrics_log_truncate(struct metrics_log *metrics, uint64_t step, bool fresh);
/* Accepts NULL. */
void metrics_log_close(struct metrics_log *metrics);

/* Begin, fill and end a line. metrics_log_end() returns the first error of the line. */
void metrics_log_begin(struct metrics_log *metrics, const char *event, uint64_t step);
void metrics_log_text(struct metrics_log *metrics, const char *key, const char *value);
void metrics_log_count(struct metrics_log *metrics, const char *key, uint64_t value);
/* Adds a list. */
void metrics_log_counts(struct metrics_log *metrics, const char *key, const uint64_t *values,
			size_t count);
/* Adds a number with six significant digits. */
void metrics_log_number(struct metrics_log *metrics, const char *key, double value);
/* Adds a number exactly, and as KEY_hex. */
void metrics_log_exact(struct metrics_log *metrics, const char *key, double value);
int metrics_log_end(struct metrics_log *metrics);
/* Returns the last completed line. Its strings belong to the caller of this module. */
const struct metrics_log_line *metrics_log_line(const struct metrics_log *metrics);
/* Waits until all lines are on disk. Accepts NULL. */
int metrics_log_sync(struct metrics_log *metrics);
