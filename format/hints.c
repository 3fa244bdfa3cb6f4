#include "format/hints.h"

#include "format/base/system/io.h"
#include "format/error.h"
#include "format/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool has_section(const struct packimg *dataset, enum pimg_section_type type)
{
	for (uint32_t i = 0; i < dataset->open_count; i++)
		if (dataset->join || !dataset->shards[i].sections[type].data)
			return false;
	return dataset->open_count > 0;
}

bool packimg_has_members(const struct packimg *dataset)
{
	return has_section(dataset, PIMG_SECTION_MEMBERS);
}

bool packimg_has_sizes(const struct packimg *dataset)
{
	return has_section(dataset, PIMG_SECTION_SIZES);
}

/* Returns the offset, in section `members`, of the sample numbers. */
static uint64_t numbers_offset(const struct packimg *dataset)
{
	return (dataset->class_count + UINT64_C(1)) * sizeof(uint64_t);
}

/* Returns how many sample numbers section `members` has. Opening has checked its size. */
static uint64_t numbers_count(const struct packimg *dataset, const struct section_view *members)
{
	return (members->size - numbers_offset(dataset)) / sizeof(uint32_t);
}

/* Copies bytes of the file with pread(). `at` is validated against the file. */
static int file_copy(const struct shard *shard, const void *at, void *bytes, size_t size)
{
	uint64_t offset = (uint64_t)((const uint8_t *)at - shard->map);

	return io_read_at(shard->fd, bytes, size, offset) == (int64_t)size ? 0 : -EBADMSG;
}

int packimg_class_starts(const struct packimg *dataset, uint32_t number, uint64_t *ret_starts)
{
	uint64_t previous = 0;

	if (number >= dataset->open_count)
		return -ERANGE;
	if (dataset->join)
		return -ENODATA;
	const struct shard *shard = &dataset->shards[number];
	const struct section_view *members = &shard->sections[PIMG_SECTION_MEMBERS];
	if (!members->data)
		return -ENODATA;
	int r = file_copy(shard, members->data, ret_starts, numbers_offset(dataset));
	if (r < 0)
		return r;
	for (uint32_t i = 0; i <= dataset->class_count; i++) {
		if (ret_starts[i] < previous)
			return -EBADMSG;
		previous = ret_starts[i];
	}
	return ret_starts[0] == 0 && previous == numbers_count(dataset, members) ? 0 : -EBADMSG;
}

/* Reads the range of a class's sample numbers. */
static int class_range(const struct packimg *dataset, const struct shard *shard,
		       uint32_t class_number, uint64_t ret_range[2])
{
	const struct section_view *members = &shard->sections[PIMG_SECTION_MEMBERS];
	uint64_t range[2];

	int r = file_copy(shard, members->data + class_number * sizeof(*range), range,
			  sizeof(range));
	if (r < 0)
		return r;
	uint64_t count = numbers_count(dataset, members);
	if (range[0] > range[1] || range[1] > count || (class_number == 0 && range[0] != 0) ||
	    (class_number + 1 == dataset->class_count && range[1] != count))
		return -EBADMSG;
	memcpy(ret_range, range, sizeof(range));
	return 0;
}

/* Returns the address of the label in the index record of the shard's sample i. */
static const uint8_t *label_at(const struct shard *shard, uint64_t i)
{
	return shard->sections[PIMG_SECTION_INDEX].data + i * sizeof(struct pimg_record) +
	       offsetof(struct pimg_record, label);
}

int packimg_class_member(const struct packimg *dataset, uint32_t shard_number,
			 uint32_t class_number, uint64_t rank, uint64_t *ret_index)
{
	uint64_t range[2];
	uint32_t number;
	int32_t label;

	if (shard_number >= dataset->open_count || class_number >= dataset->class_count)
		return -ERANGE;
	if (dataset->join)
		return -ENODATA;
	const struct shard *shard = &dataset->shards[shard_number];
	if (!shard->sections[PIMG_SECTION_MEMBERS].data)
		return -ENODATA;
	int r = class_range(dataset, shard, class_number, range);
	if (r < 0)
		return r;
	if (rank >= range[1] - range[0])
		return -EBADMSG;
	const uint8_t *numbers =
		shard->sections[PIMG_SECTION_MEMBERS].data + numbers_offset(dataset);
	r = file_copy(shard, numbers + (range[0] + rank) * sizeof(number), &number, sizeof(number));
	if (r < 0)
		return r;
	if (number >= shard->sample_count)
		return -EBADMSG;
	r = file_copy(shard, label_at(shard, number), &label, sizeof(label));
	if (r < 0 || label < 0 || (uint32_t)label != class_number)
		return -EBADMSG;
	*ret_index = shard->sample_first + number;
	return 0;
}

