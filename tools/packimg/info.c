/* packimg info: summarises a dataset from its index alone. */
#include "format/base/schema.h"
#include "format/base/text/json_text.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "format/base/uuid.h"
#include "format/hints.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct info_options {
	const char *path;
	bool json, classes;
};

#define AT(member) offsetof(struct info_options, member)

static const struct options_row options[] = {
	{"json", 'J', NULL, "print JSON", OPTIONS_FLAG, AT(json)},
	{"classes", 'c', NULL, "list every class with its number of samples", OPTIONS_FLAG,
	 AT(classes)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

enum {
	LINE = 512,   /* bytes of a value's line in the schema */
	LARGEST = 64, /* bytes of the text for its largest size */
};

struct range {
	uint64_t low, high, sum;
};

static void range_add(struct range *range, uint64_t value)
{
	range->low = value < range->low ? value : range->low;
	range->high = value > range->high ? value : range->high;
	range->sum += value;
}

enum { CODECS = PACKIMG_CODEC_RASTER + 1 };

/* Totals over the records of one further image of the samples. */
struct image_summary {
	uint64_t count, bytes, damaged;
};

/* Totals over all index records. */
struct summary {
	uint64_t codecs[CODECS], codec_bytes[CODECS];
	uint64_t bytes, side_bytes;
	struct range width, height;
	uint64_t oriented, grey, unlabelled, damaged, with_side;
	struct image_summary images[SCHEMA_IMAGES_MAX];
	uint64_t *labels; /* number of samples per class */
	uint32_t label_count;
};

static void summarise_images(const struct packimg *dataset, uint64_t index, struct summary *summary)
{
	for (uint32_t i = 0; i < packimg_image_count(dataset); i++) {
		struct packimg_sample image;
		int r = packimg_image(dataset, index, i, &image);

		summary->images[i].damaged += r && r != -ENODATA;
		if (r)
			continue;
		summary->images[i].count++;
		summary->images[i].bytes += image.data_size + image.side_size;
	}
}

static int summarise_dataset(const struct packimg *dataset, struct summary *summary)
{
	*summary = (struct summary){.width.low = UINT64_MAX, .height.low = UINT64_MAX};
	summary->label_count = packimg_class_count(dataset);
	summary->labels = calloc(summary->label_count + 1, sizeof(*summary->labels));
	if (!summary->labels)
		return -1;
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		struct packimg_sample sample;

		summarise_images(dataset, i, summary);
		if (packimg_sample(dataset, i, &sample)) {
			summary->damaged++;
			continue;
		}
		summary->codecs[sample.codec]++;
		summary->codec_bytes[sample.codec] += sample.data_size;
		summary->bytes += sample.data_size;
		summary->side_bytes += sample.side_size;
		summary->with_side += sample.side != NULL;
		range_add(&summary->width, sample.width);
		range_add(&summary->height, sample.height);
		summary->oriented += sample.orientation != 1;
		summary->grey += sample.channels == 1;
		if (sample.label < 0)
			summary->unlabelled++;
		else if ((uint32_t)sample.label < summary->label_count)
			summary->labels[sample.label]++;
	}
	return 0;
}

static void print_codecs(const struct summary *summary)
{
	for (int i = 1; i < CODECS; i++)
		if (summary->codecs[i])
			printf("  %-10s %s sample%s, %s\n", codec_name((enum packimg_codec)i),
			       text_count(TEXT, summary->codecs[i]),
			       text_plural(summary->codecs[i]),
			       text_bytes(TEXT, summary->codec_bytes[i]));
	if (summary->with_side)
		printf("  %-10s %s sample%s, %s\n", "side data",
		       text_count(TEXT, summary->with_side), text_plural(summary->with_side),
		       text_bytes(TEXT, summary->side_bytes));
}

static void print_classes(const struct packimg *dataset, const struct summary *summary, bool all)
{
	struct range each = {.low = UINT64_MAX};
	/* Classes that only values have, such as those of boxes, are not counted. */
	bool counted = summary->unlabelled + summary->damaged < packimg_count(dataset);

	for (uint32_t i = 0; i < summary->label_count; i++)
		range_add(&each, summary->labels[i]);
	printf("classes     %s", text_count(TEXT, summary->label_count));
	if (summary->label_count && !counted)
		printf(", no sample has a label");
	else if (summary->label_count)
		printf(", %" PRIu64 " to %" PRIu64 " sample%s each", each.low, each.high,
		       text_plural(each.high));
	if (summary->unlabelled && (counted || !summary->label_count))
		printf(", %s sample%s without", text_count(TEXT, summary->unlabelled),
		       text_plural(summary->unlabelled));
	putchar('\n');
	for (uint32_t i = 0; i < summary->label_count && (all || i < 10); i++) {
		const char *name = packimg_class_name(dataset, i);

		if (counted)
			printable_line(stdout, "  %-5u %-30s %s", i, name,
				       text_count(TEXT, summary->labels[i]));
		else
			printable_line(stdout, "  %-5u %s", i, name);
	}
	if (!all && summary->label_count > 10)
		printf("  and %u more (--classes)\n", summary->label_count - 10);
}

static void print_field(const struct packimg_field *field)
{
	const char *type = field_type_name(field->type);

	if (field->type < PACKIMG_FIELD_BYTES)
		printable_line(stdout, "field       %s (%s)", field->name, type);
	else if (field->longest == PACKIMG_LONGEST_UNKNOWN)
		printable_line(stdout, "field       %s (%s, lengths not recorded)", field->name,
			       type);
	else
		printable_line(stdout, "field       %s (%s, up to %s bytes%s)", field->name, type,
			       text_count(TEXT, field->longest),
			       field->longest > PACKIMG_FED_MAX
				       ? ", more than loaderd delivers per value"
				       : "");
}

static json_t *field_json(const struct packimg_field *field)
{
	json_t *json =
		json_pack("{ssss}", "name", field->name, "type", field_type_name(field->type));

	if (field->type >= PACKIMG_FIELD_BYTES && field->longest != PACKIMG_LONGEST_UNKNOWN)
		json_put_count(json, "longest", field->longest);
	return json;
}

/* Largest size of a value, or "". */
static const char *largest_text(const struct schema_value *value, char text[LARGEST])
{
	struct text_buffer number;

	text[0] = '\0';
	if (schema_has_pixels(value))
		snprintf(text, LARGEST, ", up to %u x %u", value->width, value->height);
	else if (schema_has_rows(value) || value->element == SCHEMA_NO_ELEMENT)
		snprintf(text, LARGEST, ", up to %s %s", text_count(&number, value->longest),
			 schema_has_rows(value) ? "rows" : "bytes");
	return text;
}

static void print_value(const struct schema *schema, unsigned index, const struct summary *summary)
{
	const struct schema_value *value = &schema->values[index];
	char line[LINE], largest[LARGEST];

	schema_print_value(schema, index, line, sizeof(line));
	largest_text(value, largest);
	if (value->store != SCHEMA_IN_IMAGES) {
		printable_line(stdout, "value       %s%s", line, largest);
		return;
	}
	const struct image_summary *image = &summary->images[value->number];
	printable_line(stdout, "value       %s%s, %s in %s sample%s", line, largest,
		       text_bytes(TEXT, image->bytes), text_count(TEXT, image->count),
		       text_plural(image->count));
	if (image->damaged)
		printf("DAMAGED     %s of these records; packimg verify names them\n",
		       text_count(TEXT, image->damaged));
}

static json_t *value_json(const struct schema *schema, unsigned index,
			  const struct summary *summary)
{
	const struct schema_value *value = &schema->values[index];
	json_t *json = json_object();
	char line[LINE];

	schema_print_value(schema, index, line, sizeof(line));
	json_put_text(json, "name", value->name);
	json_put_text(json, "value", line);
	if (schema_has_pixels(value)) {
		json_put_count(json, "width", value->width);
		json_put_count(json, "height", value->height);
	} else if (schema_has_rows(value) || value->element == SCHEMA_NO_ELEMENT) {
		json_put_count(json, "longest", value->longest);
	}
	if (value->store == SCHEMA_IN_IMAGES) {
		json_put_count(json, "samples", summary->images[value->number].count);
		json_put_count(json, "bytes", summary->images[value->number].bytes);
		json_put_count(json, "damaged_records", summary->images[value->number].damaged);
	}
	return json;
}

static void print_values(const struct packimg *dataset, const struct summary *summary)
{
	const struct schema *schema = packimg_schema(dataset);

	for (unsigned i = 0; packimg_has_schema(dataset) && i < schema->count; i++)
		print_value(schema, i, summary);
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
		struct packimg_field field;

		if (!packimg_field(dataset, i, &field) &&
		    (!packimg_has_schema(dataset) || schema_find(schema, field.name) < 0))
			print_field(&field);
	}
}

