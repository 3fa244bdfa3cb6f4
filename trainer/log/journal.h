/*
 * log.jsonl: one strict JSON object per line, appended with one write each, so that a killed run
 * leaves at most one torn last line.
 *
 * Every object has "event", "step" (steps made so far, never falling) and "time" (seconds since
 * 1970). Losses are doubles that read back bit for bit; "..._hex" gives them in C's hexadecimal
 * notation besides. A resumed run first cuts off what came after its checkpoint, so a log reads as
 * if the run had never stopped. Not-a-number and infinity, which JSON has not, are written as null.
 * While it is open the file is locked, so that two trainers do not share a folder. Owned by the
 * loop, used by its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOURNAL_ERROR_MAX = 512, JOURNAL_NUMBERS_MAX = 32, JOURNAL_TEXTS_MAX = 8 };

struct journal;

/* What a line has, but for lists. */
struct journal_line {
	const char *event;
	uint64_t step;
	double time; /* seconds since 1970 */
	struct journal_number {
		const char *key;
		double value;
	} numbers[JOURNAL_NUMBERS_MAX]; /* in the order in which they were added */
	size_t count;
	struct journal_text {
		const char *key, *value;
	} texts[JOURNAL_TEXTS_MAX];
	size_t text_count;
};

/* Opens path for appending and locks it, with all that is in it. */
int journal_open(const char *path, struct journal **ret_journal, char *error);
/* Cuts off lines of steps beyond `step` and a torn last line; with fresh, everything. */
int journal_cut(struct journal *journal, uint64_t step, bool fresh);
/* Accepts NULL. */
void journal_close(struct journal *journal);

/* A line is begun, filled, ended. Errors are kept and come back from journal_end. */
void journal_begin(struct journal *journal, const char *event, uint64_t step);
void journal_text(struct journal *journal, const char *key, const char *value);
void journal_count(struct journal *journal, const char *key, uint64_t value);
/* A list. */
void journal_counts(struct journal *journal, const char *key, const uint64_t *values, size_t count);
/* Six significant digits. */
void journal_number(struct journal *journal, const char *key, double value);
/* All bits, and KEY_hex. */
void journal_exact(struct journal *journal, const char *key, double value);
int journal_end(struct journal *journal);
/* The last one. Keys, event and texts are those that were given. */
const struct journal_line *journal_line(const struct journal *journal);
/* Waits until all lines are on the disk. Accepts NULL. */
int journal_sync(struct journal *journal);
