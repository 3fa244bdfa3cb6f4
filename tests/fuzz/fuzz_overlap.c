/*
 * Files with overlapping ranges. The input is a list of moves, each of which makes a range of a
 * valid file overlap another. The target opens, checks, reads and decodes the resulting file, from
 * a mapping and by io_uring. The library must report damage if ranges overlap, and must not report
 * an overlap if none do.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/overlaps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOVES_MAX = 8 };

/* Encoding of a move in the input. */
struct move_bytes {
	uint8_t moved, other, way, with_bytes;
	uint8_t argument[2], size_argument[2];
};

static struct overlaps_file base, file;

static void fail(const struct overlaps_verdict *verdict, const char *what)
{
	fprintf(stderr, "%s: opening gives %d, checking %d: %s\n", what, verdict->opened,
		verdict->checked, verdict->text);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct overlaps_verdict verdict;
	struct move_bytes bytes;

	if (base.count == 0)
		overlaps_make(&base);
	file = base;
	for (unsigned i = 0; i < MOVES_MAX && size >= sizeof(bytes); i++) {
		memcpy(&bytes, data, sizeof(bytes));
		data += sizeof(bytes);
		size -= sizeof(bytes);
		overlaps_move(&file, &(struct overlaps_move){
					     .moved = bytes.moved % file.count,
					     .other = bytes.other % file.count,
					     .way = bytes.way % OVERLAPS_WAYS,
					     .argument = bytes.argument[0] |
							 (uint32_t)bytes.argument[1] << 8,
					     .size_argument = bytes.size_argument[0] |
							      (uint32_t)bytes.size_argument[1] << 8,
					     .with_bytes = bytes.with_bytes & 1,
				     });
	}
	overlaps_settle(&file, &base);
	overlaps_serve(&file, &verdict);
	if (overlaps_any(&file) && verdict.checked != -EBADMSG)
		fail(&verdict, "ranges overlap");
	if (!overlaps_any(&file) && strstr(verdict.text, "overlap; ") != NULL)
		fail(&verdict, "no ranges overlap");
	return 0;
}