/* Names the optional sections that order samples by class and list their sizes. */
static void print_hints(const struct packimg *dataset)
{
	bool members = packimg_has_members(dataset), sizes = packimg_has_sizes(dataset);

	if (members || sizes)
		printf("sections    %s%s%s\n", members ? "members" : "",
		       members && sizes ? ", " : "", sizes ? "sizes" : "");
}

static void print_dataset_info(const struct packimg *dataset, const struct summary *summary)
{
	const char *line = packimg_metadata(dataset);
	double mean[3], std[3];

	print_values(dataset, summary);
	print_hints(dataset);
	if (!packimg_statistics(dataset, mean, std))
		printf("mean        %.3f %.3f %.3f of 255\ndeviation   %.3f %.3f %.3f\n", mean[0],
		       mean[1], mean[2], std[0], std[1], std[2]);
	while (*line) {
		size_t size = strcspn(line, "\n");

		fputs("  ", stdout);
		printable_put(stdout, line, size);
		putchar('\n');
		line += size + (line[size] == '\n');
	}
}

static int print_text(const struct packimg *dataset, const struct info_options *info,
		      const struct summary *summary)
{
	uint64_t count = packimg_count(dataset), good = count - summary->damaged;
	char uuid[UUID_TEXT];

	uuid_write(packimg_uuid(dataset), uuid);
	printable_line(stdout, "%s: %s sample%s, %s in %u file%s, %s", info->path,
		       text_count(TEXT, count), text_plural(count),
		       text_bytes(TEXT, dataset_bytes(dataset)), packimg_shard_count(dataset),
		       text_plural(packimg_shard_count(dataset)), uuid);
	print_codecs(summary);
	if (good)
		printf("size        %" PRIu64 "..%" PRIu64 " x %" PRIu64 "..%" PRIu64
		       ", mean %.0f x %.0f, %.1f KB\n",
		       summary->width.low, summary->width.high, summary->height.low,
		       summary->height.high, (double)summary->width.sum / (double)good,
		       (double)summary->height.sum / (double)good,
		       (double)summary->bytes / (double)good / 1e3);
	if (summary->grey)
		printf("grey        %s\n", text_count(TEXT, summary->grey));
	if (summary->oriented)
		printf("oriented    %s (EXIF, applied when decoded)\n",
		       text_count(TEXT, summary->oriented));
	if (summary->damaged)
		printf("DAMAGED     %s index records; packimg verify names them\n",
		       text_count(TEXT, summary->damaged));
	print_classes(dataset, summary, info->classes);
	print_dataset_info(dataset, summary);
	return fflush(stdout) ? command_fail("writing to standard output failed") : 0;
}

