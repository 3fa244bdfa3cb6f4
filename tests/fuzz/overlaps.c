/*
 * Tests all inputs of fuzz_overlap.c with a single move: moves every range of a file onto every
 * other, in every way. Each overlapping file must be reported as damaged, and no reader may crash.
 */
#include "tests/fuzz/support/overlaps.h"
#include "tests/test.h"

enum {
	ARGUMENTS_MAX = 16
}; /* arguments of OVERLAPS_INSIDE: the header has this many 64-byte offsets */

static struct overlaps_file base, file;

static const char *const kinds[] = {
	[OVERLAPS_HEADER] = "header",
	[OVERLAPS_SECTION] = "section",
	[OVERLAPS_COLUMN] = "column",
	[OVERLAPS_DATA] = "data",
	[OVERLAPS_SIDE] = "side data",
	[OVERLAPS_IMAGE] = "image",
	[OVERLAPS_IMAGE_SIDE] = "side data of image",
};

static void check_base(void)
{
	struct overlaps_verdict verdict;

	file = base;
	overlaps_settle(&file, &base);
	assert_memory_equal(file.bytes, base.bytes, base.size);
	assert_false(overlaps_any(&file));
	overlaps_serve(&file, &verdict);
	assert_string_equal(verdict.text, "");
	assert_int_equal(verdict.checked, 0);
}

TEST(base_is_good)
{
	unsigned counts[OVERLAPS_KINDS] = {0};

	check_base();
	for (unsigned i = 0; i < base.count; i++)
		counts[base.ranges[i].kind]++;
	assert_int_equal(counts[OVERLAPS_HEADER], 1);
	assert_int_equal(counts[OVERLAPS_SECTION], 12);
	assert_int_equal(counts[OVERLAPS_COLUMN], 4);
	assert_int_equal(counts[OVERLAPS_DATA], 6);
	assert_int_equal(counts[OVERLAPS_SIDE], 4);
	assert_int_equal(counts[OVERLAPS_IMAGE], 2);
	assert_int_equal(counts[OVERLAPS_IMAGE_SIDE], 1);
}

/* Returns 1 if ranges overlap illegally, and 0 if not; for example, samples may share bytes. */
static unsigned try(const struct overlaps_move *move)
{
	struct overlaps_verdict verdict;

	memcpy(file.ranges, base.ranges, sizeof(base.ranges));
	memcpy(file.bytes, base.bytes, base.size);
	file.count = base.count;
	file.size = base.size;
	if (!overlaps_move(&file, move))
		return 0;
	overlaps_settle(&file, &base);
	overlaps_serve(&file, &verdict);
	bool any = overlaps_any(&file);
	if (any ? verdict.checked != -EBADMSG : strstr(verdict.text, "overlap; ") != NULL)
		fail_msg("%s %u onto %s %u, way %d, argument %u%s: %s, but opening gives %d, "
			 "checking %d: %s",
			 kinds[base.ranges[move->moved].kind], base.ranges[move->moved].number,
			 kinds[base.ranges[move->other].kind], base.ranges[move->other].number,
			 (int)move->way, (unsigned)move->argument,
			 move->with_bytes ? ", with bytes" : "",
			 any ? "ranges overlap" : "no ranges overlap", verdict.opened,
			 verdict.checked, verdict.text);
	return any;
}

TEST(each_range_onto_each_other)
{
	unsigned overlapped = 0;
	struct overlaps_move move;

	for (move.moved = 1; move.moved < base.count; move.moved++)
		for (move.other = 0; move.other < base.count; move.other++)
			for (move.way = 0; move.way < OVERLAPS_FREE; move.way++)
				for (unsigned i = 0; i < 2; i++) {
					uint32_t last =
						move.way == OVERLAPS_INSIDE ? ARGUMENTS_MAX : 1;
					move.with_bytes = i == 1;
					for (move.argument = 1; move.argument <= last;
					     move.argument++)
						overlapped += try(&move);
				}
	print_message("%u files with ranges that overlap\n", overlapped);
	assert_true(overlapped > 4000);
}

static int set_up(void **state)
{
	overlaps_make(&base);
	return 0;
}

TEST_MAIN(set_up, NULL)
