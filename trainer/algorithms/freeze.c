#include "trainer/algorithms/freeze.h"
#include "format/base/text/nearest.h"
#include "format/base/text/sentence.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define freeze_fail(error, ...) sentence_fail((error), FREEZE_ERROR_MAX, -EINVAL, __VA_ARGS__)

/* ---- parsing ---- */

/* Parses a pattern such as "layer1.*" or "layer1.*:10". */
static int read_pattern(struct freeze_pattern *pattern, const char *text, size_t length,
			char *error)
{
	char *end;
	if (length >= sizeof(pattern->text))
		return freeze_fail(error, "train.freeze: \"%.*s\" is longer than %zu bytes",
				   (int)length, text, sizeof(pattern->text) - 1);
	memcpy(pattern->text, text, length);
	pattern->text[length] = '\0';
	pattern->epochs = 0;
	char *colon = strrchr(pattern->text, ':');
	/* a colon before a bracket is part of a character class such as [[:digit:]] */
	if (!colon || strchr(colon, ']'))
		return 0;
	pattern->epochs = strtod(colon + 1, &end);
	if (end == colon + 1 || *end || !(pattern->epochs > 0) || pattern->epochs > 100000)
		return freeze_fail(error,
				   "train.freeze: \"%s\": expected a number of epochs above 0 "
				   "after the colon, as in layer1.*:10",
				   pattern->text);
	*colon = '\0';
	return 0;
}

static int read_text(struct freeze *freeze, const char *text, char *error)
{
	static const char separators[] = ", \t\n";
	for (;;) {
		text += strspn(text, separators);
		size_t length = strcspn(text, separators);
		if (!length)
			return 0;
		if (freeze->count == FREEZE_PATTERNS_MAX)
			return freeze_fail(error, "train.freeze has more than %d patterns",
					   FREEZE_PATTERNS_MAX);
		int r = read_pattern(&freeze->patterns[freeze->count++], text, length, error);
		if (r < 0)
			return r;
		text += length;
	}
}

/* ---- matching ---- */

static const char *name_of(const struct device_params *params, size_t index)
{
	return device_param_spec(device_params_at(params, index))->name;
}

/*
 * Copies the leading components of `name`, as many as `bare` has: "layer1." if bare is "layrs1.".
 */
static void copy_leading_parts(const char *name, const char *bare, char *ret_part)
{
	size_t length = 0, size = strlen(bare), dots = 0;
	bool ends = size && bare[size - 1] == '.';
	for (size_t i = 0; i < size; i++)
		dots += bare[i] == '.';
	for (; name[length] && (name[length] != '.' || dots); length++)
		if (name[length] == '.' && --dots == 0 && ends)
			break;
	length += ends && name[length] == '.';
	snprintf(ret_part, DEVICE_NAME_MAX, "%.*s", (int)length, name);
}

static int fail_unmatched(const struct device_params *params, const char *pattern, char *error)
{
	char part[DEVICE_NAME_MAX], meant[DEVICE_NAME_MAX] = "", bare[FREEZE_PATTERN_MAX];
	size_t stars = strcspn(pattern, "*?["), last = device_params_count(params) - 1;
	unsigned best = NEAREST_NONE;
	snprintf(bare, sizeof(bare), "%.*s", (int)stars, pattern);
	for (size_t i = 0; i <= last; i++) {
		copy_leading_parts(name_of(params, i), bare, part);
		unsigned slips = nearest_distance(bare, part);
		if (slips < best)
			strcpy(meant, part);
		best = slips < best ? slips : best;
	}
	if (*meant && strcmp(meant, bare) != 0)
		return freeze_fail(error,
				   "train.freeze: no parameter is named \"%s\"; did you mean %s%s?",
				   pattern, meant, pattern + stars);
	return freeze_fail(error,
			   "train.freeze: no parameter is named \"%s\"; the first is %s, the last "
			   "%s",
			   pattern, name_of(params, 0), name_of(params, last));
}

/*
 * Returns the latest end, in epochs, of the patterns that match a parameter: 0 if one applies to
 * the whole run, -1 if none matches.
 */
static double epochs_of(const struct freeze *freeze, const char *name)
{
	double longest = -1;
	for (unsigned i = 0; i < freeze->count; i++) {
		const struct freeze_pattern *pattern = &freeze->patterns[i];
		if (fnmatch(pattern->text, name, 0))
			continue;
		if (pattern->epochs == 0)
			return 0;
		longest = fmax(longest, pattern->epochs);
	}
	return longest;
}