/* Returns a value with line ends and backslashes unescaped (SPEC.md, "Metadata"). */
static json_t *metadata_value(const char *text, size_t size)
{
	char *value = strndup(text, size), *out = value;

	if (!value)
		return NULL;
	for (const char *in = value; *in; in++) {
		bool escape = *in == '\\' && in[1];

		in += escape;
		*out++ = escape && *in == 'n' ? '\n' : *in;
	}
	json_t *json = json_text(value, (size_t)(out - value));
	free(value);
	return json;
}

static json_t *metadata_json(const struct packimg *dataset)
{
	const char *line = packimg_metadata(dataset);
	json_t *json = json_object();

	while (*line) {
		size_t size = strcspn(line, "\n"), key = strcspn(line, "=");

		if (key < size) {
			char *name = strndup(line, key);

			if (name)
				json_object_set_new(json, name,
						    metadata_value(line + key + 1, size - key - 1));
			free(name);
		}
		line += size + (line[size] == '\n');
	}
	return json;
}

static void add_lists(const struct packimg *dataset, const struct summary *summary, json_t *json)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < summary->label_count; i++) {
		const char *name = packimg_class_name(dataset, i);
		json_t *entry = json_object();

		json_put_text(entry, "name", name);
		json_put_count(entry, "samples", summary->labels[i]);
		json_array_append_new(list, entry);
	}
	json_object_set_new(json, "classes", list);
	list = json_array();
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
		struct packimg_field field;

		if (!packimg_field(dataset, i, &field))
			json_array_append_new(list, field_json(&field));
	}
	json_object_set_new(json, "fields", list);
	list = json_array();
	for (unsigned i = 0; packimg_has_schema(dataset) && i < packimg_schema(dataset)->count; i++)
		json_array_append_new(list, value_json(packimg_schema(dataset), i, summary));
	json_object_set_new(json, "schema", list);
	list = json_array();
	for (uint32_t i = 0; i < packimg_shard_count(dataset); i++) {
		struct packimg_shard shard;

		if (packimg_shard(dataset, i, &shard))
			continue;
		json_t *entry = json_object();
		json_put_text(entry, "path", shard.path);
		json_put_count(entry, "bytes", shard.size);
		json_put_count(entry, "samples", shard.sample_count);
		json_array_append_new(list, entry);
	}
	json_object_set_new(json, "files", list);
}

