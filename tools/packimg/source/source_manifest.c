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
#include "tools/packimg/source/csv.h"
#include "tools/packimg/source/source.h"

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

#include "format/base/text/text.h"

struct source_manifest {
	struct source source;
	char *path;
	uint32_t container;
	char *text; /* in the store's arena */
	size_t size;
	struct csv csv;
	const char
		*touched; /* position of the cursor when the arena's file pages were last dropped */
	char **columns;
	enum {
		COMMAS_UNSEEN,
		COMMAS_ARE_POINTS,
		COMMAS_NONE, /* some values of the column are not numbers */
	} *
		commas; /* columns */
	struct source_field *fields;
	size_t column_count;
	int path_column, label_column, class_column; /* number of the column; -1 if there is none */
	enum {
		COLUMN_NUMBERS, /* labels are class numbers */
		COLUMN_NAMES,   /* labels are class names */
		COLUMN_FIELD,
	} label_column_is;
	struct buffer name;
	/* Labels such as "NaN" that mean no label: the first one, and their count. */
	char *missing;
	uint64_t missing_count;
};

enum {
	LIST_SIZE = 400, /* size of a list of cells in an error message */
	CELL_SHOWN = 48, /* maximum bytes of a cell in such a list */
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
	buffer_deinit(&manifest->name);
	free(manifest->missing);
	free(manifest->path);
}

/* Calls csv_next(), and limits how much of a long text stays in memory. */
static int manifest_next_row(struct source_manifest *manifest, const char *const **ret_cells,
			     size_t *ret_count, struct packimg_error *error)
{
	struct csv *csv = &manifest->csv;

	if (!manifest->touched || csv->cursor < manifest->touched ||
	    csv->cursor - manifest->touched > TOUCHED_MAX) {
		arena_forget(manifest->source.blobs->arena);
		manifest->touched = csv->cursor;
	}
	return csv_next(csv, ret_cells, ret_count, error);
}

static bool is_one_of(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (strcasecmp(name, *list) == 0)
			return true;
	return false;
}

static int find_column(const char *const *cells, size_t count, const char *const *list)
{
	for (size_t i = 0; i < count; i++)
		if (is_one_of(cells[i], list))
			return (int)i;
	return -1;
}

/* Checks that column names, which become field names, are distinct and valid. */
static int manifest_check_header(const struct source_manifest *manifest, const char *const *cells,
				 size_t count, struct packimg_error *error)
{
	for (size_t i = 0; i < count; i++) {
		if (!text_is_utf8(cells[i], strlen(cells[i])))
			return packimg_fail(error, -EINVAL,
					    "line %" PRIu64
					    ": the name of column %zu, \"%.60s\", is not "
					    "UTF-8; save the table as UTF-8",
					    manifest->csv.line, i + 1, cells[i]);
		for (size_t k = 0; k < i && cells[i][0]; k++)
			if (strcmp(cells[i], cells[k]) == 0)
				return packimg_fail(error, -EINVAL,
						    "line %" PRIu64
						    ": columns %zu and %zu are both "
						    "called \"%.60s\"; rename one",
						    manifest->csv.line, k + 1, i + 1, cells[i]);
	}
	return 0;
}

static int set_columns(struct source_manifest *manifest, const char *const *cells, size_t count,
		       bool header)
{
	manifest->columns = calloc(count, sizeof(*manifest->columns));
	manifest->commas = calloc(count, sizeof(*manifest->commas));
	manifest->fields = calloc(count, sizeof(*manifest->fields));
	if (!manifest->columns || !manifest->commas || !manifest->fields)
		return -ENOMEM;
	manifest->column_count = count;
	for (size_t i = 0; i < count; i++) {
		char number[32];

		snprintf(number, sizeof(number), "column%zu", i + 1);
		if ((int)i == manifest->label_column && !header)
			snprintf(number, sizeof(number), "label");
		manifest->columns[i] = strdup(header && cells[i][0] ? cells[i] : number);
		if (!manifest->columns[i])
			return -ENOMEM;
	}
	return 0;
}

static int find_path(const char *const *cells, size_t count)
{
	static const char *const paths[] = {"path",       "file",     "filename",
					    "file_name",  "filepath", "image",
					    "image_path", "name",     NULL};

	return find_column(cells, count, paths);
}

/*
 * Returns the number of the cell with an image's name: the first cell, or one after cells with
 * numbers, because a name may contain any separator. -1 if there is none.
 */
static int find_image(const char *const *cells, size_t count)
{
	double number;

	for (size_t i = 0; i < count; i++) {
		if (source_name_is_image(cells[i]))
			return (int)i;
		if (number_double(cells[i], &number))
			break;
	}
	return -1;
}

/* Returns the number of the column given by name, or by number from 1; -1 if there is none. */
static int find_named(const char *const *cells, size_t count, const char *named)
{
	uint64_t number;

	for (size_t i = 0; i < count; i++)
		if (strcmp(cells[i], named) == 0)
			return (int)i;
	return number_u64(named, 1, count, &number) ? -1 : (int)number - 1;
}

