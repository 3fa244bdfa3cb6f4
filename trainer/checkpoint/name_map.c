#include "trainer/checkpoint/name_map.h"

#include "trainer/device/device.h"

#include <stdio.h>
#include <string.h>

enum { NUMBERS_MAX = 4 };

static const struct rule {
	const char *layout, *ours, *theirs;
} rules[] = {
#define RULE(layout, ours, theirs) {layout, ours, theirs},
	NAMES(RULE)
#undef RULE
};

/* Text matched by a pattern's wildcards in a name. */
struct match {
	const char *number[NUMBERS_MAX], *rest;
	int digits[NUMBERS_MAX];
};

static bool match(const char *pattern, const char *name, struct match *ret_match)
{
	unsigned numbers = 0;
	for (; *pattern; pattern++) {
		if (*pattern == '*') {
			ret_match->rest = name;
			return *name;
		}
		if (*pattern != '#') {
			if (*name++ != *pattern)
				return false;
			continue;
		}
		int digits = (int)strspn(name, "0123456789");
		if (!digits || numbers == NUMBERS_MAX)
			return false;
		ret_match->number[numbers] = name;
		ret_match->digits[numbers++] = digits;
		name += digits;
	}
	return !*name;
}

/* Fills the wildcards of another pattern with the matched text. */
static void fill(const char *pattern, const struct match *match, char *ret_name)
{
	char *end = ret_name + DEVICE_NAME_MAX;
	unsigned numbers = 0;
	for (; *pattern && ret_name < end - 1; pattern++) {
		int written = 1;
		if (*pattern == '#') {
			written = snprintf(ret_name, (size_t)(end - ret_name), "%.*s",
					   match->digits[numbers], match->number[numbers]);
			numbers++;
		} else if (*pattern == '*') {
			written = snprintf(ret_name, (size_t)(end - ret_name), "%s", match->rest);
		} else {
			*ret_name = *pattern;
		}
		ret_name += written < end - ret_name ? written : end - ret_name - 1;
	}
	*ret_name = '\0';
}

const struct safetensors_tensor *name_map_find(const struct safetensors *source, const char *name,
					       const char **ret_layout)
{
	const struct safetensors_tensor *found = safetensors_find(source, name);
	const char *layout = NULL;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && !found; i++) {
		char theirs[DEVICE_NAME_MAX];
		struct match matched = {0};
		if (!match(rules[i].ours, name, &matched))
			continue;
		fill(rules[i].theirs, &matched, theirs);
		found = safetensors_find(source, theirs);
		layout = rules[i].layout;
	}
	if (ret_layout)
		*ret_layout = found ? layout : NULL;
	return found;
}

bool name_map_knows(const struct device_params *params, const struct safetensors *source,
		    const char *tensor)
{
	if (device_params_find(params, tensor))
		return true;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		char ours[DEVICE_NAME_MAX];
		struct match matched = {0};
		if (!match(rules[i].theirs, tensor, &matched))
			continue;
		fill(rules[i].ours, &matched, ours);
		if (!device_params_find(params, ours))
			continue;
		const struct safetensors_tensor *taken = name_map_find(source, ours, NULL);
		if (taken && strcmp(taken->name, tensor) == 0)
			return true;
	}
	return false;
}

/* Name prefixes of the last layer, one per family. */
static const char *const heads[] = {"fc.", "head.fc.", "head."};
enum { HEADS = sizeof(heads) / sizeof(heads[0]) };

bool name_map_is_head(const char *name)
{
	for (size_t i = 0; i < HEADS; i++) {
		size_t length = strlen(heads[i]);
		if (strncmp(name, heads[i], length) == 0 &&
		    (strcmp(name + length, "weight") == 0 || strcmp(name + length, "bias") == 0))
			return true;
	}
	return false;
}

uint32_t name_map_classes(const struct safetensors *source)
{
	for (size_t i = 0; i < HEADS; i++) {
		char name[DEVICE_NAME_MAX];
		snprintf(name, sizeof(name), "%sweight", heads[i]);
		const struct safetensors_tensor *head = name_map_find(source, name, NULL);
		if (head && head->rank && head->shape[0] <= UINT32_MAX)
			return (uint32_t)head->shape[0];
	}
	return 0;
}
