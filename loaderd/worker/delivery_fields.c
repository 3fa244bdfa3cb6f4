#include "loaderd/worker/delivery_internal.h"
#include "loaderd/worker/subscription.h"
#include "proto/ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FIELD_BYTES_DEFAULT = 256 };

/* The element of a field of numbers; RING_OPAQUE for other types. */
static uint8_t number_element(uint32_t type)
{
	return type == PACKIMG_FIELD_INT64     ? RING_I64
	       : type == PACKIMG_FIELD_FLOAT64 ? RING_F64
					       : RING_OPAQUE;
}

#define KEY "__key__"

/* Finds a field by name. A field of the dataset named __key__ takes precedence. */
static int find_field(const struct dataset *dataset, const char *name, struct value *ret_value,
		      struct packimg_field *ret_field)
{
	uint32_t count = packimg_field_count(dataset->image);
	for (uint32_t i = 0; i < count; i++) {
		if (packimg_field(dataset->image, i, ret_field) == 0 &&
		    strcmp(ret_field->name, name) == 0) {
			*ret_value = (struct value){.source = VALUE_FIELD, .field = i};
			return 0;
		}
	}
	if (strcmp(name, KEY) != 0)
		return -ENOENT;
	*ret_value = (struct value){.source = VALUE_KEY};
	*ret_field = (struct packimg_field){KEY, PACKIMG_FIELD_TEXT,
					    packimg_source_longest(dataset->image)};
	return 0;
}

/* The daemon's limit of a field's value, which a ring of version 1 limits, too. */
static uint32_t field_bytes_max(const struct config *config)
{
	return config->field_bytes < RING_FIELD_BYTES_MAX ? (uint32_t)config->field_bytes
							  : RING_FIELD_BYTES_MAX;
}

static int refuse_long(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct packimg_field *field, struct refusal *refusal)
{
	unsigned long long longest = field->longest;
	bool cuts = strcmp(field->name, DEFERRED) != 0;
	if (request->field_bytes == 0)
		return refuse_request(
			refusal, EDQUOT, "fields",
			"field \"%.200s\": the longest value has %llu bytes, but the daemon's "
			"limit is %u ([limits] field_bytes, at most %d); %sleave the field out",
			field->name, longest, field_bytes_max(config), RING_FIELD_BYTES_MAX,
			cuts ? "ask for cut values, or " : "");
	return refuse_request(refusal, EINVAL, "field_bytes",
			      "field \"%.200s\": the longest value has %llu bytes, but field_bytes "
			      "is %u; ask for that many (or for 0: as many as it takes)%s",
			      field->name, longest, request->field_bytes,
			      cuts ? ", or for cut values" : "");
}

/*
 * Chooses the bytes per value. For whole values, this is the longest recorded one; otherwise, or if
 * that is unknown, the size that the client asks for.
 */
static int choose_capacity(const Loaderd__OpenFeed *request, const struct config *config,
			   const struct packimg_field *field, bool whole, uint64_t *ret_capacity,
			   struct refusal *refusal)
{
	uint64_t most = request->field_bytes == 0 ? field_bytes_max(config) : request->field_bytes;
	*ret_capacity = request->field_bytes == 0 ? FIELD_BYTES_DEFAULT : request->field_bytes;
	if (*ret_capacity > most)
		*ret_capacity = most;
	if (!whole || field->longest == PACKIMG_LONGEST_UNKNOWN)
		return 0;
	if (field->longest > most)
		return refuse_long(request, config, field, refusal);
	*ret_capacity = field->longest;
	return 0;
}

/* Lists the dataset's field names, as many as fit. */
static void fields_list(const struct dataset *dataset, char *text, size_t size)
{
	struct packimg_field field;
	uint32_t count = packimg_field_count(dataset->image);
	size_t used = (size_t)snprintf(text, size, count ? "it has " : "it has none of its own");
	for (uint32_t i = 0; i < count && !packimg_field(dataset->image, i, &field); i++) {
		size_t room = size - used, more = strlen(field.name) + sizeof(", \"\"");
		if (more + sizeof(" and others, which packimg info lists") > room) {
			snprintf(text + used, room, " and others, which packimg info lists");
			return;
		}
		used += (size_t)snprintf(text + used, room, "%s\"%s\"", i ? ", " : "", field.name);
	}
}

static int fields_refuse(const struct dataset *dataset, const char *name, struct refusal *refusal)
{
	char list[400];
	fields_list(dataset, list, sizeof(list));
	return refuse_request(refusal, EINVAL, "fields",
			      "the dataset has no field \"%.200s\": %s; " KEY
			      " is the samples' source names, and " DEFERRED
			      " the part of the pipeline that is left to the client",
			      name, list);
}

static int fields_pick(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct batcher_options *options, const char *name,
		       struct value *ret_value, struct refusal *refusal)
{
	const struct dataset *dataset = options->dataset;
	struct value value;
	struct packimg_field field;
	bool whole = request->whole_values;
	if (strcmp(name, DEFERRED) == 0) {
		value = (struct value){.source = VALUE_DEFERRED};
		field = (struct packimg_field){DEFERRED, PACKIMG_FIELD_BYTES,
					       pipeline_deferred_max(options->pipeline)};
		whole = true;
	} else if (find_field(dataset, name, &value, &field) < 0)
		return fields_refuse(dataset, name, refusal);
	value.type = field.type;
	value.element = number_element(field.type);
	if (field.type == PACKIMG_FIELD_TEXT && !request->text_fields)
		value.type = PACKIMG_FIELD_BYTES;
	int r = field.type < PACKIMG_FIELD_BYTES
			? 0
			: choose_capacity(request, config, &field, whole, &value.capacity, refusal);
	*ret_value = value;
	return r;
}

int delivery_choose_fields(const Loaderd__OpenFeed *request, const struct config *config,
			   const struct batcher_options *options, struct value_table *values,
			   struct refusal *refusal)
{
	uint64_t most = config->fields < RING_FIELDS_MAX ? config->fields : RING_FIELDS_MAX;
	if (request->n_fields > most)
		return refuse_request(
			refusal, EDQUOT, "fields",
			"the client asked for %zu fields, but the daemon's limit is "
			"%llu ([limits] fields, at most %d); more can be asked for as "
			"values",
			request->n_fields, (unsigned long long)most, RING_FIELDS_MAX);
	if (request->field_bytes > field_bytes_max(config))
		return refuse_request(refusal, EDQUOT, "field_bytes",
				      "field_bytes %u exceeds the daemon's limit of %u ([limits] "
				      "field_bytes, at most %d)",
				      request->field_bytes, field_bytes_max(config),
				      RING_FIELD_BYTES_MAX);
	values->whole = request->whole_values;
	for (size_t i = 0; i < request->n_fields; i++) {
		int r = fields_pick(request, config, options, request->fields[i],
				    &values->values[values->count++], refusal);
		if (r < 0)
			return r;
	}
	return 0;
}
