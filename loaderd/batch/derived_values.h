/*
 * Values that no dataset stores: what follows from a sample and its pipeline. Diffusion models are
 * conditioned on them (Podell et al. 2023, "SDXL", 2.2). See proto/SPEC.md, "Values".
 */
#pragma once

#include "loaderd/batch/values.h"

/*
 * Sets *ret_value to the derived value of that name, and returns true if there is one. The name
 * lives for ever.
 */
bool derived_value_find(const char *name, struct value *ret_value);
/* Returns true if each view has its own. */
bool derived_value_is_of_views(enum value_source source);
/*
 * Writes a sample's value to its cell. Call it inside the dataset's guard, after the view's boxes
 * are in the scratch. Returns the errors of pipeline_crop_top_left().
 */
int derived_value_put(const struct value *value, const struct value_origin *origin, uint8_t *cell,
		      struct packimg_error *error);
