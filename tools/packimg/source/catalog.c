#include "tools/packimg/source/catalog.h"

#include "format/base/text/number.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/text/text.h"

void catalog_init(struct catalog *catalog)
{
	*catalog = (struct catalog){
		.blobs.limits = {ARCHIVE_FILE_MAX, ARCHIVE_EXPANSION_MAX},
		.blobs.arena = &catalog->arena,
	};
	name_table_init(&catalog->class_names, &catalog->arena);
	name_table_init(&catalog->field_names, &catalog->arena);
}

void catalog_deinit(struct catalog *catalog)
{
	name_table_deinit(&catalog->class_names);
	name_table_deinit(&catalog->field_names);
	blob_store_deinit(&catalog->blobs);
	arena_deinit(&catalog->arena);
	*catalog = (struct catalog){0};
}

/*
 * Returns true if the format accepts the name. Names in archives, tables and file systems may be
 * invalid.
 */
static bool name_fits(const char *name, size_t size_max)
{
	size_t size = strlen(name);

	return size && size <= size_max && text_is_utf8(name, size);
}

/* Returns a field of an item by number; behind all others, `list` is one. */
static const struct source_field *field_of(const struct source_item *item,
					   const struct source_field *list, size_t i)
{
	return i < item->field_count ? &item->fields[i] : list;
}

/* Checks that all fields of an item can be stored, before it stores any of them. */
static int check_fields(const struct catalog *catalog, const struct source_item *item,
			const struct source_field *list, struct packimg_error *error)
{
	uint32_t count = catalog->field_names.count, number;

	for (size_t i = 0; i < item->field_count + (list != NULL); i++) {
		const char *name = field_of(item, list, i)->name;

		if (!name_fits(name, PACKIMG_NAME_MAX))
			return packimg_fail(
				error, CATALOG_SKIP,
				"its field \"%.60s\" has a name that is not UTF-8 of 1 to "
				"%d bytes",
				name, PACKIMG_NAME_MAX);
		for (size_t k = 0; k < i; k++)
			if (strcmp(field_of(item, list, k)->name, name) == 0)
				return packimg_fail(error, CATALOG_SKIP, "it has two fields \"%s\"",
						    name);
		count += name_table_find(&catalog->field_names, name, &number) != 0;
		if (count > PACKIMG_FIELDS_MAX)
			return packimg_fail(
				error, CATALOG_SKIP,
				"its field \"%s\" would be number %d, and a dataset holds "
				"at most %d",
				name, PACKIMG_FIELDS_MAX + 1, PACKIMG_FIELDS_MAX);
	}
	return 0;
}

/* Makes the bytes of a list of classes: the numbers given, or those of the names in the catalogue.
 */
static int pack_list(struct catalog *catalog, const struct source_item *item,
		     struct source_field *ret_list, struct packimg_error *error)
{
	size_t size = item->label_count * sizeof(uint32_t);
	uint32_t *numbers = arena_alloc(&catalog->arena, size ? size : 1);

	if (!numbers)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (size_t i = 0; i < item->label_count; i++) {
		struct catalog_sample one;
		int r = 0;

		if (item->labels_are_numbers)
			numbers[i] = (uint32_t)strtoul(item->labels[i], NULL, 10);
		else
			r = catalog_classify(catalog, &one, item->labels[i], error);
		if (r)
			return r;
		if (!item->labels_are_numbers)
			numbers[i] = one.class;
	}
	*ret_list = (struct source_field){item->label_name, VALUE_CLASSES, (char *)numbers, size};
	return 0;
}

static int add_values(struct catalog *catalog, const struct source_item *item,
		      const struct source_field *list, struct catalog_sample *sample,
		      struct packimg_error *error)
{
	size_t count = item->field_count + (list != NULL);
	if (!count)
		return 0;
	int r = check_fields(catalog, item, list, error);
	if (r)
		return r;
	struct catalog_value *values = arena_alloc(&catalog->arena, count * sizeof(*values));
	if (!values)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (size_t i = 0; i < count; i++) {
		const struct source_field *field = field_of(item, list, i);

		values[i] = (struct catalog_value){
			.size = (uint32_t)field->size,
			.text = field == list
					? field->text
					: arena_copy(&catalog->arena, field->text, field->size),
			.kind = (uint8_t)field->kind,
		};
		if (!values[i].text ||
		    name_table_add(&catalog->field_names, field->name, &values[i].field, NULL))
			return packimg_fail(error, -ENOMEM, "out of memory");
		struct catalog_field *known = &catalog->fields[values[i].field];
		known->kinds[field->kind] = true;
		if ((field->kind == VALUE_TEXT || field->kind == VALUE_BYTES) &&
		    !text_is_utf8(field->text, field->size))
			known->binary = true;
	}
	sample->values = values;
	sample->value_count = (uint32_t)count;
	return 0;
}

