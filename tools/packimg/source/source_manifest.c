/*
 * A table of images: CSV, TSV or a plain list.
 *
 * With a header, the column path (or file, filename, image, name) names the image, the column label
 * or class (or class_name, category, target) its class, and every other column is a field. Without
 * a header, the columns are path, label, column3, ..., or label, path, or number, label, path as in
 * MXNet's lists. A label column of whole numbers contains class numbers, one of other numbers is a
 * field, and any other contains class names. Cells that mean a missing value are neither labels nor
 * numbers.
 */
#include "format/base/text/number.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/label_column.h"
#include "tools/packimg/source/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	/* bytes of text after which the arena's file pages are dropped */
	TOUCHED_MAX = 16 << 20,
};

static void source_manifest_close(struct source *source)
{
	struct source_manifest *manifest = (struct source_manifest *)source;

	for (size_t i = 0; i < manifest->column_count; i++)
		free(manifest->columns[i]);
	free(manifest->columns);
	free(manifest->commas);
	free(manifest->fields);
	csv_deinit(&manifest->csv);
	arena_release(source->blobs->arena, manifest->text);
	path_templates_deinit(&manifest->images);
	buffer_deinit(&manifest->name);
	buffer_deinit(&manifest->list);
	buffer_deinit(&manifest->labels);
	buffer_deinit(&manifest->previous);
	free(manifest->repeated);
	free(manifest->missing);
	free(manifest->path);
}

/* Calls manifest_read_row(), and limits how much of a long text stays in memory. */
static int manifest_next_row(struct source_manifest *manifest, const char *const **ret_cells,
			     size_t *ret_count, struct packimg_error *error)
{
	struct csv *csv = &manifest->csv;

	if (!manifest->touched || csv->cursor < manifest->touched ||
	    csv->cursor - manifest->touched > TOUCHED_MAX) {
		arena_forget(manifest->source.blobs->arena);
		manifest->touched = csv->cursor;
	}
	return manifest_read_row(csv, ret_cells, ret_count, error);
}

/*
 * Adds a note that, without a label, all other columns become fields: a label under another name
 * would be overlooked.
 */
static int note_no_label(const struct source_manifest *manifest)
{
	const struct source_options *options = manifest->source.options;
	const char *const *columns = (const char *const *)manifest->columns;
	char text[LIST_SIZE];

	if (manifest->label_column >= 0 || manifest->column_count < 2 || !options->notes)
		return 0;
	return string_list_add_format(
		options->notes,
		"%s: no column is called label, target or class, so its images have no classes "
		"(columns %s); --label-column NAME sets the column of the classes",
		manifest->path, manifest_list_cells(columns, manifest->column_count, text));
}

/* Notes what a cell says of the commas in the numbers of its column. */
static void scan_comma(struct source_manifest *manifest, size_t column, char *comma, bool is_number)
{
	if (!is_number)
		manifest->commas[column] = COMMAS_NONE;
	else if (comma && manifest->commas[column] == COMMAS_UNSEEN)
		manifest->commas[column] = COMMAS_ARE_POINTS;
}

static int scan_rows(struct source_manifest *manifest, int column, struct label_column *labels,
		     struct packimg_error *error)
{
	const bool semicolons = manifest->csv.separator == ';';
	const char *const *cells;
	size_t count;
	int r;

	while (!(r = manifest_next_row(manifest, &cells, &count, error))) {
		for (size_t i = 0; !r && i < count && i < manifest->column_count; i++) {
			char *comma = semicolons ? strchr(cells[i], ',') : NULL;
			double value;

			if (source_label_is_missing(cells[i]))
				continue;
			if (comma)
				*comma = '.';
			scan_comma(manifest, i, comma, !number_double(cells[i], &value));
			if ((int)i == column)
				r = label_column_add(labels, cells[i]);
		}
		if (r)
			return packimg_fail(error, r, "out of memory");
	}
	return r < 0 ? r : 0;
}

/* Takes the second of two columns for the label, if its cells are plainly labels. */
static int guess_label(struct source_manifest *manifest, const struct label_column *labels)
{
	struct string_list *notes = manifest->source.options->notes;
	int column = 1 - manifest->path_column;

	if (manifest->label_column >= 0 || !label_column_repeats(labels))
		return 0;
	manifest->label_column = column;
	if (!notes || manifest->source.options->labels == LABELS_FIELD)
		return 0;
	return string_list_add_format(
		notes,
		"%s: the column \"%s\" is taken for the label, because its values repeat and "
		"there is no other; --labels field makes it a field",
		manifest->path, manifest->columns[column]);
}

