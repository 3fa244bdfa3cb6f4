#include "tools/packimg/source/label_column.h"

#include "format/base/text/number.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum {
	CELL_MAX = 1024,     /* bytes of a cell that may be a label */
	CELLS_MAX = 1 << 16, /* different cells that are kept */
	REPEATED_MIN = 2,    /* rows for each label of a column that is not called so */
};

void label_column_init(struct label_column *column)
{
	*column = (struct label_column){.min = INFINITY, .max = -INFINITY};
	name_table_init(&column->cells, &column->arena);
}

void label_column_deinit(struct label_column *column)
{
	name_table_deinit(&column->cells);
	arena_deinit(&column->arena);
}

int label_column_add(struct label_column *column, const char *cell)
{
	uint32_t number;
	double value;

	column->rows++;
	if (number_double(cell, &value)) {
		column->names = true;
	} else if (!isnan(value)) {
		column->fractions |= value != trunc(value);
		column->min = fmin(column->min, value);
		column->max = fmax(column->max, value);
	}
	if (strlen(cell) > CELL_MAX ||
	    (column->cells.count >= CELLS_MAX &&
	     name_table_find(&column->cells, cell, &number) == -ENOENT)) {
		column->full = true;
		return 0;
	}
	return name_table_add(&column->cells, cell, &number, NULL);
}

bool label_column_repeats(const struct label_column *column)
{
	uint32_t count = column->cells.count;

	if (column->full || !count || column->rows < (uint64_t)count * REPEATED_MIN)
		return false;
	if (column->names)
		return true;
	return !column->fractions && (column->min == 0 || column->min == 1) &&
	       column->max - column->min + 1 == count;
}
