/*
 * Parses CSV or TSV text in memory (RFC 4180: quoted cells may hold separators, line ends and
 * doubled quotes). Lines end in LF, CRLF or CR. Beyond the RFC, unquoted blanks around a cell are
 * dropped; with a space as separator, consecutive spaces count as one. TSV is the same with a tab,
 * so quotes work there as well. Skips a UTF-8 byte order mark and empty lines. One thread; cells
 * are valid until the next record.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

struct csv {
	const char *text, *end; /* borrowed */
	const char *cursor;
	char separator;
	uint64_t line; /* line on which the last record began, from 1 */
	uint64_t line_next;
	struct buffer cells;
	struct buffer row; /* pointers into cells; offsets until the record is complete */
};

enum {
	CSV_END = 1,
	CSV_COLUMNS_MAX = 4096,
	CSV_RECORD_MAX = 64 << 20, /* bytes in all its cells */
};

void csv_init(struct csv *csv, const char *text, size_t size, char separator);
void csv_deinit(struct csv *csv);
/*
 * Returns 0 with terminated cells, CSV_END, -EINVAL for an unterminated quote or text after a
 * closing quote, -E2BIG for a record over the limits, or -ENOMEM.
 */
int csv_next(struct csv *csv, const char *const **ret_cells, size_t *ret_count,
	     struct packimg_error *error);
/*
 * Makes one cell of the first `joined` of the `count` cells of the record, with a space between
 * them. Returns the new count; the pointers to the cells change in place.
 */
size_t csv_join(struct csv *csv, size_t count, size_t joined);
