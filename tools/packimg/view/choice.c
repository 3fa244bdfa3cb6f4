#include "tools/packimg/view/choice.h"

#include "format/base/text/nearest.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/view/sample_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void choice_deinit(struct choice *choice)
{
	selection_deinit(&choice->selection);
	string_list_deinit(&choice->fields);
	string_list_deinit(&choice->keys);
}

/* Keeps the samples for which keep() returns true. Returns how many. */
typedef int (*sample_filter)(const void *context, const struct packimg *dataset, uint64_t index,
			     bool *ret_keep);

static int filter_samples(sample_filter filter, const void *context, const struct packimg *dataset,
			  uint64_t *samples, uint64_t *count)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < *count; i++) {
		bool keep = false;
		int r = filter(context, dataset, samples[i], &keep);

		if (r)
			return r;
		if (keep)
			samples[kept++] = samples[i];
	}
	*count = kept;
	return 0;
}

struct field_value {
	uint32_t field;
	const char *text;
	struct buffer *buffer;
};

static int has_value(const void *context, const struct packimg *dataset, uint64_t index,
		     bool *ret_keep)
{
	const struct field_value *wanted = context;

	wanted->buffer->size = 0;
	int r = sample_field_text(dataset, index, wanted->field, wanted->buffer);
	if (r == -ENOMEM)
		return r;
	/* A damaged value does not match. */
	*ret_keep = !r && wanted->buffer->size == strlen(wanted->text) &&
		    memcmp(wanted->buffer->data, wanted->text, wanted->buffer->size) == 0;
	return 0;
}

/* Finds the field of "NAME=VALUE", whose name may contain '='. Returns the value. */
static int find_field(const struct packimg *dataset, const char *text,
		      struct field_value *ret_wanted, struct packimg_error *error)
{
	struct nearest nearest;
	struct packimg_field field;
	size_t size = strcspn(text, "=");
	char *name = strndup(text, size);

	if (!name)
		return packimg_fail(error, -ENOMEM, "out of memory");
	nearest = nearest_to(name);
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
		if (packimg_field(dataset, i, &field))
			continue;
		size_t length = strlen(field.name);
		if (strncmp(text, field.name, length) == 0 && text[length] == '=') {
			ret_wanted->field = i;
			ret_wanted->text = text + length + 1;
			free(name);
			return 0;
		}
		nearest_offer(&nearest, field.name);
	}
	int r = text[size] != '='
			? packimg_fail(error, -EINVAL,
				       "--field %s: give NAME=VALUE, such as --field split=val",
				       text)
		: nearest.meant
			? packimg_fail(error, -ENOENT,
				       "--field %s: there is no field \"%s\"; did you mean %s?",
				       text, name, nearest.meant)
			: packimg_fail(error, -ENOENT,
				       "--field %s: there is no field \"%s\"; packimg info lists "
				       "the fields",
				       text, name);
	free(name);
	return r;
}

static int filter_fields(const struct choice *choice, const struct packimg *dataset,
			 uint64_t *samples, uint64_t *count, struct packimg_error *error)
{
	struct buffer buffer = {0};
	int r = 0;

	for (size_t i = 0; !r && i < choice->fields.count; i++) {
		struct field_value wanted = {.buffer = &buffer};

		r = find_field(dataset, choice->fields.strings[i], &wanted, error);
		if (r)
			break;
		if (filter_samples(has_value, &wanted, dataset, samples, count))
			r = packimg_fail(error, -ENOMEM, "out of memory");
	}
	buffer_deinit(&buffer);
	return r;
}

struct wanted_keys {
	const struct string_list *keys;
	bool *found; /* by key */
};

static int has_key(const void *context, const struct packimg *dataset, uint64_t index,
		   bool *ret_keep)
{
	const struct wanted_keys *wanted = context;
	const char *name;
	size_t size;

	if (packimg_source(dataset, index, &name, &size))
		return 0; /* a damaged key does not match */
	for (size_t i = 0; i < wanted->keys->count; i++) {
		const char *key = wanted->keys->strings[i];

		if (strlen(key) == size && memcmp(key, name, size) == 0)
			*ret_keep = wanted->found[i] = true;
	}
	return 0;
}

static int filter_keys(const struct choice *choice, const struct packimg *dataset,
		       uint64_t *samples, uint64_t *count, struct packimg_error *error)
{
	struct wanted_keys wanted = {.keys = &choice->keys,
				     .found = calloc(choice->keys.count + 1, sizeof(bool))};
	int r = 0;

	if (!wanted.found)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (choice->keys.count)
		filter_samples(has_key, &wanted, dataset, samples, count);
	for (size_t i = 0; !r && i < choice->keys.count; i++)
		if (!wanted.found[i])
			r = packimg_fail(
				error, -ENOENT,
				"no sample has the key \"%s\"; packimg list shows the keys",
				choice->keys.strings[i]);
	free(wanted.found);
	return r;
}

/* Keeps count_max samples, spread evenly. */
static void thin_out(uint64_t count_max, uint64_t *samples, uint64_t *count)
{
	if (*count <= count_max)
		return;
	for (uint64_t i = 0; i < count_max; i++) {
		unsigned __int128 place = (unsigned __int128)i * *count / count_max;

		samples[i] = samples[(uint64_t)place];
	}
	*count = count_max;
}

int choice_resolve(struct choice *choice, const struct packimg *dataset, uint64_t **ret_samples,
		   uint64_t *ret_count, uint64_t *ret_found, struct packimg_error *error)
{
	uint64_t *samples, count;
	int r = selection_resolve(&choice->selection, dataset, &samples, &count, error);

	if (r)
		return r;
	r = filter_fields(choice, dataset, samples, &count, error);
	r = r ?: filter_keys(choice, dataset, samples, &count, error);
	if (!r && count == 0)
		r = packimg_fail(error, -ENOENT,
				 "no sample matches all options that choose samples");
	if (r) {
		free(samples);
		return r;
	}
	*ret_found = count;
	thin_out(choice->count_max, samples, &count);
	*ret_samples = samples;
	*ret_count = count;
	return 0;
}
