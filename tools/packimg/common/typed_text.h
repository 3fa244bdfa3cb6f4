/*
 * Text of values that a schema describes and that are stored as bytes, such as boxes and vectors:
 * JSON arrays, one level for each dimension, with null for infinities and NaN. Any thread.
 */
#pragma once

#include "format/base/schema.h"
#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

/*
 * Returns the schema's value that a field stores as bytes of numbers; NULL if the field's own type
 * defines its text.
 */
const struct schema_value *typed_value(const struct packimg *dataset, uint32_t field);
/* Appends the text. stored is present, and its size fits the value. 0 or -ENOMEM. */
int typed_text_append(const struct schema_value *value, const struct packimg_value *stored,
		      struct buffer *text);
/*
 * Appends a list of the names of classes, as Python writes it: ['cat', 'it\'s']. A class without a
 * name is its number; -1, which is no class, is left out. 0 or -ENOMEM.
 */
int typed_text_append_classes(const struct packimg *dataset, const struct schema_value *value,
			      const struct packimg_value *stored, struct buffer *text);
