/* Values of pipelines that paste objects, by copy_paste: which tell their pixels, and which follow.
 */
#include "loaderd/worker/delivery_internal.h"

#include "loaderd/batch/pasting.h"
#include "loaderd/worker/subscription.h"

#include <errno.h>
#include <string.h>

/* What converters name a mask of numbered objects, and the number of each box in it. */
static const char mask_name[] = "instances", numbers_name[] = "instance";

static enum schema_role role_of(const struct schema *schema, const struct value *value)
{
	int found = value->name ? schema_find(schema, value->name) : -1;
	return found < 0 ? SCHEMA_ROLES : schema->values[found].role;
}

static bool is_mask(const struct schema *schema, const struct value *value)
{
	return value->source == VALUE_PICTURE && value->frame == VALUE_FIRST_IMAGE &&
	       value->channels == 1 && role_of(schema, value) == SCHEMA_MASK &&
	       paste_takes_numbers((enum schema_element)value->element);
}

static bool is_numbers(const struct schema *schema, const struct value *value)
{
	return value->boxes > 0 && value->ragged && value->dims == 0 &&
	       role_of(schema, value) == SCHEMA_VALUE &&
	       paste_takes_numbers((enum schema_element)value->element);
}

/* Returns the section of the only such value, 0 if there is none, UINT32_MAX for several. */
static uint32_t find_section(const struct schema *schema, const struct value_table *values,
			     uint32_t named, const char *name,
			     bool (*suits)(const struct schema *, const struct value *))
{
	const struct pipeline *pipeline = values->views[0].made.pipeline;
	uint32_t found = 0;
	for (uint32_t v = RING_FIRST_FIELD; v < values->count; v++) {
		const struct value *value = &values->values[v];
		bool meant = named  ? named & pipeline_value_bit(pipeline, value->name)
			     : name ? strcmp(value->name, name) == 0
				    : true;
		if (meant && suits(schema, value))
			found = found ? UINT32_MAX : v;
	}
	return found;
}

static bool is_polygons(const struct schema *schema, const struct value *value)
{
	return value->objects && role_of(schema, value) == SCHEMA_POLYGONS;
}

/* Refuses a named value that is not delivered. */
static int check_delivered(const struct value_table *values, struct refusal *refusal)
{
	const struct pipeline *pipeline = values->views[0].made.pipeline;
	unsigned count;
	const struct pipeline_value *named = pipeline_values(pipeline, &count);
	for (unsigned i = 0; i < count; i++) {
		uint32_t v = RING_FIRST_FIELD;
		if (named[i].paste_position < 0)
			continue;
		while (v < values->count && strcmp(values->values[v].name, named[i].name) != 0)
			v++;
		if (v == values->count)
			return refuse_request(refusal, EINVAL, "values",
					      "copy_paste needs the value \"%.63s\", which it "
					      "names: ask for it, too",
					      named[i].name);
	}
	return 0;
}

/* Finds what tells the pixels of objects. A mask counts before polygons. */
static int find_objects(const struct schema *schema, struct value_table *values,
			struct refusal *refusal)
{
	uint32_t named = pipeline_paste(values->views[0].made.pipeline)->values;
	struct value_paste *paste = &values->paste;
	uint32_t mask = find_section(schema, values, named, mask_name, is_mask);
	uint32_t numbers = find_section(schema, values, named, numbers_name, is_numbers);
	uint32_t polygons = find_section(schema, values, named, NULL, is_polygons);
	if (mask > 0 && numbers > 0 && mask != UINT32_MAX && numbers != UINT32_MAX) {
		*paste = (struct value_paste){.mask = mask, .numbers = numbers};
		paste->boxes = values->values[numbers].boxes;
	} else if (polygons > 0 && polygons != UINT32_MAX && (!named || (!mask && !numbers))) {
		*paste = (struct value_paste){.polygons = polygons};
		paste->boxes = values->values[polygons].boxes;
	}
	if (paste->boxes > 0 && values->boxes[paste->boxes - 1].frame == VALUE_FIRST_IMAGE)
		return 0;
	return refuse_request(
		refusal, EINVAL, "values",
		"copy_paste pastes objects whose pixels a value tells: polygons of boxes, as in "
		"polygons(boxes), or a mask of whole numbers and the number of each box in it, as "
		"in instance: value(boxes). Ask for one of these, and if they are not called "
		"instances and instance, or there are several, name them: 'polygons: copy_paste', "
		"'mask, number: copy_paste'");
}

int pastes_choose(struct batcher_options *options, struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	struct value_table *values = &options->values;
	if (pipeline_paste(options->pipeline)->position < 0)
		return 0;
	if (values->version != RING_VERSION_2)
		return refuse_request(refusal, EINVAL, "pipeline",
				      "copy_paste pastes the boxes and masks of objects, which "
				      "fields do not have: ask for values, or leave it out");
	for (uint32_t v = RING_FIRST_FIELD; v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (value->frame >= VALUE_FURTHER_IMAGE ||
		    (value->source == VALUE_PICTURE && value->channels == 0))
			return refuse_request(refusal, EINVAL, "values",
					      "value \"%.63s\": copy_paste pastes on first images, "
					      "and this is or belongs to another; leave it out, or "
					      "copy_paste",
					      value->name);
	}
	int r = check_delivered(values, refusal);
	r = r ?: find_objects(schema, values, refusal);
	for (uint32_t v = RING_FIRST_FIELD; r == 0 && v < values->count; v++)
		if (values->values[v].boxes == values->paste.boxes)
			values->values[v].joined = PASTING_SAMPLES;
	return r;
}
