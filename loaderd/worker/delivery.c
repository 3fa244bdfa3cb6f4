#include "loaderd/worker/delivery.h"

#include "format/base/schema.h"
#include "format/join.h"
#include "loaderd/batch/derived_values.h"
#include "loaderd/worker/delivery_internal.h"
#include "loaderd/worker/subscription.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool delivery_defers(const Loaderd__OpenFeed *request)
{
	for (size_t i = 0; i < request->n_fields; i++)
		if (strcmp(request->fields[i], DEFERRED) == 0)
			return true;
	return false;
}

/* Lists the schema's names, as many as fit. */
static void values_list(const struct schema *schema, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < schema->count; i++) {
		const char *name = schema->values[i].name;
		if (used + strlen(name) + sizeof(", and others") > size) {
			snprintf(text + used, size - used, " and others");
			return;
		}
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", name);
	}
}

static int refuse_value(const struct packimg *image, const char *name, struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(image);
	const char *nearest = schema_nearest(schema, name);
	char list[400], why[400];
	if (packimg_join_lacks(image, name, why, sizeof(why)))
		return refuse_request(
			refusal, EINVAL, "values",
			"the parts do not all have the value \"%.200s\": %s; leave it "
			"out, or pack the parts alike",
			name, why);
	values_list(schema, list, sizeof(list));
	return refuse_request(refusal, EINVAL, "values",
			      "the dataset has no value \"%.200s\"%s%s%s: it has %s", name,
			      nearest ? "; did you mean \"" : "", nearest ? nearest : "",
			      nearest ? "\"" : "", list);
}

/* Chooses the room of a value with rows. */
static int choose_room(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct packimg_field *field, struct value *value,
		       struct refusal *refusal)
{
	value->longest_known = field->longest != PACKIMG_LONGEST_UNKNOWN;
	if (!value->longest_known && request->field_bytes == 0)
		return refuse_request(
			refusal, EINVAL, "field_bytes",
			"value \"%.200s\": the file does not record its longest value; "
			"ask for field_bytes, or make a file that does with packimg merge",
			field->name);
	value->capacity = value->longest_known ? field->longest : request->field_bytes;
	if (value->capacity <= config->field_bytes)
		return 0;
	return refuse_request(
		refusal, EDQUOT, "values",
		"value \"%.200s\": the longest value has %llu bytes, but the daemon's "
		"limit is %llu ([limits] field_bytes); leave the value out, or raise "
		"the limit",
		field->name, (unsigned long long)value->capacity,
		(unsigned long long)config->field_bytes);
}

static int refuse_step(struct refusal *refusal, const struct pipeline_error *error)
{
	refuse_request(refusal, EINVAL, "pipeline", "at byte %d: %s", error->position, error->text);
	refusal->position = error->position;
	return -EINVAL;
}

/* Checks the values that the view's pipeline names, whether they are delivered or not. */
static int check_names(const struct schema *schema, const struct pipeline *pipeline,
		       struct refusal *refusal)
{
	struct pipeline_error error;
	return pipeline_check_values(pipeline, schema, &error) < 0 ? refuse_step(refusal, &error)
								   : 0;
}

/*
 * Sets what the pipeline says of a mask or raster by its name, which check_names() checks
 * afterwards.
 */
static void set_named(const struct pipeline *pipeline, const struct schema_value *from,
		      struct value *value)
{
	const struct pipeline_value *named = pipeline_value(pipeline, from->name);
	if (!named)
		return;
	if (named->fill_position >= 0)
		pipeline_value_fill(named, from->element, value->fill);
	value->filter = (uint8_t)named->filter;
	if (named->to_position >= 0)
		value->element = (uint8_t)named->element;
}

