#include "trainer/recipe/recipe_value.h"

#include "format/base/text/nearest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *recipe_field(const struct recipe *recipe, const struct recipe_key *key)
{
	return (char *)recipe + key->offset;
}

const struct recipe_section *recipe_find_section(const char *name)
{
	for (size_t i = 0; i < recipe_sections_count; i++)
		if (strcmp(recipe_sections[i].name, name) == 0)
			return &recipe_sections[i];
	return NULL;
}

const struct recipe_key *recipe_find_key(const char *section, const char *name)
{
	for (size_t i = 0; i < recipe_keys_count; i++)
		if (strcmp(recipe_keys[i].section, section) == 0 &&
		    strcmp(recipe_keys[i].name, name) == 0)
			return &recipe_keys[i];
	return NULL;
}

int recipe_fail_section(const char *where, const char *name, char *error)
{
	struct nearest nearest = nearest_to(name);
	for (size_t i = 0; i < recipe_sections_count; i++)
		nearest_offer(&nearest, recipe_sections[i].name);
	if (nearest.meant)
		return recipe_fail(error, "%s: no section [%s]; did you mean [%s]?", where, name,
				   nearest.meant);
	return recipe_fail(error, "%s: no section [%s]; `trainer --help-recipe` lists them", where,
			   name);
}

/*
 * Reports an unknown key. Suggests the same name in another section rather than a similar spelling.
 */
int recipe_fail_key(const char *where, const char *section, const char *name, char *error)
{
	const struct recipe_key *nearest = NULL;
	unsigned best = NEAREST_NONE;
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		unsigned slips = nearest_distance(name, key->name);
		if (slips == NEAREST_NONE)
			continue;
		slips = 2 * slips + (strcmp(section, key->section) != 0);
		if (slips < best) {
			best = slips;
			nearest = key;
		}
	}
	if (nearest)
		return recipe_fail(error, "%s: no key %s.%s; did you mean %s.%s?", where, section,
				   name, nearest->section, nearest->name);
	return recipe_fail(error, "%s: no key %s.%s; `trainer --help-recipe` lists them", where,
			   section, name);
}

int recipe_fail_word(const char *where, const struct recipe_key *key, const char *text, char *error)
{
	char word[32], nearest[32] = "";
	unsigned best = NEAREST_NONE;
	for (const char *at = key->words; *at; at += *at == '|') {
		int length = (int)strcspn(at, "|");
		snprintf(word, sizeof(word), "%.*s", length, at);
		unsigned slips = nearest_distance(text, word);
		if (slips < best) {
			best = slips;
			memcpy(nearest, word, sizeof(word));
		}
		at += length;
	}
	return recipe_fail(error, "%s: %s.%s = \"%.300s\": expected one of %s%s%s%s", where,
			   key->section, key->name, text, key->words,
			   *nearest ? "; did you mean " : "", nearest, *nearest ? "?" : "");
}

int recipe_init(struct recipe *recipe)
{
	char error[RECIPE_ERROR_MAX];
	struct recipe fresh = {0};
	for (size_t i = 0; i < recipe_keys_count; i++) {
		int r = recipe_set(&fresh, &recipe_keys[i], "default", recipe_keys[i].fallback,
				   error);
		if (r) {
			recipe_deinit(&fresh);
			return r;
		}
	}
	*recipe = fresh;
	return 0;
}

void recipe_deinit(struct recipe *recipe)
{
	for (size_t i = 0; i < recipe_keys_count; i++) {
		if (recipe_keys[i].type != RECIPE_TEXT)
			continue;
		char **value = recipe_field(recipe, &recipe_keys[i]);
		free(*value);
		*value = NULL;
	}
}

