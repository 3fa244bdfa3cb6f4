/* Values of pipelines that join samples by mosaic: which can be joined. */
#include "loaderd/worker/delivery_internal.h"

#include "loaderd/worker/subscription.h"

#include <errno.h>

/* Returns true if the value is in the first image's frame, or its rows belong to such a value. */
static bool is_of_image(const struct schema *schema, const struct value *value)
{
	int found = value->source == VALUE_FIELD ? schema_find(schema, value->name) : -1;
	int owner = found < 0 ? -1 : schema_rows(schema, (unsigned)found);
	return value->frame != VALUE_NO_FRAME || value->boxes ||
	       (owner >= 0 && schema_frame(schema, (unsigned)owner) >= 0);
}

static int choose_value(const struct schema *schema, struct value *value, struct refusal *refusal)
{
	if (value->source == VALUE_CROP_TOP_LEFT)
		return refuse_request(refusal, EINVAL, "values",
				      "value \"%.63s\": mosaic joins four samples, each with a "
				      "crop of its own; leave it out, or mosaic",
				      value->name);
	if (value->frame >= VALUE_FURTHER_IMAGE ||
	    (value->source == VALUE_PICTURE && value->channels == 0))
		return refuse_request(refusal, EINVAL, "values",
				      "value \"%.63s\": mosaic joins first images, and this is or "
				      "belongs to another; leave it out, or mosaic",
				      value->name);
	if (value->source != VALUE_FIELD || !is_of_image(schema, value))
		return 0;
	if (!value->ragged)
		return refuse_request(refusal, EINVAL, "values",
				      "value \"%.63s\": mosaic joins the rows of four samples, and "
				      "this has a fixed number; pack it with any number of rows "
				      "([*,...]), or leave it out",
				      value->name);
	if (value->coordinates.role == SCHEMA_POLYGONS && !value->boxes)
		return refuse_request(refusal, EINVAL, "values",
				      "value \"%.63s\": mosaic joins polygons of boxes, as in "
				      "polygons(boxes), and these belong to none; leave it out, or "
				      "mosaic",
				      value->name);
	value->joined = 1 + MOSAIC_OTHERS;
	return 0;
}

int mosaics_choose(struct batcher_options *options, struct refusal *refusal)
{
	const struct schema *schema = packimg_schema(options->dataset->image);
	struct value_table *values = &options->values;
	int r = 0;
	if (!pipeline_joins(options->pipeline) || values->version != RING_VERSION_2)
		return 0;
	for (uint32_t v = RING_FIRST_FIELD; r == 0 && v < values->count; v++)
		r = choose_value(schema, &values->values[v], refusal);
	return r;
}
