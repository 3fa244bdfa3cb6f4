#include "loaderd/worker/fields.h"

#include <errno.h>
#include <string.h>

enum { FIELD_BYTES_DEFAULT = 256 };

#define KEY "__key__"

/* The dataset's own field of that name comes first. */
static int find_field(const struct dataset *dataset, const char *name, uint32_t *ret_number,
		      struct packimg_field *ret_field)
{
	uint32_t count = packimg_field_count(dataset->image);
	for (uint32_t i = 0; i < count; i++) {
		if (packimg_field(dataset->image, i, ret_field) == 0 &&
		    strcmp(ret_field->name, name) == 0) {
			*ret_number = i;
			return 0;
		}
	}
	if (strcmp(name, KEY) != 0)
		return -ENOENT;
	*ret_number = VALUE_KEY;
	*ret_field = (struct packimg_field){KEY, PACKIMG_FIELD_TEXT,
					    packimg_source_longest(dataset->image)};
	return 0;
}

static int refuse_long(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct packimg_field *field, struct refusal *refusal)
{
	unsigned long long longest = field->longest;
	if (request->field_bytes == 0)
		return refuse_request(refusal, EDQUOT, "fields",
				      "field \"%.200s\": the longest value has %llu bytes, the "
				      "daemon's limit is %llu ([limits] field_bytes, at most %d); "
				      "ask for cut values, or leave the field out",
				      field->name, longest, (unsigned long long)config->field_bytes,
				      RING_FIELD_BYTES_MAX);
	return refuse_request(refusal, EINVAL, "field_bytes",
			      "field \"%.200s\": the longest value has %llu bytes, field_bytes is "
			      "%u; ask for as many (or for 0: as many as it takes), or for cut "
			      "values",
			      field->name, longest, request->field_bytes);
}

/*
 * A client that wants values whole gets room for what is recorded, no more; one that takes them
 * cut, or knows of neither, what it says.
 */
static int choose_room(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct packimg_field *field, uint32_t *ret_room,
		       struct refusal *refusal)
{
	uint64_t most = request->field_bytes == 0 ? config->field_bytes : request->field_bytes;
	*ret_room = request->field_bytes == 0 ? FIELD_BYTES_DEFAULT : request->field_bytes;
	if (*ret_room > most)
		*ret_room = (uint32_t)most;
	if (!request->whole_values || field->longest == PACKIMG_LONGEST_UNKNOWN)
		return 0;
	if (field->longest > most)
		return refuse_long(request, config, field, refusal);
	*ret_room = (uint32_t)field->longest;
	return 0;
}

static int fields_pick(const Loaderd__OpenFeed *request, const struct config *config,
		       const struct dataset *dataset, const char *name,
		       struct value_column *ret_column, struct refusal *refusal)
{
	struct value_column column = {0};
	struct packimg_field field;
	if (find_field(dataset, name, &column.number, &field) < 0)
		return refuse_request(refusal, EINVAL, "fields",
				      "the dataset has no field \"%.200s\"; packimg info lists "
				      "what it has, and " KEY " is the samples' source names",
				      name);
	column.type = field.type;
	if (field.type == PACKIMG_FIELD_TEXT && !request->text_fields)
		column.type = PACKIMG_FIELD_BYTES;
	int r = field.type < PACKIMG_FIELD_BYTES
			? 0
			: choose_room(request, config, &field, &column.room, refusal);
	*ret_column = column;
	return r;
}

int fields_choose(const Loaderd__OpenFeed *request, const struct config *config,
		  const struct dataset *dataset, struct value_columns *ret_columns,
		  struct refusal *refusal)
{
	struct value_columns columns = {.whole = request->whole_values};
	for (size_t i = 0; i < request->n_fields; i++) {
		int r = fields_pick(request, config, dataset, request->fields[i],
				    &columns.columns[columns.count++], refusal);
		if (r < 0)
			return r;
	}
	*ret_columns = columns;
	return 0;
}
