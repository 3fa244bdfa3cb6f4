#include "tools/packimg/extract_manifest.h"

#include "format/base/text/number.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/common/typed_text.h"
#include "tools/packimg/selection.h"

#include <inttypes.h>
#include <string.h>

/* Writes a cell of the manifest, quoted if necessary. */
static void write_cell(FILE *file, const char *bytes, size_t size)
{
	bool quote = size && (strchr(" \t", bytes[0]) || strchr(" \t", bytes[size - 1]));

	for (size_t i = 0; i < size; i++)
		quote |= strchr(",\"\r\n", bytes[i]) && bytes[i];
	if (quote)
		fputc('"', file);
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] == '"')
			fputc('"', file);
		fputc(bytes[i], file);
	}
	if (quote)
		fputc('"', file);
}

/* True for lists of classes of a sample, which belong to nothing. */
static bool is_class_list(const struct schema_value *value)
{
	return value->role == SCHEMA_CLASS && value->store == SCHEMA_IN_COLUMN &&
	       value->dims == 1 && schema_has_rows(value) && value->of == SCHEMA_OF_NONE;
}

static int append_typed(struct extract_manifest *manifest, const struct schema_value *value,
			const struct packimg_value *stored)
{
	return manifest->has_lists && is_class_list(value)
		       ? typed_text_append_classes(manifest->dataset, value, stored,
						   &manifest->text)
		       : typed_text_append(value, stored, &manifest->text);
}

static void write_fields(struct extract_manifest *manifest, FILE *file, uint64_t index)
{
	char number[NUMBER_SHORTEST];

	for (uint32_t f = 0; f < packimg_field_count(manifest->dataset); f++) {
		struct packimg_field field;
		struct packimg_value value;

		fputc(',', file);
		packimg_field(manifest->dataset, f, &field);
		if (packimg_value(manifest->dataset, index, f, &value)) {
			manifest->damaged++;
			command_fail("sample %" PRIu64 ": its value of field %s is damaged; the "
				     "manifest has none",
				     index, field.name);
			continue;
		}
		if (!value.present)
			continue;
		const struct schema_value *typed = typed_value(manifest->dataset, f);
		manifest->text.size = 0;
		if (typed && !append_typed(manifest, typed, &value))
			write_cell(file, (const char *)manifest->text.data, manifest->text.size);
		else if (field.type == PACKIMG_FIELD_INT64)
			fprintf(file, "%" PRId64, value.int64);
		else if (field.type == PACKIMG_FIELD_FLOAT64)
			fputs(number_shortest(value.float64, number), file);
		else
			write_cell(file, value.bytes, value.size);
	}
}

/*
 * The first columns; those of further images and of fields follow. With lists of classes, there is
 * only the path: packimg convert would not read lists beside a column of classes.
 */
static const char *const manifest_columns[] = {"path", "label", "class"};

static size_t first_columns(const struct extract_manifest *manifest)
{
	return manifest->has_lists ? 1 : sizeof(manifest_columns) / sizeof(*manifest_columns);
}

static bool is_first_column(const struct extract_manifest *manifest, const char *name)
{
	for (size_t i = 0; i < first_columns(manifest); i++)
		if (strcmp(name, manifest_columns[i]) == 0)
			return true;
	return false;
}

/* Returns the name of the value that is in file number `file` of a sample, not the first. */
static const char *image_name(const struct extract_manifest *manifest, uint32_t file)
{
	const struct schema *schema = packimg_schema(manifest->dataset);

	return schema->values[schema_stored(schema, SCHEMA_IN_IMAGES, file - 1)].name;
}

/* Returns true if the dataset has a further image or a field of that name. */
static bool is_value_name(const struct extract_manifest *manifest, const char *name)
{
	struct packimg_field field;

	for (uint32_t i = 1; i < manifest->files; i++)
		if (strcmp(name, image_name(manifest, i)) == 0)
			return true;
	for (uint32_t f = 0; f < packimg_field_count(manifest->dataset); f++)
		if (!packimg_field(manifest->dataset, f, &field) && strcmp(name, field.name) == 0)
			return true;
	return false;
}

/*
 * Writes the column name of a further image or a field. If it is also one of the first columns,
 * appends a number (class_2), so that column names are unique.
 */
static void write_column_name(const struct extract_manifest *manifest, FILE *file, const char *name)
{
	char numbered[PACKIMG_NAME_MAX + 16];
	unsigned number = 2;

	fputc(',', file);
	if (!is_first_column(manifest, name)) {
		write_cell(file, name, strlen(name));
		return;
	}
	do
		snprintf(numbered, sizeof(numbered), "%s_%u", name, number++);
	while (is_value_name(manifest, numbered));
	write_cell(file, numbered, strlen(numbered));
}

static void write_header(const struct extract_manifest *manifest, FILE *file)
{
	struct packimg_field field;

	for (size_t i = 0; i < first_columns(manifest); i++)
		fprintf(file, "%s%s", i ? "," : "", manifest_columns[i]);
	for (uint32_t i = 1; i < manifest->files; i++)
		write_column_name(manifest, file, image_name(manifest, i));
	for (uint32_t f = 0; f < packimg_field_count(manifest->dataset); f++)
		write_column_name(manifest, file,
				  packimg_field(manifest->dataset, f, &field) ? "" : field.name);
	fputc('\n', file);
}

/* True if samples have lists of classes, and none has a label. */
static bool find_lists(const struct extract_manifest *manifest)
{
	const struct schema *schema = packimg_schema(manifest->dataset);
	bool found = false;

	for (unsigned i = 0; i < schema->count; i++)
		found |= is_class_list(&schema->values[i]);
	for (uint64_t i = 0; found && i < manifest->count; i++) {
		struct packimg_sample sample;

		found = packimg_sample(manifest->dataset, manifest->samples[i], &sample) ||
			sample.label < 0;
	}
	return found;
}

/* Writes the label and the class of a sample. */
static void write_label(const struct extract_manifest *manifest, FILE *file,
			const struct packimg_sample *sample)
{
	const char *class = sample_class(manifest->dataset, sample);

	fputc(',', file);
	if (sample->label >= 0)
		fprintf(file, "%" PRId32, sample->label);
	fputc(',', file);
	if (class)
		write_cell(file, class, strlen(class));
}

void extract_manifest_write(struct extract_manifest *manifest, FILE *file)
{
	struct packimg_sample sample;

	manifest->has_lists = find_lists(manifest);
	write_header(manifest, file);
	for (uint64_t i = 0; i < manifest->count; i++) {
		const char *const *paths = &manifest->paths[i * manifest->files];

		if (!paths[0] || packimg_sample(manifest->dataset, manifest->samples[i], &sample))
			continue;
		write_cell(file, paths[0], strlen(paths[0]));
		if (!manifest->has_lists)
			write_label(manifest, file, &sample);
		for (uint32_t k = 1; k < manifest->files; k++) {
			fputc(',', file);
			if (paths[k])
				write_cell(file, paths[k], strlen(paths[k]));
		}
		write_fields(manifest, file, sample.index);
		fputc('\n', file);
	}
	buffer_deinit(&manifest->text);
}