int catalog_classify(struct catalog *catalog, struct catalog_sample *sample, const char *name,
		     struct packimg_error *error)
{
	sample->class = UINT32_MAX;
	if (!name)
		return 0;
	if (!name_fits(name, PACKIMG_CLASS_NAME_MAX))
		return packimg_fail(
			error, CATALOG_SKIP,
			"its class \"%.60s\" has a name that is not UTF-8 of at most %d "
			"bytes; rename it, or choose with --class-from or --exclude",
			name, PACKIMG_CLASS_NAME_MAX);
	if (name_table_add(&catalog->class_names, name, &sample->class, NULL))
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (catalog->class_names.count > PACKIMG_CLASSES_MAX)
		return packimg_fail(error, -E2BIG, "more than %d classes", PACKIMG_CLASSES_MAX);
	return 0;
}

static int note_label(struct catalog *catalog, const struct source_item *item, const char *name)
{
	if (item->label == LABEL_CLASS && !catalog->label_class_sample)
		catalog->label_class_sample = name;
	if (item->label == LABEL_LIST && !catalog->label_list_sample) {
		catalog->label_list_sample = name;
		catalog->lists_are_numbers = item->labels_are_numbers;
	}
	if (item->label != LABEL_FIELD || catalog->label_field_sample)
		return 0;
	catalog->label_field =
		arena_copy(&catalog->arena, item->label_name, strlen(item->label_name));
	catalog->label_field_sample = name;
	return catalog->label_field ? 0 : -ENOMEM;
}

int catalog_add(struct catalog *catalog, const struct source_item *item,
		struct packimg_error *error)
{
	struct catalog_sample sample = {
		.location = item->location,
		.label = (int32_t)item->class_number,
	};

	if (arena_reserve(&catalog->arena, &catalog->samples, catalog->count, &catalog->capacity,
			  sizeof(*catalog->samples)))
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (strlen(item->name) > PACKIMG_SOURCE_MAX)
		return packimg_fail(error, CATALOG_SKIP, "a name of more than %d bytes",
				    PACKIMG_SOURCE_MAX);
	sample.name = arena_copy(&catalog->arena, item->name, strlen(item->name));
	if (!sample.name)
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (item->location.kind == LOCATION_FILE) {
		sample.location.path = sample.name;
		if (strcmp(item->location.path, item->name) != 0)
			sample.location.path = arena_copy(&catalog->arena, item->location.path,
							  strlen(item->location.path));
		if (!sample.location.path)
			return packimg_fail(error, -ENOMEM, "out of memory");
	}
	struct source_field list;
	int r = item->label == LABEL_LIST ? pack_list(catalog, item, &list, error) : 0;
	if (r)
		return r;
	r = add_values(catalog, item, item->label == LABEL_LIST ? &list : NULL, &sample, error);
	if (r)
		return r;
	if (item->label == LABEL_LIST && catalog->label_list_sample &&
	    catalog->lists_are_numbers != item->labels_are_numbers)
		return packimg_fail(
			error, -EINVAL, "the labels of %s are names, and those of %s numbers",
			item->labels_are_numbers ? catalog->label_list_sample : item->name,
			item->labels_are_numbers ? item->name : catalog->label_list_sample);
	r = catalog_classify(catalog, &sample, item->class_name, error);
	if (r)
		return r;
	if (item->class_of_name)
		sample.class = CATALOG_CLASS_OF_NAME;
	r = note_label(catalog, item, sample.name);
	if (r)
		return packimg_fail(error, r, "out of memory");
	catalog->samples[catalog->count++] = sample;
	return 0;
}

static void choose_field_types(struct catalog *catalog)
{
	for (uint32_t i = 0; i < catalog->field_names.count; i++) {
		struct catalog_field *field = &catalog->fields[i];

		if (field->kinds[VALUE_CLASSES])
			field->type = PACKIMG_FIELD_BYTES;
		else if (field->kinds[VALUE_JSON] && !field->binary)
			field->type = PACKIMG_FIELD_JSON;
		else if (field->kinds[VALUE_BYTES] || field->kinds[VALUE_JSON] || field->binary)
			field->type = PACKIMG_FIELD_BYTES;
		else if (field->kinds[VALUE_TEXT])
			field->type = PACKIMG_FIELD_TEXT;
		else if (field->kinds[VALUE_REAL])
			field->type = PACKIMG_FIELD_FLOAT64;
		else
			field->type = PACKIMG_FIELD_INT64;
	}
}