/* Sets in which image's frame the value is. */
static int set_frame(const struct pipeline *pipeline, const struct schema *schema, unsigned number,
		     struct value *value, struct refusal *refusal)
{
	const struct schema_value *from = &schema->values[number];
	struct pipeline_error error = {.position = -1};
	int frame = schema_frame(schema, number);
	if (frame < 0 || from->role == SCHEMA_IMAGE)
		return 0;
	value->coordinates = (struct coordinates){from->role, from->format,
						  (from->flags & SCHEMA_NORMALIZED) != 0,
						  pipeline_value_bit(pipeline, from->name)};
	bool moves = coordinates_row(&value->coordinates) > 0;
	if (pipeline_check_frame(pipeline, moves, &error) < 0) {
		refuse_request(refusal, EINVAL, "pipeline", "value \"%s\": %s", from->name,
			       error.text);
		refusal->position = error.position;
		return -EINVAL;
	}
	const struct schema_value *image = &schema->values[frame];
	value->frame = image->store == SCHEMA_IN_INDEX
			       ? (uint32_t)VALUE_FIRST_IMAGE
			       : VALUE_FURTHER_IMAGE + (uint32_t)image->number;
	return 0;
}

/* A further image, a mask or a raster. */
static struct value picture_value(const struct schema_value *from, const struct pipeline *pipeline)
{
	struct value value = {.source = VALUE_PICTURE,
			      .name = from->name,
			      .element = (uint8_t)from->element,
			      .dims = (uint8_t)from->dims,
			      .image = from->number,
			      .named = pipeline_value_bit(pipeline, from->name)};
	if (from->role == SCHEMA_IMAGE)
		value.dims = 3; /* finished images have channels, whatever is stored */
	else
		value.channels = from->dims == 3 ? from->shape[2] : 1;
	value.stored = value.element;
	return value;
}

static void set_shape(const struct schema_value *from, struct value *value)
{
	unsigned first = schema_has_rows(from);
	value->ragged = first != 0 || from->element == SCHEMA_NO_ELEMENT;
	value->element = (uint8_t)from->element;
	value->row = (uint32_t)schema_row_size(from);
	value->dims = (uint8_t)(from->dims - first);
	memcpy(value->shape, from->shape + first, value->dims * sizeof(*value->shape));
}

/* A value that a column stores, or the sources. */
static int pick_value(const Loaderd__OpenFeed *request, const struct config *config,
		      const struct dataset *dataset, const struct schema_value *from,
		      struct value *ret_value, struct refusal *refusal)
{
	struct packimg_field field = {from->name, PACKIMG_FIELD_TEXT,
				      packimg_source_longest(dataset->image)};
	struct value value = {.source = VALUE_KEY, .name = from->name};
	if (from->store == SCHEMA_IN_COLUMN) {
		value = (struct value){
			.source = VALUE_FIELD, .field = from->number, .name = from->name};
		if (packimg_field(dataset->image, from->number, &field) < 0)
			return refuse_request(refusal, EBADMSG, "dataset",
					      "%.300s: value \"%s\" has no column", dataset->path,
					      from->name);
	}
	value.type = field.type;
	set_shape(from, &value);
	value.capacity = value.row;
	if (value.ragged) {
		int r = choose_room(request, config, &field, &value, refusal);
		if (r < 0)
			return r;
	}
	*ret_value = value;
	return 0;
}