/*
 * Detects the separator:
 * - the first of comma, tab and semicolon that splits the first row into a header, or into an image
 * name and more;
 * - otherwise one with which the whole row is a header or an image name;
 * - otherwise a space that splits it.
 */
static char find_separator(const char *text, size_t size, const struct source_options *options)
{
	char whole = 0, parts = 0;

	for (const char *separator = ",\t; "; *separator; separator++) {
		const char *const *cells;
		struct csv csv;
		size_t count = 0;

		csv_init(&csv, text, size, *separator);
		bool any = !csv_next(&csv, &cells, &count, NULL);
		bool fits = any && (find_path(cells, count) >= 0 || find_image(cells, count) >= 0 ||
				    (options->path_column &&
				     find_named(cells, count, options->path_column) >= 0));
		csv_deinit(&csv);
		if (fits && count > 1 && (*separator != ' ' || !whole))
			return *separator;
		if (fits && !whole)
			whole = *separator;
		if (any && count > 1 && !parts)
			parts = *separator;
	}
	return whole ? whole : parts ? parts : ',';
}

/* Lists the cells of a row for an error message: "id" and "breed". */
static const char *list_cells(const char *const *cells, size_t count, char text[LIST_SIZE])
{
	size_t size = 0;

	text[0] = 0;
	for (size_t i = 0; i < count && size < LIST_SIZE - CELL_SHOWN; i++)
		size += (size_t)snprintf(text + size, LIST_SIZE - size, "%s\"%.32s\"",
					 !i               ? ""
					 : i + 1 == count ? " and "
							  : ", ",
					 cells[i]);
	return text;
}

static int no_path(const char *const *cells, size_t count, struct packimg_error *error)
{
	char text[LIST_SIZE];

	return packimg_fail(
		error, -EINVAL,
		"line 1 has neither a column named \"path\" nor an image's name, but %s: "
		"--path-column NAME sets the column that names the images, --path-suffix .jpg a "
		"suffix that the names lack, --label-column NAME the column of the label",
		list_cells(cells, count, text));
}

/* Finds a column given by an option; fails if it does not exist. */
static int set_named(const char *option, const char *named, const char *const *cells, size_t count,
		     int *ret_column, struct packimg_error *error)
{
	char text[LIST_SIZE];

	if (!named)
		return 0;
	*ret_column = find_named(cells, count, named);
	return *ret_column >= 0 ? 0
				: packimg_fail(error, -EINVAL,
					       "--%s %.60s: line 1 has no such column, but %s",
					       option, named, list_cells(cells, count, text));
}

/*
 * Adds a note that, without a label, all other columns become fields: a label under another name
 * would be overlooked.
 */
static int note_no_label(struct source_manifest *manifest, const char *const *cells, size_t count)
{
	const struct source_options *options = manifest->source.options;
	char text[LIST_SIZE];

	if (manifest->label_column >= 0 || count < 2 || !options->notes)
		return 0;
	return string_list_add_format(
		options->notes,
		"%s: no column is called label, target or class, so its images have no classes "
		"(columns %s); --label-column NAME sets the column of the classes",
		manifest->path, list_cells(cells, count, text));
}

static void find_columns(struct source_manifest *manifest, const char *const *cells, size_t count)
{
	static const char *const labels[] = {"label", "target", "label_id", "class_id", NULL};
	static const char *const classes[] = {"class", "class_name", "category", "label_name",
					      NULL};

	manifest->label_column = find_column(cells, count, labels);
	manifest->class_column = find_column(cells, count, classes);
	if (manifest->label_column < 0) {
		manifest->label_column = manifest->class_column;
		manifest->class_column = -1;
	}
}

/*
 * Appends --path-suffix unless the name already ends in it. The result is valid until the next
 * call.
 */
static int add_suffix(struct source_manifest *manifest, const char **name,
		      struct packimg_error *error)
{
	const char *suffix = manifest->source.options->path_suffix;
	size_t size = strlen(*name), suffix_size = suffix ? strlen(suffix) : 0;

	if (!suffix || (size >= suffix_size && strcmp(*name + size - suffix_size, suffix) == 0))
		return 0;
	/* local_path() may have stored the name in this buffer already. */
	bool is_own = manifest->name.size && *name == (const char *)manifest->name.data;
	manifest->name.size = is_own ? size : 0;
	if ((!is_own && buffer_append(&manifest->name, *name, size)) ||
	    buffer_append(&manifest->name, suffix, suffix_size + 1))
		return packimg_fail(error, -ENOMEM, "out of memory");
	*name = (const char *)manifest->name.data;
	return 0;
}

/*
 * Returns true if the cell of the first row in the column given by the option names an existing
 * file, so that the row is not a header.
 */
