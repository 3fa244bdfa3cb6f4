/* The header of a table, and what its cells lack to be paths of images. */
#include "tools/packimg/common/text.h"
#include "tools/packimg/source/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/text/text.h"

enum {
	ROWS_LOCATED = 8, /* number of rows whose images are looked for */
};

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

static int no_path(const char *const *cells, size_t count, struct packimg_error *error)
{
	char text[LIST_SIZE];

	return packimg_fail(
		error, -EINVAL,
		"line 1 has neither a column named \"path\" nor an image's name, but %s: "
		"--path-column NAME sets the column that names the images, --path-suffix .jpg a "
		"suffix that the names lack, --label-column NAME the column of the label",
		manifest_list_cells(cells, count, text));
}

/* Finds a column given by an option; fails if it does not exist. */
static int set_named(const char *option, const char *named, const char *const *cells, size_t count,
		     int *ret_column, struct packimg_error *error)
{
	char text[LIST_SIZE];

	if (!named)
		return 0;
	*ret_column = manifest_find_named(cells, count, named);
	return *ret_column >= 0
		       ? 0
		       : packimg_fail(error, -EINVAL,
				      "--%s %.60s: line 1 has no such column, but %s", option,
				      named, manifest_list_cells(cells, count, text));
}

static void find_columns(struct source_manifest *manifest, const char *const *cells, size_t count)
{
	static const char *const labels[] = {"label",  "target",         "label_id", "class_id",
					     "labels", "finding labels", NULL};
	static const char *const classes[] = {"class",      "class_name", "category",
					      "label_name", "classes",    NULL};

	manifest->label_column = manifest_find_column(cells, count, labels);
	manifest->class_column = manifest_find_column(cells, count, classes);
	if (manifest->label_column < 0) {
		manifest->label_column = manifest->class_column;
		manifest->class_column = -1;
	}
}

int manifest_complete_name(struct source_manifest *manifest, const char **name,
			   struct packimg_error *error)
{
	const char *suffix = manifest->source.options->path_suffix;
	size_t size = strlen(*name), suffix_size = suffix ? strlen(suffix) : 0;
	int r;

	if (suffix && size >= suffix_size && strcmp(*name + size - suffix_size, suffix) == 0)
		suffix = NULL;
	if (manifest->images.count) {
		r = path_template_expand(manifest->images.templates, *name, &manifest->name);
	} else if (suffix) {
		/* local_path() may have stored the name in this buffer already. */
		bool is_own = manifest->name.size && *name == (const char *)manifest->name.data;
		manifest->name.size = is_own ? size : 0;
		r = is_own ? 0 : buffer_append(&manifest->name, *name, size);
		r = r ? r : buffer_append(&manifest->name, suffix, suffix_size + 1);
	} else {
		return 0;
	}
	if (r)
		return packimg_fail(error, -ENOMEM, "out of memory");
	*name = (const char *)manifest->name.data;
	return 0;
}

static int root_of(const struct source_manifest *manifest)
{
	return manifest->source.blobs->containers[manifest->container].fd;
}

/* Returns true if the cell, with --path-suffix, names an existing file. */
static bool is_file(struct source_manifest *manifest, const char *cell)
{
	struct stat status;

	manifest->name.size = 0;
	return !manifest_complete_name(manifest, &cell, NULL) &&
	       !fstatat(root_of(manifest), cell, &status, 0) && S_ISREG(status.st_mode);
}

static int add_template(struct source_manifest *manifest, struct path_templates *templates,
			const char *cell)
{
	const char *suffix = manifest->source.options->path_suffix;

	if (templates->count)
		return path_templates_narrow(templates, root_of(manifest), cell);
	if (suffix && text_ends_with(cell, suffix))
		suffix = NULL;
	return path_templates_find(templates, root_of(manifest), cell, suffix);
}

static int fail_ambiguous(struct source_manifest *manifest, const struct path_templates *templates,
			  const char *cell, struct packimg_error *error)
{
	struct buffer paths[2] = {{0}};
	int r = path_template_expand(&templates->templates[0], cell, &paths[0]);

	r = r ? r : path_template_expand(&templates->templates[1], cell, &paths[1]);
	r = r ? packimg_fail(error, -ENOMEM, "out of memory")
	      : packimg_fail(error, -EINVAL,
			     "the image of \"%.60s\" may be %.200s or %.200s: --root DIR and "
			     "--path-suffix TEXT choose",
			     cell, (char *)paths[0].data, (char *)paths[1].data);
	for (size_t i = 0; i < 2; i++)
		buffer_deinit(&paths[i]);
	return r;
}