/* Returns the value that is a sample's list of classes; NULL if there is none. */
static const struct catalog_value *list_of(const struct catalog_sample *sample)
{
	/* It is behind all others. */
	const struct catalog_value *last =
		sample->value_count ? &sample->values[sample->value_count - 1] : NULL;

	return last && last->kind == VALUE_CLASSES ? last : NULL;
}

const int32_t *catalog_class_list(const struct catalog *catalog,
				  const struct catalog_sample *sample, size_t *ret_count)
{
	const struct catalog_value *list = catalog->label_list_sample ? list_of(sample) : NULL;

	*ret_count = list ? list->size / sizeof(int32_t) : 0;
	return list ? (const int32_t *)(const void *)list->text : NULL;
}

/* Replaces the numbers of names in lists by those of classes. */
static void relabel_lists(const struct catalog *catalog, const uint32_t *number_of)
{
	for (uint64_t i = 0; catalog->label_list_sample && i < catalog->count; i++) {
		const struct catalog_value *list = list_of(&catalog->samples[i]);
		uint32_t *numbers = list ? (uint32_t *)(uintptr_t)list->text : NULL;

		for (size_t k = 0; list && k < list->size / sizeof(*numbers); k++)
			numbers[k] = number_of[numbers[k]];
	}
}

/* Looks up the names in lists among those given, or checks the numbers in lists. */
static int relabel_as_given(struct catalog *catalog, const struct name_table *given,
			    struct packimg_error *error)
{
	uint32_t count = catalog->class_names.count;
	uint32_t *number_of = arena_array(&catalog->arena, count * sizeof(*number_of));
	int r = number_of ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint32_t i = 0; !r && i < count; i++)
		if (name_table_find(given, catalog->class_names.names[i], &number_of[i]))
			number_of[i] = UINT32_MAX;
	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		const struct catalog_sample *sample = &catalog->samples[i];
		size_t size;
		const int32_t *list = catalog_class_list(catalog, sample, &size);

		for (size_t k = 0; !r && k < size; k++) {
			uint32_t class = (uint32_t)list[k];

			if (!catalog->lists_are_numbers && number_of[class] == UINT32_MAX)
				r = packimg_fail(
					error, -EINVAL,
					"%s: its class \"%s\" is not in the list of classes",
					sample->name, catalog->class_names.names[class]);
			if (catalog->lists_are_numbers && class >= given->count)
				r = packimg_fail(error, -EINVAL,
						 "%s: label %u, but the list has %u classes",
						 sample->name, class, given->count);
		}
	}
	if (!r && !catalog->lists_are_numbers)
		relabel_lists(catalog, number_of);
	arena_release(&catalog->arena, number_of);
	return r;
}

/* Adds the labels 0..count-1 without names. */
static int set_class_count(struct catalog *catalog, uint32_t count, struct packimg_error *error)
{
	catalog->classes = arena_array(&catalog->arena, count * sizeof(*catalog->classes));
	if (!catalog->classes)
		return packimg_fail(error, -ENOMEM, "out of memory");
	catalog->class_count = count;
	return 0;
}

static int number_as_given(struct catalog *catalog, const char *const *given, uint32_t given_count,
			   struct packimg_error *error)
{
	struct name_table names;

	int r = set_class_count(catalog, given_count, error);
	name_table_init(&names, &catalog->arena);
	for (uint32_t i = 0; !r && i < given_count; i++) {
		uint32_t number;

		if (name_table_add(&names, given[i], &number, NULL))
			r = packimg_fail(error, -ENOMEM, "out of memory");
		else if (number != i)
			r = packimg_fail(error, -EINVAL, "class \"%s\" is listed twice", given[i]);
		else
			catalog->classes[i] = names.names[i];
	}
	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		struct catalog_sample *sample = &catalog->samples[i];
		uint32_t number = (uint32_t)sample->label;

