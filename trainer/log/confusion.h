/* A picture of what classes are taken for. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* So many samples of class `label` that were taken for `predicted`. */
struct confusion_cell {
	uint32_t label, predicted;
	uint64_t count;
};

struct confusion {
	uint32_t classes;
	const char *const *names; /* [classes], anybody's texts; NULL: they have none */
	const struct confusion_cell *cells;
	size_t count;
};

/*
 * An SVG file: a row for each class and a column for what it was taken for, darker for more of the
 * row; with names and numbers where there is room. Errors of writing stay with the file.
 */
void confusion_draw(const struct confusion *confusion, FILE *file);
