/*
 * Verifies that no two ranges of a file overlap (SPEC.md, "Ranges"). The ranges that occur once
 * (header, sections and columns) are sorted, and each sample range is looked up among them. If
 * samples ascend, as libpackimg's writers place them, one pass over the index compares each with
 * the end of those before it; otherwise samples are sorted first.
 */
#include "format/error.h"
#include "format/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum range_kind { RANGE_HEADER, RANGE_SECTION, RANGE_COLUMN, RANGE_DATA, RANGE_SIDE };
enum {
	KIND_BITS = 3,
	FIXED_MAX = 1 + PIMG_SECTIONS_MAX + PACKIMG_FIELDS_MAX,
	NAME_SIZE = 160, /* size of a range's name in an error message */
};

/* A nonempty range. */
struct range {
	uint64_t begin, end;
	/*
	 * number << KIND_BITS | kind, where number is that of the sample in the file, of the
	 * section, or of the field
	 */
	uint64_t what;
};

struct ranges {
	const struct packimg *dataset;
	const struct shard *shard;
	struct range fixed[FIXED_MAX]; /* sorted once complete */
	uint32_t fixed_count;
};

static enum range_kind kind_of(const struct range *range)
{
	return (enum range_kind)(range->what & ((1u << KIND_BITS) - 1));
}

static uint64_t number_of(const struct range *range)
{
	return range->what >> KIND_BITS;
}

static struct range range_make(uint64_t begin, uint64_t size, enum range_kind kind, uint64_t number)
{
	return (struct range){begin, begin + size, number << KIND_BITS | kind};
}

static void range_name(const struct ranges *ranges, const struct range *range, char name[NAME_SIZE])
{
	uint64_t number = number_of(range), sample = ranges->shard->sample_first + number;
	char what[NAME_SIZE / 2 + 24] = "the header";

	switch (kind_of(range)) {
	case RANGE_HEADER:
		break;
	case RANGE_SECTION:
		snprintf(what, sizeof(what), "the section of type %u",
			 ranges->shard->extents[number].type);
		break;
	case RANGE_COLUMN:
		snprintf(what, sizeof(what), "the column of field %.60s",
			 ranges->dataset->fields[number].name);
		break;
	case RANGE_DATA:
		snprintf(what, sizeof(what), "the data of sample %" PRIu64, sample);
		break;
	case RANGE_SIDE:
		snprintf(what, sizeof(what), "the side data of sample %" PRIu64, sample);
		break;
	}
	snprintf(name, NAME_SIZE, "%s (bytes %" PRIu64 " to %" PRIu64 ")", what, range->begin,
		 range->end - 1);
}

static int fail_overlap(const struct ranges *ranges, const struct range *a, const struct range *b,
			struct packimg_error *error)
{
	char first[NAME_SIZE], second[NAME_SIZE];

	range_name(ranges, a, first);
	range_name(ranges, b, second);
	return packimg_damaged(error, "%s: %s and %s overlap; convert the images again",
			       ranges->shard->path, first, second);
}

static int range_compare(const void *a, const void *b)
{
	const struct range *p = a, *q = b;

	if (p->begin != q->begin)
		return p->begin < q->begin ? -1 : 1;
	return p->what < q->what ? -1 : p->what > q->what;
}

static struct pimg_record record_of(const struct ranges *ranges, uint64_t number)
{
	struct pimg_record record;

	copy_once(&record,
		  ranges->shard->sections[PIMG_SECTION_INDEX].data + number * sizeof(record),
		  sizeof(record));
	return record;
}

/*
 * Collects the ranges of header, sections and columns. Skips those outside the file, which other
 * checks report.
 */
static int collect_fixed(struct ranges *ranges, struct packimg_error *error)
{
	const struct shard *shard = ranges->shard;
	struct range *fixed = ranges->fixed;
	uint32_t count = 0;

	fixed[count++] = range_make(0, sizeof(struct pimg_header), RANGE_HEADER, 0);
	for (uint32_t i = 0; i < shard->extent_count; i++)
		fixed[count++] = range_make(shard->extents[i].begin,
					    shard->extents[i].end - shard->extents[i].begin,
					    RANGE_SECTION, i);
	for (uint32_t i = 0; i < ranges->dataset->field_count; i++) {
		struct pimg_column column;

		copy_once(&column, shard->sections[PIMG_SECTION_COLUMNS].data + i * sizeof(column),
			  sizeof(column));
		if (column.offset != 0 && column.size > 0 && column.offset <= shard->size &&
		    column.size <= shard->size - column.offset)
			fixed[count++] = range_make(column.offset, column.size, RANGE_COLUMN, i);
	}
	qsort(fixed, count, sizeof(*fixed), range_compare);
	for (uint32_t i = 1; i < count; i++)
		if (fixed[i].begin < fixed[i - 1].end)
			return fail_overlap(ranges, &fixed[i - 1], &fixed[i], error);
	ranges->fixed_count = count;
	return 0;
}

static int check_fixed(const struct ranges *ranges, const struct range *range,
		       struct packimg_error *error)
{
	const struct range *fixed = ranges->fixed;
	uint32_t low = 0, high = ranges->fixed_count;

	/* find the first range that ends after the start of `range` */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (fixed[middle].end <= range->begin)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < ranges->fixed_count && fixed[low].begin < range->end)
		return fail_overlap(ranges, &fixed[low], range, error);
	return 0;
}

/*
 * True if the overlap of two ranges is allowed: samples may share their whole data, and samples
 * that do may share their whole side data (SPEC.md, "Ranges").
 */
