/* First half of a conversion: selects the samples, their order and their dataset. */
#include "format/foreign_format.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/convert/convert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int convert_skip(struct convert *convert, const char *name, const char *reason)
{
	if (arena_reserve(&convert->catalog.arena, &convert->skips, convert->skip_count,
			  &convert->skip_capacity, sizeof(*convert->skips)))
		return -ENOMEM;
	struct convert_skip *skip = &convert->skips[convert->skip_count];
	skip->name = arena_copy(&convert->catalog.arena, name, strnlen(name, PACKIMG_SOURCE_MAX));
	skip->reason = arena_copy(&convert->catalog.arena, reason, strlen(reason));
	if (!skip->name || !skip->reason)
		return -ENOMEM;
	convert->skip_count++;
	return 0;
}

int convert_nothing(const struct convert *convert, struct packimg_error *error)
{
	if (!convert->skip_count)
		return packimg_fail(error, -ENODATA, "nothing to convert");
	return packimg_fail(error, -ENODATA, "no image could be converted; the first, %.200s: %s",
			    convert->skips[0].name, convert->skips[0].reason);
}

/* Skips an unusable item, reporting the reason in error, or ends the conversion. */
static int convert_skip_item(struct convert *convert, const char *name, struct packimg_error *error)
{
	if (convert->options.fail_on_error)
		return text_error_prefix(error, -EBADMSG, "%s", name);
	return convert_skip(convert, name, error->text);
}

static int convert_nothing_found(struct convert *convert, const char *path,
				 struct packimg_error *error)
{
	const struct ignored_files *ignored = &convert->ignored;
	char endings[IMAGE_LIST_SIZE];

	image_list_endings(endings);
	if (ignored->excluded)
		return packimg_fail(
			error, -ENODATA,
			"%s: no images found (names ending in %s); --include and --exclude "
			"leave out %s",
			path, endings, text_count(TEXT, ignored->excluded));
	if (!ignored->files)
		return packimg_fail(error, -ENODATA, "%s: no images found (names ending in %s)",
				    path, endings);
	ignored_files_sort(&convert->ignored);
	const char *first = ignored->kinds[0].first;
	const struct foreign *foreign = foreign_format_of_name(first);
	return packimg_fail(
		error, -ENODATA,
		"%s: no images found (names ending in %s) among %s file%s, such as %s%s%s%s%s",
		path, endings, text_count(TEXT, ignored->files), text_plural(ignored->files), first,
		foreign ? ", which is " : "", foreign ? foreign->what : "", foreign ? "; " : "",
		foreign ? foreign->remedy : "");
}

static int ignore_item(struct convert *convert, const char *path, const struct source_item *item)
{
	int r = ignored_files_add(&convert->ignored, item->name, item->verdict);

	return r || item->verdict != FILTER_OTHER
		       ? r
		       : annotations_add_other(&convert->annotations, path, item->name);
}

static int convert_list_source(struct convert *convert, const char *path, struct progress *progress,
			       struct packimg_error *error)
{
	struct source *source;
	struct source_item item;
	uint64_t before = convert->catalog.count;

	int r = source_new(&convert->catalog.blobs, path, &convert->options.source, &source, error);
	if (r)
		return r;
	if (annotations_begin(&convert->annotations, path)) {
		source_free(source);
		return -ENOMEM;
	}
	while ((r = source_next(source, &item, error)) >= 0 && r != SOURCE_END) {
		if (command_interrupted())
			r = -EINTR;
		if (!r && item.class_of_name)
			r = annotations_add_image(&convert->annotations, item.name);
		if (!r)
			r = catalog_add(&convert->catalog, &item, error);
		if (r == SOURCE_SKIP || r == CATALOG_SKIP)
			r = convert_skip_item(convert, item.name, error);
		if (r == SOURCE_IGNORED)
			r = ignore_item(convert, path, &item);
		if (r)
			break;
		progress_update(progress, convert->catalog.count, 0);
	}
	source_free(source);
	/* The samples listed before the archive exceeded its limit are kept. */
	if (r == -EFBIG && !convert->options.fail_on_error)
		r = convert_skip(convert, path, error->text) ? -ENOMEM : SOURCE_END;
	else if (r == -EFBIG)
		r = text_error_prefix(error, r, "%s", path);
	if (r != SOURCE_END)
		return r;
	return convert->catalog.count == before && !convert->skip_count
		       ? convert_nothing_found(convert, path, error)
		       : 0;
}

struct class_list {
	const char **names; /* allocated from the catalogue's arena */
	size_t count, capacity;
};

