#include "format/base/text/sentence.h"
#include "format/error.h"
#include "format/join_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct schema *schema_of(const struct packimg *joined, uint32_t part)
{
	return &joined->join->parts[part].dataset->schema;
}

static const char *path_of(const struct packimg *joined, uint32_t part)
{
	return join_path(joined->join->parts[part].dataset);
}

/* Returns the name of the value to which a value belongs, "" if there is none. */
static const char *name_of(const struct schema *schema, const struct schema_value *value)
{
	return value->of == SCHEMA_OF_NONE ? "" : schema->values[value->of].name;
}

/* True if dimension i of both is the same, or is one of those in which images may differ. */
static bool dimension_joins(const struct schema_value *a, const struct schema_value *b, unsigned i)
{
	return a->shape[i] == b->shape[i] || (schema_has_pixels(a) && i < 2);
}

/* True if two values of one name describe the same kind of data. */
static bool described_alike(const struct schema *schema_a, const struct schema_value *a,
			    const struct schema *schema_b, const struct schema_value *b)
{
	if (a->role != b->role || a->element != b->element || a->format != b->format ||
	    a->dims != b->dims || (a->flags ^ b->flags) & ~(unsigned)SCHEMA_SPARSE)
		return false;
	for (unsigned i = 0; i < a->dims; i++)
		if (!dimension_joins(a, b, i))
			return false;
	return strcmp(name_of(schema_a, a), name_of(schema_b, b)) == 0;
}

enum { LINE_SIZE = 192 };

/* Writes how the schema describes a value, without its name: "boxes(image) f32[*,4] xyxy". */
static void describe(const struct schema *schema, unsigned value, char description[LINE_SIZE])
{
	char line[LINE_SIZE];
	struct schema renamed = *schema;

	strcpy(renamed.values[value].name, "x");
	schema_print_value(&renamed, value, line, sizeof(line));
	sentence_write(description, LINE_SIZE, "%s", line + strlen("x: "));
}

/* Writes how value a of part 0 and value b of another part differ. */
static void explain_difference(const struct packimg *joined, unsigned a, uint32_t part, unsigned b,
			       char *text, size_t size)
{
	char descriptions[2][LINE_SIZE];

	describe(schema_of(joined, 0), a, descriptions[0]);
	describe(schema_of(joined, part), b, descriptions[1]);
	sentence_write(text, size, "'%s' is %s in %s, but %s in %s",
		       schema_of(joined, 0)->values[a].name, descriptions[0], path_of(joined, 0),
		       descriptions[1], path_of(joined, part));
}

/* True if a value of a part can be joined with value `index` of part 0. */
static bool part_has(const struct packimg *joined, unsigned index, uint32_t part, char *text,
		     size_t size)
{
	const struct schema *schema_a = schema_of(joined, 0), *schema_b = schema_of(joined, part);
	const struct schema_value *a = &schema_a->values[index];
	int found = schema_find(schema_b, a->name);

	if (found < 0) {
		sentence_write(text, size, "%s has no value '%s'", path_of(joined, part), a->name);
		return false;
	}
	const struct schema_value *b = &schema_b->values[found];
	if (!described_alike(schema_a, a, schema_b, b)) {
		explain_difference(joined, index, part, (unsigned)found, text, size);
		return false;
	}
	if (a->store != b->store) {
		bool label = a->store == SCHEMA_IN_LABEL;
		sentence_write(text, size,
			       "'%s' is the label of the samples in %s, but not in %s; another "
			       "class is the label there",
			       a->name, path_of(joined, label ? 0 : part),
			       path_of(joined, label ? part : 0));
		return false;
	}
	return true;
}

/* True if a value may have class numbers that nothing translates. */
static bool has_class_numbers(const struct schema_value *value)
{
	return value->role == SCHEMA_MASK ||
	       (value->role == SCHEMA_CLASS && value->store == SCHEMA_IN_COLUMN);
}