		if (sample->class != UINT32_MAX) {
			const char *name = catalog->class_names.names[sample->class];

			if (name_table_find(&names, name, &number))
				r = packimg_fail(
					error, -EINVAL,
					"%s: its class \"%s\" is not in the list of classes",
					sample->name, name);
			sample->label = (int32_t)number;
		} else if (sample->label >= 0 && number >= given_count) {
			r = packimg_fail(error, -EINVAL,
					 "%s: label %u, but the list has %u classes", sample->name,
					 number, given_count);
		}
	}
	if (!r && catalog->label_list_sample)
		r = relabel_as_given(catalog, &names, error);
	name_table_deinit(&names);
	return r;
}

/*
 * If samples have both a number and a name, assigns the name to the number. Other names are looked
 * up.
 */
static int number_by_labels(struct catalog *catalog, uint32_t count, struct packimg_error *error)
{
	int64_t *number_of =
		arena_array(&catalog->arena, catalog->class_names.count * sizeof(*number_of));
	int r = number_of ? set_class_count(catalog, count, error)
			  : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		const struct catalog_sample *sample = &catalog->samples[i];

		if (sample->class == UINT32_MAX || sample->label < 0)
			continue;
		const char *name = catalog->class_names.names[sample->class];
		if ((catalog->classes[sample->label] && catalog->classes[sample->label] != name) ||
		    (number_of[sample->class] && number_of[sample->class] != sample->label + 1))
			r = packimg_fail(
				error, -EINVAL,
				"%s: label %d with class \"%s\" contradicts an earlier sample",
				sample->name, sample->label, name);
		catalog->classes[sample->label] = name;
		number_of[sample->class] = sample->label + 1;
	}
	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		struct catalog_sample *sample = &catalog->samples[i];

		if (sample->class == UINT32_MAX || sample->label >= 0)
			continue;
		if (!number_of[sample->class])
			r = packimg_fail(
				error, -EINVAL,
				"%s: class \"%s\" has no number, but other samples have one; "
				"give the order of classes with --classes FILE",
				sample->name, catalog->class_names.names[sample->class]);
		sample->label = (int32_t)number_of[sample->class] - 1;
	}
	for (uint32_t i = 0; !r && i < count; i++) {
		char number[16];

		if (catalog->classes[i])
			continue;
		snprintf(number, sizeof(number), "%u", i);
		catalog->classes[i] = arena_copy(&catalog->arena, number, strlen(number));
		if (!catalog->classes[i])
			r = packimg_fail(error, -ENOMEM, "out of memory");
	}
	arena_release(&catalog->arena, number_of);
	return r;
}

static int set_labels_by_names(struct catalog *catalog, uint32_t *order, uint32_t *number_of,
			       struct packimg_error *error)
{
	uint32_t count = catalog->class_names.count;

	if (!order || !number_of)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = set_class_count(catalog, count, error);
	if (r)
		return r;
	name_table_sort(&catalog->class_names, order);
	for (uint32_t i = 0; i < count; i++) {
		catalog->classes[i] = catalog->class_names.names[order[i]];
		number_of[order[i]] = i;
	}
	for (uint64_t i = 0; i < catalog->count; i++) {
		struct catalog_sample *sample = &catalog->samples[i];

		sample->label = sample->class == UINT32_MAX ? PACKIMG_LABEL_NONE
							    : (int32_t)number_of[sample->class];
	}
	relabel_lists(catalog, number_of);
	return 0;
}

static int number_by_names(struct catalog *catalog, struct packimg_error *error)
{
	uint32_t count = catalog->class_names.count;
	uint32_t *order = arena_array(&catalog->arena, count * sizeof(*order));
	uint32_t *number_of = arena_array(&catalog->arena, count * sizeof(*number_of));
	int r = set_labels_by_names(catalog, order, number_of, error);

	arena_release(&catalog->arena, order);
	arena_release(&catalog->arena, number_of);
	return r;
}

/* Refuses labels that are lists in some sources and not in others. */
static int check_lists(const struct catalog *catalog, struct packimg_error *error)
{
	const char *single = catalog->label_class_sample ? catalog->label_class_sample
							 : catalog->label_field_sample;

	if (!catalog->label_list_sample)
		return 0;
	if (single)
		return packimg_fail(error, -EINVAL,
				    "%s has several labels, and %s one: --label-separator makes "
				    "lists of both, --label-separator none of none",
				    catalog->label_list_sample, single);
	for (uint32_t i = 0; i < catalog->field_names.count; i++) {
		bool any = false;

		for (int kind = 0; kind < VALUE_KINDS; kind++)
			any |= kind != VALUE_CLASSES && catalog->fields[i].kinds[kind];
		if (any && catalog->fields[i].kinds[VALUE_CLASSES])
			return packimg_fail(error, -EINVAL,
					    "field \"%s\" is a list of classes in one source, and "
					    "something else in another; rename a column",
					    catalog->field_names.names[i]);
	}
	return 0;
}

