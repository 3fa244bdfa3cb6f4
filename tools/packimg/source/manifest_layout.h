/*
 * How a table is laid out: the separator, the column that names the images, and what is between its
 * cells and the paths of files. Cells may lack the ending and the folder: Kaggle's "id,breed"
 * stands for train/ID.jpg, and Caffe's "/n01440764/1.JPEG 0" for a file in any folder. One thread.
 */
#pragma once

#include "tools/packimg/source/csv.h"

#include <stdbool.h>

/* Returns the number of the first cell that is in the list, in letters of any case, or -1. */
int manifest_find_column(const char *const *cells, size_t count, const char *const *list);
/* Returns the column whose name says that it names images, or -1. */
int manifest_find_path(const char *const *cells, size_t count);
/*
 * Returns the number of the cell with an image's name: the first cell, or one after cells with
 * numbers, because a name may contain any separator. -1 if there is none.
 */
int manifest_find_image(const char *const *cells, size_t count);
/* Returns the number of the column given by name, or by number from 1; -1 if there is none. */
int manifest_find_named(const char *const *cells, size_t count, const char *named);
/*
 * Reads a row as csv_next() does. If spaces separate cells, those at the start that make up an
 * image's name with spaces are one cell, as in Caffe's "a cat.jpg 1".
 */
int manifest_read_row(struct csv *csv, const char *const **ret_cells, size_t *ret_count,
		      struct packimg_error *error);
/* Detects the separator. path_column is that of the option, or NULL. */
char manifest_find_separator(const char *text, size_t size, const char *path_column);

enum {
	LIST_SIZE = 400, /* size of a list of cells in an error message */
};

/* Lists the cells of a row for an error message: "id" and "breed". */
const char *manifest_list_cells(const char *const *cells, size_t count, char text[LIST_SIZE]);

/* The path of an image: a folder, the cell, without slashes at its start, and an ending. */
struct path_template {
	char *folder;       /* empty, or with a slash at its end; owned by the list */
	const char *ending; /* constant, or the suffix given */
};

struct path_templates {
	struct path_template *templates;
	size_t count, capacity;
};

void path_templates_deinit(struct path_templates *templates);
/*
 * Finds the templates that give a cell a file: in `root`, an open folder, and in the folders below
 * it to a depth of two, else in the folder above and in those of images in it. `suffix` is what the
 * cell lacks; if it is NULL and the cell has no image's ending, those of all kinds are tried. 0 or
 * -ENOMEM.
 */
int path_templates_find(struct path_templates *templates, int root, const char *cell,
			const char *suffix);
/* Drops the templates that give this cell no file. 0 or -ENOMEM. */
int path_templates_narrow(struct path_templates *templates, int root, const char *cell);
/* Keeps one template alone if only its folder's name begins that of the table, as train/ in
 * train.csv. */
void path_templates_prefer(struct path_templates *templates, const char *table);
/* Writes the path to the buffer, terminated. 0 or -ENOMEM. */
int path_template_expand(const struct path_template *template, const char *cell,
			 struct buffer *path);