/* True if class numbers mean the same in all parts. */
static bool classes_join(const struct packimg *joined, const struct schema_value *value, char *text,
			 size_t size)
{
	const struct join *join = joined->join;

	for (uint32_t p = 0; p < join->part_count; p++) {
		if (!join->parts[p].labels && !join->parts[p].unnamed)
			continue;
		sentence_write(text, size, "'%s' may have class numbers, and %s %s", value->name,
			       path_of(joined, p),
			       join->parts[p].unnamed
				       ? "has no class names, though another dataset has"
				       : "numbers its classes in another way than the others; pack "
					 "all with one list of classes");
		return false;
	}
	return true;
}

static bool value_joins(const struct packimg *joined, unsigned index, char *text, size_t size)
{
	const struct schema *schema = schema_of(joined, 0);
	const struct schema_value *value = &schema->values[index];

	for (uint32_t p = 1; p < joined->join->part_count; p++)
		if (!part_has(joined, index, p, text, size))
			return false;
	if (has_class_numbers(value) && !classes_join(joined, value, text, size))
		return false;
	if (value->of == SCHEMA_OF_NONE ||
	    schema_find(&joined->schema, name_of(schema, value)) >= 0)
		return true;
	if (text) {
		sentence_write(text, size, "'%s' belongs to '%s', which is left out: ", value->name,
			       name_of(schema, value));
		size_t used = strlen(text);
		value_joins(joined, value->of, text + used, size - used);
	}
	return false;
}

/* Extends a joined value so that it describes a part's, too. */
static void value_extend(struct schema_value *value, const struct schema_value *part)
{
	value->flags |= part->flags & SCHEMA_SPARSE;
	for (unsigned i = 0; i < value->dims; i++)
		if (value->shape[i] != part->shape[i])
			value->shape[i] = 0;
	if (value->longest < part->longest)
		value->longest = part->longest;
	if (value->width < part->width)
		value->width = part->width;
	if (value->height < part->height)
		value->height = part->height;
}

static int field_add(struct packimg *joined, const char *name, enum packimg_field_type type,
		     struct packimg_error *error)
{
	struct packimg_field field = {.name = strdup(name), .type = type};

	if (!field.name)
		return packimg_fail(error, -ENOMEM, "out of memory");
	joined->fields[joined->field_count++] = field;
	return 0;
}

/* Connects the field added last with that of a part. */
static void field_connect(struct packimg *joined, struct join_part *part, uint16_t number)
{
	uint32_t last = joined->field_count - 1;
	struct packimg_field *field = &joined->fields[last];

	part->fields[last] = number;
	if (field->longest < part->dataset->fields[number].longest)
		field->longest = part->dataset->fields[number].longest;
}

/* Adds value `index` of part 0, which all parts have, and connects it with those of the parts. */
static int value_add(struct packimg *joined, unsigned index, struct packimg_error *error)
{
	const struct join *join = joined->join;
	const struct packimg *first = join->parts[0].dataset;
	struct schema_value value = first->schema.values[index];

	if (value.store == SCHEMA_IN_COLUMN) {
		int r = field_add(joined, value.name, first->fields[value.number].type, error);
		if (r < 0)
			return r;
	}
	for (uint32_t p = 0; p < join->part_count; p++) {
		struct join_part *part = &join->parts[p];
		const struct schema *schema = &part->dataset->schema;
		const struct schema_value *own = &schema->values[schema_find(schema, value.name)];

		value_extend(&value, own);
		if (value.store == SCHEMA_IN_COLUMN)
			field_connect(joined, part, own->number);
		if (value.store == SCHEMA_IN_IMAGES)
			part->images[joined->image_count] = own->number;
	}
	if (value.of != SCHEMA_OF_NONE)
		value.of = (uint16_t)schema_find(&joined->schema, name_of(&first->schema, &value));
	if (value.store == SCHEMA_IN_COLUMN)
		value.number = (uint16_t)(joined->field_count - 1);
	if (value.store == SCHEMA_IN_IMAGES)
		value.number = (uint16_t)joined->image_count++;
	return schema_add(&joined->schema, &value);
}

