/*
 * Notes on automatic decisions of a conversion that the user may not have intended. Each names the
 * option that overrides it.
 */
#include "format/base/text/number.h"
#include "format/foreign_format.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FEW_IMAGES = 10, /* with so few images, each may well be the only one of its class */
};

static int note_labels(struct convert *convert)
{
	const struct catalog *catalog = &convert->catalog;

	if (catalog->label_field && convert->options.source.labels == LABELS_AUTO)
		return string_list_add_format(
			&convert->notes,
			"the labels are not whole numbers, so they became the field \"%s\"; "
			"--labels classes makes them classes",
			catalog->label_field);
	if (catalog->label_class_sample && catalog->count > FEW_IMAGES &&
	    catalog->class_names.count > catalog->count / 2)
		return string_list_add_format(&convert->notes,
					      "most labels belong to a single image: %s classes "
					      "for %s images; --labels field makes them a field",
					      text_count(TEXT, catalog->class_names.count),
					      text_count(TEXT, catalog->count));
	return 0;
}

/* Returns text such as "train (24 images) and val (12)". */
static char *parts_text(const struct class_rule *rule)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	for (size_t i = 0; file && i < rule->part_count; i++)
		fprintf(file, "%s%.*s (%s%s)",
			!i                          ? ""
			: i + 1 == rule->part_count ? " and "
						    : ", ",
			(int)rule->parts[i].size, rule->parts[i].name,
			text_count(TEXT, rule->parts[i].images),
			i                            ? ""
			: rule->parts[i].images == 1 ? " image"
						     : " images");
	if (file)
		fclose(file);
	return text;
}

/* Returns the first table that was ignored, such as metadata.csv; NULL if there is none. */
static const char *ignored_table(const struct ignored_files *ignored)
{
	static const char *const endings[] = {".csv", ".tsv", ".jsonl"};
	uint32_t number;

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (!name_table_find(&ignored->kind_names, endings[i], &number))
			return ignored->kinds[number].first;
	return NULL;
}

static int note_parts(struct convert *convert)
{
	const struct class_rule *rule = &convert->class_rule;
	const char *table = ignored_table(&convert->ignored);
	char *text = parts_text(rule);
	int r;

	if (!text)
		return -ENOMEM;
	if (rule->below_parts)
		r = string_list_add_format(
			&convert->notes,
			"%s are in one dataset, whose classes are the folders inside them; --split "
			"folders makes each a dataset, --class-from top a class",
			text);
	else if (table)
		r = string_list_add_format(
			&convert->notes,
			"%s are classes, and %s was not read: --manifest FILE takes labels from a "
			"table; --split folders makes each a dataset",
			text, table);
	else
		r = string_list_add_format(&convert->notes,
					   "%s are classes; --split folders makes each a dataset",
					   text);
	free(text);
	return r;
}

enum {
	NAMED_MAX = 5, /* maximum number of classes in a note */
};

static int note_classes(struct convert *convert)
{
	const struct class_rule *rule = &convert->class_rule;
	bool chosen = rule->from == CLASS_AUTO;
	int r = 0;

	if (chosen && rule->shared_size)
		r = string_list_add_format(&convert->notes,
					   "all images are in %.*s, so the classes are the folders "
					   "in it; --class-from top makes it one class",
					   (int)rule->shared_size, rule->shared);
	if (!r && chosen && rule->part_count && !convert->options.split_folders)
		r = note_parts(convert);
	return r;
}

/* Returns the start of the digits at the end of a name. */
static const char *last_number(const char *name)
{
	const char *end = name + strlen(name);

	while (end > name && isdigit((unsigned char)end[-1]))
		end--;
	return end;
}

/*
 * Adds a note on numbered classes such as "0" to "11" or "class0" to "class11": sorted by name,
 * "10" comes third, which rarely matches a model's outputs.
 */
static int note_numbers(struct convert *convert)
{
	const struct catalog *catalog = &convert->catalog;
	const char *before = "";
	uint64_t number, largest = 0, size = 0;

	if (!catalog->numbered_by_name)
		return 0;
	for (uint32_t i = 0; i < catalog->class_count; i++) {
		const char *name = catalog->classes[i], *digits = last_number(name);

		if (number_u64(digits, 0, UINT64_MAX, &number) ||
		    (i && ((uint64_t)(digits - name) != size || memcmp(name, before, size) != 0)))
			return 0;
		size = (uint64_t)(digits - name);
		if (i && number < largest)
			return string_list_add_format(
				&convert->notes,
				"classes are numbered in order of their names, so \"%s\" is class "
				"%u, after \"%s\"; --classes FILE sets another order",
				name, i, before);
		largest = number;
		before = name;
	}
	return 0;
}

/* Adds a note on label files next to images that no source has combined into samples. */
static int note_cls(struct convert *convert)
{
	const struct ignored_files *ignored = &convert->ignored;
	uint32_t number;

	if (name_table_find(&ignored->kind_names, ".cls", &number))
		return 0;
	return string_list_add_format(
		&convert->notes,
		"%s .cls file%s not read: they are labels only in WebDataset tars, where the "
		"members of a sample are adjacent (--format webdataset, \"tar --sort=name\")",
		text_count(TEXT, ignored->kinds[number].files),
		ignored->kinds[number].files == 1 ? " was" : "s were");
}

