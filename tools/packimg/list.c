/* packimg list: lists the samples of a dataset, one per line. */
#include "format/base/text/json_text.h"
#include "format/base/text/number.h"
#include "format/base/text/options.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/command.h"
#include "tools/packimg/common/remote.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/common/typed_text.h"
#include "tools/packimg/selection.h"

#include "format/base/text/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list_options {
	const char *path;
	struct selection selection;
	bool json, count;
	struct buffer text; /* of one value */
};

#define AT(member) offsetof(struct list_options, member)

static const struct options_row options[] = {
	{"json", 'J', NULL, "print one JSON object per line", OPTIONS_FLAG, AT(json)},
	{"index", 'i', "LIST", "only samples with these indices, such as 0-9,15,100-", OPTIONS_TEXT,
	 AT(selection.indices)},
	{"class", 'c', "NAME", "only samples of this class (may be repeated)"},
	SELECTION_WHERE(AT(selection)),
	{"count", 'n', NULL, "print only the number of these samples", OPTIONS_FLAG, AT(count)},
	{.argument = "FILE", .kind = OPTIONS_ARGUMENT, .at = AT(path)},
	{0},
};

static error_t list_parse_option(int key, char *text, struct argp_state *state)
{
	struct list_options *list = state->input;

	if (key != 'c')
		return ARGP_ERR_UNKNOWN;
	return string_list_add(&list->selection.classes, text) ? ENOMEM : 0;
}

static void print_name(const struct packimg_field *field)
{
	putchar('\t');
	printable_put(stdout, field->name, strlen(field->name));
	putchar('=');
}

/*
 * Converts a value that is stored as bytes of numbers to JSON text, null-terminated, in list->text.
 */
static int typed_text(struct list_options *list, const struct schema_value *typed,
		      const struct packimg_value *value)
{
	list->text.size = 0;
	int r = typed_text_append(typed, value, &list->text);
	return r ? r : buffer_append(&list->text, "", 1);
}

static void print_value(struct list_options *list, const struct packimg_field *field,
			const struct schema_value *typed, const struct packimg_value *value)
{
	char number[NUMBER_SHORTEST];

	print_name(field);
	if (typed && !typed_text(list, typed, value)) {
		fputs((const char *)list->text.data, stdout);
		return;
	}
	switch (field->type) {
	case PACKIMG_FIELD_INT64:
		printf("%" PRId64, value->int64);
		break;
	case PACKIMG_FIELD_FLOAT64:
		fputs(number_shortest(value->float64, number), stdout);
		break;
	default:
		if (text_is_utf8(value->bytes, value->size))
			printable_put(stdout, value->bytes, value->size);
		else
			printf("(%zu bytes)", value->size);
		break;
	}
}

static void print_line(struct list_options *list, const struct packimg *dataset, uint64_t index)
{
	struct packimg_sample sample;
	struct packimg_field field;
	struct packimg_value value;
	const char *source;
	size_t source_size;

	printf("%" PRIu64, index);
	if (packimg_sample(dataset, index, &sample)) {
		puts("\tDAMAGED");
		return;
	}
	const char *class = sample_class(dataset, &sample);
	putchar('\t');
	if (class)
		printable_put(stdout, class, strlen(class));
	else
		printf("%" PRId32, sample.label);
	printf("\t%ux%u\t%s\t%u\t", sample.width, sample.height, codec_name(sample.codec),
	       sample.data_size);
	if (packimg_source(dataset, index, &source, &source_size))
		fputs("DAMAGED", stdout);
	else
		printable_put(stdout, source, source_size);
	for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
		packimg_field(dataset, i, &field);
		if (packimg_value(dataset, index, i, &value)) {
			print_name(&field);
			fputs("DAMAGED", stdout);
		} else if (value.present) {
			print_value(list, &field, typed_value(dataset, i), &value);
		}
	}
	putchar('\n');
}

