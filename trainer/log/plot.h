/* Pictures of runs that were made, from their log.jsonl. */
#pragma once

enum { PLOT_ERROR_MAX = 1024 };

/*
 * Draws losses and top-1 of runs over epochs to an SVG file, which appears complete or not at all:
 * of training thin, of evaluations thick. folders[count] have a log.jsonl each. Negative errno with
 * a sentence in error, PLOT_ERROR_MAX bytes.
 */
int plot_runs(const char *path, const char *const *folders, unsigned count, char *error);