/* Checks that the first images have one name and one kind of pixels. */
static int check_first_images(const struct packimg *joined, struct packimg_error *error)
{
	const struct schema *first = schema_of(joined, 0);
	int a = schema_stored(first, SCHEMA_IN_INDEX, 0);
	char lines[2][LINE_SIZE];

	for (uint32_t p = 1; p < joined->join->part_count; p++) {
		const struct schema *schema = schema_of(joined, p);
		int b = schema_stored(schema, SCHEMA_IN_INDEX, 0);

		if (strcmp(schema->values[b].name, first->values[a].name) == 0 &&
		    described_alike(first, &first->values[a], schema, &schema->values[b]))
			continue;
		schema_print_value(first, (unsigned)a, lines[0], sizeof(lines[0]));
		schema_print_value(schema, (unsigned)b, lines[1], sizeof(lines[1]));
		return packimg_fail(error, -EINVAL,
				    "%s: the first image is \"%s\", but that of %s is \"%s\"; "
				    "datasets can be joined if their first images have the same "
				    "name, element and channels",
				    path_of(joined, p), lines[1], path_of(joined, 0), lines[0]);
	}
	return 0;
}

/* Returns a part's field of that name and type that is in no schema, or -1. */
static int field_find(const struct packimg *part, const struct packimg_field *like)
{
	for (uint32_t i = 0; i < part->field_count; i++)
		if (strcmp(part->fields[i].name, like->name) == 0)
			return part->fields[i].type == like->type &&
					       schema_stored(&part->schema, SCHEMA_IN_COLUMN, i) < 0
				       ? (int)i
				       : -1;
	return -1;
}

/* Adds a field of part 0 that is in no schema if all parts have it. */
static int field_join(struct packimg *joined, const struct packimg_field *field,
		      struct packimg_error *error)
{
	const struct join *join = joined->join;

	for (uint32_t p = 0; p < join->part_count; p++)
		if (field_find(join->parts[p].dataset, field) < 0)
			return 0;
	int r = field_add(joined, field->name, field->type, error);
	for (uint32_t p = 0; r == 0 && p < join->part_count; p++)
		field_connect(joined, &join->parts[p],
			      (uint16_t)field_find(join->parts[p].dataset, field));
	return r;
}

/*
 * Joins what schemas say only if they are recorded: implied schemas lack the sizes of the largest
 * images.
 */
static void join_recorded(struct packimg *joined)
{
	const struct join *join = joined->join;

	joined->has_schema = true;
	for (uint32_t p = 0; p < join->part_count; p++) {
		const struct packimg *part = join->parts[p].dataset;

		joined->has_schema &= part->has_schema;
		if (joined->source_longest < part->source_longest)
			joined->source_longest = part->source_longest;
	}
	int image = schema_stored(&joined->schema, SCHEMA_IN_INDEX, 0);
	if (!joined->has_schema)
		joined->schema.values[image].width = joined->schema.values[image].height = 0;
}

int join_schema(struct packimg *joined, struct packimg_error *error)
{
	const struct packimg *first = joined->join->parts[0].dataset;

	joined->fields = calloc(first->field_count + (size_t)1, sizeof(*joined->fields));
	if (!joined->fields)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = check_first_images(joined, error);
	for (unsigned i = 0; r == 0 && i < first->schema.count; i++)
		if (value_joins(joined, i, NULL, 0))
			r = value_add(joined, i, error);
	for (uint32_t i = 0; r == 0 && i < first->field_count; i++)
		r = field_join(joined, &first->fields[i], error);
	if (r == 0)
		join_recorded(joined);
	return r;
}

bool packimg_join_lacks(const struct packimg *dataset, const char *name, char *text, size_t size)
{
	if (!dataset->join || schema_find(&dataset->schema, name) >= 0)
		return false;
	int index = schema_find(schema_of(dataset, 0), name);
	if (index >= 0)
		return !value_joins(dataset, (unsigned)index, text, size);
	for (uint32_t p = 1; p < dataset->join->part_count; p++) {
		if (schema_find(schema_of(dataset, p), name) < 0)
			continue;
		sentence_write(text, size, "%s has no value '%s'", path_of(dataset, 0), name);
		return true;
	}
	return false;
}
