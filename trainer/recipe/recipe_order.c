/* The keys that choose samples: data.train as a list of datasets, and their shares and weights. */
#include "trainer/recipe/recipe_value.h"

#include <stdlib.h>
#include <string.h>

enum { PATHS_MAX = RECIPE_NUMBERS_MAX };

/* Copies the path at `text` to `to`. Returns its end: a comma or the end of the text. */
static const char *copy_path(const char *text, char *to)
{
	char *begin = to;
	while (*text && *text != ',') {
		text += text[0] == '\\' && text[1] == ',';
		*to++ = *text++;
	}
	while (*text && to > begin && (to[-1] == ' ' || to[-1] == '\t'))
		to--;
	*to = '\0';
	return text;
}

int recipe_train_paths(const struct recipe_data *data, struct recipe_paths *ret_paths, char *error)
{
	const char *at = data->train;
	struct recipe_paths paths = {.path = calloc(PATHS_MAX, sizeof(*paths.path)),
				     .text = malloc(strlen(at) + 1)};
	char *to = paths.text;
	int r = paths.path && paths.text
			? 0
			: sentence_fail(error, RECIPE_ERROR_MAX, -ENOMEM, "out of memory");
	while (r == 0) {
		if (paths.count == PATHS_MAX) {
			r = recipe_fail(error, "data.train lists more than %d datasets", PATHS_MAX);
			break;
		}
		paths.path[paths.count++] = to;
		at = copy_path(at, to);
		if (!*to && (*at || paths.count > 1))
			r = recipe_fail(error,
					"data.train = \"%.600s\": a dataset is missing beside a "
					"comma; write \\, for a comma in a path",
					data->train);
		to += strlen(to) + 1;
		if (!*at)
			break;
		at += 1 + strspn(at + 1, " \t");
	}
	if (r < 0)
		recipe_paths_free(&paths);
	else
		*ret_paths = paths;
	return r;
}

void recipe_paths_free(struct recipe_paths *paths)
{
	free(paths->path);
	free(paths->text);
	*paths = (struct recipe_paths){0};
}

/* True if there are numbers, and none is above 0. */
static bool all_zero(const struct recipe_numbers *numbers)
{
	for (unsigned i = 0; i < numbers->count; i++)
		if (numbers->value[i] > 0)
			return false;
	return numbers->count > 0;
}

static int check_shares(const struct recipe_data *data, unsigned datasets, char *error)
{
	if (data->shares.count && data->shares.count != datasets)
		return recipe_fail(error,
				   "data.shares has %u number%s, but data.train lists %u "
				   "dataset%s: give one number for each, or none",
				   data->shares.count, data->shares.count == 1 ? "" : "s", datasets,
				   datasets == 1 ? "" : "s");
	if (all_zero(&data->shares))
		return recipe_fail(error, "data.shares: all numbers are 0; leave out datasets that "
					  "do not count, and give the others shares above 0");
	return 0;
}

int recipe_check_order(const struct recipe_data *data, char *error)
{
	struct recipe_paths paths;
	int r = recipe_train_paths(data, &paths, error);
	if (r < 0)
		return r;
	unsigned datasets = paths.count;
	recipe_paths_free(&paths);
	r = *data->train ? check_shares(data, datasets, error) : 0;
	if (r < 0)
		return r;
	if (*data->train && data->ends == RECIPE_ENDS_LAST && datasets == 1)
		return recipe_fail(error, "data.ends = last says when an epoch of several datasets "
					  "ends, but data.train is one; set data.ends=first");
	if (all_zero(&data->class_sampling))
		return recipe_fail(error, "data.class_sampling: all weights are 0, so that no "
					  "sample would be drawn; give some class a weight");
	return 0;
}
