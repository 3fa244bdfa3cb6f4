/*
 * Selects the files of a source to convert by their names relative to the source: by the patterns
 * of --include and --exclude, and by image extensions. Patterns are shell patterns. A pattern
 * without a slash is matched against each component of a name. One with a slash is matched against
 * the whole name, and its wildcards match slashes as well. A pattern that matches a folder matches
 * everything in it. --exclude overrides --include. One thread, because a filter records which
 * patterns matched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum filter_verdict {
	FILTER_TAKE,
	FILTER_EXCLUDED, /* excluded by a pattern */
	FILTER_HIDDEN,   /* the name or a folder in it begins with a dot */
	FILTER_OTHER,    /* not the name of an image */
	FILTER_FOLDER,   /* a folder that may contain wanted files */
};

struct filter_pattern {
	char *text; /* pattern without leading or trailing slashes */
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
/* Returns the verdict for a file. filter may be NULL for no patterns. */
enum filter_verdict filter_file(struct filter *filter, const char *name);
/* Same for an image that is listed explicitly, whatever its name: TAKE or EXCLUDED. */
enum filter_verdict filter_listed(struct filter *filter, const char *name);
/*
 * Returns the verdict for a folder: FOLDER, EXCLUDED (by its own name, not by its contents) or
 * HIDDEN.
 */
enum filter_verdict filter_folder(struct filter *filter, const char *name);
/* Returns true if nothing in this folder is wanted. */
bool filter_excludes_folder(struct filter *filter, const char *name);
/* Strips leading "./" and "/" from a name. */
const char *filter_plain_name(const char *name);
