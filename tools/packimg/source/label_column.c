#include "tools/packimg/source/label_column.h"

#include "format/base/text/number.h"

#include "format/packimg.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	CELL_MAX = 1024,      /* bytes of a cell that may be a label */
	CELLS_MAX = 1 << 16,  /* different cells that are kept */
	LABELS_MAX = 1 << 16, /* different labels in lists that are kept */
	REPEATED_MIN = 2,     /* rows for each label of a column that is not called so */
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

static bool has_brackets(const char *cell)
{
	size_t size = strlen(cell);

	return size >= 2 && cell[0] == '[' && cell[size - 1] == ']';
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
	column->bare |= !has_brackets(cell);
	column->texts |= strlen(cell) > CELL_MAX;
	column->full |= column->cells.count >= CELLS_MAX &&
			name_table_find(&column->cells, cell, &number) == -ENOENT;
	if (column->texts || column->full)
		return 0;
	return name_table_add(&column->cells, cell, &number, NULL);
}

/* ---- several labels in a cell ---- */

static char *trim(char *text)
{
	text += strspn(text, " \t");
	for (size_t size = strlen(text); size && strchr(" \t", text[size - 1]); size--)
		text[size - 1] = 0;
	return text;
}

static char *unquote(char *text)
{
	size_t size = strlen(text);

	if (size < 2 || (*text != '"' && *text != '\'') || text[size - 1] != *text)
		return text;
	text[size - 1] = 0;
	return text + 1;
}

/*
 * Takes a label in quotes, as Python writes it, with its comma. Returns NULL unless the text begins
 * with one.
 */
static char *next_quoted(char **cursor)
{
	char *first = *cursor + strspn(*cursor, " \t"), *end = first + 1, *to = first;

	if (*first != '"' && *first != '\'')
		return NULL;
	while (*end && *end != *first)
		end += *end == '\\' && end[1] ? 2 : 1;
	char *after = *end ? end + 1 + strspn(end + 1, " \t") : end;
	if (!*end || (*after && *after != ','))
		return NULL;
	for (char *from = first + 1; from < end; from++) {
		if (*from == '\\' && strchr("\\'\"", from[1]))
			from++;
		*to++ = *from;
	}
	*to = 0;
	*cursor = *after ? after + 1 : NULL;
	return first;
}

char *label_next(char **cursor, char separator)
{
	const char separating[] = {separator == LABEL_BRACKETS ? ',' : separator, 0};

	if (separator == LABEL_BRACKETS && *cursor && has_brackets(*cursor)) {
		(*cursor)[strlen(*cursor) - 1] = 0;
		++*cursor;
	}
	while (*cursor) {
		char *label = separator == LABEL_BRACKETS ? next_quoted(cursor) : NULL;

		if (!label) {
			label = trim(strsep(cursor, separating));
			label = separator == LABEL_BRACKETS ? unquote(label) : label;
		}
		if (*label)
			return label;
	}
	return NULL;
}

/* What splitting the different cells of a column at a separator gives. */
struct splitting {
	struct arena arena;
	struct name_table labels;
	uint32_t cells[LABELS_MAX];     /* number of different cells that have each label */
	uint32_t last_cell[LABELS_MAX]; /* number, from 1, of the last cell that has it */
	uint32_t lists;                 /* cells of more than one label */
	uint32_t least, most;           /* labels of a cell */
	bool numbers;                   /* all are whole numbers that classes may have */
	bool repeated;                  /* a cell has a label twice */
	bool full;                      /* there are more labels than are kept */
};

static int split_cell(struct splitting *splitting, char *cell, uint32_t number, char separator)
{
	uint32_t count = 0, found;
	uint64_t value;

	for (char *label; (label = label_next(&cell, separator)); count++) {
		int r = name_table_add(&splitting->labels, label, &found, NULL);

		if (r)
			return r;
		if (found >= LABELS_MAX) {
			splitting->full = true;
			continue;
		}
		splitting->numbers &= !number_u64(label, 0, PACKIMG_CLASSES_MAX - 1, &value);
		splitting->repeated |= splitting->last_cell[found] == number;
		splitting->last_cell[found] = number;
		splitting->cells[found]++;
	}
	splitting->lists += count > 1;
	splitting->least = count < splitting->least ? count : splitting->least;
	splitting->most = count > splitting->most ? count : splitting->most;
	return 0;
}

