/* The report at the end of a conversion. */
#include "format/base/text/json_text.h"
#include "format/base/text/printable.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SKIPS_SHOWN = 20,
	IGNORED_SHOWN = 8, /* number of kinds listed */
};

uint64_t convert_sample_count(const struct convert *convert)
{
	uint64_t count = 0;

	for (enum image_kind kind = 0; kind < IMAGE_KINDS; kind++)
		count += convert->kinds[kind];
	return count;
}

static void report_codecs(const struct convert *convert)
{
	const char *comma = "";

	printf("  codecs    ");
	for (int i = 1; i < 4; i++) {
		if (!convert->codecs[i])
			continue;
		printf("%s%s %s", comma, text_count(TEXT, convert->codecs[i]),
		       codec_name((enum packimg_codec)i));
		if (i == PACKIMG_CODEC_JPEG)
			printf(" (%s verbatim, %s with index)", text_count(TEXT, convert->verbatim),
			       text_count(TEXT, convert->indexed));
		if (i == PACKIMG_CODEC_JPEG && convert->transcoded)
			printf(", of them %s transcoded without loss",
			       text_count(TEXT, convert->transcoded));
		comma = ", ";
	}
	printf("\n  sources   ");
	comma = "";
	for (int i = 0; i < IMAGE_KINDS; i++) {
		if (!convert->kinds[i])
			continue;
		printf("%s%s %s", comma, text_count(TEXT, convert->kinds[i]),
		       image_formats[i].name);
		comma = ", ";
	}
	putchar('\n');
	unindexed_print(&convert->unindexed);
}

static void report_part(const struct convert_part *part)
{
	double mean[3], std[3];

	printable_line(stdout, "%s: %s sample%s, %s", part->path, text_count(TEXT, part->samples),
		       text_plural(part->samples), text_bytes(TEXT, part->bytes));
	if (!statistics_result(&part->statistics, mean, std))
		printf("  mean      %.2f %.2f %.2f, deviation %.2f %.2f %.2f of 255 (from %s "
		       "image%s)\n",
		       mean[0], mean[1], mean[2], std[0], std[1], std[2],
		       text_count(TEXT, part->statistics.images),
		       text_plural(part->statistics.images));
}

/* Prints the number of files ignored by name, by kind. */
static void report_ignored(struct ignored_files *ignored)
{
	uint32_t kinds = ignored->kind_names.count;

	ignored_files_sort(ignored);
	if (ignored->excluded)
		printf("  excluded  %s by --include and --exclude\n",
		       text_count(TEXT, ignored->excluded));
	if (ignored->files)
		printf("  ignored   %s file%s by name\n", text_count(TEXT, ignored->files),
		       ignored->files == 1 ? " that is not an image" : "s that are not images");
	for (uint32_t i = 0; i < kinds && i < IGNORED_SHOWN; i++)
		printable_line(stdout, "    %s %s: %.300s%s",
			       text_count(TEXT, ignored->kinds[i].files), ignored->kinds[i].name,
			       ignored->kinds[i].first, ignored->kinds[i].files > 1 ? ", ..." : "");
	if (kinds > IGNORED_SHOWN)
		printf("    and %u more kinds; --json lists them all\n", kinds - IGNORED_SHOWN);
}

/* Prints skipped files: the first of each sequence with the same reason. */
static void report_skips(const struct convert *convert)
{
	const struct convert_skip *skips = convert->skips;
	uint64_t i = 0, run;

	printf("  skipped   %s\n", text_count(TEXT, convert->skip_count));
	for (int lines = 0; i < convert->skip_count && lines < SKIPS_SHOWN; lines++, i += run) {
		for (run = 1; i + run < convert->skip_count &&
			      strcmp(skips[i + run].reason, skips[i].reason) == 0;
		     run++)
			;
		run = run > 2 ? run : 1;
		if (run > 1)
			printable_line(stdout, "    %.300s and %s more: %s", skips[i].name,
				       text_count(TEXT, run - 1), skips[i].reason);
		else
			printable_line(stdout, "    %.300s: %s", skips[i].name, skips[i].reason);
	}
	if (i < convert->skip_count)
		printf("    and %s more; --json lists them all\n",
		       text_count(TEXT, convert->skip_count - i));
}

