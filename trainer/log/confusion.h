/* Plot of a confusion matrix. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Number of samples of class `label` that were predicted as `predicted`. */
struct confusion_cell {
	uint32_t label, predicted;
	uint64_t count;
};

struct confusion {
	uint32_t classes;
	const char *const *names; /* [classes], untrusted strings; NULL if unknown */
	const struct confusion_cell *cells;
	size_t count;
};

/*
 * Draws an SVG file with a row per class and a column per prediction. A cell is darker for a larger
 * fraction of its row. Prints names and numbers if they fit. Check ferror() for write errors.
 */
void confusion_draw(const struct confusion *confusion, FILE *file);