int recipe_override(struct recipe *recipe, const char *argument, char *error)
{
	static const char where[] = "command line";
	char name[128];
	const char *equals = strchr(argument, '=');
	size_t length = equals ? (size_t)(equals - argument) : 0;
	snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : 0), argument);
	char *dot = strchr(name, '.');
	if (!dot)
		return recipe_fail(
			error,
			"%s: \"%s\": expected section.key=value, without blanks around =", where,
			argument);
	*dot = '\0';
	if (!recipe_find_section(name))
		return recipe_fail_section(where, name, error);
	const struct recipe_key *key = recipe_find_key(name, dot + 1);
	if (!key)
		return recipe_fail_key(where, name, dot + 1, error);
	return recipe_set(recipe, key, where, equals + 1, error);
}

/* Rejects mean and std on the scale of 0 to 1, as used with PyTorch's transforms. */
static int check_scale(const struct recipe_data *data, char *error)
{
	const double *mean = data->mean.value, *std = data->std.value;
	for (unsigned c = 0; c < data->std.count; c++)
		if (mean[c] > 1 || std[c] >= 1)
			return 0;
	return data->std.count ? recipe_fail(error,
					     "data.mean = %g, %g, %g and data.std = %g, %g, %g are "
					     "for pixels from 0 to 1, but pixels are from 0 to "
					     "255: use %g, %g, %g and %g, %g, %g",
					     mean[0], mean[1], mean[2], std[0], std[1], std[2],
					     255 * mean[0], 255 * mean[1], 255 * mean[2],
					     255 * std[0], 255 * std[1], 255 * std[2])
			       : 0;
}

/* Rejects schedule.gamma above 1, which makes the rate grow or was meant for optim.lr. */
static int check_growth(const struct recipe *recipe, char *error)
{
	const struct recipe_schedule *schedule = &recipe->schedule;
	double max = recipe_find_key("optim", "lr")->max;
	if (schedule->gamma <= 1)
		return 0;
	if (schedule->name == SCHEDULE_STEP || schedule->name == SCHEDULE_MULTI_STEP ||
	    schedule->name == SCHEDULE_EXP_RANGE || schedule->name == SCHEDULE_PLATEAU)
		return recipe_fail(error,
				   "schedule.gamma = %g: expected at most 1 with schedule.name = "
				   "step, multi_step, exp_range or plateau; exponential may grow",
				   schedule->gamma);
	double last = recipe->optim.lr * pow(schedule->gamma, recipe->train.epochs);
	if (schedule->name == SCHEDULE_EXPONENTIAL && last > max)
		return recipe_fail(error,
				   "schedule.gamma = %g raises optim.lr = %g to %g in train.epochs "
				   "= %g: expected at most %g",
				   schedule->gamma, recipe->optim.lr, last, recipe->train.epochs,
				   max);
	return 0;
}

/* Rejects keys that conflict with the configured schedule. */
static int check_schedule(const struct recipe *recipe, bool trains, char *error)
{
	const struct recipe_schedule *schedule = &recipe->schedule;
	double epochs = recipe->train.epochs;
	if (schedule->warmup > 0 && schedule->warmup >= epochs && epochs > 0)
		return recipe_fail(
			error, "schedule.warmup = %g epoch%s leaves nothing of train.epochs = %g",
			schedule->warmup, schedule->warmup == 1 ? "" : "s", epochs);
	if (schedule->name == SCHEDULE_MULTI_STEP && !schedule->milestones.count)
		return recipe_fail(
			error,
			"schedule.milestones is empty, but schedule.name = multi_step needs it");
	for (unsigned i = 1; i < schedule->milestones.count; i++)
		if (schedule->milestones.value[i] <= schedule->milestones.value[i - 1])
			return recipe_fail(
				error,
				"schedule.milestones must be ascending: %g is followed by %g",
				schedule->milestones.value[i - 1], schedule->milestones.value[i]);
	if (schedule->base_momentum > 0 && schedule->name != SCHEDULE_ONE_CYCLE &&
	    schedule->name != SCHEDULE_TRIANGULAR && schedule->name != SCHEDULE_TRIANGULAR2 &&
	    schedule->name != SCHEDULE_EXP_RANGE)
		return recipe_fail(error,
				   "schedule.base_momentum = %g, but the chosen schedule.name has "
				   "no cycle: use one_cycle, triangular, triangular2 or exp_range, "
				   "or set base_momentum to 0",
				   schedule->base_momentum);
	if (schedule->name == SCHEDULE_TRAPEZOID && schedule->decay == 0)
		return recipe_fail(error,
				   "schedule.decay is 0, but schedule.name = trapezoid needs the "
				   "number of epochs in which the rate falls at the end");
	if (schedule->name == SCHEDULE_TRAPEZOID && schedule->warmup + schedule->decay > epochs)
		return recipe_fail(error,
				   "schedule.warmup = %g and schedule.decay = %g together exceed "
				   "train.epochs = %g: make one of them shorter",
				   schedule->warmup, schedule->decay, epochs);
	if (trains && schedule->name == SCHEDULE_PLATEAU && !*recipe->data.val)
		return recipe_fail(
			error, "schedule.name = plateau depends on evaluations, but data.val is "
			       "not set: set the dataset to evaluate on, or use another schedule");
	return check_growth(recipe, error);
}

