#include "format/base/schema.h"

#include "format/base/schema_rules.h"
#include "format/base/text/nearest.h"
#include "format/base/text/sentence.h"
#include "format/base/text/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BIT(number) (1u << (number))

enum {
	PIXEL_ELEMENTS = BIT(SCHEMA_U8) | BIT(SCHEMA_U16) | BIT(SCHEMA_I16) | BIT(SCHEMA_I32) |
			 BIT(SCHEMA_F32),
	MASK_ELEMENTS = PIXEL_ELEMENTS & ~BIT(SCHEMA_F32),
	CLASS_ELEMENTS = MASK_ELEMENTS | BIT(SCHEMA_I64),
	ALL_ELEMENTS = BIT(SCHEMA_ELEMENTS) - BIT(SCHEMA_U8),
	PIXEL_ROLES = BIT(SCHEMA_IMAGE) | BIT(SCHEMA_MASK) | BIT(SCHEMA_RASTER),
	IN_COLUMN = BIT(SCHEMA_IN_COLUMN),
	IN_IMAGES = BIT(SCHEMA_IN_IMAGES),
};

const struct schema_role_row schema_roles[SCHEMA_ROLES] = {
	[SCHEMA_IMAGE] = {"image", "u8[h,w,3]", "u8[h,w,3]", PIXEL_ELEMENTS, 2, 3,
			  OF_FRAME_OR_NOTHING, BIT(SCHEMA_IN_INDEX) | IN_IMAGES},
	[SCHEMA_MASK] = {"mask", "u8[h,w]", "u8[h,w]", MASK_ELEMENTS, 2, 3, OF_FRAME, IN_IMAGES},
	[SCHEMA_RASTER] = {"raster", NULL, "u16[h,w]", PIXEL_ELEMENTS, 2, 3, OF_FRAME_OR_NOTHING,
			   IN_IMAGES},
	[SCHEMA_BOXES] = {"boxes", "f32[*,4]", "f32[*,4]", BIT(SCHEMA_F32), 1, 2, OF_FRAME,
			  IN_COLUMN},
	[SCHEMA_KEYPOINTS] = {"keypoints", NULL, "f32[17,3]", BIT(SCHEMA_F32), 1, 3,
			      OF_FRAME_OR_ROWS, IN_COLUMN},
	[SCHEMA_POLYGONS] = {"polygons", NULL, "f32[*,2]", BIT(SCHEMA_F32), 2, 3, OF_FRAME_OR_ROWS,
			     IN_COLUMN},
	[SCHEMA_CLASS] = {"class", "i32", "i32", CLASS_ELEMENTS, 0, 4, OF_ROWS_OR_NOTHING,
			  BIT(SCHEMA_IN_LABEL) | IN_COLUMN},
	[SCHEMA_VALUE] = {"value", NULL, "f32", ALL_ELEMENTS, 0, 4, OF_ROWS_OR_NOTHING, IN_COLUMN},
	[SCHEMA_TEXT] = {"text", "", "", 0, 0, 0, OF_NOTHING, IN_COLUMN},
	[SCHEMA_BYTES] = {"bytes", "", "", 0, 0, 0, OF_NOTHING, IN_COLUMN},
	[SCHEMA_KEY] = {"key", "", "", 0, 0, 0, OF_NOTHING, BIT(SCHEMA_IN_SOURCE)},
	[SCHEMA_NUMBER] = {"number", "u64", "u64", BIT(SCHEMA_U64), 0, 0, OF_NOTHING,
			   BIT(SCHEMA_IN_NUMBER)},
	[SCHEMA_JSON] = {"json", "", "", 0, 0, 0, OF_NOTHING, IN_COLUMN},
};