/* Returns the highest number of a class that the sources give, -1 if they give none. */
static int32_t highest_label(const struct catalog *catalog)
{
	int32_t highest = -1;

	for (uint64_t i = 0; i < catalog->count; i++) {
		size_t count;
		const int32_t *list = catalog_class_list(catalog, &catalog->samples[i], &count);

		if (catalog->samples[i].label > highest)
			highest = catalog->samples[i].label;
		for (size_t k = 0; catalog->lists_are_numbers && k < count; k++)
			if (list[k] > highest)
				highest = list[k];
	}
	return highest;
}

int catalog_finish(struct catalog *catalog, const char *const *given, uint32_t given_count,
		   struct packimg_error *error)
{
	if (catalog->label_field_sample && catalog->label_class_sample)
		return packimg_fail(error, -EINVAL,
				    "the label of %s is a whole number or a name, and that of %s "
				    "is not: choose --labels classes or --labels field",
				    catalog->label_class_sample, catalog->label_field_sample);
	int r = check_lists(catalog, error);
	if (r)
		return r;
	choose_field_types(catalog);
	if (given)
		return number_as_given(catalog, given, given_count, error);
	int32_t highest = highest_label(catalog);
	if (highest >= 0)
		return number_by_labels(catalog, (uint32_t)highest + 1, error);
	catalog->numbered_by_name = true;
	return number_by_names(catalog, error);
}

static void permute(struct catalog *catalog, uint64_t seed, uint64_t *order,
		    struct catalog_sample *samples)
{
	for (uint64_t i = 0; i < catalog->count; i++)
		order[i] = i;
	shuffle_permute(order, catalog->count, seed);
	for (uint64_t i = 0; i < catalog->count; i++)
		samples[i] = catalog->samples[order[i]];
}

int catalog_shuffle(struct catalog *catalog, uint64_t seed)
{
	struct arena *arena = &catalog->arena;
	uint64_t *order = arena_array(arena, catalog->count * sizeof(*order));
	struct catalog_sample *samples = arena_array(arena, catalog->count * sizeof(*samples));

	if (!order || !samples) {
		arena_release(arena, order);
		return -ENOMEM;
	}
	permute(catalog, seed, order, samples);
	arena_release(arena, catalog->samples);
	catalog->samples = samples;
	catalog->capacity = catalog->count;
	arena_release(arena, order);
	return 0;
}

/* Returns true for valid JSON. A number in a table may be invalid JSON: "+1", ".5", "nan". */
static bool is_json(const struct catalog_value *value)
{
	json_t *json = json_loadb(value->text, value->size, JSON_DECODE_ANY, NULL);

	json_decref(json);
	return json;
}

/* Converts text to JSON, for a field that is JSON because of values of other samples. */
static int text_to_json(const struct catalog_value *value, struct buffer *scratch)
{
	json_t *string = json_stringn(value->text, value->size);
	char *text = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
	int r = text ? 0 : -EILSEQ;

	scratch->size = 0;
	if (!r)
		r = buffer_append(scratch, text, strlen(text));
	free(text);
	json_decref(string);
	return r;
}

int catalog_value(const struct catalog *catalog, const struct catalog_value *value,
		  struct buffer *scratch, struct packimg_value *ret_value)
{
	struct packimg_value result = {.present = true, .bytes = value->text, .size = value->size};
	int r = 0;

	switch (catalog->fields[value->field].type) {
	case PACKIMG_FIELD_INT64:
		r = number_i64(value->text, &result.int64);
		result.bytes = NULL;
		result.size = 0;
		break;
	case PACKIMG_FIELD_FLOAT64:
		r = number_double(value->text, &result.float64);
		result.bytes = NULL;
		result.size = 0;
		break;
	case PACKIMG_FIELD_JSON:
		if (value->kind == VALUE_TEXT || value->kind == VALUE_BYTES ||
		    (value->kind != VALUE_JSON && !is_json(value))) {
			r = text_to_json(value, scratch);
			result.bytes = scratch->data;
			result.size = scratch->size;
		}
		break;
	default:
		break;
	}
	if (!r)
		*ret_value = result;
	return r;
}
