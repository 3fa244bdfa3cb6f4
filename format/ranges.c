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

enum range_kind {
	RANGE_HEADER,
	RANGE_SECTION,
	RANGE_COLUMN,
	RANGE_DATA,
	RANGE_SIDE,
	RANGE_IMAGE,
	RANGE_IMAGE_SIDE,
};
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
	 * section, of the field, or of the record in section `images`
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
	uint32_t image_count = ranges->dataset->image_count;
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
	case RANGE_IMAGE:
	case RANGE_IMAGE_SIDE:
		snprintf(what, sizeof(what), "the %sdata of image %u of sample %" PRIu64,
			 kind_of(range) == RANGE_IMAGE ? "" : "side ",
			 (uint32_t)(number % image_count),
			 ranges->shard->sample_first + number / image_count);
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

/* Copies record `number` of the index, if kind is RANGE_DATA, or of section `images`. */
static struct pimg_record record_of(const struct ranges *ranges, enum range_kind kind,
				    uint64_t number)
{
	uint32_t type = kind == RANGE_DATA ? PIMG_SECTION_INDEX : PIMG_SECTION_IMAGES;
	struct pimg_record record;

	copy_once(&record, ranges->shard->sections[type].data + number * sizeof(record),
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
 * True if the overlap of two ranges is allowed: records of a table may share their whole data, and
 * those that do may share their whole side data (SPEC.md, "Ranges").
 */
static bool is_shared(const struct ranges *ranges, const struct range *a, const struct range *b)
{
	if (a->begin != b->begin || a->end != b->end || kind_of(a) != kind_of(b))
		return false;
	if (kind_of(a) == RANGE_DATA || kind_of(a) == RANGE_IMAGE)
		return true;
	enum range_kind data = kind_of(a) == RANGE_SIDE ? RANGE_DATA : RANGE_IMAGE;
	struct pimg_record first = record_of(ranges, data, number_of(a)),
			   second = record_of(ranges, data, number_of(b));
	return first.data_offset == second.data_offset && first.data_size == second.data_size;
}

/*
 * Returns the ranges of one record that are inside the file, in file order: at most two. kind is
 * RANGE_DATA or RANGE_IMAGE.
 */
static uint32_t record_ranges(const struct ranges *ranges, enum range_kind kind, uint64_t number,
			      struct range ret_ranges[2])
{
	const struct pimg_record record = record_of(ranges, kind, number);
	enum range_kind side = kind == RANGE_DATA ? RANGE_SIDE : RANGE_IMAGE_SIDE;
	const uint64_t size = ranges->shard->size;
	uint32_t count = 0;

	if (record.data_size > 0 && record.data_offset <= size &&
	    record.data_size <= size - record.data_offset)
		ret_ranges[count++] =
			range_make(record.data_offset, record.data_size, kind, number);
	if (record.side_size > 0 && record.side_offset <= size &&
	    record.side_size <= size - record.side_offset)
		ret_ranges[count++] =
			range_make(record.side_offset, record.side_size, side, number);
	if (count == 2 && range_compare(&ret_ranges[0], &ret_ranges[1]) > 0) {
		struct range first = ret_ranges[1];
		ret_ranges[1] = ret_ranges[0];
		ret_ranges[0] = first;
	}
	return count;
}

enum { SAMPLE_RANGES_MAX = 2 * (1 + SCHEMA_IMAGES_MAX) };

/*
 * Returns the ranges of all records of a sample, in the order of the records. See record_ranges().
 */
static uint32_t ranges_of(const struct ranges *ranges, uint64_t sample,
			  struct range ret_ranges[static SAMPLE_RANGES_MAX])
{
	uint32_t images = ranges->dataset->image_count;
	uint32_t count = record_ranges(ranges, RANGE_DATA, sample, ret_ranges);

	for (uint32_t i = 0; i < images; i++)
		count +=
			record_ranges(ranges, RANGE_IMAGE, sample * images + i, ret_ranges + count);
	return count;
}

/*
 * Collects the ranges of all samples, after `more` free elements for other ranges. The caller frees
 * them. NULL if out of memory.
 */
static struct range *collect_all(const struct ranges *ranges, size_t more, size_t *ret_count)
{
	size_t each = 2 * (1 + (size_t)ranges->dataset->image_count), count = more;
	struct range *all = calloc(ranges->shard->sample_count * each + more + 1, sizeof(*all));

	if (!all)
		return NULL;
	for (uint64_t i = 0; i < ranges->shard->sample_count; i++)
		count += ranges_of(ranges, i, all + count);
	*ret_count = count;
	return all;
}

/*
 * Compares each range of a sample with the fixed ranges and with the range before it, in one pass
 * without allocating. Returns 1 if a range begins before the end of the previous one.
 */
static int check_ascending(const struct ranges *ranges, struct packimg_error *error)
{
	struct range parts[SAMPLE_RANGES_MAX];
	uint64_t end = 0;
	int descends = 0;

	for (uint64_t i = 0; i < ranges->shard->sample_count; i++) {
		const uint32_t count = ranges_of(ranges, i, parts);
		for (uint32_t k = 0; k < count; k++) {
			int r = check_fixed(ranges, &parts[k], error);
			if (r < 0)
				return r;
			descends |= parts[k].begin < end;
			end = parts[k].end;
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
	size_t count;
	struct range *sorted = collect_all(&ranges, ranges.fixed_count, &count);
	if (!sorted)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
	memcpy(sorted, ranges.fixed, ranges.fixed_count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), range_compare);
	uint64_t found = find_in_gaps(shard, sorted, count);
	free(sorted);
	if (found == shard->size)
		return 0;
	return packimg_fail(
		error, -ENOTSUP,
		"%s: has a section of the unknown type %u, to which the bytes at %" PRIu64
		" may belong; rewriting the file would lose them; use a newer "
		"loaderd, or convert the images again",
		shard->path, type, found);
}

int ranges_check(const struct packimg *dataset, const struct shard *shard,
		 struct packimg_error *error)
{
	struct ranges ranges = {.dataset = dataset, .shard = shard};
	size_t count;

	int r = collect_fixed(&ranges, error);
	r = r ?: check_ascending(&ranges, error);
	if (r <= 0)
		return r;
	struct range *sorted = collect_all(&ranges, 0, &count);
	if (!sorted)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
	r = check_sorted(&ranges, sorted, count, error);
	free(sorted);
	return r;
}