/* Collects the distinct ends of patterns in ascending order. */
static int collect_thaws(struct freeze *freeze, char *error)
{
	for (unsigned i = 0; i < freeze->count; i++) {
		double epochs = freeze->patterns[i].epochs;
		unsigned at = 0;
		while (at < freeze->thaw_count && freeze->thaws[at] < epochs)
			at++;
		if (epochs == 0 || (at < freeze->thaw_count && freeze->thaws[at] == epochs))
			continue;
		if (freeze->thaw_count == DEVICE_STARTS_MAX - 1)
			return freeze_fail(
				error, "train.freeze has more than %d different numbers of epochs",
				DEVICE_STARTS_MAX - 1);
		memmove(freeze->thaws + at + 1, freeze->thaws + at,
			(freeze->thaw_count - at) * sizeof(*freeze->thaws));
		freeze->thaws[at] = epochs;
		freeze->thaw_count++;
	}
	return 0;
}

static unsigned thaw_of(const struct freeze *freeze, double epochs)
{
	unsigned at = 0;
	while (at < freeze->thaw_count && freeze->thaws[at] != epochs)
		at++;
	return at < freeze->thaw_count ? at + 1 : 0;
}

static int check_patterns(const struct freeze *freeze, const struct device_params *params,
			  char *error)
{
	for (unsigned i = 0; i < freeze->count; i++) {
		bool found = false;
		for (size_t k = 0; k < device_params_count(params); k++)
			found = found ||
				fnmatch(freeze->patterns[i].text, name_of(params, k), 0) == 0;
		if (!found)
			return fail_unmatched(params, freeze->patterns[i].text, error);
	}
	return 0;
}

static int check_rest(const struct recipe *recipe, const struct device_params *params, char *error)
{
	for (size_t i = 0; i < device_params_count(params); i++) {
		const struct device_param_spec *spec =
			device_param_spec(device_params_at(params, i));
		if (!spec->frozen && spec->kind != DEVICE_BUFFER)
			return 0;
	}
	return freeze_fail(error, "train.freeze = %.300s freezes all parameters",
			   recipe->train.freeze);
}

int freeze_init(struct freeze *freeze, const struct recipe *recipe, struct device_params *params,
		char *error)
{
	*freeze = (struct freeze){0};
	int r = read_text(freeze, recipe->train.freeze, error);
	if (r < 0 || !freeze->count)
		return r;
	r = check_patterns(freeze, params, error);
	if (r < 0)
		return r;
	r = collect_thaws(freeze, error);
	if (r < 0)
		return r;
	freeze->start = calloc(device_params_count(params) + 1, sizeof(*freeze->start));
	if (!freeze->start)
		return sentence_fail(error, FREEZE_ERROR_MAX, -ENOMEM, "out of memory");
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		double epochs = epochs_of(freeze, name_of(params, i));
		/* parameters that the network itself freezes never thaw */
		if (epochs < 0 || device_param_spec(param)->frozen)
			continue;
		freeze->start[i] = (uint8_t)thaw_of(freeze, epochs);
		device_param_freeze(param, true);
		device_param_set_start(param, freeze->start[i]);
	}
	return check_rest(recipe, params, error);
}

void freeze_deinit(struct freeze *freeze)
{
	free(freeze->start);
	freeze->start = NULL;
}

/* ---- thawing ---- */

static bool is_thaw_due(const struct freeze *freeze, unsigned thaw, uint64_t step,
			uint64_t batches_per_epoch)
{
	return (double)step >= freeze->thaws[thaw] * (double)batches_per_epoch;
}

bool freeze_is_due(const struct freeze *freeze, uint64_t step, uint64_t batches_per_epoch)
{
	return freeze->thawed < freeze->thaw_count &&
	       is_thaw_due(freeze, freeze->thawed, step, batches_per_epoch);
}

void freeze_thaw(struct freeze *freeze, struct device_params *params, uint64_t step,
		 uint64_t batches_per_epoch, uint64_t updates, uint64_t *begun)
{
	while (freeze_is_due(freeze, step, batches_per_epoch)) {
		unsigned start = ++freeze->thawed;
		for (size_t i = 0; i < device_params_count(params); i++)
			if (freeze->start[i] == start)
				device_param_freeze(device_params_at(params, i), false);
		if (!begun[start])
			begun[start] = updates + 1;
	}
	for (unsigned start = freeze->thawed + 1; start < DEVICE_STARTS_MAX; start++)
		begun[start] = 0;
}