const struct schema_format_row schema_formats[SCHEMA_FORMAT_ROWS] = {
	{"xyxy", BIT(SCHEMA_BOXES), SCHEMA_XYXY, 4},
	{"xywh", BIT(SCHEMA_BOXES), SCHEMA_XYWH, 4},
	{"cxcywh", BIT(SCHEMA_BOXES), SCHEMA_CXCYWH, 4},
	{"cxcywhr", BIT(SCHEMA_BOXES), SCHEMA_CXCYWHR, 5},
	{"xy", BIT(SCHEMA_KEYPOINTS) | BIT(SCHEMA_POLYGONS), SCHEMA_XY, 2},
	{"xyv", BIT(SCHEMA_KEYPOINTS), SCHEMA_XYV, 3},
};

static const struct {
	const char *name;
	size_t size;
} schema_elements[SCHEMA_ELEMENTS] = {
	[SCHEMA_NO_ELEMENT] = {"", 1}, [SCHEMA_U8] = {"u8", 1},   [SCHEMA_F16] = {"f16", 2},
	[SCHEMA_BF16] = {"bf16", 2},   [SCHEMA_F32] = {"f32", 4}, [SCHEMA_U16] = {"u16", 2},
	[SCHEMA_I16] = {"i16", 2},     [SCHEMA_I32] = {"i32", 4}, [SCHEMA_I64] = {"i64", 8},
	[SCHEMA_U64] = {"u64", 8},     [SCHEMA_F64] = {"f64", 8},
};

const char *schema_role_name(enum schema_role role)
{
	return schema_roles[role].name;
}

const char *schema_element_name(enum schema_element element)
{
	return schema_elements[element].name;
}

size_t schema_element_size(enum schema_element element)
{
	return schema_elements[element].size;
}

const struct schema_format_row *schema_format_of(const struct schema_value *value)
{
	for (unsigned i = 0; i < SCHEMA_FORMAT_ROWS; i++)
		if ((schema_formats[i].roles & BIT(value->role)) &&
		    schema_formats[i].format == value->format)
			return &schema_formats[i];
	return NULL;
}

const struct schema_format_row *schema_format_by_size(enum schema_role role, uint32_t size)
{
	for (unsigned i = 0; i < SCHEMA_FORMAT_ROWS; i++)
		if ((schema_formats[i].roles & BIT(role)) && schema_formats[i].size == size)
			return &schema_formats[i];
	return NULL;
}

bool schema_is_rgb(const struct schema_value *value)
{
	return value->role == SCHEMA_IMAGE && value->element == SCHEMA_U8 && value->dims == 3 &&
	       value->shape[2] == 3;
}

bool schema_has_pixels(const struct schema_value *value)
{
	return BIT(value->role) & PIXEL_ROLES;
}

bool schema_has_rows(const struct schema_value *value)
{
	return !schema_has_pixels(value) && value->dims > 0 && value->shape[0] == 0;
}

size_t schema_row_size(const struct schema_value *value)
{
	size_t size = schema_element_size(value->element);

	for (unsigned i = schema_has_rows(value); i < value->dims; i++)
		size *= value->shape[i];
	return size;
}

int schema_find(const struct schema *schema, const char *name)
{
	for (unsigned i = 0; i < schema->count; i++)
		if (strcmp(schema->values[i].name, name) == 0)
			return (int)i;
	return -1;
}

const char *schema_nearest(const struct schema *schema, const char *name)
{
	struct nearest nearest = nearest_to(name);

	for (unsigned i = 0; i < schema->count; i++)
		nearest_offer(&nearest, schema->values[i].name);
	return nearest.meant;
}

int schema_stored(const struct schema *schema, enum schema_store store, unsigned number)
{
	for (unsigned i = 0; i < schema->count; i++)
		if (schema->values[i].store == store && schema->values[i].number == number)
			return (int)i;
	return -1;
}

unsigned schema_image_count(const struct schema *schema)
{
	unsigned count = 0;

	for (unsigned i = 0; i < schema->count; i++)
		count += schema->values[i].store == SCHEMA_IN_IMAGES;
	return count;
}

static bool is_frame(const struct schema_value *value)
{
	return (value->role == SCHEMA_IMAGE || value->role == SCHEMA_RASTER) &&
	       value->of == SCHEMA_OF_NONE;
}