int packimg_sizes(const struct packimg *dataset, uint64_t first, uint64_t count,
		  uint16_t (*ret_sizes)[2])
{
	if (first > dataset->sample_end || count > dataset->sample_end - first)
		return -ERANGE;
	if (dataset->join)
		return -ENODATA;
	while (count > 0) {
		uint32_t number;
		const struct shard *shard = shard_of_sample(dataset, first, &number);
		const struct section_view *sizes = &shard->sections[PIMG_SECTION_SIZES];
		uint64_t i = first - shard->sample_first, n = shard->sample_count - i;

		if (!sizes->data)
			return -ENODATA;
		n = n < count ? n : count;
		int r = shard_copy(dataset, shard, sizes->data + i * sizeof(*ret_sizes), ret_sizes,
				   n * sizeof(*ret_sizes));
		if (r < 0)
			return r;
		ret_sizes += n;
		first += n;
		count -= n;
	}
	return 0;
}

/* Reads a start of section `members` of a mapped shard. */
static uint64_t start_get(const struct section_view *members, uint32_t number)
{
	uint64_t start;

	copy_once(&start, members->data + number * sizeof(start), sizeof(start));
	return start;
}

/* Copies the starts of all classes, after checking them. `next` has class_count entries. */
static int check_starts(const struct packimg *dataset, const struct shard *shard, uint64_t *next,
			struct packimg_error *error)
{
	const struct section_view *members = &shard->sections[PIMG_SECTION_MEMBERS];
	uint64_t count = numbers_count(dataset, members), previous = 0;

	for (uint32_t i = 0; i <= dataset->class_count; i++) {
		uint64_t start = start_get(members, i);

		if (start < previous || start > count || (i == 0 && start != 0) ||
		    (i == dataset->class_count && start != count))
			return packimg_damaged(error,
					       "%s: section `members`: start %u is %" PRIu64
					       ", after %" PRIu64 " and of %" PRIu64
					       " sample numbers; convert the images again",
					       shard->path, i, start, previous, count);
		if (i < dataset->class_count)
			next[i] = start;
		previous = start;
	}
	return 0;
}

/* Checks that sample i, of this class, is where section `members` has the class's next sample. */
static int check_member(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			uint32_t class_number, uint64_t *next, struct packimg_error *error)
{
	const struct section_view *members = &shard->sections[PIMG_SECTION_MEMBERS];
	uint64_t at = next[class_number]++;
	uint32_t number;

	if (at >= start_get(members, class_number + 1) || at >= numbers_count(dataset, members))
		return packimg_damaged(error,
				       "%s: section `members`: sample %" PRIu64
				       " of class %u is missing; convert the images again",
				       shard->path, shard->sample_first + i, class_number);
	copy_once(&number, members->data + numbers_offset(dataset) + at * sizeof(number),
		  sizeof(number));
	if (number == i)
		return 0;
	return packimg_damaged(error,
			       "%s: section `members`: number %" PRIu64 " is sample %" PRIu64
			       ", expected is %" PRIu64 ", the next sample of class %u; convert "
			       "the images again",
			       shard->path, at, shard->sample_first + number,
			       shard->sample_first + i, class_number);
}

/* `next` is room for class_count entries: the position of each class's next sample. */
static int check_members(const struct packimg *dataset, const struct shard *shard, uint64_t *next,
			 struct packimg_error *error)
{
	const struct section_view *members = &shard->sections[PIMG_SECTION_MEMBERS];
	int32_t label;

	int r = check_starts(dataset, shard, next, error);
	for (uint64_t i = 0; i < shard->sample_count && r == 0; i++) {
		copy_once(&label, label_at(shard, i), sizeof(label));
		/* The file may have changed since its records were checked. */
		if (label >= 0 && (uint32_t)label < dataset->class_count)
			r = check_member(dataset, shard, i, (uint32_t)label, next, error);
	}
	for (uint32_t i = 0; i < dataset->class_count && r == 0; i++)
		if (next[i] != start_get(members, i + 1))
			return packimg_damaged(error,
					       "%s: section `members`: the numbers of class %u end "
					       "at %" PRIu64 ", its samples at %" PRIu64
					       "; convert the images again",
					       shard->path, i, start_get(members, i + 1), next[i]);
	return r;
}

static int check_sizes(const struct shard *shard, struct packimg_error *error)
{
	const uint8_t *records = shard->sections[PIMG_SECTION_INDEX].data,
		      *sizes = shard->sections[PIMG_SECTION_SIZES].data;

	for (uint64_t i = 0; i < shard->sample_count; i++) {
		struct pimg_record record;
		struct pimg_size size;

		copy_once(&record, records + i * sizeof(record), sizeof(record));
		copy_once(&size, sizes + i * sizeof(size), sizeof(size));
		if (size.width != record.width || size.height != record.height)
			return packimg_damaged(
				error,
				"%s: section `sizes`: sample %" PRIu64
				" is %u x %u, in the index %u x %u; convert the images again",
				shard->path, shard->sample_first + i, size.width, size.height,
				record.width, record.height);
	}
	return 0;
}

int hints_check(const struct packimg *dataset, const struct shard *shard,
		struct packimg_error *error)
{
	int r = 0;

	if (shard->sections[PIMG_SECTION_MEMBERS].data) {
		uint64_t *next = calloc(dataset->class_count, sizeof(*next));
		r = next ? check_members(dataset, shard, next, error)
			 : packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
		free(next);
	}
	return r == 0 && shard->sections[PIMG_SECTION_SIZES].data ? check_sizes(shard, error) : r;
}
