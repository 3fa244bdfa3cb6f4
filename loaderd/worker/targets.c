/* Targets of mixed batches: which a feed delivers, and what the client is told of them. */
#include "loaderd/worker/delivery_internal.h"

#include "loaderd/batch/derived_values.h"
#include "loaderd/worker/subscription.h"
#include "proto/framing.h"

#include <errno.h>
#include <stdio.h>

/* Returns true for values in the frame of an image, and those that say what was cropped of it. */
static bool belongs_to_pixels(const struct schema *schema, const char *name)
{
	struct value derived;
	int found = schema_find(schema, name);
	if (found < 0)
		return derived_value_find(name, &derived) &&
		       derived_value_is_of_views(derived.source);
	return schema->values[found].store != SCHEMA_IN_INDEX &&
	       delivery_is_of_views(schema, (unsigned)found);
}

/* Refuses values that belong to the pixels of an image, which are no longer those of a sample. */
static int check_unmixed(const Loaderd__OpenFeed *request, const struct schema *schema,
			 struct refusal *refusal)
{
	for (size_t i = 0; i < request->n_values; i++) {
		if (!belongs_to_pixels(schema, request->values[i]))
			continue;
		return refuse_request(refusal, EINVAL, "values",
				      "value \"%.63s\" belongs to the pixels of its sample alone, "
				      "and mixup and cutmix blend images of two samples; leave it "
				      "out, or them",
				      request->values[i]);
	}
	return 0;
}

static int check_targets(const Loaderd__OpenFeed *request, const struct config *config,
			 const struct batcher_options *options, uint32_t classes,
			 struct refusal *refusal)
{
	const struct pipeline_batch *steps = pipeline_batch(options->pipeline);
	if (request->version == PROTO_VERSION_OLDEST || !request->targets)
		return refuse_request(
			refusal, EINVAL, "pipeline",
			"mixup, cutmix and targets deliver targets beside labels, which this "
			"program does not know: leave them out, update the client library, or ask "
			"for values instead of fields");
	if (pipeline_mixes(options->pipeline) && !request->wanted && request->batch_size % 2)
		return refuse_request(refusal, EINVAL, "batch_size",
				      "mixup and cutmix blend pairs of samples, and batch_size %u "
				      "is odd; ask for %u",
				      request->batch_size, request->batch_size + 1);
	if (steps->targets == PIPELINE_TARGETS_PAIRS)
		return 0;
	if (classes == 0)
		return refuse_request(
			refusal, EINVAL, "pipeline",
			"targets have a weight of each class, and the dataset has no classes; "
			"give their number with targets(num_classes=N), or use targets(pairs)");
	if (classes * sizeof(float) > config->field_bytes)
		return refuse_request(
			refusal, EDQUOT, "pipeline",
			"targets of %u classes take %llu bytes a sample, but the daemon's limit is "
			"%llu ([limits] field_bytes); use targets(pairs), which take 12, or raise "
			"the limit",
			classes, (unsigned long long)(classes * sizeof(float)),
			(unsigned long long)config->field_bytes);
	return 0;
}

/* Adds the sections of targets. */
static int append_targets(const struct schema *schema, uint32_t classes, struct value_table *values,
			  struct refusal *refusal)
{
	struct value target = {.source = VALUE_TARGET,
			       .name = delivery_own_name(schema, "target", values->target_names[0]),
			       .element = classes > 0 ? RING_F32 : RING_I32,
			       .dims = 1,
			       .shape = {classes > 0 ? classes : 2}};
	const struct value share = {
		.source = VALUE_SHARE,
		.name = delivery_own_name(schema, "share", values->target_names[1]),
		.element = RING_F32,
		.row = sizeof(float)};
	target.row = target.shape[0] * ring_element_size(target.element);
	values->target = values->count;
	values->classes = classes;
	int r = delivery_append(values, &target, refusal);
	return r < 0 || classes > 0 ? r : delivery_append(values, &share, refusal);
}

int targets_choose(const Loaderd__OpenFeed *request, const struct config *config,
		   struct batcher_options *options, struct refusal *refusal)
{
	const struct pipeline_batch *steps = pipeline_batch(options->pipeline);
	const struct schema *schema = packimg_schema(options->dataset->image);
	uint32_t classes = steps->targets == PIPELINE_TARGETS_PAIRS ? 0
			   : steps->classes > 0                     ? steps->classes
						: packimg_class_count(options->dataset->image);
	if (steps->targets == PIPELINE_NO_TARGETS)
		return 0;
	int r = check_targets(request, config, options, classes, refusal);
	if (r == 0 && pipeline_mixes(options->pipeline))
		r = check_unmixed(request, schema, refusal);
	return r ?: append_targets(schema, classes, &options->values, refusal);
}

uint32_t targets_count(const struct value_table *values)
{
	return values->target > 0 ? values->count - values->target : 0;
}

void targets_print(const struct value *value, char *line, size_t size)
{
	const char *element = value->element == RING_F32 ? "f32" : "i32";
	if (value->dims > 0)
		snprintf(line, size, "%s: value %s[%u]", value->name, element, value->shape[0]);
	else
		snprintf(line, size, "%s: value %s", value->name, element);
}
