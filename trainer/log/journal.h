/*
 * log.jsonl: one strict JSON object per line, appended with one write each, so that a killed run
 * leaves at most one torn line, at the end.
 *
 * Every object has "event", "step" (steps made so far, never decreasing) and "time" (seconds since
 * 1970). Losses are doubles that read back exactly; "..._hex" repeats them in C's hexadecimal
 * notation. A resumed run first truncates the log to its checkpoint, so the log reads as if the run
 * had never stopped. NaN and infinity, which JSON lacks, are written as null. The open file is
 * locked, so that two trainers cannot share a folder. Owned by the loop, used by its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOURNAL_ERROR_MAX = 512, JOURNAL_NUMBERS_MAX = 32, JOURNAL_TEXTS_MAX = 8 };

struct journal;

/* Contents of a line, except lists. */
struct journal_line {
	const char *event;
	uint64_t step;
	double time; /* seconds since 1970 */
	struct journal_number {
		const char *key;
		double value;
	} numbers[JOURNAL_NUMBERS_MAX]; /* in the order added */
	size_t count;
	struct journal_text {
		const char *key, *value;
	} texts[JOURNAL_TEXTS_MAX];
	size_t text_count;
};

/* Opens path for appending and locks it, keeping its contents. */
int journal_open(const char *path, struct journal **ret_journal, char *error);
/* Removes lines of steps beyond `step` and a torn last line; with fresh, everything. */
int journal_cut(struct journal *journal, uint64_t step, bool fresh);
/* Accepts NULL. */
void journal_close(struct journal *journal);

/* Begin, fill and end a line. Errors are kept and returned by journal_end(). */
void journal_begin(struct journal *journal, const char *event, uint64_t step);
void journal_text(struct journal *journal, const char *key, const char *value);
void journal_count(struct journal *journal, const char *key, uint64_t value);
/* Adds a list. */
void journal_counts(struct journal *journal, const char *key, const uint64_t *values, size_t count);
/* Adds a number with six significant digits. */
void journal_number(struct journal *journal, const char *key, double value);
/* Adds a number exactly, and as KEY_hex. */
void journal_exact(struct journal *journal, const char *key, double value);
int journal_end(struct journal *journal);
/* The last line. Keys, event and strings are the caller's pointers. */
const struct journal_line *journal_line(const struct journal *journal);
/* Waits until all lines are on disk. Accepts NULL. */
int journal_sync(struct journal *journal);
