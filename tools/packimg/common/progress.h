/*
 * A progress line on standard error: images/s, MB/s and time left. On a terminal it is redrawn ten
 * times a second; elsewhere a plain line is added every ten seconds. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *verb; /* verb, such as "converting" */
	uint64_t total;   /* number of images, or of bytes; 0 if unknown */
	bool in_bytes;
	bool quiet, terminal, shown;
	double start_s, last_s;
};

void progress_init(struct progress *progress, const char *verb, uint64_t total, bool quiet);
/* A line that counts bytes, for transfers. The caller adds to `total` what it learns. */
void progress_init_bytes(struct progress *progress, const char *verb, bool quiet);
/* Redraws the line if it is due; frequent calls are cheap. */
void progress_update(struct progress *progress, uint64_t images, uint64_t bytes);
/*
 * Clears the line on a terminal, so that other output can be printed. The next progress_update()
 * prints it again.
 */
void progress_clear(struct progress *progress);
double progress_elapsed_s(const struct progress *progress);