/* Sets to which boxes the value's rows belong, if the view's pipeline may drop some of them. */
static int set_boxes(const Loaderd__OpenFeed *request, const struct config *config,
		     const struct batcher_options *options, const struct schema *schema,
		     unsigned number, struct value_table *values, struct value *value,
		     struct refusal *refusal)
{
	const struct pipeline *pipeline = values->views[value->view].made.pipeline;
	const struct schema_value *from = &schema->values[number];
	int found = schema_rows(schema, number);
	uint32_t b = 0;
	const char *rows_name = schema->values[found < 0 ? (int)number : found].name;
	if (!pipeline_drops_boxes(pipeline, pipeline_value_bit(pipeline, rows_name)))
		return 0;
	if (found < 0 && from->role == SCHEMA_BOXES)
		return refuse_request(
			refusal, EINVAL, "pipeline",
			"value \"%s\": sanitize_boxes, mosaic and copy_paste cannot drop "
			"boxes of a fixed number; pack them as %s[*,4], or leave these steps "
			"out",
			from->name, schema_element_name(from->element));
	if (found < 0 || schema->values[found].role != SCHEMA_BOXES)
		return 0;
	struct value boxes;
	from = &schema->values[found];
	while (b < values->box_count &&
	       (values->boxes[b].field != from->number || values->boxes[b].view != value->view))
		b++;
	if (b == values->box_count) {
		int r = pick_value(request, config, options->dataset, from, &boxes, refusal);
		r = r ?: set_frame(pipeline, schema, (unsigned)found, &boxes, refusal);
		if (r < 0)
			return r;
		boxes.view = value->view;
		values->boxes[values->box_count++] = boxes;
	}
	value->boxes = b + 1;
	value->objects = schema_has_polygons_of_objects(schema, number);
	return 0;
}

int delivery_append(struct value_table *values, const struct value *value, struct refusal *refusal)
{
	if (values->count == RING_SECTIONS_MAX)
		return refuse_request(refusal, EDQUOT, "values",
				      "a feed delivers at most %d values, image, label, sample "
				      "number and flags included, and each view its own; leave "
				      "some out",
				      RING_SECTIONS_MAX);
	values->values[values->count++] = *value;
	return 0;
}

/* Adds what a view delivers of a value, or what all deliver alike. */
static int add_value_of(const Loaderd__OpenFeed *request, const struct config *config,
			const struct batcher_options *options, const struct schema *schema,
			unsigned number, uint32_t view, struct value_table *values,
			struct refusal *refusal)
{
	const struct pipeline *pipeline = values->views[view].made.pipeline;
	const struct schema_value *from = &schema->values[number];
	struct value value;
	int r = 0;
	if (from->store == SCHEMA_IN_IMAGES)
		value = picture_value(from, pipeline);
	else
		r = pick_value(request, config, options->dataset, from, &value, refusal);
	value.view = view;
	r = r ?: set_frame(pipeline, schema, number, &value, refusal);
	set_named(pipeline, from, &value);
	r = r ?: set_boxes(request, config, options, schema, number, values, &value, refusal);
	return r ?: delivery_append(values, &value, refusal);
}

bool delivery_is_of_views(const struct schema *schema, unsigned number)
{
	int rows = schema_rows(schema, number);
	return schema_frame(schema, number) >= 0 ||
	       (rows >= 0 && schema->values[rows].role == SCHEMA_BOXES);
}

static int add_derived(struct value_table *values, struct value *value, struct refusal *refusal)
{
	uint32_t views = derived_value_is_of_views(value->source) ? values->view_count : 1;
	int r = 0;
	for (value->view = 0; r == 0 && value->view < views; value->view++)
		r = delivery_append(values, value, refusal);
	return r;
}

static int add_value(const Loaderd__OpenFeed *request, const struct config *config,
		     const struct batcher_options *options, const struct schema *schema,
		     const char *name, struct value_table *values, struct refusal *refusal)
{
	int r = 0, found = schema_find(schema, name);
	struct value derived;
	if (found < 0 && derived_value_find(name, &derived))
		return add_derived(values, &derived, refusal);
	if (found < 0)
		return refuse_value(options->dataset->image, name, refusal);
	switch (schema->values[found].store) {
	case SCHEMA_IN_INDEX:
	case SCHEMA_IN_LABEL:
	case SCHEMA_IN_NUMBER:
		return 0; /* every feed delivers these */
	case SCHEMA_IN_COLUMN:
	case SCHEMA_IN_SOURCE:
		break;
	default:
		values->pictures = true;
	}
	uint32_t views = delivery_is_of_views(schema, (unsigned)found) ? values->view_count : 1;
	for (uint32_t view = 0; r == 0 && view < views; view++)
		r = add_value_of(request, config, options, schema, (unsigned)found, view, values,
				 refusal);
	return r;
}