/*
 * Finds what the cells of a column lack to be paths, from the first rows of the text at `start`.
 * Leaves the result empty if nothing makes all of them paths, or if one is a path already.
 */
static int find_template(struct source_manifest *manifest, const char *start, size_t column,
			 bool named, struct path_templates *ret_templates,
			 struct packimg_error *error)
{
	const struct csv *csv = &manifest->csv;
	char *first = NULL;
	struct csv rows;
	int r = 0;

	csv_init(&rows, start, (size_t)(csv->end - start), csv->separator);
	for (int i = 0; !r && i < ROWS_LOCATED; i++) {
		const char *const *cells;
		size_t count;

		if (manifest_read_row(&rows, &cells, &count, NULL))
			break;
		if (column >= count || !cells[column][0])
			continue;
		if (named && is_file(manifest, cells[column])) {
			path_templates_deinit(ret_templates);
			break;
		}
		r = add_template(manifest, ret_templates, cells[column]);
		if (!ret_templates->count)
			break;
		first = first ? first : strdup(cells[column]);
	}
	csv_deinit(&rows);
	const char *slash = strrchr(manifest->path, '/');
	path_templates_prefer(ret_templates, slash ? slash + 1 : manifest->path);
	if (r || (ret_templates->count && !first))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	else if (ret_templates->count > 1)
		r = fail_ambiguous(manifest, ret_templates, first, error);
	free(first);
	return r;
}

/*
 * Finds the column whose cells name images in rows without a path: of a list without a header, or
 * with one whose names say nothing. Leaves *ret_column if there is none, or more than one.
 */
static int find_unnamed(struct source_manifest *manifest, const char *start, size_t count,
			int *ret_column, struct packimg_error *error)
{
	int column = -1, r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		struct path_templates found = {0};

		r = find_template(manifest, start, i, false, &found, error);
		if (!r && found.count) {
			column = manifest->images.count ? -1 : (int)i;
			path_templates_deinit(&manifest->images);
			manifest->images = found;
			continue;
		}
		path_templates_deinit(&found);
	}
	if (column < 0)
		path_templates_deinit(&manifest->images);
	else
		*ret_column = column;
	return r;
}

/* Adds a note on paths that were made of cells. */
static int note_template(const struct source_manifest *manifest)
{
	const struct path_template *template = manifest->images.templates;
	const char *column = manifest->columns[manifest->path_column];
	struct string_list *notes = manifest->source.options->notes;

	if (!manifest->images.count || !notes)
		return 0;
	if (!*template->folder && !*template->ending)
		return string_list_add_format(
			notes,
			"%s: the column \"%s\" names the images; --path-column says otherwise",
			manifest->path, column);
	return string_list_add_format(
		notes,
		"%s: the column \"%s\" names the images, which are %s*%s; --path-column, --root "
		"and --path-suffix say otherwise",
		manifest->path, column, template->folder, template->ending);
}

int manifest_read_header(struct source_manifest *manifest, struct packimg_error *error)
{
	const struct source_options *options = manifest->source.options;
	struct csv *csv = &manifest->csv;
	const char *const *cells;
	size_t count;

	int r = manifest_read_row(csv, &cells, &count, error);
	if (r == CSV_END)
		return packimg_fail(error, -ENODATA, "the manifest is empty");
	if (r)
		return r;
	int image = manifest_find_image(cells, count);
	manifest->path_column = manifest_find_path(cells, count);
	manifest->label_column = manifest->class_column = -1;
	if (manifest->path_column >= 0)
		image = -1;
	r = set_named("path-column", options->path_column, cells, count, &manifest->path_column,
		      error);
	if (!r && manifest->path_column < 0 && image < 0)
		r = find_unnamed(manifest, csv->text, count, &image, error);
	if (!r && manifest->path_column < 0 && image < 0)
		r = find_unnamed(manifest, csv->cursor, count, &manifest->path_column, error);
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
		return r ? r : set_columns(manifest, cells, count, true);
	}
	if (!options->path_column)
		manifest->path_column = image;
	r = set_columns(manifest, cells, count, false);
	csv->cursor = csv->text;
	csv->line_next = 1;
	return r;
}

int manifest_locate_images(struct source_manifest *manifest, struct packimg_error *error)
{
	struct path_templates found = {0};
	int r = 0;

	if (!manifest->images.count) {
		r = find_template(manifest, manifest->csv.cursor, (size_t)manifest->path_column,
				  true, &found, error);
		manifest->images = found;
	}
	if (!r && note_template(manifest))
		r = packimg_fail(error, -ENOMEM, "out of memory");
	return r;
}
