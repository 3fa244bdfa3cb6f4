#include "tools/packimg/copy.h"

#include "format/base/schema.h"
#include "format/base/text/number.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maps the class numbers of one input to the output's. */
static int map_classes(struct copy_set *set, struct copy_input *input, struct packimg_error *error)
{
	input->class_count = packimg_class_count(input->dataset);
	input->labels = calloc(input->class_count + 1, sizeof(*input->labels));
	if (!input->labels)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < input->class_count; i++) {
		uint32_t number;

		if (name_table_add(&set->classes, packimg_class_name(input->dataset, i), &number,
				   NULL))
			return packimg_fail(error, -ENOMEM, "out of memory");
		if (number >= PACKIMG_CLASSES_MAX)
			return packimg_fail(error, -E2BIG, "more than %d classes in total",
					    PACKIMG_CLASSES_MAX);
		input->labels[i] = (int32_t)number;
	}
	return 0;
}

static bool is_text_or_bytes(enum packimg_field_type type)
{
	return type == PACKIMG_FIELD_TEXT || type == PACKIMG_FIELD_BYTES;
}

/* Numbers the fields that a schema declares as packimg_writer_schema() will. */
static int name_schema_fields(struct copy_set *set, struct packimg_error *error)
{
	for (unsigned i = 0; i < set->schema->count; i++) {
		const struct schema_value *value = &set->schema->values[i];
		uint32_t number;

		if (value->store == SCHEMA_IN_COLUMN &&
		    name_table_add(&set->fields, value->name, &number, NULL))
			return packimg_fail(error, -ENOMEM, "out of memory");
	}
	return 0;
}

static bool has_class_lists(const struct schema *schema)
{
	for (unsigned i = 0; i < schema->count; i++)
		if (schema->values[i].role == SCHEMA_CLASS &&
		    schema->values[i].store == SCHEMA_IN_COLUMN)
			return true;
	return false;
}

static bool same_classes(const struct packimg *a, const struct packimg *b)
{
	if (packimg_class_count(a) != packimg_class_count(b))
		return false;
	for (uint32_t i = 0; i < packimg_class_count(a); i++)
		if (strcmp(packimg_class_name(a, i), packimg_class_name(b, i)) != 0)
			return false;
	return true;
}

/* Checks that the input has the same schema as the previous ones. */
static int match_schema(struct copy_set *set, const struct copy_input *input,
			struct packimg_error *error)
{
	const struct copy_input *first = &set->inputs[0];
	bool has = packimg_has_schema(input->dataset);

	if (input == first && has) {
		set->schema = packimg_schema(input->dataset);
		return name_schema_fields(set, error);
	}
	if (has != (set->schema != NULL) ||
	    (has && !schema_equal(set->schema, packimg_schema(input->dataset))))
		return packimg_fail(error, -EINVAL,
				    "%s has another schema than %s; convert them with the same "
				    "values, in the same order",
				    input->path, first->path);
	if (has && has_class_lists(set->schema) && !same_classes(first->dataset, input->dataset))
		return packimg_fail(error, -EINVAL,
				    "%s has other class names than %s, and class numbers in its "
				    "values; convert them with the same classes",
				    input->path, first->path);
	return 0;
}

static int map_fields(struct copy_set *set, struct copy_input *input, struct packimg_error *error)
{
	for (uint32_t i = 0; i < packimg_field_count(input->dataset); i++) {
		struct packimg_field field;
		uint32_t number;

		int r = packimg_field(input->dataset, i, &field);
		if (r)
			return packimg_fail(error, r, "%s: field %u is damaged", input->path, i);
		if (name_table_add(&set->fields, field.name, &number, NULL))
			return packimg_fail(error, -ENOMEM, "out of memory");
		if (number >= PACKIMG_FIELDS_MAX)
			return packimg_fail(error, -E2BIG, "more than %d fields in total",
					    PACKIMG_FIELDS_MAX);
		input->fields[i] = number;
		enum packimg_field_type *type = &set->types[number];
		if (!*type || *type == field.type)
			*type = field.type;
		else if (*type <= PACKIMG_FIELD_FLOAT64 && field.type <= PACKIMG_FIELD_FLOAT64)
			*type = PACKIMG_FIELD_FLOAT64;
		else if (is_text_or_bytes(*type) && is_text_or_bytes(field.type))
			*type = PACKIMG_FIELD_BYTES;
		else
			return packimg_fail(
				error, -EINVAL,
				"%s: field \"%s\" has a different type in the datasets before it",
				input->path, field.name);
	}
	return 0;
}