static int class_list_add(struct class_list *list, struct arena *arena, const char *line,
			  size_t size)
{
	if (!size)
		return 0;
	if (list->count == PACKIMG_CLASSES_MAX)
		return -E2BIG;
	if (arena_reserve(arena, &list->names, list->count, &list->capacity, sizeof(*list->names)))
		return -ENOMEM;
	list->names[list->count] = arena_copy(arena, line, size);
	return list->names[list->count++] ? 0 : -ENOMEM;
}

/* Reads one class name per line. */
static int read_classes(const char *path, struct class_list *list, struct arena *arena,
			struct packimg_error *error)
{
	FILE *file = fopen(path, "re");
	char line[PACKIMG_CLASS_NAME_MAX + sizeof("\r\n")];
	unsigned number = 0;
	int r = 0;

	if (!file)
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	while (!r && fgets(line, sizeof(line), file)) {
		size_t size = strlen(line);
		bool whole = size && (line[size - 1] == '\n' || feof(file));

		number++;
		while (size && (line[size - 1] == '\n' || line[size - 1] == '\r'))
			size--;
		r = whole ? class_list_add(list, arena, line, size) : -ENAMETOOLONG;
	}
	if (!r && ferror(file))
		r = -EIO;
	fclose(file);
	if (r == -ENAMETOOLONG)
		return packimg_fail(error, -EINVAL,
				    "%s:%u: not a class name: it is longer than %d bytes or "
				    "contains a zero byte; put one name on each line",
				    path, number, PACKIMG_CLASS_NAME_MAX);
	if (r == -E2BIG)
		return packimg_fail(error, r, "%s: more than %d classes", path,
				    PACKIMG_CLASSES_MAX);
	return r ? packimg_fail(error, r, "%s: %s", path, strerror(-r)) : 0;
}

/* Derives the class of a sample from its name, if it is CATALOG_CLASS_OF_NAME. */
static int classify_by_name(struct convert *convert, struct catalog_sample *sample,
			    struct buffer *class_name, struct packimg_error *error)
{
	if (sample->class != CATALOG_CLASS_OF_NAME)
		return 0;
	if (buffer_reserve(class_name, strlen(sample->name) + 1))
		return -ENOMEM;
	return catalog_classify(
		&convert->catalog, sample,
		class_rule_apply(&convert->class_rule, sample->name, (char *)class_name->data),
		error);
}

static int classify_samples(struct convert *convert, struct buffer *class_name,
			    struct packimg_error *error)
{
	struct catalog *catalog = &convert->catalog;
	uint64_t kept = 0;

	for (uint64_t i = 0; i < catalog->count; i++) {
		struct catalog_sample *sample = &catalog->samples[i];
		int r = classify_by_name(convert, sample, class_name, error);

		if (!r)
			catalog->samples[kept++] = *sample;
		if (r == CATALOG_SKIP)
			r = convert_skip_item(convert, sample->name, error);
		if (r)
			return r;
	}
	catalog->count = kept;
	return 0;
}

static int assign_classes(struct convert *convert, struct packimg_error *error)
{
	struct class_rule *rule = &convert->class_rule;
	struct buffer class_name = {0};

	class_rule_learn(rule, convert->options.source.class_from, &convert->catalog);
	/* A file directly in a part's folder does not get the part's name as its class. */
	rule->below_parts |= convert->options.split_folders && rule->part_count;
	int r = classify_samples(convert, &class_name, error);
	buffer_deinit(&class_name);
	return r;
}

static int list_sources(struct convert *convert, struct packimg_error *error)
{
	struct progress progress;
	int r = 0;

	progress_init(&progress, "listing", 0, convert->options.quiet);
	for (size_t i = 0; !r && i < convert->options.sources->count; i++)
		r = convert_list_source(convert, convert->options.sources->strings[i], &progress,
					error);
	progress_clear(&progress);
	convert->list_s = progress_elapsed_s(&progress);
	return r;
}

/* Refuses to derive classes from the folders of a dataset with annotations, unless asked to. */
static int check_annotations(const struct convert *convert, struct packimg_error *error)
{
	const struct catalog *catalog = &convert->catalog;
	bool any = false;

	for (uint64_t i = 0; i < catalog->count && !any; i++)
		any = catalog->samples[i].class == CATALOG_CLASS_OF_NAME;
	return any && convert->options.source.class_from == CLASS_AUTO
		       ? annotations_check(&convert->annotations, error)
		       : 0;
}

