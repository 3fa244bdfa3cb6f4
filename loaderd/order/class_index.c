#include "loaderd/order/class_index.h"

#include "format/hints.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the class of selected sample i, or -1 if it has none. */
static int32_t label_of(const struct packimg *dataset, const struct selection *selection,
			uint64_t i)
{
	struct packimg_sample sample;
	if (packimg_sample(dataset, selection_at(selection, i), &sample) < 0)
		return -1;
	return sample.label;
}

/*
 * Counts the members of each class in starts[class + 1]. Keeps the labels: the file may change
 * before they are needed again.
 */
static void count_members(const struct packimg *dataset, const struct selection *selection,
			  uint32_t class_count, uint64_t *starts, int32_t *labels)
{
	for (uint64_t i = 0; i < selection->count; i++) {
		int32_t label = label_of(dataset, selection, i);
		labels[i] = label >= 0 && (uint32_t)label < class_count ? label : -1;
		if (labels[i] >= 0)
			starts[labels[i] + 1]++;
	}
	for (uint32_t c = 0; c < class_count; c++)
		starts[c + 1] += starts[c];
}

/* A counting sort. Leaves starts[class] at the end of each class. */
static void sort_members(struct class_index *index, const struct selection *selection,
			 const int32_t *labels)
{
	for (uint64_t i = 0; i < selection->count; i++)
		if (labels[i] >= 0)
			selection_set(&index->members, index->starts[labels[i]]++,
				      selection_at(selection, i));
}

static int read_labels(struct class_index *index, const struct packimg *dataset,
		       const struct selection *selection)
{
	int32_t *labels = malloc((selection->count + 1) * sizeof(*labels));
	if (!labels)
		return -ENOMEM;
	count_members(dataset, selection, index->class_count, index->starts, labels);
	int r = selection_init_list(&index->members, selection->samples,
				    index->starts[index->class_count]);
	if (r == 0) {
		sort_members(index, selection, labels);
		memmove(index->starts + 1, index->starts,
			index->class_count * sizeof(*index->starts));
		index->starts[0] = 0;
	}
	free(labels);
	return r;
}

/* Adds a shard's members to the tables. `starts` is room for class_count + 1 numbers. */
static int add_shard(struct class_index *index, uint32_t shard, uint64_t *starts)
{
	int r = packimg_class_starts(index->files, shard, starts);
	for (uint32_t c = 0; r == 0 && c < index->class_count; c++) {
		uint64_t *before =
			index->shard_starts + (size_t)c * (index->shard_count + 1) + shard;
		before[1] = before[0] + (starts[c + 1] - starts[c]);
	}
	return r;
}

/* Returns -ENODATA if the files cannot serve, and the labels have to be read. */
static int use_files(struct class_index *index, const struct packimg *dataset,
		     const struct selection *selection)
{
	enum { TABLE_MAX = 64 << 20 };
	size_t row = (size_t)packimg_shard_count(dataset) + 1;
	if (selection_bytes(selection) > 0 || !packimg_has_members(dataset) ||
	    index->class_count > TABLE_MAX / sizeof(uint64_t) / row)
		return -ENODATA;
	index->files = dataset;
	index->shard_count = packimg_shard_count(dataset);
	index->shard_starts = calloc(index->class_count * row, sizeof(*index->shard_starts));
	uint64_t *starts = calloc((size_t)index->class_count + 1, sizeof(*starts));
	int r = starts && index->shard_starts ? 0 : -ENOMEM;
	for (uint32_t s = 0; r == 0 && s < index->shard_count; s++)
		r = add_shard(index, s, starts);
	free(starts);
	for (uint32_t c = 0; r == 0 && c < index->class_count; c++)
		index->starts[c + 1] =
			index->starts[c] + index->shard_starts[c * row + index->shard_count];
	if (r == 0 || r == -ENOMEM)
		return r;
	free(index->shard_starts);
	index->shard_starts = NULL;
	index->files = NULL;
	return -ENODATA;
}

int class_index_init(struct class_index *index, const struct packimg *dataset,
		     const struct selection *selection)
{
	struct class_index result = {.class_count = packimg_class_count(dataset)};
	if (result.class_count == 0)
		return -EINVAL;
	result.starts = calloc((size_t)result.class_count + 1, sizeof(*result.starts));
	int r = result.starts ? use_files(&result, dataset, selection) : -ENOMEM;
	if (r == -ENODATA)
		r = read_labels(&result, dataset, selection);
	if (r < 0)
		class_index_deinit(&result);
	else
		*index = result;
	return r;
}

uint64_t class_index_count(const struct class_index *index)
{
	return index->starts[index->class_count];
}

uint64_t class_index_size(const struct class_index *index, uint32_t class_number)
{
	return index->starts[class_number + 1] - index->starts[class_number];
}

static uint64_t member_in_file(const struct class_index *index, uint32_t class_number,
			       uint64_t member)
{
	const uint64_t *starts =
		index->shard_starts + (size_t)class_number * (index->shard_count + 1);
	struct packimg_shard shard;
	uint64_t found;
	uint32_t low = 0, high = index->shard_count;
	/* Invariant: starts[low] <= member < starts[high]. Equal starts are shards without any. */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (starts[middle] <= member)
			low = middle;
		else
			high = middle;
	}
	if (packimg_class_member(index->files, low, class_number, member - starts[low], &found) ==
	    0)
		return found;
	return packimg_shard(index->files, low, &shard) < 0 ? 0 : shard.sample_first;
}

uint64_t class_index_member(const struct class_index *index, uint32_t class_number, uint64_t member)
{
	assert(member < class_index_size(index, class_number));
	if (index->files)
		return member_in_file(index, class_number, member);
	return selection_at(&index->members, index->starts[class_number] + member);
}

uint64_t class_index_bytes(const struct class_index *index)
{
	uint64_t classes = index->class_count, shards = index->shard_count;
	return selection_bytes(&index->members) + (classes + 1) * sizeof(*index->starts) +
	       (index->shard_starts ? classes * (shards + 1) * sizeof(*index->shard_starts) : 0);
}

void class_index_deinit(struct class_index *index)
{
	free(index->starts);
	free(index->shard_starts);
	selection_deinit(&index->members);
	*index = (struct class_index){0};
}