static json_t *value_json(struct list_options *list, const struct packimg_field *field,
			  const struct schema_value *typed, const struct packimg_value *value)
{
	json_t *json;

	if (typed && !typed_text(list, typed, value)) {
		json = json_loads((const char *)list->text.data, JSON_DECODE_ANY, NULL);
		/* Jansson has no integers from 2^63 on. */
		return json ? json : json_string((const char *)list->text.data);
	}
	switch (field->type) {
	case PACKIMG_FIELD_INT64:
		return json_integer(value->int64);
	case PACKIMG_FIELD_FLOAT64:
		json = json_real(value->float64);
		return json ? json : json_null(); /* JSON has no NaN */
	case PACKIMG_FIELD_JSON:
		json = json_loadb(value->bytes, value->size, JSON_DECODE_ANY, NULL);
		if (json)
			return json;
		break;
	default:
		break;
	}
	return json_text(value->bytes, value->size);
}

static void print_json(struct list_options *list, const struct packimg *dataset, uint64_t index)
{
	json_t *json = json_object(), *fields = json_object();
	struct packimg_sample sample;
	struct packimg_field field;
	struct packimg_value value;
	const char *source;
	size_t source_size;

	json_put_count(json, "index", index);
	if (packimg_sample(dataset, index, &sample)) {
		json_object_set_new(json, "damaged", json_true());
	} else {
		json_object_set_new(json, "label", json_integer(sample.label));
		const char *class = sample_class(dataset, &sample);
		if (class)
			json_put_text(json, "class", class);
		json_object_set_new(json, "width", json_integer(sample.width));
		json_object_set_new(json, "height", json_integer(sample.height));
		json_object_set_new(json, "codec", json_string(codec_name(sample.codec)));
		json_object_set_new(json, "channels", json_integer(sample.channels));
		json_object_set_new(json, "orientation", json_integer(sample.orientation));
		json_put_count(json, "bytes", sample.data_size);
		if (sample.side)
			json_put_count(json, "side_bytes", sample.side_size);
		if (packimg_source(dataset, index, &source, &source_size))
			json_object_set_new(json, "damaged", json_true());
		else if (source_size)
			json_object_set_new(json, "source", json_text(source, source_size));
		for (uint32_t i = 0; i < packimg_field_count(dataset); i++) {
			packimg_field(dataset, i, &field);
			if (packimg_value(dataset, index, i, &value))
				json_object_set_new(json, "damaged", json_true());
			else if (value.present)
				json_object_set_new(
					fields, field.name,
					value_json(list, &field, typed_value(dataset, i), &value));
		}
	}
	if (json_object_size(fields))
		json_object_set(json, "fields", fields);
	json_print(json, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(fields);
	json_decref(json);
}

static void print_count(const struct list_options *list, uint64_t count, uint64_t total)
{
	if (list->json)
		printf("{\"samples\":%" PRIu64 ",\"of\":%" PRIu64 "}\n", count, total);
	else
		printf("%s of %s sample%s\n", text_count(TEXT, count), text_count(TEXT, total),
		       text_plural(total));
}

static int list_dataset(struct list_options *list, const struct packimg *dataset)
{
	struct packimg_error error;
	uint64_t *samples, count;

	if (selection_resolve(&list->selection, dataset, &samples, &count, &error))
		return command_fail("%s", error.text);
	if (list->count)
		print_count(list, count, packimg_count(dataset));
	for (uint64_t i = 0; i < count && !list->count && !ferror(stdout); i++) {
		if (list->json)
			print_json(list, dataset, samples[i]);
		else
			print_line(list, dataset, samples[i]);
	}
	free(samples);
	if (fflush(stdout))
		return command_fail("writing to standard output failed");
	return selection_report(&list->selection);
}

int command_list(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = list_parse_option,
		.args_doc = "FILE",
		.doc = "List the samples of a dataset, one per line: index, class, size in pixels, "
		       "codec, bytes, source, fields; separated by tabs.",
	};
	struct list_options list = {0};
	struct packimg_error error;
	struct packimg *dataset;
	struct remote *remote;
	int status;

	options_read(options, &argp, argc, argv, &list);
	if (remote_open(list.path, true, &dataset, &remote, &error)) {
		status = command_fail("%s", error.text);
	} else {
		status = list_dataset(&list, dataset);
		remote_close(remote, dataset);
	}
	selection_deinit(&list.selection);
	buffer_deinit(&list.text);
	return status;
}
