#include "tools/packimg/selection.h"

#include "format/base/number.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void selection_deinit(struct selection *selection)
{
	word_list_deinit(&selection->classes);
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

const char *codec_name(enum packimg_codec codec)
{
	switch (codec) {
	case PACKIMG_CODEC_JPEG:
		return "jpeg";
	case PACKIMG_CODEC_RAW:
		return "raw";
	case PACKIMG_CODEC_RAW_ZSTD:
		return "raw+zstd";
	}
	return "unknown";
}

const char *field_type_name(enum packimg_field_type type)
{
	switch (type) {
	case PACKIMG_FIELD_INT64:
		return "int64";
	case PACKIMG_FIELD_FLOAT64:
		return "float64";
	case PACKIMG_FIELD_BYTES:
		return "bytes";
	case PACKIMG_FIELD_JSON:
		return "json";
	case PACKIMG_FIELD_TEXT:
		return "text";
	}
	return "unknown";
}

/* Sets one bit per index that the text names. */
static int mark_indices(const char *text, uint64_t count, uint8_t *marks,
			struct packimg_error *error)
{
	char *copy = strdup(text), *save, *word;
	int r = copy ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (word = r ? NULL : strtok_r(copy, ",", &save); word && !r;
	     word = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(word, '-');
		uint64_t first, last;

		if (dash)
			*dash = 0;
		if (number_u64(word, 0, UINT64_MAX, &first))
			r = -EINVAL;
		else if (!dash)
			last = first;
		else if (!dash[1])
			last = count - 1;
		else if (number_u64(dash + 1, first, UINT64_MAX, &last))
			r = -EINVAL;
		if (r) {
			packimg_say(error, "\"%s\" is not a list of indices such as 0-9,15,100-",
				    text);
		} else if (first >= count || last >= count) {
			r = packimg_fail(error, -ERANGE,
					 "index %" PRIu64
					 " is past the end: the dataset has %" PRIu64 " samples",
					 first >= count ? first : last, count);
		} else {
			for (uint64_t i = first; i <= last; i++)
				marks[i / 8] |= (uint8_t)(1u << (i % 8));
		}
	}
	free(copy);
	return r;
}

/* A class by its name, or else by its number. */
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

static int mark_classes(const struct word_list *classes, const struct packimg *dataset,
			uint8_t *marks, struct packimg_error *error)
{
	int32_t *labels = calloc(classes->count, sizeof(*labels));
	int r = labels ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (size_t i = 0; !r && i < classes->count; i++)
		r = find_class(dataset, classes->words[i], &labels[i], error);
	for (uint64_t i = 0; !r && i < packimg_count(dataset); i++) {
		struct packimg_sample sample;
		bool wanted = false;

		/* A damaged record has no class. */
		if (!packimg_sample(dataset, i, &sample))
			for (size_t c = 0; c < classes->count; c++)
				wanted |= labels[c] == sample.label;
		if (!wanted)
			marks[i / 8] &= (uint8_t) ~(1u << (i % 8));
	}
	free(labels);
	return r;
}

int selection_resolve(const struct selection *selection, const struct packimg *dataset,
		      uint64_t **ret_samples, uint64_t *ret_count, struct packimg_error *error)
{
	uint64_t total = packimg_count(dataset), count = 0;
	uint8_t *marks = calloc(total / 8 + 1, 1);
	uint64_t *samples = NULL;
	int r = marks ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	if (!r && selection->indices)
		r = mark_indices(selection->indices, total, marks, error);
	else if (!r)
		memset(marks, 0xff, total / 8 + 1);
	if (!r && selection->classes.count)
		r = mark_classes(&selection->classes, dataset, marks, error);
	for (uint64_t i = 0; !r && i < total; i++)
		count += marks[i / 8] >> (i % 8) & 1;
	if (!r) {
		samples = calloc(count + 1, sizeof(*samples));
		if (!samples)
			r = packimg_fail(error, -ENOMEM, "out of memory");
	}
	if (!r) {
		count = 0;
		for (uint64_t i = 0; i < total; i++)
			if (marks[i / 8] >> (i % 8) & 1)
				samples[count++] = i;
		*ret_samples = samples;
		*ret_count = count;
	}
	free(marks);
	return r;
}