/* Returns the format of the first ignored file of a known one, and sets its name; or NULL. */
static const struct foreign *ignored_foreign(const struct ignored_files *ignored,
					     const char **ret_name)
{
	for (uint32_t i = 0; i < ignored->kind_names.count; i++) {
		const struct foreign *foreign = foreign_format_of_name(ignored->kinds[i].first);

		*ret_name = ignored->kinds[i].first;
		if (foreign && !foreign->is_source)
			return foreign;
	}
	return NULL;
}

/*
 * Adds a note on a file that was not read and may hold the labels. `lack` says why they are
 * missed. *ret_added: there is such a file.
 */
static int note_unread_labels(struct convert *convert, const char *lack, bool *ret_added)
{
	const char *table = ignored_table(&convert->ignored), *name = NULL;
	const struct foreign *foreign = ignored_foreign(&convert->ignored, &name);

	*ret_added = table || foreign;
	if (table && text_ends_with(table, ".jsonl"))
		return string_list_add_format(
			&convert->notes,
			"%s, and %s was not read: \"python -m loaderd.convert\" with the folder's "
			"name reads Hugging Face's metadata.jsonl",
			lack, table);
	if (table)
		return string_list_add_format(
			&convert->notes,
			"%s, and %s was not read: --manifest FILE takes labels from a table with "
			"the columns path and label",
			lack, table);
	if (foreign)
		return string_list_add_format(&convert->notes,
					      "%s, and %s was not read: it is %s; %s", lack, name,
					      foreign->what, foreign->remedy);
	return 0;
}

/*
 * Adds a note that no sample has a class, or that all have one of a folder and another file may
 * hold labels, unless that was requested.
 */
static int note_no_class(struct convert *convert)
{
	const struct catalog *catalog = &convert->catalog;
	bool is_one = catalog->class_count == 1 && convert->class_rule.from == CLASS_AUTO;
	bool added;

	if ((catalog->class_count && !is_one) || catalog->label_field || !catalog->count ||
	    convert->options.source.class_from == CLASS_NONE)
		return 0;
	int r = note_unread_labels(
		convert, is_one ? "all images are of one class" : "no image has a label", &added);
	if (r || added || is_one || convert->class_rule.from == CLASS_NONE)
		return r;
	return string_list_add_format(
		&convert->notes,
		"no image has a class: classes come from folders, of which each class has one, "
		"from a table (--manifest FILE, columns path and label), or from KEY.cls in a "
		"WebDataset shard; --class-from none says that none is wanted");
}

static int note_patterns(struct convert *convert)
{
	const struct filter *filter = &convert->options.filter;
	int r = 0;

	for (size_t i = 0; !r && i < filter->count; i++)
		if (!filter->patterns[i].used)
			r = string_list_add_format(&convert->notes, "no name matches --%s %s",
						   filter->patterns[i].exclude ? "exclude"
									       : "include",
						   filter->patterns[i].text);
	return r;
}

int convert_note_listing(struct convert *convert)
{
	static int (*const notes[])(struct convert *) = {note_labels, note_classes,  note_numbers,
							 note_cls,    note_no_class, note_patterns};

	for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++) {
		int r = notes[i](convert);
		if (r)
			return r;
	}
	return 0;
}

/* Adds a note on images of lossless formats that were stored with loss. */
static int note_loss(struct convert *convert)
{
	char list[IMAGE_LIST_SIZE] = "";
	size_t size = 0;

	for (int kind = 0; kind < IMAGE_KINDS; kind++)
		if (convert->lossy[kind])
			size += (size_t)snprintf(
				list + size, sizeof(list) - size, "%s%s %s", size ? ", " : "",
				text_count(TEXT, convert->lossy[kind]), image_formats[kind].name);
	if (!size)
		return 0;
	return string_list_add_format(&convert->notes,
				      "%s became JPEG of quality %d, with a small loss; --non-jpeg "
				      "zstd keeps their pixels",
				      list, convert->options.encoding.quality);
}

/* Returns true if a note during listing has already named the class. */
static bool is_of_empty_folder(const struct convert *convert, const char *name)
{
	uint32_t number;

	return !name_table_find(&convert->catalog.class_names, name, &number) &&
	       number >= convert->first_empty_class;
}

/*
 * Adds a note on classes without samples: all of their images were skipped, only --classes lists
 * them, or their number is between those of other classes.
 */
static int note_empty_classes(struct convert *convert)
{
	const struct catalog *catalog = &convert->catalog;
	uint32_t empty = 0;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);
	int r = 0;

	if (!file)
		return -ENOMEM;
	for (uint32_t i = 0; i < catalog->class_count; i++)
		if (!convert->class_samples[i] &&
		    !is_of_empty_folder(convert, catalog->classes[i]) && empty++ < NAMED_MAX)
			fprintf(file, "%s\"%s\"", empty > 1 ? ", " : "", catalog->classes[i]);
	fclose(file);
	if (empty)
		r = string_list_add_format(
			&convert->notes, "%s of %s classes ha%s no image: %s%s%s",
			text_count(TEXT, empty), text_count(TEXT, catalog->class_count),
			empty == 1 ? "s" : "ve", text, empty > NAMED_MAX ? " and more" : "",
			catalog->label_class_sample && empty > catalog->class_count / 2
				? "; --labels field makes a field of labels that are no classes"
				: "");
	free(text);
	return r;
}

int convert_note_writing(struct convert *convert)
{
	/* --limit and --split leave out samples at the user's request. */
	bool whole = !convert->options.limit && !convert->parts[0].name;
	int r = whole ? note_empty_classes(convert) : 0;

	return !r && convert->options.encoding.verbatim ? note_loss(convert) : r;
}