/* Checks that the fractions of the run at initial and at full size do not exceed 1 in total. */
static int check_progressive(const struct recipe_data *data, char *error)
{
	double both = data->finetune_fraction + data->delay_fraction;
	if (data->initial_scale >= 1 || both <= 1)
		return 0;
	return recipe_fail(error,
			   "data.delay_fraction = %g and data.finetune_fraction = %g add up to %g: "
			   "expected at most 1, the whole run",
			   data->delay_fraction, data->finetune_fraction, both);
}

static int check_selective(const struct recipe *recipe, char *error)
{
	const struct recipe_train *train = &recipe->train;
	double batch = (double)recipe->data.batch_size;
	if (train->selective_backprop == 0)
		return 0;
	if (train->selective_start >= train->selective_end)
		return recipe_fail(
			error,
			"train.selective_start = %g is not before train.selective_end = %g: leave "
			"a part of the run between them, or set selective_backprop to 0",
			train->selective_start, train->selective_end);
	if (train->selective_backprop * batch < 1)
		return recipe_fail(error,
				   "train.selective_backprop = %g keeps no sample of "
				   "data.batch_size = %g: use a larger share",
				   train->selective_backprop, batch);
	return 0;
}

/* Checks the keys of early stopping. */
static int check_stops(const struct recipe *recipe, char *error)
{
	const struct recipe_train *train = &recipe->train;
	const char *key = train->stop_after ? "stop_after" : "stop_at";
	if (!train->stop_after && train->stop_at == 0)
		return 0;
	if (!*recipe->data.val)
		return recipe_fail(error,
				   "train.%s depends on evaluations, but data.val is not set: set "
				   "the dataset to evaluate on, or set it to 0",
				   key);
	if (train->eval_every == 0)
		return recipe_fail(error,
				   "train.%s depends on evaluations, but train.eval_every = 0 "
				   "leaves only the one at the end: set it, or set %s to 0",
				   key, key);
	return 0;
}