static bool has_labels(const struct packimg *dataset)
{
	struct packimg_sample sample;

	for (uint64_t i = 0; i < packimg_count(dataset); i++)
		if (!packimg_sample(dataset, i, &sample) && sample.label >= 0)
			return true;
	return false;
}

static int copy_set_open(struct copy_set *set, const char *const *paths, uint32_t count,
			 struct packimg_error *error)
{
	bool any_named = false, any_numbered = false;

	for (uint32_t i = 0; i < count; i++) {
		struct copy_input *input = &set->inputs[i];

		input->path = paths[i];
		int r = packimg_open(paths[i], &input->dataset, error);
		if (r)
			return r;
		set->count++;
		set->samples += packimg_count(input->dataset);
		r = map_classes(set, input, error);
		if (r)
			return r;
		r = match_schema(set, input, error);
		if (r)
			return r;
		r = map_fields(set, input, error);
		if (r)
			return r;
		if (input->class_count)
			any_named = true;
		else
			any_numbered |= has_labels(input->dataset);
	}
	set->numbers_only = !any_named;
	if (any_named && any_numbered)
		return packimg_fail(error, -EINVAL,
				    "some datasets name their classes and others only number "
				    "them, so they cannot be merged");
	return 0;
}

int copy_set_init(struct copy_set *set, const char *const *paths, uint32_t count,
		  struct packimg_error *error)
{
	*set = (struct copy_set){0};
	name_table_init(&set->classes, &set->arena);
	name_table_init(&set->fields, &set->arena);
	set->inputs = calloc(count, sizeof(*set->inputs));
	if (!set->inputs)
		return packimg_fail(error, -ENOMEM, "out of memory");
	int r = copy_set_open(set, paths, count, error);
	if (r)
		copy_set_deinit(set);
	return r;
}

void copy_set_deinit(struct copy_set *set)
{
	for (uint32_t i = 0; i < set->count; i++) {
		packimg_close(set->inputs[i].dataset);
		free(set->inputs[i].labels);
	}
	free(set->inputs);
	name_table_deinit(&set->classes);
	name_table_deinit(&set->fields);
	arena_deinit(&set->arena);
	*set = (struct copy_set){0};
}

/* Converts a sample's number in the whole sequence to its input and its index there. */
static void copy_locate(const struct copy_set *set, uint64_t number, uint32_t *ret_input,
			uint64_t *ret_index)
{
	uint32_t input = 0;

	while (number >= packimg_count(set->inputs[input].dataset))
		number -= packimg_count(set->inputs[input++].dataset);
	*ret_input = input;
	*ret_index = number;
}

static int declare_schema(const struct copy_set *set, struct packimg_writer *writer,
			  struct packimg_error *error)
{
	char *text = malloc(SCHEMA_TEXT_MAX);

	if (!text)
		return packimg_fail(error, -ENOMEM, "out of memory");
	schema_print(set->schema, text, SCHEMA_TEXT_MAX);
	int r = packimg_writer_schema(writer, text, error);
	free(text);
	return r;
}

static int declare_classes_and_fields(const struct copy_set *set, struct packimg_writer *writer,
				      struct packimg_error *error)
{
	int r = packimg_writer_classes(writer, set->classes.names, set->classes.count, error);

