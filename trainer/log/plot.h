/* Plots of past runs, from their log.jsonl. */
#pragma once

enum { PLOT_ERROR_MAX = 1024 };

/*
 * Plots losses and top-1 of runs over epochs into an SVG file, written atomically. Training has
 * thin lines, evaluations thick ones. folders[count]: each contains a log.jsonl. Returns a negative
 * errno with a sentence in error (PLOT_ERROR_MAX bytes).
 */
int plot_runs(const char *path, const char *const *folders, unsigned count, char *error);