static int print_json(const struct packimg *dataset, const struct summary *summary)
{
	uint64_t count = packimg_count(dataset), good = count - summary->damaged;
	json_t *json = json_object(), *codecs = json_object();
	double mean[3], std[3];
	char uuid[UUID_TEXT];

	uuid_write(packimg_uuid(dataset), uuid);
	json_object_set_new(json, "uuid", json_string(uuid));
	json_put_count(json, "samples", count);
	json_put_count(json, "bytes", dataset_bytes(dataset));
	json_put_count(json, "image_bytes", summary->bytes);
	json_put_count(json, "side_bytes", summary->side_bytes);
	json_put_count(json, "damaged_records", summary->damaged);
	json_put_count(json, "unlabelled", summary->unlabelled);
	json_put_count(json, "grey", summary->grey);
	json_put_count(json, "oriented", summary->oriented);
	json_object_set_new(json, "has_members", json_boolean(packimg_has_members(dataset)));
	json_object_set_new(json, "has_sizes", json_boolean(packimg_has_sizes(dataset)));
	for (int i = 1; i < CODECS; i++)
		json_object_set_new(codecs, codec_name((enum packimg_codec)i),
				    json_pack("{sIsI}", "samples", (json_int_t)summary->codecs[i],
					      "bytes", (json_int_t)summary->codec_bytes[i]));
	json_object_set_new(json, "codecs", codecs);
	if (good)
		json_object_set_new(
			json, "size",
			json_pack("{s[II]s[II]sfsf}", "width", (json_int_t)summary->width.low,
				  (json_int_t)summary->width.high, "height",
				  (json_int_t)summary->height.low, (json_int_t)summary->height.high,
				  "mean_width", (double)summary->width.sum / (double)good,
				  "mean_height", (double)summary->height.sum / (double)good));
	if (!packimg_statistics(dataset, mean, std)) {
		json_object_set_new(json, "mean", json_pack("[fff]", mean[0], mean[1], mean[2]));
		json_object_set_new(json, "std", json_pack("[fff]", std[0], std[1], std[2]));
	}
	add_lists(dataset, summary, json);
	json_object_set_new(json, "metadata", metadata_json(dataset));
	return command_print_json(json);
}

int command_info(int argc, char **argv)
{
	static const struct argp argp = {.args_doc = "FILE",
					 .doc = "Show the contents of a dataset."};
	struct info_options info = {0};
	struct packimg_error error;
	struct packimg *dataset;
	struct remote *remote;
	struct summary summary;
	int status;

	options_read(options, &argp, argc, argv, &info);
	if (remote_open(info.path, true, &dataset, &remote, &error))
		return command_fail("%s", error.text);
	if (summarise_dataset(dataset, &summary))
		status = command_fail("out of memory");
	else if (info.json)
		status = print_json(dataset, &summary);
	else
		status = print_text(dataset, &info, &summary);
	free(summary.labels);
	remote_close(remote, dataset);
	return status;
}