int schema_frame(const struct schema *schema, unsigned value)
{
	const struct schema_value *at = &schema->values[value];

	if (at->role == SCHEMA_CLASS || at->role == SCHEMA_VALUE)
		return -1;
	while (at->of != SCHEMA_OF_NONE)
		at = &schema->values[at->of];
	return is_frame(at) ? (int)(at - schema->values) : -1;
}

int schema_rows(const struct schema *schema, unsigned value)
{
	if (!schema_has_rows(&schema->values[value]))
		return -1;
	for (uint16_t of = schema->values[value].of;
	     of != SCHEMA_OF_NONE && schema_has_rows(&schema->values[of]);
	     of = schema->values[of].of)
		value = of;
	return (int)value;
}

bool schema_has_polygons_of_objects(const struct schema *schema, unsigned value)
{
	const struct schema_value *polygons = &schema->values[value];

	return polygons->role == SCHEMA_POLYGONS && polygons->dims == 2 &&
	       polygons->of != SCHEMA_OF_NONE && schema_has_rows(&schema->values[polygons->of]);
}

int schema_add(struct schema *schema, const struct schema_value *value)
{
	if (schema->count == SCHEMA_VALUES_MAX)
		return -E2BIG;
	schema->values[schema->count++] = *value;
	return 0;
}

const char *schema_longest_name(const char *word, char longest[SCHEMA_NAME_MAX + 1])
{
	size_t size = strlen(word);

	memset(longest, '_', SCHEMA_NAME_MAX - size);
	memcpy(longest + SCHEMA_NAME_MAX - size, word, size + 1);
	return longest + SCHEMA_NAME_MAX - size;
}

int schema_add_implied(struct schema *schema, bool all)
{
	static const struct schema_value implied[] = {
		{"label", SCHEMA_CLASS, SCHEMA_I32, SCHEMA_IN_LABEL, .of = SCHEMA_OF_NONE},
		{"sample", SCHEMA_NUMBER, SCHEMA_U64, SCHEMA_IN_NUMBER, .of = SCHEMA_OF_NONE},
		{"key", SCHEMA_KEY, SCHEMA_NO_ELEMENT, SCHEMA_IN_SOURCE, .of = SCHEMA_OF_NONE},
	};
	int r = 0;

	for (size_t i = 0; i < sizeof(implied) / sizeof(implied[0]) && r == 0; i++) {
		struct schema_value value = implied[i];
		char longest[SCHEMA_NAME_MAX + 1];

		if (schema_stored(schema, value.store, 0) >= 0)
			continue;
		if (!all && schema_find(schema, value.name) >= 0)
			continue;
		const char *name = schema_longest_name(value.name, longest);
		while (name > longest && schema_find(schema, name) >= 0)
			name--;
		memcpy(value.name, name, (size_t)(longest + sizeof(longest) - name));
		r = schema_add(schema, &value);
	}
	return r;
}

/* Compares what the canonical text contains: neither stores nor largest sizes. */
static bool value_equal(const struct schema_value *a, const struct schema_value *b)
{
	return strcmp(a->name, b->name) == 0 && a->role == b->role && a->element == b->element &&
	       a->format == b->format && a->flags == b->flags && a->dims == b->dims &&
	       memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 && a->of == b->of;
}

bool schema_equal(const struct schema *a, const struct schema *b)
{
	if (a->count != b->count)
		return false;
	for (unsigned i = 0; i < a->count; i++)
		if (!value_equal(&a->values[i], &b->values[i]))
			return false;
	return true;
}

/* Rules */

/* Writes the fault and evaluates to false, for `return fault_at(...)`. */
#define fault_at(fault, part_, ...)                                                                \
	((fault)->part = (part_), sentence_write((fault)->text, SCHEMA_ERROR_MAX, __VA_ARGS__),    \
	 false)

