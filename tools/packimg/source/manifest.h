/*
 * The state of a source that is a table (source_manifest.c), and the part that reads its header
 * (manifest_header.c). One thread.
 */
#pragma once

#include "tools/packimg/source/manifest_layout.h"
#include "tools/packimg/source/source.h"

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
		COLUMN_LIST,    /* cells hold several labels */
		COLUMN_FIELD,
	} label_column_is;
	char label_separator;       /* of COLUMN_LIST, as label_next() takes it */
	bool lists_are_numbers;     /* of COLUMN_LIST */
	struct buffer list, labels; /* of COLUMN_LIST: a copy of the cell, pointers to its labels */
	struct path_templates images; /* at most one; none if cells are paths */
	struct buffer name;
	/* Rows that name the image of the row before: its path, the first such one, their count. */
	struct buffer previous;
	char *repeated;
	uint64_t repeated_count;
	/* Labels such as "NaN" that mean no label: the first one, and their count. */
	char *missing;
	uint64_t missing_count;
};

/*
 * Reads the header, or detects that there is none. Leaves the cursor at the first row with an
 * image.
 */
int manifest_read_header(struct source_manifest *manifest, struct packimg_error *error);
/* Finds out how cells become paths, unless that is known. Notes what was found. */
int manifest_locate_images(struct source_manifest *manifest, struct packimg_error *error);
/*
 * Makes the path of an image from its cell: appends --path-suffix unless the name already ends in
 * it, or expands the template. The result is valid until the next call. 0 or -ENOMEM.
 */
int manifest_complete_name(struct source_manifest *manifest, const char **name,
			   struct packimg_error *error);