/* The values that every feed delivers. A schema whose names are taken lacks some of them. */
static const struct {
	enum schema_role role;
	enum schema_store store;
	const char *name;
} first_values[] = {
	[RING_IMAGES] = {SCHEMA_IMAGE, SCHEMA_IN_INDEX, "image"},
	[RING_LABELS] = {SCHEMA_CLASS, SCHEMA_IN_LABEL, "label"},
	[RING_SAMPLES] = {SCHEMA_NUMBER, SCHEMA_IN_NUMBER, "sample"},
};

/* Returns the index of the value in the schema; -1 if it has none for it, as for the flags. */
static int first_value(const struct schema *schema, uint32_t section)
{
	return section == RING_FLAGS ? -1 : schema_stored(schema, first_values[section].store, 0);
}

/* Writes the first of __WORD__, __WORD2__, __WORD3__ ... that no value has. */
static const char *unused_name(const struct schema *schema, const char *word,
			       char name[VALUE_OWN_NAME_SIZE])
{
	snprintf(name, VALUE_OWN_NAME_SIZE, "__%s__", word);
	for (unsigned n = 2; schema_find(schema, name) >= 0; n++)
		snprintf(name, VALUE_OWN_NAME_SIZE, "__%s%u__", word, n);
	return name;
}

const char *delivery_own_name(const struct schema *schema, const char *word,
			      char name[VALUE_OWN_NAME_SIZE])
{
	return schema_find(schema, word) < 0 ? word : unused_name(schema, word, name);
}

static void name_first_values(const struct schema *schema, struct value_table *values)
{
	for (uint32_t i = 0; i < RING_FLAGS; i++) {
		int found = first_value(schema, i);
		values->values[i].name = found >= 0 ? schema->values[found].name
						    : unused_name(schema, first_values[i].name,
								  values->own_names[i]);
	}
	values->values[RING_FLAGS].name =
		delivery_own_name(schema, "flags", values->own_names[RING_FLAGS]);
}

/* Returns the bit of the first image among the values that a pipeline names. */
static uint32_t image_bit(const struct schema *schema, const struct pipeline *pipeline)
{
	int image = schema_stored(schema, SCHEMA_IN_INDEX, 0);
	return image < 0 ? 0 : pipeline_value_bit(pipeline, schema->values[image].name);
}