static bool name_is_sound(const struct schema *schema, unsigned index, struct schema_fault *fault)
{
	const char *name = schema->values[index].name;
	size_t size = strnlen(name, SCHEMA_NAME_MAX + 1);

	if (size == 0 || size > SCHEMA_NAME_MAX)
		return fault_at(fault, SCHEMA_PART_NAME,
				"the name of value %u has %s; it must have 1 to %d bytes", index,
				size ? "more bytes" : "no byte", SCHEMA_NAME_MAX);
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return fault_at(fault, SCHEMA_PART_NAME,
					"the name of value %u has the control character 0x%02x",
					index, (unsigned char)name[i]);
	if (!text_is_utf8(name, size))
		return fault_at(fault, SCHEMA_PART_NAME, "the name of value %u is not UTF-8",
				index);
	if (schema_find(schema, name) != (int)index)
		return fault_at(fault, SCHEMA_PART_NAME, "two values are named '%s'; rename one",
				name);
	return true;
}

static bool element_is_sound(const struct schema_value *value, struct schema_fault *fault)
{
	const struct schema_role_row *row = &schema_roles[value->role];

	if (row->elements == 0)
		return value->element == SCHEMA_NO_ELEMENT ||
		       fault_at(fault, SCHEMA_PART_TYPE,
				"'%s' has an element, but %s has none; remove it", value->name,
				row->name);
	if (value->element <= SCHEMA_NO_ELEMENT || value->element >= SCHEMA_ELEMENTS)
		return fault_at(fault, SCHEMA_PART_TYPE, "'%s' needs an element, such as %s",
				value->name, row->example);
	if (!(row->elements & BIT(value->element)))
		return fault_at(fault, SCHEMA_PART_TYPE,
				"'%s' has element %s, which %s cannot have; use one such as %s",
				value->name, schema_element_name(value->element), row->name,
				row->example);
	return true;
}

/* True if dimension i may differ from sample to sample. */
static bool may_vary(const struct schema_value *value, unsigned i)
{
	return schema_has_pixels(value) ? i < 2 : i == 0;
}

static bool dims_are_sound(const struct schema_value *value, struct schema_fault *fault)
{
	const struct schema_role_row *row = &schema_roles[value->role];
	bool pixels = schema_has_pixels(value);

	if (value->dims < row->dims_min || value->dims > row->dims_max)
		return fault_at(fault, SCHEMA_PART_TYPE,
				"'%s' has %u dimensions; %s has %u to %u, for example %s",
				value->name, value->dims, row->name, row->dims_min, row->dims_max,
				row->example);
	for (unsigned i = 0; i < SCHEMA_DIMS_MAX; i++) {
		uint32_t max = pixels ? (i < 2 ? SCHEMA_SIDE_MAX : SCHEMA_CHANNELS_MAX)
				      : SCHEMA_ROW_SIZE_MAX;

		if (i < value->dims ? !value->shape[i] && !may_vary(value, i) : value->shape[i])
			return fault_at(fault, SCHEMA_PART_TYPE, "dimension %u of '%s' must be %s",
					i + 1, value->name,
					i < value->dims ? "a number" : "absent");
		if (value->shape[i] > max)
			return fault_at(fault, SCHEMA_PART_TYPE,
					"dimension %u of '%s' is %u; it must be at most %u", i + 1,
					value->name, value->shape[i], max);
	}
	return true;
}

static bool size_is_sound(const struct schema_value *value, struct schema_fault *fault)
{
	uint64_t size = schema_element_size(value->element);

	if (schema_has_pixels(value))
		return true;
	/* no overflow: the product so far is at most 2^30, and so is each factor */
	for (unsigned i = schema_has_rows(value); i < value->dims; i++) {
		size *= value->shape[i];
		if (size > SCHEMA_ROW_SIZE_MAX)
			return fault_at(fault, SCHEMA_PART_TYPE,
					"'%s' has more than %d bytes in each %s", value->name,
					SCHEMA_ROW_SIZE_MAX,
					schema_has_rows(value) ? "row" : "sample");
	}
	return true;
}

