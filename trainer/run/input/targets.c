#include "trainer/run/input/targets.h"

#include "format/base/copy_once.h"
#include "format/base/half.h"
#include "format/base/schema.h"
#include "trainer/run/input/labels.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define target_fail(error, code, ...) sentence_fail(error, DATA_ERROR_MAX, code, __VA_ARGS__)

/* ---- the schema ---- */

/* Where a target was looked for, for errors. */
struct target_place {
	const struct recipe *recipe;
	const char *key, *path; /* recipe key of the dataset, and its value */
};

static int target_fail_unknown(const struct target_place *place, const struct schema *schema,
			       char *error)
{
	const char *name = place->recipe->data.target;
	const char *nearest = schema_nearest(schema, name);
	return target_fail(error, -EINVAL,
			   "data.target = %.100s: %s = %.500s has no value of that name%s%s%s; "
			   "packimg info shows its schema",
			   name, place->key, place->path, nearest ? ": did you mean \"" : "",
			   nearest ? nearest : "", nearest ? "\"?" : "");
}

static int target_fail_value(const struct target_place *place, const struct schema *schema,
			     unsigned value, const char *why, char *error)
{
	char line[256];
	schema_print_value(schema, value, line, sizeof(line));
	return target_fail(error, -EINVAL, "data.target = %.100s: in %s = %.400s it is \"%s\": %s",
			   place->recipe->data.target, place->key, place->path, line, why);
}

static uint32_t target_elements(const struct schema_value *value)
{
	uint64_t elements = 1;
	for (unsigned i = 0; i < value->dims && elements <= UINT16_MAX; i++)
		elements *= value->shape[i];
	return elements <= UINT16_MAX ? (uint32_t)elements : 0;
}

static int target_of_list(const struct target_place *place, const struct schema *schema,
			  unsigned value, uint32_t classes, struct target *ret_target, char *error)
{
	if (place->recipe->train.loss != RECIPE_LOSS_SIGMOID)
		return target_fail_value(place, schema, value,
					 "classes are not numbers to regress on; set "
					 "train.loss=sigmoid",
					 error);
	if (!classes)
		return target_fail_value(place, schema, value,
					 "the dataset has no class names; pack it with them",
					 error);
	*ret_target = (struct target){TARGET_MULTILABEL, true, classes};
	return 0;
}

static int target_of_numbers(const struct target_place *place, const struct schema *schema,
			     unsigned value, struct target *ret_target, char *error)
{
	uint32_t elements = target_elements(&schema->values[value]);
	if (!elements)
		return target_fail_value(place, schema, value,
					 "a network has at most 65535 such outputs, and needs one; "
					 "use a smaller value",
					 error);
	*ret_target = (struct target){place->recipe->train.loss == RECIPE_LOSS_SIGMOID
					      ? TARGET_MULTILABEL
					      : TARGET_REGRESSION,
				      false, elements};
	return 0;
}

static int target_of_value(const struct target_place *place, const struct schema *schema,
			   unsigned number, uint32_t classes, struct target *ret_target,
			   char *error)
{
	const struct schema_value *value = &schema->values[number];
	bool rows = schema_has_rows(value);
	if (value->store == SCHEMA_IN_LABEL)
		return target_fail_value(place, schema, number,
					 "that is the label; set data.target to empty to train on "
					 "it",
					 error);
	if (value->role == SCHEMA_CLASS && rows && value->dims == 1)
		return target_of_list(place, schema, number, classes, ret_target, error);
	if (value->role == SCHEMA_VALUE && !rows)
		return target_of_numbers(place, schema, number, ret_target, error);
	return target_fail_value(place, schema, number,
				 "the trainer learns lists of classes, such as \"class i32[*]\", "
				 "and numbers of a fixed shape, such as \"value f32[3]\"; choose "
				 "such a value",
				 error);
}

int target_find(const struct recipe *recipe, const char *key, const char *path,
		const struct uuid *found, uint32_t classes, struct target *ret_target, char *error)
{
	const struct target_place place = {recipe, key, path};
	struct packimg_error problem = {{0}};
	struct packimg *dataset;
	int r = labels_open(path, &dataset, &problem);
	if (r < 0)
		return target_fail(error, r, "%s = %.400s: %.400s", key, path,
				   *problem.text ? problem.text : strerror(-r));
	const struct schema *schema = packimg_schema(dataset);
	int number = schema_find(schema, recipe->data.target);
	if (memcmp(packimg_uuid(dataset), found, sizeof(*found)) != 0)
		r = target_fail(error, -ESTALE,
				"%s = %.400s is not the dataset that the daemon opened: start "
				"again",
				key, path);
	else if (number < 0)
		r = target_fail_unknown(&place, schema, error);
	else
		r = target_of_value(&place, schema, (unsigned)number, classes, ret_target, error);
	packimg_close(dataset);
	return r;
}

/* ---- batches ---- */

/* A batch's section of targets. */
struct target_section {
	const struct target *target;
	const char *name;
	uint32_t outputs;
	struct feed_section section;
	size_t element_size;
};