static bool is_file(struct source_manifest *manifest, const char *name)
{
	manifest->name.size = 0;
	return !add_suffix(manifest, &name, NULL) &&
	       !faccessat(manifest->source.blobs->containers[manifest->container].fd, name, F_OK,
			  0);
}

/*
 * Reads the header, or detects that there is none. Leaves the cursor at the first row with an
 * image.
 */
static int manifest_read_header(struct source_manifest *manifest, struct packimg_error *error)
{
	const struct source_options *options = manifest->source.options;
	const char *const *cells;
	size_t count;

	int r = csv_next(&manifest->csv, &cells, &count, error);
	if (r == CSV_END)
		return packimg_fail(error, -ENODATA, "the manifest is empty");
	if (r)
		return r;
	int image = find_image(cells, count);
	manifest->path_column = find_path(cells, count);
	manifest->label_column = manifest->class_column = -1;
	if (manifest->path_column >= 0)
		image = -1;
	r = set_named("path-column", options->path_column, cells, count, &manifest->path_column,
		      error);
	if (r)
		return r;
	if (options->path_column && image < 0 && is_file(manifest, cells[manifest->path_column]))
		image = manifest->path_column;
	if (image < 0)
		find_columns(manifest, cells, count);
	else
		manifest->label_column = image == 0 && count == 1 ? -1 : image == 1 ? 0 : 1;
	r = set_named("label-column", options->label_column, cells, count, &manifest->label_column,
		      error);
	if (r)
		return r;
	if (manifest->class_column == manifest->label_column)
		manifest->class_column = -1;
	if (image < 0 && manifest->path_column < 0)
		return no_path(cells, count, error);
	if (image < 0) {
		r = manifest_check_header(manifest, cells, count, error);
		if (!r && note_no_label(manifest, cells, count))
			r = packimg_fail(error, -ENOMEM, "out of memory");
		return r ? r : set_columns(manifest, cells, count, true);
	}
	if (!options->path_column)
		manifest->path_column = image;
	r = set_columns(manifest, cells, count, false);
	manifest->csv.cursor = manifest->csv.text;
	manifest->csv.line_next = 1;
	return r;
}

/*
 * Scans all rows to classify columns: how to use labels, and whether a comma in numbers is a
 * decimal comma, as in semicolon-separated tables of some locales. Rewinds afterwards.
 */
static int scan_columns(struct source_manifest *manifest, struct packimg_error *error)
{
	bool names = false, fractions = false, semicolons = manifest->csv.separator == ';';
	const char *cursor = manifest->csv.cursor;
	uint64_t line = manifest->csv.line_next;
	size_t column = (size_t)manifest->label_column;
	enum label_use labels = manifest->source.options->labels;
	const char *const *cells;
	size_t count;
	int r;

	while (!(r = manifest_next_row(manifest, &cells, &count, error))) {
		for (size_t i = 0; i < count && i < manifest->column_count; i++) {
			char *comma = semicolons ? strchr(cells[i], ',') : NULL;
			double value;

			if (source_label_is_missing(cells[i]))
				continue;
			if (comma)
				*comma = '.';
			if (number_double(cells[i], &value)) {
				manifest->commas[i] = COMMAS_NONE;
				names |= i == column;
			} else {
				if (comma && manifest->commas[i] == COMMAS_UNSEEN)
					manifest->commas[i] = COMMAS_ARE_POINTS;
				fractions |= i == column && !isnan(value) && value != trunc(value);
			}
		}
	}
	manifest->csv.cursor = cursor;
	manifest->csv.line_next = line;
	if (manifest->label_column < 0)
		return r < 0 ? r : 0;
	names |= fractions && labels == LABELS_CLASSES;
	if (labels == LABELS_FIELD || (names ? manifest->class_column >= 0 : fractions))
		manifest->label_column_is = COLUMN_FIELD;
	else
		manifest->label_column_is = names ? COLUMN_NAMES : COLUMN_NUMBERS;
	return r < 0 ? r : 0;
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
	item->label = LABEL_CLASS;
	if (manifest->label_column_is == COLUMN_NAMES) {
		item->class_name = cells[label];
		return 0;
	}
	/* Some programs write whole numbers as 1.0. */
	if (number_double(cells[label], &number))
		return 0;
	if (number < -1 || number >= PACKIMG_CLASSES_MAX)
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
		return note_missing(manifest) ? packimg_fail(error, -ENOMEM, "out of memory")
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
	r = add_suffix(manifest, &ret_item->name, error);
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
		separator = find_separator(manifest->text, manifest->size, options);
	csv_init(&manifest->csv, manifest->text, manifest->size, separator);
	r = manifest_read_header(manifest, error);
	if (!r)
		r = scan_columns(manifest, error);
	return r ? text_error_prefix(error, r, "%s", file) : 0;
}

const struct source_ops source_manifest_ops = {sizeof(struct source_manifest), source_manifest_open,
					       source_manifest_next, source_manifest_close};