int recipe_check(const struct recipe *recipe, bool trains, char *error)
{
	if (trains && !*recipe->data.train)
		return recipe_fail(
			error, "data.train is not set: set it to the packed dataset to train on");
	if (recipe->model.classes == 1 && !*recipe->data.target)
		return recipe_fail(error, "model.classes = 1, but a classifier needs at least 2; 0 "
					  "uses the classes of data.train");
	if (recipe->data.mean.count != 0 && recipe->data.mean.count != 3)
		return recipe_fail(error, "data.mean has %u numbers, expected 3 (R, G, B) or none",
				   recipe->data.mean.count);
	if (recipe->data.std.count != recipe->data.mean.count)
		return recipe_fail(
			error,
			"data.mean and data.std must be set together: they have %u and %u numbers",
			recipe->data.mean.count, recipe->data.std.count);
	int r = check_scale(&recipe->data, error);
	if (r < 0)
		return r;
	if (recipe->data.batch_size % recipe->data.repeats)
		return recipe_fail(error,
				   "data.repeats = %llu does not divide data.batch_size = %llu, "
				   "which counts all copies of an image: use a multiple",
				   (unsigned long long)recipe->data.repeats,
				   (unsigned long long)recipe->data.batch_size);
	if (recipe->data.slots == 1)
		return recipe_fail(error, "data.slots = 1: expected at least 2, since one is "
					  "filled while another is used, or 0");
	if (!*recipe->data.val && *recipe->data.val_pipeline)
		return recipe_fail(error, "data.val_pipeline is set, but data.val is not");
	r = recipe_check_order(&recipe->data, error);
	if (r < 0)
		return r;
	r = check_progressive(&recipe->data, error);
	if (r < 0)
		return r;
	r = check_selective(recipe, error);
	if (r < 0)
		return r;
	r = check_schedule(recipe, trains, error);
	if (r < 0)
		return r;
	r = trains ? check_stops(recipe, error) : 0;
	if (r < 0)
		return r;
	if ((recipe->optim.name == DEVICE_SGD || recipe->optim.name == DEVICE_LARS) &&
	    recipe->optim.nesterov && recipe->optim.momentum == 0)
		return recipe_fail(error, "optim.nesterov = true requires optim.momentum above 0");
	if (recipe->train.swa > 0 && recipe->train.swa >= recipe->train.epochs)
		return recipe_fail(error,
				   "train.swa = %g leaves nothing of train.epochs = %g to average",
				   recipe->train.swa, recipe->train.epochs);
	if (recipe->train.ema_lookahead && recipe->train.ema == 0)
		return recipe_fail(error, "train.ema_lookahead = true requires train.ema above 0: "
					  "it resets the weights to that average");
	return recipe_check_pairs(recipe, error);
}

uint32_t recipe_accumulate(const struct recipe *recipe)
{
	return recipe->train.accumulate ? (uint32_t)recipe->train.accumulate : 1;
}

static bool recipe_is_found(const struct recipe *recipe, const struct recipe_key *key)
{
	return key->type == RECIPE_INTEGER && key->words &&
	       !*(const uint64_t *)recipe_field(recipe, key);
}

int recipe_compare(const struct recipe *recipe, const struct recipe *saved,
		   enum recipe_resume fixed, char *error)
{
	char now[RECIPE_TEXT_MAX], then[RECIPE_TEXT_MAX];
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		enum recipe_resume resume = key->resume;
		if (resume == RECIPE_EVALUATION && saved->schedule.name == SCHEDULE_PLATEAU)
			resume = RECIPE_TRAJECTORY;
		if (resume < fixed || recipe_is_found(recipe, key))
			continue;
		if (recipe_key_text(recipe, key, now, sizeof(now)) < 0 ||
		    recipe_key_text(saved, key, then, sizeof(then)) < 0)
			return -ENOSPC;
		if (strcmp(now, then) == 0)
			continue;
		if (fixed == RECIPE_WEIGHTS)
			return recipe_fail(error,
					   "%s.%s is \"%.200s\" but was \"%.200s\" in the "
					   "checkpoint, whose weights take %s.%s=%.200s",
					   key->section, key->name, now, then, key->section,
					   key->name, then);
		return recipe_fail(
			error, "%s.%s is \"%.200s\" but was \"%.200s\" in the checkpoint: %s",
			key->section, key->name, now, then,
			key->resume >= RECIPE_FIXED
				? "the run cannot continue with this change; start a new one"
				: "losses would differ from those of an uninterrupted run; use "
				  "--allow-changes to resume anyway");
	}
	return 0;
}
