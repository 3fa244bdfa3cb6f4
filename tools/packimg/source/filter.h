/*
 * Which of the files that a source finds are converted, by their names below it alone: the patterns
 * of --include and --exclude, and whether the name is an image's. A pattern is a shell's. Without a
 * slash it is compared with each part of a name; with one, with the whole name, and its wildcards
 * match slashes, too. What matches a folder matches all that is in it. --exclude goes before
 * --include. One thread: a filter remembers which patterns ever matched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum filter_verdict {
	FILTER_TAKE,
	FILTER_EXCLUDED, /* by a pattern */
	FILTER_HIDDEN,   /* it, or a folder that it is in, begins with a dot */
	FILTER_OTHER,    /* its name is no image's */
	FILTER_FOLDER,   /* a folder of which files are wanted */
};

struct filter_pattern {
	char *text; /* without slashes at its ends */
	bool exclude, whole, used;
};

struct filter {
	struct filter_pattern *patterns;
	size_t count;
	bool has_include;
};

void filter_deinit(struct filter *filter);
/* 0 or -ENOMEM. */
int filter_add(struct filter *filter, const char *pattern, bool exclude);
/* What becomes of a file. filter may be NULL: no patterns. */
enum filter_verdict filter_file(struct filter *filter, const char *name);
/* The same of an image that is listed by name, whatever the name: TAKE or EXCLUDED. */
enum filter_verdict filter_listed(struct filter *filter, const char *name);
/* What becomes of a folder: FOLDER, EXCLUDED (by itself, not by what it holds) or HIDDEN. */
enum filter_verdict filter_folder(struct filter *filter, const char *name);
/* Whether nothing in this folder is wanted. */
bool filter_excludes_folder(struct filter *filter, const char *name);
/* A name without what begins it and says nothing: "./" and "/". */
const char *filter_plain_name(const char *name);
