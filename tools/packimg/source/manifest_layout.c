#include "tools/packimg/source/manifest_layout.h"

#include "format/base/text/number.h"
#include "tools/packimg/image/image_format.h"
#include "tools/packimg/source/source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CELL_SHOWN = 48,   /* maximum bytes of a cell in a list */
	FOLDERS_MAX = 256, /* maximum number of folders in which images are looked for */
	DEPTH_MAX = 2,
};

static bool is_one_of(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (strcasecmp(name, *list) == 0)
			return true;
	return false;
}

int manifest_find_column(const char *const *cells, size_t count, const char *const *list)
{
	for (size_t i = 0; i < count; i++)
		if (is_one_of(cells[i], list))
			return (int)i;
	return -1;
}

int manifest_find_path(const char *const *cells, size_t count)
{
	static const char *const paths[] = {"path",       "file",     "filename",
					    "file_name",  "filepath", "image",
					    "image_path", "name",     NULL};

	return manifest_find_column(cells, count, paths);
}

int manifest_find_image(const char *const *cells, size_t count)
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

int manifest_find_named(const char *const *cells, size_t count, const char *named)
{
	uint64_t number;

	for (size_t i = 0; i < count; i++)
		if (strcmp(cells[i], named) == 0)
			return (int)i;
	return number_u64(named, 1, count, &number) ? -1 : (int)number - 1;
}

/*
 * Returns the number of cells at the start of a row that make up an image's name with spaces; 1 if
 * there is none.
 */
static size_t name_cells(const char *const *cells, size_t count)
{
	double number;

	for (size_t i = 0; i < count && number_double(cells[0], &number); i++)
		if (source_name_is_image(cells[i]))
			return i + 1;
	return 1;
}

int manifest_read_row(struct csv *csv, const char *const **ret_cells, size_t *ret_count,
		      struct packimg_error *error)
{
	int r = csv_next(csv, ret_cells, ret_count, error);

	if (!r && csv->separator == ' ')
		*ret_count = csv_join(csv, *ret_count, name_cells(*ret_cells, *ret_count));
	return r;
}

/*
 * Detects the separator:
 * - the first of comma, tab and semicolon that splits the first row into a header, or into an image
 * name and more;
 * - otherwise one with which the whole row is a header or an image name;
 * - otherwise a space that splits it.
 */