static const char *separator_word(char separator)
{
	static const struct {
		char separator;
		const char *word;
	} words[] = {{';', "semicolon"}, {'|', "bar"}, {' ', "space"}, {',', "comma"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (words[i].separator == separator)
			return words[i].word;
	return "brackets";
}

/* Adds a note on cells with a separator, which may be several labels each, or one. */
static int note_separator(const struct source_manifest *manifest, const struct label_column *labels,
			  char separator, bool plain)
{
	struct string_list *notes = manifest->source.options->notes;
	const char *name = manifest->columns[manifest->label_column], *cell = NULL;
	char example[80] = ""; /* none if all cells are too long to be kept */

	if (!notes)
		return 0;
	for (uint32_t i = 0; i < labels->cells.count && !cell; i++)
		if (strchr(labels->cells.names[i], separator))
			cell = labels->cells.names[i];
	if (cell)
		snprintf(example, sizeof(example), ", such as \"%.60s\"", cell);
	if (plain)
		return string_list_add_format(
			notes,
			"%s: cells of \"%s\" hold several labels each%s (%s), so "
			"it "
			"is a list of classes; --label-separator none makes each cell one class",
			manifest->path, name, example, separator_word(separator));
	return string_list_add_format(notes,
				      "%s: each cell of \"%s\" is one class%s; "
				      "--label-separator %s makes "
				      "several labels of it",
				      manifest->path, name, example, separator_word(separator));
}

/* Decides whether cells hold several labels. 0 or -ENOMEM. */
static int choose_separator(struct source_manifest *manifest, const struct label_column *labels)
{
	const struct source_options *options = manifest->source.options;
	char separator, doubt;

	if (options->label_separator == LABEL_SEPARATOR_NONE || options->labels == LABELS_FIELD)
		return 0;
	if (options->label_separator) {
		manifest->label_separator = options->label_separator;
		return 0;
	}
	if (options->labels != LABELS_AUTO || manifest->class_column >= 0)
		return 0;
	separator = label_column_separator(labels, &doubt);
	manifest->label_separator = separator;
	if (separator != LABEL_WHOLE)
		return note_separator(manifest, labels, separator, true);
	return doubt != LABEL_WHOLE ? note_separator(manifest, labels, doubt, false) : 0;
}

/* Splits a cell; the labels are valid until the next call. 0 or -ENOMEM. */
static int split_labels(struct source_manifest *manifest, const char *cell, size_t *ret_count)
{
	manifest->list.size = manifest->labels.size = 0;
	if (buffer_append(&manifest->list, cell, strlen(cell) + 1))
		return -ENOMEM;
	char *cursor = (char *)manifest->list.data;
	for (char *label; (label = label_next(&cursor, manifest->label_separator));)
		if (buffer_append(&manifest->labels, &label, sizeof(label)))
			return -ENOMEM;
	*ret_count = manifest->labels.size / sizeof(char *);
	return 0;
}

static const char *const *labels_of(const struct source_manifest *manifest)
{
	return (const char *const *)(const void *)manifest->labels.data;
}

/* Scans all lists of labels: whether they are of numbers. */
static int scan_lists(struct source_manifest *manifest, struct packimg_error *error)
{
	size_t column = (size_t)manifest->label_column, labels;
	const char *const *cells;
	size_t count;
	int r;

	manifest->lists_are_numbers = true;
	while (!(r = manifest_next_row(manifest, &cells, &count, error))) {
		if (column >= count || source_label_is_missing(cells[column]))
			continue;
		if (split_labels(manifest, cells[column], &labels))
			return packimg_fail(error, -ENOMEM, "out of memory");
		for (size_t i = 0; i < labels; i++) {
			uint64_t value;

			if (number_u64(labels_of(manifest)[i], 0, PACKIMG_CLASSES_MAX - 1, &value))
				manifest->lists_are_numbers = false;
		}
	}
	return r < 0 ? r : 0;
}

static void choose_label_use(struct source_manifest *manifest, const struct label_column *labels)
{
	enum label_use use = manifest->source.options->labels;
	bool names = labels->names || (labels->fractions && use == LABELS_CLASSES);

	if (manifest->label_separator != LABEL_WHOLE)
		manifest->label_column_is = COLUMN_LIST;
	else if (use == LABELS_FIELD || (names ? manifest->class_column >= 0 : labels->fractions))
		manifest->label_column_is = COLUMN_FIELD;
	else
		manifest->label_column_is = names ? COLUMN_NAMES : COLUMN_NUMBERS;
}

/*
 * Scans all rows to classify columns: how to use labels, and whether a comma in numbers is a
 * decimal comma, as in semicolon-separated tables of some locales. Rewinds afterwards.
 */
static int scan_columns(struct source_manifest *manifest, struct packimg_error *error)
{
	const char *cursor = manifest->csv.cursor;
	uint64_t line = manifest->csv.line_next;
	struct label_column labels;
	int column = manifest->label_column;

	if (column < 0 && manifest->column_count == 2)
		column = 1 - manifest->path_column;
	label_column_init(&labels);
	int r = scan_rows(manifest, column, &labels, error);
	manifest->csv.cursor = cursor;
	manifest->csv.line_next = line;
	if (!r && (guess_label(manifest, &labels) || note_no_label(manifest) ||
		   (manifest->label_column >= 0 && choose_separator(manifest, &labels))))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	if (!r && manifest->label_column >= 0)
		choose_label_use(manifest, &labels);
	label_column_deinit(&labels);
	if (r || manifest->label_separator == LABEL_WHOLE)
		return r;
	r = scan_lists(manifest, error);
	manifest->csv.cursor = cursor;
	manifest->csv.line_next = line;
	return r;
}

static int count_missing(struct source_manifest *manifest, const char *label)
{
	if (!label[0])
		return 0;
	if (!manifest->missing_count++)
		manifest->missing = strdup(label);
	return manifest->missing ? 0 : -ENOMEM;
}

/* Adds a note on labels that were treated as missing but might be class names. */
static int note_missing(const struct source_manifest *manifest)
{
	struct string_list *notes = manifest->source.options->notes;

	if (!manifest->missing_count || !notes)
		return 0;
	return string_list_add_format(
		notes,
		"%s: %s label%s such as \"%s\" count%s as missing; rename the class if it is one",
		manifest->path, text_count(TEXT, manifest->missing_count),
		text_plural(manifest->missing_count), manifest->missing,
		manifest->missing_count == 1 ? "s" : "");
}

/* Counts rows of one image, which are objects or labels of it more often than samples. */
static int count_repeated(struct source_manifest *manifest, const char *name)
{
	struct buffer *previous = &manifest->previous;

	if (previous->size && strcmp((const char *)previous->data, name) == 0) {
		if (!manifest->repeated_count++)
			manifest->repeated = strdup(name);
		return manifest->repeated ? 0 : -ENOMEM;
	}
	previous->size = 0;
	return buffer_append(previous, name, strlen(name) + 1);
}

static int note_repeated(const struct source_manifest *manifest)
{
	struct string_list *notes = manifest->source.options->notes;

	if (!manifest->repeated_count || !notes)
		return 0;
	return string_list_add_format(notes,
				      "%s: %s row%s the image of the row before, such as %.200s, "
				      "and each row is a sample; if "
				      "rows are objects or labels of an image, loaderd.Writer in "
				      "Python makes one sample of "
				      "them",
				      manifest->path, text_count(TEXT, manifest->repeated_count),
				      manifest->repeated_count == 1 ? " names" : "s name",
				      manifest->repeated);
}

static int manifest_set_class(struct source_manifest *manifest, const char *const *cells,
			      size_t count, struct source_item *item, struct packimg_error *error)
{
	size_t label = (size_t)manifest->label_column, class = (size_t)manifest->class_column;
	double number;

	if (manifest->class_column >= 0 && class < count && cells[class][0])
		item->class_name = cells[class];
	if (manifest->label_column < 0 || label >= count)
		return 0;
	if (source_label_is_missing(cells[label])) {
		return count_missing(manifest, cells[label])
			       ? packimg_fail(error, -ENOMEM, "out of memory")
			       : 0;
	}
	item->label_name = manifest->columns[label];
	if (manifest->label_column_is == COLUMN_FIELD) {
		item->label = manifest->class_column >= 0 ? LABEL_NONE : LABEL_FIELD;
		return 0;
	}
	if (manifest->label_column_is == COLUMN_LIST) {
		if (split_labels(manifest, cells[label], &item->label_count))
			return packimg_fail(error, -ENOMEM, "out of memory");
		item->label = LABEL_LIST;
		item->labels = labels_of(manifest);
		item->labels_are_numbers = manifest->lists_are_numbers;
		return 0;
	}
	item->label = LABEL_CLASS;
	if (manifest->label_column_is == COLUMN_NAMES) {
		item->class_name = cells[label];
		return 0;
	}
	/* Some programs write whole numbers as 1.0. */
	if (number_double(cells[label], &number))
		return 0;
	/* Also refuses not-a-number. */
	if (!(number >= -1 && number < PACKIMG_CLASSES_MAX))
		return packimg_fail(error, SOURCE_SKIP,
				    "%s, line %" PRIu64 ": label %s is not a class number in "
				    "0..%d; --labels field makes it a field",
				    manifest->path, manifest->csv.line, cells[label],
				    PACKIMG_CLASSES_MAX - 1);
	item->class_number = (int64_t)number;
	return 0;
}

/*
 * Converts the path of a table written on Windows: a backslash, otherwise an ordinary character,
 * becomes a slash unless a file with that exact name exists. The result is valid until the next
 * call.
 */
static int local_path(struct source_manifest *manifest, const char *path, const char **ret_path,
		      struct packimg_error *error)
{
	*ret_path = path;
	if (isalpha((unsigned char)path[0]) && path[1] == ':' && strchr("/\\", path[2]))
		return packimg_fail(error, SOURCE_SKIP,
				    "%s, line %" PRIu64
				    ": a Windows path with a drive; write it relative to the "
				    "table's folder, or to --root",
				    manifest->path, manifest->csv.line);
	if (!strchr(path, '\\') ||
	    !faccessat(manifest->source.blobs->containers[manifest->container].fd, path, F_OK, 0))
		return 0;
	manifest->name.size = 0;
	if (buffer_append(&manifest->name, path, strlen(path) + 1))
		return packimg_fail(error, -ENOMEM, "out of memory");
	char *copy = (char *)manifest->name.data;
	for (char *p = copy; (p = strchr(p, '\\')); p++)
		*p = '/';
	*ret_path = copy;
	return 0;
}

static int source_manifest_next(struct source *source, struct source_item *ret_item,
				struct packimg_error *error)
{
	struct source_manifest *manifest = (struct source_manifest *)source;
	const char *const *cells;
	size_t count, fields = 0;

	int r = manifest_next_row(manifest, &cells, &count, error);
	if (r == CSV_END)
		return note_missing(manifest) || note_repeated(manifest)
			       ? packimg_fail(error, -ENOMEM, "out of memory")
			       : SOURCE_END;
	if (r)
		return text_error_prefix(error, r, "%s", manifest->path);
	if ((size_t)manifest->path_column >= count || !cells[manifest->path_column][0]) {
		char name[48];

		snprintf(name, sizeof(name), "line %" PRIu64, manifest->csv.line);
		manifest->name.size = 0;
		if (buffer_append(&manifest->name, name, strlen(name) + 1))
			return packimg_fail(error, -ENOMEM, "out of memory");
		ret_item->name = (const char *)manifest->name.data;
		return packimg_fail(error, SOURCE_SKIP, "%s: no path", manifest->path);
	}
	ret_item->name = cells[manifest->path_column];
	r = local_path(manifest, cells[manifest->path_column], &ret_item->name, error);
	if (r)
		return r;
	r = manifest_complete_name(manifest, &ret_item->name, error);
	if (r)
		return r;
	ret_item->verdict = filter_listed(source->options->filter, ret_item->name);
	if (ret_item->verdict)
		return SOURCE_IGNORED;
	if (count > manifest->column_count)
		return packimg_fail(
			error, SOURCE_SKIP, "%s, line %" PRIu64 ": %zu cells, but %zu columns",
			manifest->path, manifest->csv.line, count, manifest->column_count);
	for (size_t i = 0; i < count; i++) {
		char *comma =
			manifest->commas[i] == COMMAS_ARE_POINTS ? strchr(cells[i], ',') : NULL;

		if (comma)
			*comma = '.';
	}
	if (count_repeated(manifest, ret_item->name))
		return packimg_fail(error, -ENOMEM, "out of memory");
	r = manifest_set_class(manifest, cells, count, ret_item, error);
	if (r)
		return r;
	for (size_t i = 0; i < count; i++) {
		if ((int)i == manifest->path_column || (int)i == manifest->class_column ||
		    ((int)i == manifest->label_column &&
		     manifest->label_column_is != COLUMN_FIELD) ||
		    !cells[i][0] ||
		    (manifest->commas[i] != COMMAS_NONE && source_label_is_missing(cells[i])))
			continue;
		manifest->fields[fields++] = (struct source_field){
			.name = manifest->columns[i],
			.kind = source_value_kind(cells[i]),
			.text = cells[i],
			.size = strlen(cells[i]),
		};
	}
	ret_item->fields = manifest->fields;
	ret_item->field_count = fields;
	ret_item->location = (struct blob_location){
		.kind = LOCATION_FILE, .container = manifest->container, .path = ret_item->name};
	return 0;
}

/* Reads the whole file into the store's arena. */
static int manifest_read_all(struct source_manifest *manifest, int fd, struct packimg_error *error)
{
	struct arena *arena = manifest->source.blobs->arena;
	size_t capacity = 0;
	struct stat status;
	ssize_t n;

	if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size) {
		capacity = (size_t)status.st_size + 1;
		manifest->text = arena_array(arena, capacity);
		if (!manifest->text)
			return packimg_fail(error, -ENOMEM, "out of memory");
	}
	do {
		if (arena_reserve(arena, &manifest->text, manifest->size, &capacity, 1))
			return packimg_fail(error, -ENOMEM, "out of memory");
		size_t wanted = capacity - manifest->size;
		n = read(fd, manifest->text + manifest->size,
			 wanted < TOUCHED_MAX ? wanted : TOUCHED_MAX);
		arena_forget(arena);
		manifest->size += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? packimg_fail(error, -errno, "%s", strerror(errno)) : 0;
}

static bool is_utf16(const struct source_manifest *manifest)
{
	return manifest->size >= 2 && (memcmp(manifest->text, "\xff\xfe", 2) == 0 ||
				       memcmp(manifest->text, "\xfe\xff", 2) == 0);
}

static int manifest_read_text(struct source_manifest *manifest, const char *path,
			      struct packimg_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	int r = manifest_read_all(manifest, fd, error);
	close(fd);
	if (r)
		return text_error_prefix(error, r, "%s", path);
	for (size_t i = 0, size; i < manifest->size; i += size) {
		size = manifest->size - i < TOUCHED_MAX ? manifest->size - i : TOUCHED_MAX;
		if (memchr(manifest->text + i, 0, size))
			return packimg_fail(
				error, -EINVAL,
				"%s: contains zero bytes, so it is not UTF-8 text%s", path,
				is_utf16(manifest) ? ", but in UTF-16; save it as UTF-8" : "");
		arena_forget(manifest->source.blobs->arena);
	}
	return 0;
}

/* Opens the manifest, and the folder that its paths are relative to. */
static int source_manifest_open(struct source *source, const char *path,
				struct packimg_error *error)
{
	struct source_manifest *manifest = (struct source_manifest *)source;
	const struct source_options *options = source->options;
	const char *file = options->manifest ? options->manifest : path;
	const char *slash = strrchr(file, '/');
	const char *root = options->manifest ? path : options->root;
	char *parent = NULL;
	char separator = options->separator;

	manifest->path = strdup(file);
	if (!root)
		root = parent = slash ? strndup(file, (size_t)(slash - file + 1)) : strdup(".");
	int r = manifest->path && root
			? blob_store_add(source->blobs, root, true, &manifest->container, error)
			: packimg_fail(error, -ENOMEM, "out of memory");
	free(parent);
	if (r)
		return r;
	r = manifest_read_text(manifest, file, error);
	if (r)
		return r;
	if (!separator && strlen(file) > 4 && strcasecmp(file + strlen(file) - 4, ".tsv") == 0)
		separator = '\t';
	if (!separator)
		separator = manifest_find_separator(manifest->text, manifest->size,
						    options->path_column);
	csv_init(&manifest->csv, manifest->text, manifest->size, separator);
	r = manifest_read_header(manifest, error);
	if (!r)
		r = manifest_locate_images(manifest, error);
	if (!r)
		r = scan_columns(manifest, error);
	return r ? text_error_prefix(error, r, "%s", file) : 0;
}

const struct source_ops source_manifest_ops = {sizeof(struct source_manifest), source_manifest_open,
					       source_manifest_next, source_manifest_close};