static double target_number(uint32_t element, const void *at)
{
	union {
		uint8_t u8;
		uint16_t u16;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		uint64_t u64;
		float f32;
		double f64;
	} copy;
	copy_once(&copy, at, schema_element_size((enum schema_element)element));
	switch (element) {
	case FEED_U8:
		return copy.u8;
	case FEED_F16:
		return (double)half_to_float(copy.u16);
	case FEED_BF16:
		return (double)bfloat_to_float(copy.u16);
	case FEED_F32:
		return (double)copy.f32;
	case FEED_U16:
		return copy.u16;
	case FEED_I16:
		return copy.i16;
	case FEED_I32:
		return copy.i32;
	case FEED_I64:
		return (double)copy.i64;
	case FEED_U64:
		return (double)copy.u64;
	default:
		return copy.f64;
	}
}

static int target_fail_number(const struct target_section *from, uint64_t sample, double number,
			      const char *why, char *error)
{
	return target_fail(error, -EBADMSG,
			   "data.target = %.100s: sample %llu has %.9g, %s: pack it again",
			   from->name, (unsigned long long)sample, number, why);
}

static int target_read_list(const struct target_section *from, uint32_t i, uint64_t sample,
			    float *ret_values, char *error)
{
	const void *rows;
	int64_t count = feed_rows(&from->section, i, &rows);
	if (count < 0)
		return target_fail(error, (int)count,
				   "data.target = %.100s: the daemon sent an invalid list for "
				   "sample %llu",
				   from->name, (unsigned long long)sample);
	memset(ret_values, 0, from->outputs * sizeof(*ret_values));
	for (int64_t row = 0; row < count; row++) {
		const char *at = (const char *)rows + (size_t)row * from->element_size;
		double class = target_number(from->section.element, at);
		if (!(class >= 0 && class < from->outputs))
			return target_fail_number(from, sample, class,
						  "which is no number of a class", error);
		ret_values[(uint32_t) class] = 1;
	}
	return 0;
}

static int target_read_numbers(const struct target_section *from, uint32_t i, uint64_t sample,
			       float *ret_values, char *error)
{
	const char *at =
		(const char *)from->section.data + (size_t)i * from->outputs * from->element_size;
	for (uint32_t k = 0; k < from->outputs; k++) {
		double number = target_number(from->section.element, at + k * from->element_size);
		ret_values[k] = (float)number;
		if (!isfinite(ret_values[k]))
			return target_fail_number(from, sample, number,
						  isfinite(number)
							  ? "but targets are of 32 bits, up to "
							    "3.4e+38 (scale the values)"
							  : "but targets are finite (a sample may "
							    "lack a sparse value)",
						  error);
		if (from->target->kind == TARGET_MULTILABEL && number != 0 && number != 1)
			return target_fail_number(from, sample, number,
						  "but train.loss = sigmoid learns 0 and 1", error);
	}
	return 0;
}

/* Checks that the section has what the schema promised. */
static int target_open_section(const struct feed *feed, const struct feed_batch *batch,
			       struct target_section *from, char *error)
{
	struct feed_section *section = &from->section;
	section->size = sizeof(*section);
	int number = feed_section_find(feed, from->name);
	int r = number < 0 ? number : feed_section(feed, batch, (uint32_t)number, section);
	if (r < 0)
		return target_fail(error, r,
				   "data.target = %.100s: the daemon does not deliver it: %s",
				   from->name, strerror(-r));
	from->element_size = schema_element_size((enum schema_element)section->element);
	size_t row = from->element_size * (from->target->list ? 1 : from->outputs);
	if (section->element == FEED_NO_ELEMENT ||
	    (section->kind == FEED_RAGGED) != from->target->list ||
	    (from->target->list ? section->row != row : section->bytes < batch->count * row))
		return target_fail(error, -EPROTO,
				   "data.target = %.100s: the daemon delivers another shape than "
				   "the dataset's schema states",
				   from->name);
	return 0;
}

int target_read(const struct target *target, const char *name, uint32_t outputs,
		const struct feed *feed, const struct feed_batch *batch, float *ret_values,
		char *error)
{
	struct target_section from = {.target = target, .name = name, .outputs = outputs};
	int r = target_open_section(feed, batch, &from, error);
	for (uint32_t i = 0; i < batch->count && r == 0; i++) {
		float *values = ret_values + (size_t)i * outputs;
		/* read each once: a feed's memory may change at any time */
		uint64_t sample = ((const volatile uint64_t *)batch->samples)[i];
		uint8_t flags = ((const volatile uint8_t *)batch->flags)[i];
		if (flags & FEED_SAMPLE_FIELD_MISSING)
			for (uint32_t k = 0; k < outputs; k++)
				values[k] = NAN;
		else if (target->list)
			r = target_read_list(&from, i, sample, values, error);
		else
			r = target_read_numbers(&from, i, sample, values, error);
	}
	return r;
}
