/* The keys that choose samples: data.train as a list of datasets, and their shares and weights. */
#include "trainer/recipe/recipe_value.h"

#include <math.h>
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

uint64_t recipe_epoch_batches(const struct recipe_data *data)
{
	return data->epoch_samples / (data->batch_size / data->repeats);
}

uint64_t recipe_stage_batch(const struct recipe_data *data, unsigned stage)
{
	double batch = data->shares.from[stage] * (double)recipe_epoch_batches(data);
	return batch < 0x1p63 ? (uint64_t)llround(batch) : INT64_MAX;
}

/* True if there are numbers, and none is above 0. */
static bool all_zero(const double *values, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (values[i] > 0)
			return false;
	return count > 0;
}

/* Checks shares that change in training. */
static int check_stages(const struct recipe_data *data, char *error)
{
	const struct recipe_stages *shares = &data->shares;
	if (!data->epoch_samples)
		return recipe_fail(error,
				   "data.shares changes at epoch %.12g, but data.epoch_samples is "
				   "0: set it to the samples of an epoch, whose length must not "
				   "depend on the shares",
				   shares->from[1]);
	uint64_t batches = recipe_epoch_batches(data);
	for (unsigned i = 1; i < shares->stages; i++)
		if (recipe_stage_batch(data, i) <= recipe_stage_batch(data, i - 1))
			return recipe_fail(
				error,
				"data.shares: the shares from epoch %.12g on would hold for no "
				"batch before those from epoch %.12g on, since an epoch has %llu "
				"batch%s (data.epoch_samples, data.batch_size): let them begin "
				"further apart",
				shares->from[i - 1], shares->from[i], (unsigned long long)batches,
				batches == 1 ? "" : "es");
	return 0;
}

static int check_shares(const struct recipe_data *data, unsigned datasets, char *error)
{
	const struct recipe_stages *shares = &data->shares;
	if (shares->count && shares->count != datasets)
		return recipe_fail(error,
				   "data.shares has %u number%s, but data.train lists %u "
				   "dataset%s: give one number for each, or none",
				   shares->count, shares->count == 1 ? "" : "s", datasets,
				   datasets == 1 ? "" : "s");
	for (unsigned i = 0; i < shares->stages; i++)
		if (all_zero(shares->value + i * shares->count, shares->count))
			return recipe_fail(
				error,
				"data.shares: all numbers%s are 0; leave out datasets that do not "
				"count, and give the others shares above 0",
				shares->stages > 1 ? " of a list" : "");
	if (shares->stages > 1 && datasets == 1)
		return recipe_fail(error, "data.shares changes the shares of several datasets, but "
					  "data.train is one; set data.shares to empty");
	return shares->stages > 1 ? check_stages(data, error) : 0;
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
	if (all_zero(data->class_sampling.value, data->class_sampling.count))
		return recipe_fail(error, "data.class_sampling: all weights are 0, so that no "
					  "sample would be drawn; give some class a weight");
	return 0;
}