	if (!r && set->schema)
		r = declare_schema(set, writer, error);
	for (uint32_t i = 0; !r && i < set->fields.count; i++) {
		uint32_t number;

		r = packimg_writer_field(writer, set->fields.names[i], set->types[i], &number,
					 error);
	}
	return r;
}

int copy_begin(const struct copy_set *set, const char *path,
	       const struct packimg_writer_options *options, struct packimg_writer **ret_writer,
	       struct packimg_error *error)
{
	struct packimg_writer *writer;

	int r = packimg_writer_new(path, options, &writer, error);
	if (r)
		return r;
	r = declare_classes_and_fields(set, writer, error);
	if (r) {
		packimg_writer_free(writer);
		return r;
	}
	*ret_writer = writer;
	return 0;
}

static int32_t map_label(const struct copy_set *set, const struct copy_input *input, int32_t label)
{
	if (label < 0 || set->numbers_only)
		return label;
	return (uint32_t)label < input->class_count ? input->labels[label] : PACKIMG_LABEL_NONE;
}

int32_t copy_label(const struct copy_set *set, uint64_t number)
{
	struct packimg_sample sample;
	uint32_t input;
	uint64_t index;

	copy_locate(set, number, &input, &index);
	if (packimg_sample(set->inputs[input].dataset, index, &sample))
		return PACKIMG_LABEL_NONE;
	return map_label(set, &set->inputs[input], sample.label);
}

/* Reads the field values of one sample. If a value is damaged, error names the field. */
static int read_values(const struct copy_set *set, const struct copy_input *input, uint64_t index,
		       struct packimg_value values[static PACKIMG_FIELDS_MAX],
		       struct packimg_error *error)
{
	for (uint32_t i = 0; i < packimg_field_count(input->dataset); i++) {
		struct packimg_value *value = &values[i];
		struct packimg_field field;

		int r = packimg_field(input->dataset, i, &field);
		if (!r)
			r = packimg_value(input->dataset, index, i, value);
		if (r)
			return packimg_fail(error, -EBADMSG,
					    "%s, sample %" PRIu64 ": field %u is damaged",
					    input->path, index, i);
		if (field.type == PACKIMG_FIELD_INT64 &&
		    set->types[input->fields[i]] == PACKIMG_FIELD_FLOAT64) {
			value->float64 = (double)value->int64;
			value->int64 = 0;
		}
	}
	return 0;
}

/* Reads the further images of a sample. data is NULL for those that it lacks. */
static int read_images(const struct copy_input *input, uint64_t index,
		       struct packimg_sample images[static SCHEMA_IMAGES_MAX],
		       struct packimg_error *error)
{
	for (uint32_t i = 0; i < packimg_image_count(input->dataset); i++) {
		int r = packimg_image(input->dataset, index, i, &images[i]);

		if (r == -ENODATA)
			images[i].data = NULL;
		else if (r || packimg_sample_check(&images[i]))
			return packimg_fail(error, -EBADMSG,
					    "%s, sample %" PRIu64 ": image %u is damaged",
					    input->path, index, i);
	}
	return 0;
}

static struct packimg_item item_of(const struct packimg_sample *sample)
{
	return (struct packimg_item){
		.data = sample->data,
		.data_size = sample->data_size,
		.side = sample->side,
		.side_size = sample->side_size,
		.width = sample->width,
		.height = sample->height,
		.label = sample->label,
		.codec = (enum packimg_codec)sample->codec,
		.channels = sample->channels,
		.orientation = sample->orientation,
	};
}

static int write_images(const struct copy_input *input, struct packimg_writer *writer,
			const struct packimg_sample images[static SCHEMA_IMAGES_MAX],
			struct packimg_error *error)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < packimg_image_count(input->dataset); i++) {
		struct packimg_item item = item_of(&images[i]);

		if (item.data)
			r = packimg_writer_image(writer, i, &item, error);
	}
	return r;
}