static bool format_is_sound(const struct schema_value *value, struct schema_fault *fault)
{
	const struct schema_format_row *row = schema_format_of(value);
	bool has_format = value->role >= SCHEMA_BOXES && value->role <= SCHEMA_POLYGONS;
	uint32_t last = value->dims ? value->shape[value->dims - 1] : 0;

	if (!has_format)
		return value->format == SCHEMA_NO_FORMAT ||
		       fault_at(fault, SCHEMA_PART_WORDS,
				"'%s' has a format of coordinates, but %s has none; remove it",
				value->name, schema_roles[value->role].name);
	if (!row)
		return fault_at(fault, SCHEMA_PART_TYPE,
				"the last dimension of '%s' is %u, which no format of %s has; use "
				"one such as %s",
				value->name, last, schema_roles[value->role].name,
				schema_roles[value->role].example);
	if (row->size != last)
		return fault_at(fault, SCHEMA_PART_TYPE,
				"the last dimension of '%s' is %u, but %s has %u numbers",
				value->name, last, row->name, row->size);
	return true;
}

static bool flags_are_sound(const struct schema_value *value, struct schema_fault *fault)
{
	bool normalizable = value->role >= SCHEMA_BOXES && value->role <= SCHEMA_POLYGONS;
	bool lackable = value->store == SCHEMA_IN_IMAGES || value->store == SCHEMA_IN_COLUMN;

	if (value->flags & ~(unsigned)(SCHEMA_SPARSE | SCHEMA_NORMALIZED))
		return fault_at(fault, SCHEMA_PART_WORDS, "'%s' has an unknown flag", value->name);
	if ((value->flags & SCHEMA_NORMALIZED) && !normalizable)
		return fault_at(fault, SCHEMA_PART_WORDS,
				"'%s' has no coordinates that could be normalized; remove the word",
				value->name);
	if ((value->flags & SCHEMA_SPARSE) && !lackable)
		return fault_at(fault, SCHEMA_PART_WORDS,
				"'%s' cannot be sparse, because every sample has it; remove the "
				"word",
				value->name);
	return true;
}

static bool of_is_sound(const struct schema *schema, unsigned index, struct schema_fault *fault)
{
	const struct schema_value *value = &schema->values[index];
	const struct schema_role_row *row = &schema_roles[value->role];
	bool frames = row->of != OF_NOTHING && row->of != OF_ROWS_OR_NOTHING;
	bool rows = row->of == OF_ROWS_OR_NOTHING || row->of == OF_FRAME_OR_ROWS;

	if (value->of == SCHEMA_OF_NONE)
		return (row->of != OF_FRAME && row->of != OF_FRAME_OR_ROWS) ||
		       fault_at(fault, SCHEMA_PART_ROLE,
				"'%s' must name the image to which it belongs, such as %s(image)",
				value->name, row->name);
	if (value->of >= index)
		return fault_at(fault, SCHEMA_PART_OF,
				"'%s' belongs to a value that does not come before it; put that "
				"value first",
				value->name);
	const struct schema_value *of = &schema->values[value->of];

	if (frames && is_frame(of))
		return true;
	if (rows && schema_has_rows(value) && schema_has_rows(of) &&
	    (!frames || schema_frame(schema, value->of) >= 0))
		return true;
	if (!frames && !rows)
		return fault_at(fault, SCHEMA_PART_OF,
				"%s belongs to no other value; remove '(%s)'", row->name, of->name);
	return fault_at(
		fault, SCHEMA_PART_OF, "'%s' cannot belong to '%s': it needs %s%s%s", value->name,
		of->name, frames ? "an image or a raster that belongs to no other" : "",
		frames && rows ? ", or " : "",
		rows ? "a value with '*' as the first dimension, which it needs itself, too" : "");
}

