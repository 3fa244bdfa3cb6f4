/*
 * What a conversion decided that may have been meant otherwise, in sentences with the options that
 * decide so.
 */
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static int add_note(struct convert *convert,
							  const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	int r = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (r < 0)
		return -ENOMEM;
	r = word_list_add(&convert->notes, text);
	free(text);
	return r;
}

enum {
	FEW_IMAGES = 10, /* of which each may well have a class of its own */
};

static int note_labels(struct convert *convert)
{
	const struct catalog *catalog = &convert->catalog;

	if (catalog->label_field && convert->options.source.labels == LABELS_AUTO)
		return add_note(convert,
				"the labels are numbers that are not whole, so they are no classes "
				"but the field \"%s\"; --labels classes makes classes of them",
				catalog->label_field);
	if (catalog->label_class_sample && catalog->count > FEW_IMAGES &&
	    catalog->class_names.count > catalog->count / 2)
		return add_note(convert,
				"most labels are of one image alone: %s classes of %s images; "
				"--labels field makes a field of them",
				text_count(TEXT, catalog->class_names.count),
				text_count(TEXT, catalog->count));
	return 0;
}

/* "train (24 images) and val (12)" */
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

static int note_parts(struct convert *convert)
{
	const struct class_rule *rule = &convert->class_rule;
	char *text = parts_text(rule);
	int r;

	if (!text)
		return -ENOMEM;
	if (rule->below_parts)
		r = add_note(convert,
			     "%s are in one dataset, whose classes are the folders in them; "
			     "--split folders makes a dataset of each, --class-from top a class",
			     text);
	else
		r = add_note(convert, "%s are classes; --split folders makes a dataset of each",
			     text);
	free(text);
	return r;
}

enum {
	NAMED_MAX = 5, /* classes that a note names */
};

/* Marks those folders that have an image, however deep. */
static int mark_folders_of_images(const struct catalog *catalog, const struct names *folders,
				  bool *marks)
{
	struct buffer folder = {0};
	const char *before = "";
	size_t before_size = 0, longest = 0;
	uint32_t number;
	int r = 0;

	for (uint32_t i = 0; i < folders->count; i++)
		longest = strlen(folders->names[i]) > longest ? strlen(folders->names[i]) : longest;

	for (uint64_t i = 0; !r && i < catalog->count; i++) {
		const char *name = catalog->samples[i].name, *slash = strrchr(name, '/');
		size_t size = slash ? (size_t)(slash - name + 1) : 0;

		if (size == before_size && memcmp(name, before, size) == 0)
			continue;
		before = name;
		before_size = size;
		folder.size = 0;
		r = buffer_append(&folder, name, size) || buffer_append(&folder, "", 1) ? -ENOMEM
											: 0;
		for (; !r && size; size--) {
			folder.data[size] = 0;
			if (size <= longest && folder.data[size - 1] == '/' &&
			    !names_find(folders, (const char *)folder.data, &number))
				marks[number] = true;
		}
	}
	buffer_deinit(&folder);
	return r;
}

/* Folders that would be classes, had they an image. */
static int note_empty_folders(struct convert *convert)
{
	const struct ignored *ignored = &convert->ignored;
	struct buffer class_name = {0};
	struct arena *arena = &convert->catalog.arena;
	bool *taken = arena_array(arena, ignored->folders.count * sizeof(*taken));
	struct names missing;
	uint32_t number;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);
	int r = file && taken ? 0 : -ENOMEM;

	names_init(&missing, arena);
	if (!r && ignored->folders.count)
		r = mark_folders_of_images(&convert->catalog, &ignored->folders, taken);
	for (uint32_t i = 0; !r && i < ignored->folders.count; i++) {
		const char *folder = ignored->folders.names[i];
		bool added;

		r = buffer_make_room(&class_name, strlen(folder) + 1);
		const char *name =
			r ? NULL
			  : class_rule_apply(&convert->class_rule, folder, (char *)class_name.data);
		if (!name || taken[i] || !names_find(&convert->catalog.class_names, name, &number))
			continue;
		r = names_add(&missing, name, &number, &added);
		if (!r && added && number < NAMED_MAX)
			fprintf(file, "%s\"%s\" (%s file%s in %s)", number ? ", " : "", name,
				text_count(TEXT, ignored->folder_files[i]),
				text_plural(ignored->folder_files[i]), folder);
	}
	if (file)
		fclose(file);
	if (!r && missing.count)
		r = add_note(convert, "%s folder%s that would be %s hold%s no image: %s%s",
			     text_count(TEXT, missing.count), text_plural(missing.count),
			     missing.count == 1 ? "a class" : "classes",
			     missing.count == 1 ? "s" : "", text,
			     missing.count > NAMED_MAX ? " and more" : "");
	names_deinit(&missing);
	arena_release(arena, taken);
	buffer_deinit(&class_name);
	free(text);
	return r;
}

static int note_classes(struct convert *convert)
{
	const struct class_rule *rule = &convert->class_rule;
	bool chosen = rule->from == CLASS_AUTO;
	int r = 0;

	if (chosen && rule->shared_size)
		r = add_note(convert,
			     "every image lies in %.*s, so the classes are the folders in it; "
			     "--class-from top makes one class of it",
			     (int)rule->shared_size, rule->shared);
	if (!r && chosen && rule->part_count && !convert->options.split_folders)
		r = note_parts(convert);
	return r || !convert->catalog.class_names.count ? r : note_empty_folders(convert);
}

static int note_patterns(struct convert *convert)
{
	const struct filter *filter = &convert->options.filter;
	int r = 0;

	for (size_t i = 0; !r && i < filter->count; i++)
		if (!filter->patterns[i].used)
			r = add_note(convert, "no name matches --%s %s",
				     filter->patterns[i].exclude ? "exclude" : "include",
				     filter->patterns[i].text);
	return r;
}

int convert_note_listing(struct convert *convert)
{
	int r = note_labels(convert);

	if (!r)
		r = note_classes(convert);
	return r ? r : note_patterns(convert);
}

/* Pixels of kinds that may keep every one, in files of a kind that does not. */
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
	return add_note(convert,
			"%s became JPEG of quality %d, which loses a little; --non-jpeg zstd keeps "
			"their pixels",
			list, convert->options.render.quality);
}

/*
 * Whose images were all skipped, that --classes alone has, or whose number only lies between those
 * of others.
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
		if (!convert->class_samples[i] && empty++ < NAMED_MAX)
			fprintf(file, "%s\"%s\"", empty > 1 ? ", " : "", catalog->classes[i]);
	fclose(file);
	if (empty)
		r = add_note(
			convert, "%s of %s classes ha%s no image: %s%s%s", text_count(TEXT, empty),
			text_count(TEXT, catalog->class_count), empty == 1 ? "s" : "ve", text,
			empty > NAMED_MAX ? " and more" : "",
			catalog->label_class_sample && empty > catalog->class_count / 2
				? "; --labels field makes a field of labels that are no classes"
				: "");
	free(text);
	return r;
}

int convert_note_writing(struct convert *convert)
{
	/* What --limit and --split leave out, they were asked to. */
	bool whole = !convert->options.limit && !convert->parts[0].name;
	int r = whole ? note_empty_classes(convert) : 0;

	return !r && convert->options.render.verbatim ? note_loss(convert) : r;
}
