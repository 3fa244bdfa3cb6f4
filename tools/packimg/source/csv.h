/*
 * Records of a CSV or TSV text in memory (RFC 4180: quoted cells may hold separators, line ends and
 * doubled quotes). Lines end in LF, CRLF or CR. Beyond the RFC, blanks around a cell do not count,
 * unless they are quoted; where the separator is a space, several are one. TSV is the same with a
 * tab, so quotes work there too. A UTF-8 byte order mark is passed over; empty lines are no
 * records. One thread; cells are valid until the next record.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

struct csv {
	const char *text, *end; /* borrowed */
	const char *cursor;
	char separator;
	uint64_t line; /* on which the last record began, from 1 */
	uint64_t line_next;
	struct buffer cells;
	struct buffer row; /* pointers into cells, offsets until all of these are there */
};

enum {
	CSV_END = 1,
	CSV_COLUMNS_MAX = 4096,
	CSV_RECORD_MAX = 64 << 20, /* bytes of its cells */
};

void csv_init(struct csv *csv, const char *text, size_t size, char separator);
void csv_deinit(struct csv *csv);
/*
 * 0 with terminated cells, CSV_END, -EINVAL for a quote that never ends or text after one, -E2BIG
 * for more than a record may have, -ENOMEM.
 */
int csv_next(struct csv *csv, const char *const **ret_cells, size_t *ret_count,
	     struct packimg_error *error);