/* Checks a value's store and largest sizes, which the text does not contain. */
static bool store_is_sound(const struct schema *schema, unsigned index, struct schema_fault *fault)
{
	const struct schema_value *value = &schema->values[index];
	bool has_longest = schema_has_rows(value) ||
			   (value->element == SCHEMA_NO_ELEMENT && value->role != SCHEMA_NUMBER);
	unsigned images = 0;

	if (value->store >= SCHEMA_STORES ||
	    !(schema_roles[value->role].stores & BIT(value->store)))
		return fault_at(fault, SCHEMA_PART_ROLE, "'%s' is stored where %s cannot be",
				value->name, schema_roles[value->role].name);
	if (value->store == SCHEMA_IN_INDEX && !is_frame(value))
		return fault_at(fault, SCHEMA_PART_OF,
				"'%s' is the main image, which belongs to no other", value->name);
	if (value->store == SCHEMA_IN_LABEL && (value->dims || value->element != SCHEMA_I32))
		return fault_at(fault, SCHEMA_PART_TYPE, "'%s' is the label, which is one i32",
				value->name);
	if (schema_stored(schema, value->store, value->number) != (int)index)
		return fault_at(fault, SCHEMA_PART_ROLE,
				"'%s' is stored in the same place as another value", value->name);
	for (unsigned i = 0; i < index; i++)
		images += schema->values[i].store == SCHEMA_IN_IMAGES;
	if (value->store == SCHEMA_IN_IMAGES && images >= SCHEMA_IMAGES_MAX)
		return fault_at(fault, SCHEMA_PART_ROLE,
				"'%s' is one image too many; at most %d may follow the main image",
				value->name, SCHEMA_IMAGES_MAX);
	if (value->store == SCHEMA_IN_IMAGES   ? value->number != images
	    : value->store == SCHEMA_IN_COLUMN ? value->number >= SCHEMA_COLUMNS_MAX
					       : value->number != 0)
		return fault_at(fault, SCHEMA_PART_ROLE, "'%s' has the number %u, which is wrong",
				value->name, value->number);
	if ((value->longest && !has_longest) ||
	    ((value->width || value->height) && !schema_has_pixels(value)) ||
	    value->width > SCHEMA_SIDE_MAX || value->height > SCHEMA_SIDE_MAX)
		return fault_at(fault, SCHEMA_PART_TYPE, "the largest size of '%s' is wrong",
				value->name);
	return true;
}

static bool value_is_sound(const struct schema *schema, unsigned index, struct schema_fault *fault)
{
	const struct schema_value *value = &schema->values[index];

	fault->value = index;
	if (!name_is_sound(schema, index, fault))
		return false;
	if (value->role < SCHEMA_IMAGE || value->role >= SCHEMA_ROLES)
		return fault_at(fault, SCHEMA_PART_ROLE, "'%s' has the unknown role %d",
				value->name, (int)value->role);
	return element_is_sound(value, fault) && dims_are_sound(value, fault) &&
	       size_is_sound(value, fault) && format_is_sound(value, fault) &&
	       of_is_sound(schema, index, fault) && store_is_sound(schema, index, fault) &&
	       flags_are_sound(value, fault);
}

bool schema_is_sound(const struct schema *schema, struct schema_fault *fault)
{
	fault->value = 0;
	if (schema->count > SCHEMA_VALUES_MAX)
		return fault_at(fault, SCHEMA_PART_NAME, "%u values; at most %d are allowed",
				schema->count, SCHEMA_VALUES_MAX);
	for (unsigned i = 0; i < schema->count; i++)
		if (!value_is_sound(schema, i, fault))
			return false;
	if (schema_stored(schema, SCHEMA_IN_INDEX, 0) < 0)
		return fault_at(fault, SCHEMA_PART_NAME,
				"no image; add a value such as \"image: image u8[h,w,3]\"");
	return true;
}

static int schema_fail(struct schema_error *error, int code, const char *text)
{
	if (error) {
		error->position = -1;
		sentence_write(error->text, sizeof(error->text), "%s", text);
	}
	return code;
}

/* Bytes */