static bool is_shared(const struct ranges *ranges, const struct range *a, const struct range *b)
{
	if (a->begin != b->begin || a->end != b->end || kind_of(a) != kind_of(b))
		return false;
	if (kind_of(a) == RANGE_DATA)
		return true;
	struct pimg_record first = record_of(ranges, number_of(a)),
			   second = record_of(ranges, number_of(b));
	return first.data_offset == second.data_offset && first.data_size == second.data_size;
}

/* Returns the ranges of one sample that are inside the file, in file order: at most two. */
static uint32_t ranges_of(const struct ranges *ranges, uint64_t number, struct range ret_ranges[2])
{
	const struct pimg_record record = record_of(ranges, number);
	const uint64_t size = ranges->shard->size;
	uint32_t count = 0;

	if (record.data_size > 0 && record.data_offset <= size &&
	    record.data_size <= size - record.data_offset)
		ret_ranges[count++] =
			range_make(record.data_offset, record.data_size, RANGE_DATA, number);
	if (record.side_size > 0 && record.side_offset <= size &&
	    record.side_size <= size - record.side_offset)
		ret_ranges[count++] =
			range_make(record.side_offset, record.side_size, RANGE_SIDE, number);
	if (count == 2 && range_compare(&ret_ranges[0], &ret_ranges[1]) > 0) {
		struct range first = ret_ranges[1];
		ret_ranges[1] = ret_ranges[0];
		ret_ranges[0] = first;
	}
	return count;
}

/*
 * Compares each range of a sample with the fixed ranges and with the range before it, in one pass
 * without allocating. Returns 1 if a range begins before the end of the previous one.
 */
static int check_ascending(const struct ranges *ranges, struct packimg_error *error)
{
	struct range pair[2];
	uint64_t end = 0;
	int descends = 0;

	for (uint64_t i = 0; i < ranges->shard->sample_count; i++) {
		uint32_t count = ranges_of(ranges, i, pair);
		for (uint32_t k = 0; k < count; k++) {
			int r = check_fixed(ranges, &pair[k], error);
			if (r < 0)
				return r;
			descends |= pair[k].begin < end;
			end = pair[k].end;
		}
	}
	return descends;
}

static int check_sorted(const struct ranges *ranges, struct range *sorted, size_t count,
			struct packimg_error *error)
{
	qsort(sorted, count, sizeof(*sorted), range_compare);
	for (size_t i = 1; i < count; i++)
		if (sorted[i].begin < sorted[i - 1].end &&
		    !is_shared(ranges, &sorted[i - 1], &sorted[i]))
			return fail_overlap(ranges, &sorted[i - 1], &sorted[i], error);
	return 0;
}

/* Returns the first byte other than zero in a part of the file; `end` if there is none. */
static uint64_t find_nonzero(const struct shard *shard, uint64_t begin, uint64_t end)
{
	while (begin < end && shard->map[begin] == 0)
		begin++;
	return begin;
}

/* Returns the first byte outside all sorted ranges that is not zero; the file's size if none. */
static uint64_t find_in_gaps(const struct shard *shard, const struct range *sorted, size_t count)
{
	uint64_t end = 0;

	for (size_t i = 0; i < count; i++) {
		if (sorted[i].begin > end) {
			uint64_t found = find_nonzero(shard, end, sorted[i].begin);
			if (found < sorted[i].begin)
				return found;
		}
		end = sorted[i].end > end ? sorted[i].end : end;
	}
	return find_nonzero(shard, end, shard->size);
}

/* Returns the type of the first section whose type is unknown, or 0. */
static uint32_t unknown_section(const struct shard *shard)
{
	for (uint32_t i = 0; i < shard->extent_count; i++)
		if (shard->extents[i].type > PIMG_SECTION_KNOWN_MAX)
			return shard->extents[i].type;
	return PIMG_SECTION_NONE;
}

int ranges_check_gaps(const struct packimg *dataset, const struct shard *shard,
		      struct packimg_error *error)
{
	struct ranges ranges = {.dataset = dataset, .shard = shard};
	uint32_t type = unknown_section(shard);

	if (type == PIMG_SECTION_NONE)
		return 0;
	int r = collect_fixed(&ranges, error);
	if (r < 0)
		return r;
	struct range *sorted = calloc(shard->sample_count + FIXED_MAX, 2 * sizeof(*sorted));
	if (!sorted)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
	size_t count = ranges.fixed_count;
	memcpy(sorted, ranges.fixed, count * sizeof(*sorted));
	for (uint64_t i = 0; i < shard->sample_count; i++)
		count += ranges_of(&ranges, i, sorted + count);
	qsort(sorted, count, sizeof(*sorted), range_compare);
	uint64_t found = find_in_gaps(shard, sorted, count);
	free(sorted);
	if (found == shard->size)
		return 0;
	return packimg_fail(
		error, -ENOTSUP,
		"%s: has a section of the unknown type %u, to which the bytes at %" PRIu64
		" may belong; writing the file anew would lose them; use a newer "
		"loaderd, or convert the images again",
		shard->path, type, found);
}

int ranges_check(const struct packimg *dataset, const struct shard *shard,
		 struct packimg_error *error)
{
	struct ranges ranges = {.dataset = dataset, .shard = shard};
	size_t count = 0;

	int r = collect_fixed(&ranges, error);
	r = r ?: check_ascending(&ranges, error);
	if (r <= 0)
		return r;
	struct range *sorted = calloc(shard->sample_count, 2 * sizeof(*sorted));
	if (!sorted)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
	for (uint64_t i = 0; i < shard->sample_count; i++)
		count += ranges_of(&ranges, i, sorted + count);
	r = check_sorted(&ranges, sorted, count, error);
	free(sorted);
	return r;
}
