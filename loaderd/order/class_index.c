#include "loaderd/order/class_index.h"

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

int class_index_init(struct class_index *index, const struct packimg *dataset,
		     const struct selection *selection)
{
	uint32_t class_count = packimg_class_count(dataset);
	if (class_count == 0)
		return -EINVAL;
	struct class_index result = {.class_count = class_count};
	int32_t *labels = malloc((selection->count + 1) * sizeof(*labels));
	result.starts = calloc((size_t)class_count + 1, sizeof(*result.starts));
	int r = labels && result.starts ? 0 : -ENOMEM;
	if (r == 0) {
		count_members(dataset, selection, class_count, result.starts, labels);
		r = selection_init_list(&result.members, selection->samples,
					result.starts[class_count]);
	}
	if (r == 0) {
		sort_members(&result, selection, labels);
		memmove(result.starts + 1, result.starts, class_count * sizeof(*result.starts));
		result.starts[0] = 0;
		*index = result;
	} else {
		class_index_deinit(&result);
	}
	free(labels);
	return r;
}

uint64_t class_index_size(const struct class_index *index, uint32_t class_number)
{
	return index->starts[class_number + 1] - index->starts[class_number];
}

uint64_t class_index_member(const struct class_index *index, uint32_t class_number, uint64_t member)
{
	assert(member < class_index_size(index, class_number));
	return selection_at(&index->members, index->starts[class_number] + member);
}

uint64_t class_index_bytes(const struct class_index *index)
{
	return selection_bytes(&index->members) +
	       ((uint64_t)index->class_count + 1) * sizeof(*index->starts);
}

void class_index_deinit(struct class_index *index)
{
	free(index->starts);
	selection_deinit(&index->members);
	*index = (struct class_index){0};
}