size_t schema_pack(const struct schema *schema, void *bytes)
{
	struct schema_head head = {.version = SCHEMA_VERSION, .values = schema->count};
	uint8_t *at = (uint8_t *)bytes + sizeof(head);
	uint8_t *names = at + schema->count * sizeof(struct schema_record);

	for (unsigned i = 0; i < schema->count; i++) {
		const struct schema_value *value = &schema->values[i];
		struct schema_record record = {
			.role = (uint8_t)value->role,
			.element = (uint8_t)value->element,
			.dims = (uint8_t)value->dims,
			.store = (uint8_t)value->store,
			.number = value->number,
			.of = value->of,
			.format = (uint8_t)value->format,
			.flags = (uint8_t)value->flags,
			.name_size = (uint16_t)strlen(value->name),
			.name_offset = head.names_size,
			.longest = value->longest,
			.width = value->width,
			.height = value->height,
		};

		memcpy(record.shape, value->shape, sizeof(record.shape));
		memcpy(at + i * sizeof(record), &record, sizeof(record));
		memcpy(names + record.name_offset, value->name, record.name_size);
		head.names_size += record.name_size;
	}
	memcpy(bytes, &head, sizeof(head));
	return (size_t)(names + head.names_size - (uint8_t *)bytes);
}

/* Reads one record; names_end is where its name must begin. Returns NULL or the fault. */
static const char *record_read(const struct schema_record *record, const char *names,
			       uint32_t names_begin, uint32_t names_size,
			       struct schema_value *ret_value)
{
	static const uint8_t zeros[sizeof(record->reserved)];

	if (memcmp(record->reserved, zeros, sizeof(zeros)) != 0)
		return "a reserved field of a value is not zero";
	if (record->name_offset != names_begin || record->name_size > names_size - names_begin)
		return "the names of the values are not contiguous";
	if (record->name_size > SCHEMA_NAME_MAX ||
	    memchr(names + names_begin, 0, record->name_size))
		return "the name of a value is too long, or holds a NUL";
	*ret_value = (struct schema_value){
		.role = (enum schema_role)record->role,
		.element = (enum schema_element)record->element,
		.store = (enum schema_store)record->store,
		.format = (enum schema_format)record->format,
		.flags = record->flags,
		.dims = record->dims,
		.number = record->number,
		.of = record->of,
		.longest = record->longest,
		.width = record->width,
		.height = record->height,
	};
	memcpy(ret_value->shape, record->shape, sizeof(record->shape));
	memcpy(ret_value->name, names + names_begin, record->name_size);
	return NULL;
}

/* Reads the records and names that the head announces. Returns NULL or the fault. */
static const char *schema_read(const uint8_t *bytes, const struct schema_head *head,
			       struct schema *schema)
{
	const uint8_t *records = bytes + sizeof(*head);
	const char *names = (const char *)records + head->values * sizeof(struct schema_record);
	const char *fault = NULL;
	uint32_t used = 0;

	schema->count = head->values;
	for (unsigned i = 0; i < head->values && !fault; i++) {
		struct schema_record record;

		memcpy(&record, records + i * sizeof(record), sizeof(record));
		fault = record_read(&record, names, used, head->names_size, &schema->values[i]);
		used += record.name_size;
	}
	if (!fault && used != head->names_size)
		fault = "bytes follow the last name";
	return fault;
}

int schema_unpack(const void *bytes, size_t size, struct schema *ret_schema,
		  struct schema_error *error)
{
	struct schema_head head;
	struct schema_fault broken;
	struct schema schema;

	if (size < sizeof(head))
		return schema_fail(error, -EBADMSG, "shorter than its head");
	memcpy(&head, bytes, sizeof(head));
	if (head.version > SCHEMA_VERSION)
		return schema_fail(error, -ENOTSUP, "written by a later version");
	if (head.version == 0 || head.reserved)
		return schema_fail(error, -EBADMSG, "version or a reserved field is wrong");
	if (head.values > SCHEMA_VALUES_MAX)
		return schema_fail(error, -EBADMSG, "more than 64 values");
	if (size != sizeof(head) + head.values * sizeof(struct schema_record) + head.names_size)
		return schema_fail(error, -EBADMSG, "values and names do not fill it");
	const char *fault = schema_read(bytes, &head, &schema);
	if (!fault && !schema_is_sound(&schema, &broken))
		fault = broken.text;
	if (fault)
		return schema_fail(error, -EBADMSG, fault);
	*ret_schema = schema;
	return 0;
}
