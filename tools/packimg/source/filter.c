#include "tools/packimg/source/filter.h"

#include "tools/packimg/image/image_format.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

void filter_deinit(struct filter *filter)
{
	for (size_t i = 0; i < filter->count; i++)
		free(filter->patterns[i].text);
	free(filter->patterns);
	*filter = (struct filter){0};
}

int filter_add(struct filter *filter, const char *pattern, bool exclude)
{
	struct filter_pattern *patterns =
		reallocarray(filter->patterns, filter->count + 1, sizeof(*patterns));
	const char *text = filter_plain_name(pattern);
	size_t size = strlen(text);

	if (!patterns)
		return -ENOMEM;
	filter->patterns = patterns;
	while (size > 1 && text[size - 1] == '/')
		size--;
	char *copy = strndup(text, size);
	if (!copy)
		return -ENOMEM;
	patterns[filter->count++] = (struct filter_pattern){
		.text = copy,
		.exclude = exclude,
		.whole = strchr(copy, '/') || text != pattern,
	};
	filter->has_include |= !exclude;
	return 0;
}

const char *filter_plain_name(const char *name)
{
	for (;;) {
		if (*name == '/')
			name++;
		else if (name[0] == '.' && name[1] == '/')
			name += 2;
		else
			return name;
	}
}

static bool pattern_matches(const struct filter_pattern *pattern, const char *name)
{
	if (pattern->whole)
		return !fnmatch(pattern->text, name, FNM_LEADING_DIR);
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (!fnmatch(pattern->text, part, FNM_PATHNAME | FNM_LEADING_DIR))
			return true;
	}
	return false;
}

/* Tests every pattern, so that each matching one is marked as used. */
static bool any_matches(struct filter *filter, bool exclude, const char *name)
{
	bool any = false;

	for (size_t i = 0; i < filter->count; i++) {
		struct filter_pattern *pattern = &filter->patterns[i];

		if (pattern->exclude == exclude && pattern_matches(pattern, name))
			any = pattern->used = true;
	}
	return any;
}

enum filter_verdict filter_listed(struct filter *filter, const char *name)
{
	if (!filter || !filter->count)
		return FILTER_TAKE;
	name = filter_plain_name(name);
	bool included = any_matches(filter, false, name) || !filter->has_include;
	bool excluded = any_matches(filter, true, name);
	return included && !excluded ? FILTER_TAKE : FILTER_EXCLUDED;
}

bool filter_excludes_folder(struct filter *filter, const char *name)
{
	return filter && any_matches(filter, true, name);
}

static bool is_hidden(const char *name)
{
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += *part == '/';
		size_t size = strcspn(part, "/");
		if (*part == '.' && size != 1 && !(size == 2 && part[1] == '.'))
			return true;
	}
	return false;
}

enum filter_verdict filter_file(struct filter *filter, const char *name)
{
	name = filter_plain_name(name);
	if (is_hidden(name))
		return FILTER_HIDDEN;
	if (image_kind_of_name(name) == IMAGE_KINDS)
		return FILTER_OTHER;
	return filter_listed(filter, name);
}

enum filter_verdict filter_folder(struct filter *filter, const char *name)
{
	name = filter_plain_name(name);
	if (is_hidden(name))
		return FILTER_HIDDEN;
	return filter_listed(filter, name) == FILTER_TAKE ? FILTER_FOLDER : FILTER_EXCLUDED;
}