static int choose_values(const Loaderd__OpenFeed *request, const struct config *config,
			 const struct batcher_options *options, struct value_table *values,
			 struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	if (request->n_fields > 0)
		return refuse_request(refusal, EINVAL, "fields",
				      "fields belong to protocol version %d; ask for values",
				      PROTO_VERSION_OLDEST);
	if (request->n_values > config->fields)
		return refuse_request(refusal, EDQUOT, "values",
				      "the client asked for %zu values, but the daemon's limit is "
				      "%llu ([limits] fields)",
				      request->n_values, (unsigned long long)config->fields);
	values->version = RING_VERSION_2;
	name_first_values(schema, values);
	for (uint32_t view = 1; view < values->view_count; view++) {
		struct value image = values->values[RING_IMAGES];
		image.view = view;
		image.dims = 3;
		image.named = values->views[view].image_named;
		int r = delivery_append(values, &image, refusal);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < request->n_values; i++) {
		for (size_t j = 0; j < i; j++)
			if (strcmp(request->values[i], request->values[j]) == 0)
				return refuse_request(refusal, EINVAL, "values",
						      "the client asked for value \"%.200s\" twice",
						      request->values[i]);
		int r = add_value(request, config, options, schema, request->values[i], values,
				  refusal);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Refuses a view's steps for boxes if there are none. */
static int check_boxes(const struct value_table *values, const struct pipeline *pipeline,
		       struct refusal *refusal)
{
	struct pipeline_error error = {.position = -1};
	for (uint32_t v = 0; v < values->count; v++)
		if (values->values[v].boxes || values->values[v].coordinates.role == SCHEMA_BOXES)
			return 0;
	if (pipeline_check_no_boxes(pipeline, &error) == 0)
		return 0;
	refuse_request(refusal, EINVAL, "pipeline", "%s", error.text);
	refusal->position = error.position;
	return -EINVAL;
}

/* Returns the name of a value that is in the frame of a further image, NULL if none is. */
static const char *of_further_image(const struct value_table *values)
{
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (value->frame >= VALUE_FURTHER_IMAGE ||
		    (value->source == VALUE_PICTURE && value->channels == 0))
			return value->name;
	}
	return NULL;
}

/* Chooses the boxes that a view's pipeline needs to choose a crop. */
static int choose_crop_boxes(const Loaderd__OpenFeed *request, const struct config *config,
			     struct batcher_options *options, struct value_view *view,
			     struct refusal *refusal)
{
	const struct pipeline *pipeline = view->made.pipeline;
	const struct schema *schema = packimg_schema(options->dataset->image);
	struct pipeline_error error;
	int number;
	if (pipeline_find_boxes(pipeline, schema, &number, &error) < 0)
		return refuse_step(refusal, &error);
	if (number < 0)
		return 0;
	const struct schema_value *boxes = &schema->values[number];
	const char *other = of_further_image(&options->values);
	if (other)
		return refuse_request(
			refusal, EINVAL, "values",
			"value \"%.100s\": random_iou_crop crops by the boxes \"%.100s\" "
			"of the first image, and this belongs to another image; leave it "
			"out, or use random_resized_crop",
			other, boxes->name);
	int r = pick_value(request, config, options->dataset, boxes, &view->crop_boxes, refusal);
	r = r ?: set_frame(pipeline, schema, (unsigned)number, &view->crop_boxes, refusal);
	view->crops_by_boxes = true;
	return r;
}

static bool is_name(const struct schema *schema, const struct value_table *values, const char *name)
{
	for (uint32_t i = 0; i < RING_FIRST_FIELD; i++)
		if (strcmp(values->values[i].name, name) == 0)
			return true;
	return schema_find(schema, name) >= 0;
}

/* Returns true if a value has the name by which clients find what the view has of another one. */
static bool is_name_of_view(const struct schema *schema, const char *view)
{
	char name[PIPELINE_NAME_MAX + sizeof(".") + SCHEMA_NAME_MAX];
	for (unsigned i = 0; i < schema->count; i++) {
		snprintf(name, sizeof(name), "%s.%s", view, schema->values[i].name);
		if (delivery_is_of_views(schema, i) && schema_find(schema, name) >= 0)
			return true;
	}
	return false;
}

/*
 * Refuses a view VIEW where a section or a value is named VIEW or VIEW.NAME: clients find views,
 * and the values of views, by these names.
 */
static int check_view_names(const struct schema *schema, const struct value_table *values,
			    struct refusal *refusal)
{
	for (uint32_t i = 0; i < values->view_count; i++) {
		const char *name = values->views[i].made.name;
		if (!name[0])
			continue;
		if (is_name(schema, values, name))
			return refuse_request(refusal, EINVAL, "pipeline",
					      "view %.63s has the name of a value that the feed "
					      "or the dataset has; give it another name",
					      name);
		if (is_name_of_view(schema, name))
			return refuse_request(refusal, EINVAL, "pipeline",
					      "view %.63s: the dataset has a value whose name "
					      "begins with \"%.63s.\", as the names of what a view "
					      "delivers do; give the view another name",
					      name, name);
	}
	return 0;
}

static int check_views(const Loaderd__OpenFeed *request, const struct value_table *values,
		       struct refusal *refusal)
{
	if (values->view_count == 1 && !values->views[0].made.name[0])
		return 0;
	if (request->version == PROTO_VERSION_OLDEST || !request->views)
		return refuse_request(refusal, EINVAL, "pipeline",
				      "the pipeline has views, and this program takes one "
				      "finished image of each sample: write a pipeline without "
				      "views, or update the client library");
	return 0;
}

/* Patches are a form of their own, in which masks and other images cannot follow. */
static int check_patches(const Loaderd__OpenFeed *request, const struct batcher_options *options,
			 struct refusal *refusal)
{
	const struct value_table *values = &options->values;
	bool patches = pipeline_patches_max(options->pipeline) > 0;
	if (patches && (request->version == PROTO_VERSION_OLDEST || !request->patches))
		return refuse_request(refusal, EINVAL, "pipeline",
				      "the pipeline makes patches, and this program takes whole "
				      "images: leave patch_resize out, or update the client "
				      "library");
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		if (patches && value->source == VALUE_PICTURE)
			return refuse_request(refusal, EINVAL, "values",
					      "value \"%.200s\": masks, rasters and further images "
					      "are whole pictures, and patch_resize divides the "
					      "image into patches; leave one of them out",
					      value->name);
		if (!patches && value->source == VALUE_GRID)
			return refuse_request(
				refusal, EINVAL, "values",
				"value \"%.200s\": the pipeline makes no patches; add "
				"patch_resize, or leave the value out",
				value->name);
	}
	return 0;
}