/* How plain it is that a separator separates labels. */
enum verdict {
	VERDICT_WHOLE,     /* cells are one label each */
	VERDICT_DOUBT,     /* most of what is true of lists is true */
	VERDICT_LIST,      /* cells are lists, if the column holds labels */
	VERDICT_REPEATING, /* and it does: labels repeat, and cells have different numbers of them
			    */
};

static enum verdict judge(const struct splitting *splitting, char separator)
{
	uint32_t labels = splitting->labels.count, shared = 0;
	uint64_t sum = 0;

	if (!splitting->lists || splitting->repeated || splitting->full)
		return VERDICT_WHOLE;
	for (uint32_t i = 0; i < labels; i++) {
		shared += splitting->cells[i] > 1;
		sum += splitting->cells[i];
	}
	bool varied = splitting->least < splitting->most;
	bool repeating = varied && sum >= (uint64_t)labels * REPEATED_MIN;
	if (separator == ';' || separator == '|')
		return repeating ? VERDICT_REPEATING : VERDICT_LIST;
	if (splitting->numbers && separator == ',' && splitting->most <= 2)
		return VERDICT_DOUBT; /* "0,5" may be a number */
	if (splitting->numbers || (shared == labels && varied))
		return repeating ? VERDICT_REPEATING : VERDICT_LIST;
	return shared * 2 >= labels ? VERDICT_DOUBT : VERDICT_WHOLE;
}

static enum verdict try_separator(const struct label_column *column, char separator)
{
	struct splitting *splitting = calloc(1, sizeof(*splitting));
	char cell[CELL_MAX + 1];
	int r = 0;

	if (!splitting)
		return VERDICT_WHOLE;
	splitting->numbers = true;
	splitting->least = UINT32_MAX;
	name_table_init(&splitting->labels, &splitting->arena);
	for (uint32_t i = 0; !r && i < column->cells.count; i++) {
		strcpy(cell, column->cells.names[i]);
		r = split_cell(splitting, cell, i + 1, separator);
	}
	enum verdict verdict = r ? VERDICT_WHOLE : judge(splitting, separator);
	name_table_deinit(&splitting->labels);
	arena_deinit(&splitting->arena);
	free(splitting);
	return verdict;
}

static const char separators[] = ";| ,";

static bool holds_lists(const struct label_column *column)
{
	bool found = !column->bare;

	for (const char *separator = separators; !found && *separator; separator++)
		found = try_separator(column, *separator) == VERDICT_REPEATING;
	return found;
}

bool label_column_repeats(const struct label_column *column)
{
	uint32_t count = column->cells.count;

	if (column->texts || !count)
		return false;
	if (holds_lists(column))
		return true;
	if (column->full || column->rows < (uint64_t)count * REPEATED_MIN)
		return false;
	if (column->names)
		return true;
	return !column->fractions && (column->min == 0 || column->min == 1) &&
	       column->max - column->min + 1 == count;
}

char label_column_separator(const struct label_column *column, char *ret_doubt)
{
	*ret_doubt = LABEL_WHOLE;
	if (column->rows > 0 && !column->bare)
		return LABEL_BRACKETS;
	if (column->texts)
		return LABEL_WHOLE;
	for (const char *separator = separators; *separator; separator++) {
		enum verdict verdict = try_separator(column, *separator);

		if (verdict >= VERDICT_LIST)
			return *separator;
		if (verdict == VERDICT_DOUBT && *ret_doubt == LABEL_WHOLE)
			*ret_doubt = *separator;
	}
	return LABEL_WHOLE;
}
