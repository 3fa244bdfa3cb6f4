#include "loaderd/batch/derived_values.h"

#include <string.h>

static const struct {
	const char *name;
	enum value_source source;
} derived[] = {
	{"__original_size__", VALUE_ORIGINAL_SIZE},
	{"__crop_top_left__", VALUE_CROP_TOP_LEFT},
	{"__grid__", VALUE_GRID},
};

bool derived_value_find(const char *name, struct value *ret_value)
{
	for (size_t i = 0; i < sizeof(derived) / sizeof(*derived); i++) {
		if (strcmp(name, derived[i].name) != 0)
			continue;
		*ret_value = (struct value){.source = derived[i].source,
					    .name = derived[i].name,
					    .element = RING_I32,
					    .dims = 1,
					    .row = 2 * sizeof(int32_t),
					    .capacity = 2 * sizeof(int32_t),
					    .shape = {2}};
		return true;
	}
	return false;
}

bool derived_value_is_of_views(enum value_source source)
{
	return source == VALUE_CROP_TOP_LEFT;
}

int derived_value_put(const struct value *value, const struct value_origin *origin, uint8_t *cell,
		      struct packimg_error *error)
{
	int32_t pair[2] = {(int32_t)origin->sample->height, (int32_t)origin->sample->width};
	int r = 0;
	if (value->source == VALUE_GRID) {
		struct pipeline_grid grid = pipeline_patch_grid(
			origin->pipeline, origin->sample->width, origin->sample->height);
		pair[0] = (int32_t)grid.rows;
		pair[1] = (int32_t)grid.columns;
	}
	if (value->source == VALUE_CROP_TOP_LEFT)
		r = pipeline_crop_top_left(origin->pipeline, origin->scratch, origin->sample,
					   origin->seed, origin->epoch, pair, error);
	if (r == 0)
		memcpy(cell, pair, sizeof(pair));
	return r;
}