int delivery_choose(const Loaderd__OpenFeed *request, const struct config *config,
		    struct batcher_options *options, struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	struct value_table *values = &options->values;
	values_init(values, options->pipeline);
	for (uint32_t i = 0; i < values->view_count; i++)
		values->views[i].image_named = image_bit(schema, values->views[i].made.pipeline);
	values->values[RING_IMAGES].named = values->views[0].image_named;
	int r = check_views(request, values, refusal);
	r = r
		    ?: request->version > PROTO_VERSION_OLDEST
		       ? choose_values(request, config, options, values, refusal)
		       : delivery_choose_fields(request, config, options, values, refusal);
	r = r ?: targets_choose(request, config, options, refusal);
	r = r ?: mosaics_choose(options, refusal);
	r = r ?: check_patches(request, options, refusal);
	r = r ?: check_view_names(schema, values, refusal);
	for (uint32_t i = 0; r == 0 && i < values->view_count; i++) {
		const struct pipeline *pipeline = values->views[i].made.pipeline;
		r = check_names(schema, pipeline, refusal);
		r = r ?: choose_crop_boxes(request, config, options, &values->views[i], refusal);
		r = r ?: check_boxes(values, pipeline, refusal);
	}
	return r ?: pastes_choose(options, refusal);
}

/* ---- what the client is told ---- */

static uint64_t bytes_with(const struct batcher_options *options, uint32_t batch_size)
{
	struct batcher_options changed = *options;
	struct ring_geometry geometry;
	changed.order.batch_size = batch_size;
	uint64_t bytes = batcher_geometry(&changed, &geometry) < 0 ? 0 : ring_size(&geometry);
	return bytes == 0 ? UINT64_MAX : bytes;
}

/* Returns the largest batch size whose ring has at most `most` bytes; 0 if there is none. */
static uint32_t batch_size_within(const struct batcher_options *options, uint64_t most)
{
	uint32_t fits = 0, above = options->order.batch_size;
	while (above - fits > 1) {
		uint32_t middle = fits + (above - fits) / 2;
		if (bytes_with(options, middle) <= most)
			fits = middle;
		else
			above = middle;
	}
	return fits;
}

