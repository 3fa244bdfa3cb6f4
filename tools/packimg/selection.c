#include "tools/packimg/selection.h"

#include "format/base/text/number.h"
#include "format/where.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void selection_deinit(struct selection *selection)
{
	string_list_deinit(&selection->classes);
}

uint64_t dataset_bytes(const struct packimg *dataset)
{
	struct packimg_shard shard;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++)
		if (!packimg_shard(dataset, i, &shard))
			bytes += shard.size;
	return bytes;
}

const char *field_type_name(enum packimg_field_type type)
{
	static const char *const names[] = {
		[PACKIMG_FIELD_INT64] = "int64", [PACKIMG_FIELD_FLOAT64] = "float64",
		[PACKIMG_FIELD_BYTES] = "bytes", [PACKIMG_FIELD_JSON] = "json",
		[PACKIMG_FIELD_TEXT] = "text",
	};

	return type >= PACKIMG_FIELD_INT64 && type <= PACKIMG_FIELD_TEXT ? names[type] : "unknown";
}

const char *sample_class(const struct packimg *dataset, const struct packimg_sample *sample)
{
	return sample->label < 0 ? NULL : packimg_class_name(dataset, (uint32_t)sample->label);
}

/* Marks the indices that one word of a list names: "3", "3-5" or "3-". */
static int mark_range(char *word, uint64_t count, bool *marks, struct packimg_error *error)
{
	char *dash = strchr(word, '-');
	uint64_t first, last;

	if (dash)
		*dash = 0;
	if (number_u64(word, 0, UINT64_MAX, &first))
		return -EINVAL;
	if (!dash)
		last = first;
	else if (!dash[1])
		last = count - 1;
	else if (number_u64(dash + 1, first, UINT64_MAX, &last))
		return -EINVAL;
	if (first >= count || last >= count)
		return packimg_fail(error, -ERANGE,
				    "index %" PRIu64 " is past the end: the dataset has %" PRIu64
				    " samples",
				    first >= count ? first : last, count);
	memset(marks + first, true, last - first + 1);
	return 0;
}

static int mark_indices(const char *text, uint64_t count, bool *marks, struct packimg_error *error)
{
	char *copy = strdup(text), *save;
	int r = 0;

	if (!copy)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (char *word = strtok_r(copy, ",", &save); word && !r; word = strtok_r(NULL, ",", &save))
		r = mark_range(word, count, marks, error);
	free(copy);
	return r == -EINVAL
		       ? packimg_fail(error, r,
				      "\"%s\" is not a list of indices such as 0-9,15,100-", text)
		       : r;
}

/* Finds a class by name; if there is none of that name, by number. */
static int find_class(const struct packimg *dataset, const char *name, int32_t *ret_label,
		      struct packimg_error *error)
{
	uint64_t number;

	for (uint32_t i = 0; i < packimg_class_count(dataset); i++) {
		if (strcmp(packimg_class_name(dataset, i), name) == 0) {
			*ret_label = (int32_t)i;
			return 0;
		}
	}
	if (number_u64(name, 0, PACKIMG_CLASSES_MAX - 1, &number))
		return packimg_fail(error, -ENOENT, "there is no class \"%s\"", name);
	*ret_label = (int32_t)number;
	return 0;
}

static int mark_classes(const struct string_list *classes, const struct packimg *dataset,
			bool *marks, struct packimg_error *error)
{
	int32_t *labels = calloc(classes->count, sizeof(*labels));
	int r = labels ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (size_t i = 0; !r && i < classes->count; i++)
		r = find_class(dataset, classes->strings[i], &labels[i], error);
	for (uint64_t i = 0; !r && i < packimg_count(dataset); i++) {
		struct packimg_sample sample;
		bool wanted = false;

		/* A damaged record has no class. */
		if (!packimg_sample(dataset, i, &sample))
			for (size_t c = 0; c < classes->count; c++)
				wanted |= labels[c] == sample.label;
		marks[i] &= wanted;
	}
	free(labels);
	return r;
}

static int mark_matching(struct selection *selection, const struct packimg *dataset, bool *marks,
			 struct packimg_error *error)
{
	struct where_error fault;
	struct where *where;

	int r = where_parse(selection->where, dataset, &where, &fault);
	if (r < 0)
		return r == -EINVAL ? packimg_fail(error, r, "--where, at byte %d: %s",
						   fault.position, fault.text)
				    : packimg_fail(error, r, "out of memory");
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		if (!marks[i])
			continue;
		int match = where_match(where, dataset, i);
		if (match < 0 && selection->damaged++ == 0)
			selection->damaged_first = i;
		marks[i] = match > 0;
	}
	where_free(where);
	return 0;
}

static int mark_selected(struct selection *selection, const struct packimg *dataset, bool *marks,
			 struct packimg_error *error)
{
	uint64_t total = packimg_count(dataset);
	int r;

	memset(marks, !selection->indices, total);
	if (selection->indices) {
		r = mark_indices(selection->indices, total, marks, error);
		if (r)
			return r;
	}
	if (selection->classes.count) {
		r = mark_classes(&selection->classes, dataset, marks, error);
		if (r)
			return r;
	}
	return selection->where ? mark_matching(selection, dataset, marks, error) : 0;
}

int selection_report(const struct selection *selection)
{
	if (selection->damaged == 0)
		return COMMAND_OK;
	command_fail("%s sample%s left out, the first is sample %" PRIu64
		     ": the record, or a value that --where names, is damaged; packimg verify "
		     "lists the damage",
		     text_count(TEXT, selection->damaged),
		     selection->damaged == 1 ? " is" : "s are", selection->damaged_first);
	return COMMAND_SKIPPED;
}

int selection_resolve(struct selection *selection, const struct packimg *dataset,
		      uint64_t **ret_samples, uint64_t *ret_count, struct packimg_error *error)
{
	uint64_t total = packimg_count(dataset), count = 0;
	bool *marks = malloc(total + 1);
	uint64_t *samples = calloc(total + 1, sizeof(*samples));
	int r = marks && samples ? mark_selected(selection, dataset, marks, error)
				 : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint64_t i = 0; !r && i < total; i++)
		if (marks[i])
			samples[count++] = i;
	free(marks);
	if (r) {
		free(samples);
		return r;
	}
	*ret_samples = samples;
	*ret_count = count;
	return 0;
}
