#include "trainer/checkpoint/class_names.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *class_names_write(const char *const *names, uint32_t count)
{
	json_t *array = json_array();
	int r = array && count ? 0 : -1;
	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = json_array_append_new(array, json_string(names[i]));
	char *text = r < 0 ? NULL : json_dumps(array, JSON_COMPACT);
	json_decref(array);
	if (text && strlen(text) <= CLASS_NAMES_MAX)
		return text;
	free(text);
	return NULL;
}

static int class_names_fill(struct class_names *names, const json_t *array)
{
	if (!json_is_array(array))
		return -EINVAL;
	names->count = (uint32_t)json_array_size(array);
	names->name = calloc(names->count + 1, sizeof(*names->name));
	if (!names->name)
		return -ENOMEM;
	for (uint32_t i = 0; i < names->count; i++) {
		names->name[i] = json_string_value(json_array_get(array, i));
		if (!names->name[i])
			return -EINVAL;
	}
	return 0;
}

int class_names_read(const char *text, struct class_names *ret_names)
{
	/* limit the text, because parsed JSON takes up to thirty times its size */
	json_t *array = strlen(text) <= CLASS_NAMES_MAX ? json_loads(text, 0, NULL) : NULL;
	struct class_names names = {.array = array};
	int r = class_names_fill(&names, array);
	if (r < 0)
		class_names_deinit(&names);
	else
		*ret_names = names;
	return r;
}

void class_names_deinit(struct class_names *names)
{
	free(names->name);
	json_decref(names->array);
	*names = (struct class_names){0};
}

static bool is_number(const char *name)
{
	return *name && !name[strspn(name, "0123456789")];
}

/*
 * True if both names may belong to class `number`: they are equal, or at least one is a number and
 * every number among them is `number`.
 */
static bool same_class(const char *a, const char *b, uint32_t number)
{
	bool a_number = is_number(a), b_number = is_number(b);
	if (strcmp(a, b) == 0)
		return true;
	return (a_number || b_number) && (!a_number || strtoull(a, NULL, 10) == number) &&
	       (!b_number || strtoull(b, NULL, 10) == number);
}

uint32_t class_names_differ(const char *const *a, uint32_t a_count, const char *const *b,
			    uint32_t b_count)
{
	uint32_t count = a_count < b_count ? a_count : b_count, i = 0;
	while (i < count && same_class(a[i], b[i], i))
		i++;
	return i;
}