/* Sets the three sections with the most room, largest first. Returns how many there are. */
static unsigned largest_sections(const struct ring_geometry *geometry, uint32_t ret_largest[3])
{
	unsigned count = 0;
	for (uint32_t s = 0; s < geometry->section_count; s++) {
		unsigned at = count < 3 ? count++ : 3;
		while (at > 0 &&
		       geometry->sections[ret_largest[at - 1]].room < geometry->sections[s].room) {
			if (at < 3)
				ret_largest[at] = ret_largest[at - 1];
			at--;
		}
		if (at < 3)
			ret_largest[at] = s;
	}
	return count;
}

/* Returns the name of the value's view; "" if all views share the value, or there are none. */
static const char *view_name(const struct value_table *values, const struct schema *schema,
			     const struct value *value)
{
	int found = value->name ? schema_find(schema, value->name) : -1;
	bool viewed = value->source == VALUE_IMAGE || derived_value_is_of_views(value->source) ||
		      (found >= 0 && delivery_is_of_views(schema, (unsigned)found));
	return viewed ? values->views[value->view].made.name : "";
}

void delivery_explain_size(const struct batcher_options *options, uint64_t most,
			   struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	struct ring_geometry geometry;
	uint32_t largest[3] = {0};
	size_t used = strlen(refusal->text), size = sizeof(refusal->text);
	if (options->values.version != RING_VERSION_2 || batcher_geometry(options, &geometry) < 0)
		return;
	unsigned count = largest_sections(&geometry, largest);
	for (unsigned i = 0; i < count && used < size; i++) {
		const struct value *value = &options->values.values[largest[i]];
		const char *view = view_name(&options->values, schema, value);
		used += (size_t)snprintf(refusal->text + used, size - used,
					 "%s\"%.63s\"%s%.63s takes %llu bytes a batch",
					 i == 0 ? "; of the largest sections, " : ", ", value->name,
					 view[0] ? " of view " : "", view,
					 (unsigned long long)geometry.sections[largest[i]].room);
	}
	uint32_t fits = most == 0 ? 0 : batch_size_within(options, most);
	if (fits > 0 && used < size)
		snprintf(refusal->text + used, size - used, "; batch_size %u would fit", fits);
}

int delivery_announce(const struct batcher_options *options, Loaderd__Section ***ret_sections,
		      size_t *ret_count, uint32_t *ret_targets)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	enum { LINE_MAX_SIZE = 512 };
	struct {
		Loaderd__Section *list[RING_SECTIONS_MAX];
		Loaderd__Section sections[RING_SECTIONS_MAX];
		char lines[RING_SECTIONS_MAX][LINE_MAX_SIZE];
	} * block;
	const struct value_table *values = &options->values;
	*ret_sections = NULL;
	*ret_count = *ret_targets = 0;
	if (values->version != RING_VERSION_2)
		return 0;
	block = malloc(sizeof(*block));
	if (!block)
		return -ENOMEM;
	for (uint32_t i = 0; i < values->count; i++) {
		Loaderd__Section *section = block->list[i] = &block->sections[i];
		const struct value *value = &values->values[i];
		uint32_t first = value->source == VALUE_IMAGE ? (uint32_t)RING_IMAGES : i;
		int found = first < RING_FIRST_FIELD ? first_value(schema, first)
						     : schema_find(schema, value->name);
		loaderd__section__init(section);
		section->name = (char *)value->name;
		section->view = value->view;
		section->view_name = (char *)view_name(values, schema, value);
		if (first < RING_FLAGS)
			section->role = first_values[first].role;
		if (value->source == VALUE_TARGET || value->source == VALUE_SHARE) {
			section->role = SCHEMA_VALUE;
			targets_print(value, block->lines[i], LINE_MAX_SIZE);
			section->schema = block->lines[i];
			continue;
		}
		if (found < 0)
			continue;
		section->role = schema->values[found].role;
		schema_print_value(schema, (unsigned)found, block->lines[i], LINE_MAX_SIZE);
		section->schema = block->lines[i];
	}
	*ret_sections = block->list;
	*ret_count = values->count;
	*ret_targets = targets_count(values);
	return 0;
}