/*
 * Prints fields with values that the format can hold but the daemon refuses to deliver, because
 * reporting them now is better than failing when training starts.
 */
static void report_long_values(const struct convert *convert)
{
	for (uint32_t f = 0; f < convert->catalog.field_names.count; f++)
		if (convert->longest[f].size > PACKIMG_FED_MAX)
			printable_line(stdout,
				       "  too long  field %s has values of up to %s bytes (%s); "
				       "loaderd delivers at most %s of each, and longer ones only "
				       "with cut_values",
				       convert->catalog.field_names.names[f],
				       text_count(TEXT, convert->longest[f].size),
				       convert->longest[f].sample,
				       text_count(TEXT, PACKIMG_FED_MAX));
}

static json_t *long_values_json(const struct convert *convert)
{
	json_t *list = json_array();

	for (uint32_t f = 0; f < convert->catalog.field_names.count; f++) {
		const char *name = convert->catalog.field_names.names[f];
		const struct convert_longest *longest = &convert->longest[f];

		if (longest->size > PACKIMG_FED_MAX)
			json_array_append_new(
				list,
				json_pack("{sosIso}", "field", json_text(name, strlen(name)),
					  "bytes", (json_int_t)longest->size, "sample",
					  json_text(longest->sample, strlen(longest->sample))));
	}
	return list;
}

int convert_report(struct convert *convert)
{
	uint64_t total = 0;

	for (uint32_t p = 0; p < convert->part_count; p++) {
		report_part(&convert->parts[p]);
		total += convert->parts[p].bytes;
	}
	printf("  classes   %s%s", text_count(TEXT, convert->catalog.class_count),
	       convert->catalog.class_count || convert->catalog.label_field
		       ? ""
		       : ": NO SAMPLE HAS A LABEL");
	if (convert->catalog.label_list_sample)
		printf(", several of a sample");
	if (convert->catalog.field_names.count)
		printf(", fields %u", convert->catalog.field_names.count);
	putchar('\n');
	if (convert->unlabelled && !convert->catalog.label_field)
		printable_line(stdout, "  no label  %s of %s samples, the first %.300s",
			       text_count(TEXT, convert->unlabelled),
			       text_count(TEXT, convert_sample_count(convert)),
			       convert->unlabelled_name);
	report_long_values(convert);
	report_codecs(convert);
	printf("  bytes     %s in, %s out\n", text_bytes(TEXT, convert->bytes_in),
	       text_bytes(TEXT, total));
	printf("  time      %s (listing %.2f s), %.0f images/s, %.1f MB/s, %u job%s\n",
	       text_duration(TEXT, convert->list_s + convert->write_s), convert->list_s,
	       (double)convert_sample_count(convert) / convert->write_s,
	       (double)convert->bytes_in / convert->write_s / 1e6, convert->options.jobs,
	       text_plural(convert->options.jobs));
	report_ignored(&convert->ignored);
	for (size_t i = 0; i < convert->notes.count; i++)
		printable_line(stdout, "  note      %s", convert->notes.strings[i]);
	if (convert->skip_count)
		report_skips(convert);
	return 0;
}

static json_t *part_json(const struct convert_part *part)
{
	json_t *json = json_object();
	double mean[3], std[3];

	json_put_text(json, "path", part->path);
	if (part->name) {
		json_put_text(json, "part", part->name);
		if (part->fraction > 0)
			json_object_set_new(json, "fraction", json_real(part->fraction));
	}
	json_put_count(json, "samples", part->samples);
	json_put_count(json, "bytes", part->bytes);
	if (!statistics_result(&part->statistics, mean, std)) {
		json_object_set_new(json, "mean", json_pack("[fff]", mean[0], mean[1], mean[2]));
		json_object_set_new(json, "std", json_pack("[fff]", std[0], std[1], std[2]));
		json_put_count(json, "statistics_images", part->statistics.images);
	}
	return json;
}