/*
 * Returns -EBADMSG, with input, index and source in error, if the sample is damaged; other errors
 * are the writer's. Reads the whole sample before it writes any part, because the writer cannot
 * undo a sample.
 */
static int copy_sample(const struct copy_set *set, uint64_t number, struct packimg_writer *writer,
		       struct packimg_error *error)
{
	struct packimg_value values[PACKIMG_FIELDS_MAX];
	struct packimg_sample sample, images[SCHEMA_IMAGES_MAX];
	const char *source = NULL;
	size_t source_size = 0;
	uint32_t input_number;
	uint64_t index;

	copy_locate(set, number, &input_number, &index);
	const struct copy_input *input = &set->inputs[input_number];
	if (packimg_source(input->dataset, index, &source, &source_size))
		return packimg_fail(error, -EBADMSG,
				    "%s, sample %" PRIu64 ": its source name is damaged, so it is "
				    "not copied",
				    input->path, index);
	int r = packimg_sample(input->dataset, index, &sample);
	if (!r)
		r = packimg_sample_check(&sample);
	if (r)
		return packimg_fail(error, -EBADMSG,
				    "%s, sample %" PRIu64 " (%.*s): damaged, so it is not copied",
				    input->path, index, (int)source_size, source);
	r = read_values(set, input, index, values, error);
	if (r)
		return r;
	r = read_images(input, index, images, error);
	if (r)
		return r;
	struct packimg_item item = item_of(&sample);
	item.label = map_label(set, input, sample.label);
	item.source = source;
	item.source_size = source_size;
	r = packimg_writer_add(writer, &item, error);
	if (!r)
		r = write_images(input, writer, images, error);
	for (uint32_t i = 0; !r && i < packimg_field_count(input->dataset); i++)
		if (values[i].present)
			r = packimg_writer_value(writer, input->fields[i], &values[i], error);
	return r;
}

char *copy_metadata(const struct packimg *dataset, const char *key)
{
	const char *line = packimg_metadata(dataset);
	size_t key_size = strlen(key);

	while (*line) {
		size_t size = strcspn(line, "\n");

		if (size > key_size && memcmp(line, key, key_size) == 0 && line[key_size] == '=')
			return strndup(line + key_size + 1, size - key_size - 1);
		line += size + (line[size] == '\n');
	}
	return NULL;
}

static uint64_t metadata_number(const struct packimg *dataset, const char *key, uint64_t otherwise)
{
	char *text = copy_metadata(dataset, key);
	uint64_t value = otherwise;

	if (text && number_u64(text, 1, INT64_MAX, &value))
		value = otherwise;
	free(text);
	return value;
}

int copy_next(const struct copy_set *set, uint64_t number, struct packimg_writer *writer,
	      struct copy_progress *copying, struct packimg_error *error)
{
	if (command_interrupted())
		return -EINTR;
	int r = copy_sample(set, number, writer, error);
	if (r != -EBADMSG || !copying->skip)
		return r;
	progress_clear(&copying->progress);
	command_fail("%s", error->text);
	copying->skipped++;
	return COPY_SKIPPED;
}

void copy_statistics(const struct copy_set *set, struct statistics *statistics)
{
	for (uint32_t i = 0; i < set->count; i++) {
		const struct packimg *dataset = set->inputs[i].dataset;
		uint64_t count = packimg_count(dataset);
		double mean[3], std[3];

		if (packimg_statistics(dataset, mean, std))
			continue;
		/*
		 * If numbers of pixels are not recorded, count every image alike. The limits keep
		 * the sums from overflowing.
		 */
		uint64_t images = metadata_number(dataset, "statistics.images", count);
		uint64_t pixels = metadata_number(dataset, "statistics.pixels", count * 50000);

		if (pixels > UINT64_C(1) << 40)
			pixels = UINT64_C(1) << 40;
		statistics_add_summary(statistics, mean, std, images, pixels);
	}
}
