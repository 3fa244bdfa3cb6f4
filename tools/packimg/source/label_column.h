/*
 * What the cells of a column of labels are, from all of them: numbers or names, whether a column
 * that is not called so holds labels, and whether its cells hold several labels each ("cat dog",
 * "0;3"). The caller owns it; its memory is bounded, and freed by label_column_deinit(). One
 * thread.
 */
#pragma once

#include "tools/packimg/common/name_table.h"

struct label_column {
	struct arena arena;
	struct name_table cells; /* different cells */
	uint64_t rows;           /* cells added */
	bool names;              /* some cells are no numbers */
	bool fractions;          /* some numbers are not whole */
	bool full;               /* cells lacks some */
	bool texts;              /* some cells are too long for labels */
	bool bare;               /* some cells are no lists in brackets */
	double min, max;         /* of the numbers */
};

void label_column_init(struct label_column *column);
void label_column_deinit(struct label_column *column);
/* Adds a cell that is not missing. 0 or -ENOMEM. */
int label_column_add(struct label_column *column, const char *cell);
/*
 * Returns true if the cells are plainly labels, whatever the column is called: names of which each
 * occurs twice on average, or whole numbers of which so many occur, from 0 or 1 on without a gap;
 * or lists of labels of which each occurs twice on average.
 */
bool label_column_repeats(const struct label_column *column);

enum {
	LABEL_WHOLE = 0, /* a cell is one label */
	/* a cell is a list in brackets, as Python writes it: "['cat', 'dog']" or "[0, 3]" */
	LABEL_BRACKETS = '[',
};

/*
 * Returns the separator of the labels in each cell where that is plain, else LABEL_WHOLE: a list in
 * brackets; else, where no cell has a label twice, ';' or '|', or what separates whole numbers, or
 * a space or comma between names that each occur in several different cells, which have one or
 * more. *ret_doubt is set to a separator of which most, but not all of this is true.
 */
char label_column_separator(const struct label_column *column, char *ret_doubt);

/*
 * Splits a cell in place. *cursor is the cell at first; returns the next label, terminated, or NULL
 * at the end. Drops blanks around labels and empty ones. In lists in brackets, labels may be in
 * quotes, within which a comma is part of the label, and so is a quote or a backslash behind a
 * backslash.
 */
char *label_next(char **cursor, char separator);
