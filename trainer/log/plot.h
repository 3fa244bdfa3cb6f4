/* Plots of past runs, from their log.jsonl. */
#pragma once

enum { PLOT_ERROR_MAX = 1024 };

/*
 * Plots losses and top-1 of runs over epochs to an SVG file, written atomically: training thin,
 * evaluations thick. folders[count] each contain a log.jsonl. Negative errno with a sentence in
 * error, PLOT_ERROR_MAX bytes.
 */
int plot_runs(const char *path, const char *const *folders, unsigned count, char *error);