static json_t *ignored_json(struct ignored_files *ignored)
{
	json_t *list = json_array();

	ignored_files_sort(ignored);
	for (uint32_t i = 0; i < ignored->kind_names.count; i++) {
		const struct ignored_kind *kind = &ignored->kinds[i];
		json_t *entry = json_object();

		json_put_text(entry, "kind", kind->name);
		json_put_count(entry, "files", kind->files);
		json_put_text(entry, "first", kind->first);
		json_array_append_new(list, entry);
	}
	return list;
}

/*
 * Prints the summary, a JSON object, with the skipped files inserted one by one, because they may
 * not all fit in memory. Consumes the reference.
 */
static int print_with_skips(const struct convert *convert, json_t *json)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	int r = memory && json ? json_print(json, memory, JSON_INDENT(2)) : -1;

	if (memory && fclose(memory))
		r = -1;
	json_decref(json);
	if (!r)
		printf("%.*s,\n  \"skipped\": [", (int)size - 2,
		       text); /* leaves out the final "\n}" */
	free(text);
	for (uint64_t i = 0; !r && i < convert->skip_count; i++) {
		json_t *entry = json_object();

		json_put_text(entry, "name", convert->skips[i].name);
		json_put_sentence(entry, "reason", convert->skips[i].reason);
		fputs(i ? ",\n    " : "\n    ", stdout);
		r = json_print(entry, stdout, 0);
		json_decref(entry);
	}
	if (r || printf("%s]\n}\n", convert->skip_count ? "\n  " : "") < 0 || fflush(stdout))
		return command_fail("writing to standard output: %s", strerror(errno));
	return 0;
}

int convert_report_json(struct convert *convert)
{
	json_t *json = json_object(), *list = json_array();

	for (uint32_t p = 0; p < convert->part_count; p++)
		json_array_append_new(list, part_json(&convert->parts[p]));
	json_object_set_new(json, "datasets", list);
	json_put_count(json, "samples", convert_sample_count(convert));
	json_put_count(json, "classes", convert->catalog.class_count);
	json_put_count(json, "unlabelled", convert->unlabelled);
	json_put_count(json, "fields", convert->catalog.field_names.count);
	json_object_set_new(json, "too_long", long_values_json(convert));
	json_put_count(json, "bytes_in", convert->bytes_in);
	json_put_count(json, "verbatim", convert->verbatim);
	json_put_count(json, "indexed", convert->indexed);
	json_put_count(json, "transcoded", convert->transcoded);
	json_object_set_new(json, "unindexed", unindexed_json(&convert->unindexed));
	list = json_object();
	for (int i = 1; i < 4; i++)
		json_put_count(list, codec_name((enum packimg_codec)i), convert->codecs[i]);
	json_object_set_new(json, "codecs", list);
	list = json_object();
	for (int i = 0; i < IMAGE_KINDS; i++)
		if (image_formats[i].reading)
			json_put_count(list, image_formats[i].name, convert->kinds[i]);
	json_object_set_new(json, "sources", list);
	json_put_count(json, "jobs", convert->options.jobs);
	json_object_set_new(json, "list_seconds", json_real(convert->list_s));
	json_object_set_new(json, "write_seconds", json_real(convert->write_s));
	json_object_set_new(json, "images_per_second",
			    json_real((double)convert_sample_count(convert) / convert->write_s));
	json_put_count(json, "excluded", convert->ignored.excluded);
	json_put_count(json, "ignored", convert->ignored.files);
	json_object_set_new(json, "ignored_kinds", ignored_json(&convert->ignored));
	list = json_array();
	for (size_t i = 0; i < convert->notes.count; i++)
		json_array_append_new(list, json_sentence(convert->notes.strings[i]));
	json_object_set_new(json, "notes", list);
	return print_with_skips(convert, json);
}
