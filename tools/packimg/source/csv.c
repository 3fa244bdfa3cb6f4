#include "tools/packimg/source/csv.h"

#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

void csv_init(struct csv *csv, const char *text, size_t size, char separator)
{
	if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		size -= 3;
	}
	*csv = (struct csv){
		.text = text,
		.end = text + size,
		.cursor = text,
		.separator = separator,
		.line_next = 1,
	};
}

void csv_deinit(struct csv *csv)
{
	buffer_deinit(&csv->cells);
	buffer_deinit(&csv->row);
	*csv = (struct csv){0};
}

/* Appends a character to the current cell; -E2BIG if the record becomes too large. */
static int csv_append(struct csv *csv, const char *text, size_t size, struct packimg_error *error)
{
	if (size > CSV_RECORD_MAX - csv->cells.size)
		return packimg_fail(
			error, -E2BIG,
			"line %" PRIu64
			": cell %zu makes the line longer than %s; shorten it, or close a quote",
			csv->line, csv->row.size / sizeof(size_t),
			text_bytes(TEXT, CSV_RECORD_MAX));
	return buffer_append(&csv->cells, text, size);
}

static bool is_blank(const struct csv *csv, char c)
{
	return c == ' ' || (c == '\t' && csv->separator != '\t');
}

static const char *skip_blanks(const struct csv *csv, const char *p)
{
	while (p < csv->end && is_blank(csv, *p))
		p++;
	return p;
}

static int csv_quoted(struct csv *csv, struct packimg_error *error)
{
	uint64_t line = csv->line_next;
	const char *p = csv->cursor + 1;

	for (;;) {
		const char *quote = memchr(p, '"', (size_t)(csv->end - p));

		if (!quote)
			return packimg_fail(error, -EINVAL,
					    "line %" PRIu64 ": a quote is never closed", line);
		for (const char *n = p; n < quote; n++)
			csv->line_next += *n == '\n' || (*n == '\r' && n[1] != '\n');
		int r = csv_append(csv, p, (size_t)(quote - p), error);
		if (r)
			return r;
		p = quote + 1;
		if (p == csv->end || *p != '"')
			break;
		r = csv_append(csv, "\"", 1, error);
		if (r)
			return r;
		p++;
	}
	if (csv->separator != ' ')
		p = skip_blanks(csv, p);
	if (p < csv->end && *p != csv->separator && *p != '\n' && *p != '\r')
		return packimg_fail(error, -EINVAL,
				    "line %" PRIu64
				    ": text follows a closing quote; a quote inside a "
				    "quoted cell is written twice",
				    csv->line_next);
	csv->cursor = p;
	return 0;
}

static int csv_plain(struct csv *csv, struct packimg_error *error)
{
	const char *p = csv->cursor;

	while (p < csv->end && *p != csv->separator && *p != '\n' && *p != '\r')
		p++;
	const char *end = p;
	while (end > csv->cursor && is_blank(csv, end[-1]))
		end--;
	int r = csv_append(csv, csv->cursor, (size_t)(end - csv->cursor), error);
	csv->cursor = p;
	return r;
}

/* Reads one cell and leaves the cursor on its separator, line end or end of text. */
static int csv_cell(struct csv *csv, struct packimg_error *error)
{
	size_t offset = csv->cells.size;
	int r;

	if (buffer_append(&csv->row, &offset, sizeof(offset)))
		return -ENOMEM;
	csv->cursor = skip_blanks(csv, csv->cursor);
	if (csv->cursor < csv->end && *csv->cursor == '"')
		r = csv_quoted(csv, error);
	else
		r = csv_plain(csv, error);
	if (r)
		return r;
	return csv_append(csv, "", 1, error);
}

/* True if the cursor is at the end of the line or of the text. */
static bool csv_at_end(const struct csv *csv)
{
	return csv->cursor == csv->end || *csv->cursor == '\n' || *csv->cursor == '\r';
}

/* Moves past LF, CRLF or CR if the cursor is on one. */
static bool csv_line_end(struct csv *csv)
{
	if (csv->cursor == csv->end || !csv_at_end(csv))
		return false;
	csv->cursor += *csv->cursor == '\r' && csv->cursor + 1 < csv->end && csv->cursor[1] == '\n'
			       ? 2
			       : 1;
	csv->line_next++;
	return true;
}

int csv_next(struct csv *csv, const char *const **ret_cells, size_t *ret_count,
	     struct packimg_error *error)
{
	size_t count = 0;
	bool more = true;
	int r;

	do
		csv->cursor = skip_blanks(csv, csv->cursor);
	while (csv_line_end(csv));
	if (csv->cursor == csv->end)
		return CSV_END;
	csv->line = csv->line_next;
	csv->cells.size = csv->row.size = 0;
	while (more) {
		if (++count > CSV_COLUMNS_MAX)
			return packimg_fail(error, -E2BIG, "line %" PRIu64 ": more than %d columns",
					    csv->line, CSV_COLUMNS_MAX);
		r = csv_cell(csv, error);
		if (r)
			return r;
		more = csv->cursor < csv->end && *csv->cursor == csv->separator;
		if (more)
			csv->cursor++;
		if (csv->separator == ' ') {
			csv->cursor = skip_blanks(csv, csv->cursor);
			more = !csv_at_end(csv);
		}
	}
	csv_line_end(csv);
	const char **row = (const char **)(void *)csv->row.data;
	for (size_t i = 0; i < count; i++)
		row[i] = (const char *)csv->cells.data + (uintptr_t)row[i];
	*ret_cells = row;
	*ret_count = count;
	return 0;
}

size_t csv_join(struct csv *csv, size_t count, size_t joined)
{
	char **row = (char **)(void *)csv->row.data;

	/* Cells lie one behind another, each terminated. */
	for (size_t i = 1; i < joined; i++)
		row[i][-1] = ' ';
	memmove(row + 1, row + joined, (count - joined) * sizeof(*row));
	return count - joined + 1;
}