char manifest_find_separator(const char *text, size_t size, const char *path_column)
{
	char whole = 0, parts = 0;

	for (const char *separator = ",\t; "; *separator; separator++) {
		const char *const *cells;
		struct csv csv;
		size_t count = 0;

		csv_init(&csv, text, size, *separator);
		bool any = !manifest_read_row(&csv, &cells, &count, NULL);
		/* In "Image Index,Age" a space is in the name of a column. */
		bool header = any && manifest_find_path(cells, count) >= 0 &&
			      (*separator != ' ' || !parts);
		bool fits = any &&
			    (header || manifest_find_image(cells, count) >= 0 ||
			     (path_column && manifest_find_named(cells, count, path_column) >= 0));
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

const char *manifest_list_cells(const char *const *cells, size_t count, char text[LIST_SIZE])
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

/* ---- where the images are ---- */

void path_templates_deinit(struct path_templates *templates)
{
	for (size_t i = 0; i < templates->count; i++)
		free(templates->templates[i].folder);
	free(templates->templates);
	*templates = (struct path_templates){0};
}

static int templates_add(struct path_templates *templates, const char *folder, const char *ending)
{
	if (array_reserve(&templates->templates, templates->count, &templates->capacity,
			  sizeof(*templates->templates)))
		return -ENOMEM;
	char *copy = strdup(folder);
	if (!copy)
		return -ENOMEM;
	templates->templates[templates->count++] = (struct path_template){copy, ending};
	return 0;
}

static int expand(const char *folder, const char *ending, const char *cell, struct buffer *path)
{
	path->size = 0;
	/* Caffe, too, takes a name that begins with a slash as relative to the folder. */
	cell += strspn(cell, "/");
	if (buffer_append(path, folder, strlen(folder)) || buffer_append(path, cell, strlen(cell)))
		return -ENOMEM;
	for (size_t i = strlen(folder); i < path->size; i++)
		if (path->data[i] == '\\')
			path->data[i] = '/';
	return buffer_append(path, ending, strlen(ending) + 1);
}

int path_template_expand(const struct path_template *template, const char *cell,
			 struct buffer *path)
{
	return expand(template->folder, template->ending, cell, path);
}

/* Returns 1 if there is such a file, 0 if not, or -ENOMEM. */
static int has_file(int root, const char *folder, const char *ending, const char *cell)
{
	struct buffer path = {0};
	struct stat status;
	int r = expand(folder, ending, cell, &path);

	if (!r)
		r = !fstatat(root, (const char *)path.data, &status, 0) && S_ISREG(status.st_mode);
	buffer_deinit(&path);
	return r;
}

static int find_with_ending(struct path_templates *templates, int root, const char *cell,
			    const char *folder, const char *ending)
{
	int r = has_file(root, folder, ending, cell);

	return r > 0 ? templates_add(templates, folder, ending) : r;
}

/* Looks for a cell's file in one folder, with all endings in small letters and in capitals. */
static int find_in_folder(struct path_templates *templates, int root, const char *cell,
			  const char *folder, const char *suffix)
{
	static const char *const capitals[] = {".JPG", ".JPEG", ".PNG", ".BMP", ".TIF", NULL};
	int r = 0;

	if (suffix || source_name_is_image(cell))
		return find_with_ending(templates, root, cell, folder, suffix ? suffix : "");
	for (enum image_kind kind = 0; kind < IMAGE_KINDS; kind++)
		for (const char *const *end = image_formats[kind].endings; !r && *end; end++)
			r = find_with_ending(templates, root, cell, folder, *end);
	for (const char *const *end = capitals; !r && *end; end++)
		r = find_with_ending(templates, root, cell, folder, *end);
	return r;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_folder(int fd, const struct dirent *entry)
{
	struct stat status;

	if (entry->d_name[0] == '.' ||
	    (entry->d_type != DT_DIR && entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN))
		return false;
	return !fstatat(fd, entry->d_name, &status, 0) && S_ISDIR(status.st_mode);
}

/*
 * Appends the folders in a folder to the list, sorted, but none where the list would have too many:
 * the order of readdir() must not decide.
 */
static int list_folders(int root, const char *folder, struct string_list *list)
{
	int fd = openat(root, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *opened = fd < 0 ? NULL : fdopendir(fd);
	size_t first = list->count;
	struct dirent *entry;
	int r = 0;

	if (!opened) {
		if (fd >= 0)
			close(fd);
		return 0; /* a folder that cannot be read has none */
	}
	while (!r && list->count <= FOLDERS_MAX && (entry = readdir(opened)))
		if (is_folder(fd, entry))
			r = string_list_add_format(list, "%s%s/", folder, entry->d_name);
	closedir(opened);
	for (bool full = list->count > FOLDERS_MAX; full && list->count > first;)
		free(list->strings[--list->count]);
	qsort(list->strings + first, list->count - first, sizeof(*list->strings), compare_names);
	return r;
}

/* Looks for a cell's file in the root and in the folders below it. */
static int find_below(struct path_templates *templates, int root, const char *cell,
		      const char *suffix)
{
	struct string_list folders = {0};
	int r = string_list_add(&folders, "");
	size_t listed = 0;

	for (int depth = 0; !r && depth < DEPTH_MAX; depth++)
		for (size_t end = folders.count; !r && listed < end; listed++)
			r = list_folders(root, folders.strings[listed], &folders);
	for (size_t i = 0; !r && i < folders.count; i++)
		r = find_in_folder(templates, root, cell, folders.strings[i], suffix);
	string_list_deinit(&folders);
	return r;
}

/*
 * Looks for a cell's file in the folder above and in those of images beside this one, where lists
 * of their own folder find them. In others may be files of the same names of another dataset.
 */
static int find_beside(struct path_templates *templates, int root, const char *cell,
		       const char *suffix)
{
	static const char *const folders[] = {
		"../",       "../images/",     "../image/", "../imgs/", "../img/", "../data/",
		"../train/", "../JPEGImages/", "../val/",   "../test/", NULL};
	int r = 0;

	for (const char *const *folder = folders; !r && *folder; folder++)
		r = find_in_folder(templates, root, cell, *folder, suffix);
	return r;
}

int path_templates_find(struct path_templates *templates, int root, const char *cell,
			const char *suffix)
{
	if (!cell[0] || strlen(cell) >= PATH_MAX)
		return 0;
	int r = find_below(templates, root, cell, suffix);

	return r || templates->count ? r : find_beside(templates, root, cell, suffix);
}

int path_templates_narrow(struct path_templates *templates, int root, const char *cell)
{
	struct path_template *all = templates->templates;
	size_t kept = 0;
	int fault = 0;

	for (size_t i = 0; i < templates->count; i++) {
		int r = has_file(root, all[i].folder, all[i].ending, cell);

		fault = r < 0 ? r : fault;
		if (r > 0)
			all[kept++] = all[i];
		else
			free(all[i].folder);
	}
	templates->count = kept;
	return fault;
}

void path_templates_prefer(struct path_templates *templates, const char *table)
{
	struct path_template *all = templates->templates, *found = NULL;
	size_t count = 0;

	for (size_t i = 0; i < templates->count; i++) {
		size_t size = strcspn(all[i].folder, "/");

		if (size && strncasecmp(all[i].folder, table, size) == 0) {
			found = &all[i];
			count++;
		}
	}
	if (count != 1)
		return;
	struct path_template kept = *found;
	*found = all[0];
	all[0] = kept;
	while (templates->count > 1)
		free(all[--templates->count].folder);
}