int convert_list(struct convert *convert, struct packimg_error *error)
{
	struct class_list classes = {0};

	int r = list_sources(convert, error);
	if (r)
		return r;
	if (convert->options.classes_file) {
		r = read_classes(convert->options.classes_file, &classes, &convert->catalog.arena,
				 error);
		if (r)
			return r;
	}
	r = check_annotations(convert, error);
	if (r)
		return r;
	r = assign_classes(convert, error);
	if (r)
		return r;
	if (convert_add_empty_classes(convert))
		return packimg_fail(error, -ENOMEM, "out of memory");
	r = catalog_finish(&convert->catalog, convert->options.classes_file ? classes.names : NULL,
			   (uint32_t)classes.count, error);
	if (r)
		return r;
	if (convert_note_listing(convert))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return 0;
}

int convert_find_parts(struct convert *convert, struct packimg_error *error)
{
	const struct class_rule *rule = &convert->class_rule;

	if (!rule->part_count)
		return packimg_fail(error, -EINVAL,
				    "--split folders: the images are not in several folders called "
				    "train, val, test or similar, for example %.200s; --include "
				    "and --exclude choose those that are",
				    rule->outside_parts      ? rule->outside_parts
				    : convert->catalog.count ? convert->catalog.samples[0].name
							     : "none");
	for (size_t i = 0; i < rule->part_count; i++) {
		convert->parts[i].name = arena_copy(&convert->catalog.arena, rule->parts[i].name,
						    rule->parts[i].size);
		if (!convert->parts[i].name)
			return packimg_fail(error, -ENOMEM, "out of memory");
	}
	convert->part_count = (uint32_t)rule->part_count;
	return 0;
}

static int assign_by_folder(struct convert *convert, struct packimg_error *error)
{
	struct catalog *catalog = &convert->catalog;

	for (uint64_t i = 0; i < catalog->count; i++) {
		size_t part = class_rule_find_part(&convert->class_rule, catalog->samples[i].name);

		if (part == convert->class_rule.part_count)
			return packimg_fail(
				error, -EINVAL,
				"--split folders: %s is outside the folders of the other images",
				catalog->samples[i].name);
		catalog->samples[i].part = (uint32_t)part;
	}
	return 0;
}

/* Removes samples that belong to no part from the catalogue, so that they are not read. */
static void set_parts(struct catalog *catalog, const uint32_t *parts)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < catalog->count; i++) {
		catalog->samples[i].part = parts[i];
		if (parts[i] != UINT32_MAX)
			catalog->samples[kept++] = catalog->samples[i];
	}
	catalog->count = kept;
}

static int draw_parts(struct convert *convert, int32_t *labels, uint32_t *parts)
{
	struct catalog *catalog = &convert->catalog;
	double fractions[SPLIT_PARTS_MAX];

	if (!labels || !parts)
		return -ENOMEM;
	for (uint32_t p = 0; p < convert->part_count; p++)
		fractions[p] = convert->parts[p].fraction;
	for (uint64_t i = 0; i < catalog->count; i++)
		labels[i] = catalog->samples[i].label;
	int r = shuffle_split(labels, catalog->count, fractions, convert->part_count,
			      convert->options.split_seed, parts);
	if (r)
		return r;
	set_parts(catalog, parts);
	return 0;
}

static int assign_by_fraction(struct convert *convert)
{
	struct arena *arena = &convert->catalog.arena;
	uint32_t *parts = arena_array(arena, convert->catalog.count * sizeof(*parts));
	int32_t *labels = arena_array(arena, convert->catalog.count * sizeof(*labels));
	int r = draw_parts(convert, labels, parts);

	arena_release(arena, parts);
	arena_release(arena, labels);
	return r;
}

static int assign_parts(struct convert *convert, struct packimg_error *error)
{
	if (convert->options.split_folders)
		return assign_by_folder(convert, error);
	if (!convert->parts[0].name)
		return 0;
	int r = assign_by_fraction(convert);
	return r ? packimg_fail(error, r, "%s", strerror(-r)) : 0;
}

int convert_assign(struct convert *convert, struct packimg_error *error)
{
	struct catalog *catalog = &convert->catalog;

	if (convert->options.shuffle) {
		int r = catalog_shuffle(catalog, convert->options.seed);
		if (r)
			return packimg_fail(error, r, "%s", strerror(-r));
	}
	if (convert->options.limit && convert->options.limit < catalog->count)
		catalog->count = convert->options.limit;
	for (uint64_t i = 0; i < catalog->count; i++)
		catalog->samples[i].part = 0;
	int r = assign_parts(convert, error);
	if (r)
		return r;
	/*
	 * A few samples suffice for a mean, and decoding all of them would take longer than
	 * copying.
	 */
	if (convert->options.statistics == UINT64_MAX)
		convert->options.statistics = 64 + catalog->count / 128;
	return catalog->count ? 0 : convert_nothing(convert, error);
}
