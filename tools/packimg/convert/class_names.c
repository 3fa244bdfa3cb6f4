#include "tools/packimg/convert/class_names.h"

#include "tools/packimg/source/filter.h"

#include <string.h>
#include <strings.h>

/* Returns the length of the folders in a name, including the last '/'; 0 if it has none. */
static size_t folders_size(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? (size_t)(slash - name + 1) : 0;
}

static bool is_part(const char *name, size_t size)
{
	static const char *const words[] = {"train", "training", "val", "valid", "validation",
					    "test",  "testing",  "dev", "eval",  NULL};

	for (const char *const *word = words; *word; word++)
		if (strlen(*word) == size && strncasecmp(name, *word, size) == 0)
			return true;
	return false;
}

/*
 * Finds the leading folders that all names share, except the innermost one if it contains images
 * directly.
 */
static void find_shared_folders(struct class_rule *rule, const struct catalog *catalog)
{
	bool any = false, direct = false;

	for (uint64_t i = 0; i < catalog->count; i++) {
		const char *name = filter_plain_name(catalog->samples[i].name);
		size_t size = folders_size(name), common = 0;

		if (catalog->samples[i].class != CATALOG_CLASS_OF_NAME)
			continue;
		if (!any) {
			rule->shared = name;
			rule->shared_size = size;
			any = direct = true;
			continue;
		}
		for (size_t k = 0; k < size && k < rule->shared_size && name[k] == rule->shared[k];
		     k++)
			if (name[k] == '/')
				common = k + 1;
		direct = size == common || (direct && common == rule->shared_size);
		rule->shared_size = common;
	}
	if (!direct || !rule->shared_size)
		return;
	do
		rule->shared_size--;
	while (rule->shared_size && rule->shared[rule->shared_size - 1] != '/');
}

static void find_parts(struct class_rule *rule, const struct catalog *catalog)
{
	for (uint64_t i = 0; i < catalog->count; i++) {
		const char *name = filter_plain_name(catalog->samples[i].name) + rule->shared_size;
		size_t size = strcspn(name, "/"), number = 0;

		if (catalog->samples[i].class != CATALOG_CLASS_OF_NAME)
			continue;
		while (number < rule->part_count &&
		       (rule->parts[number].size != size ||
			strncmp(rule->parts[number].name, name, size) != 0))
			number++;
		if (!name[size] || !is_part(name, size) || number == CLASS_PARTS_MAX) {
			rule->outside_parts = catalog->samples[i].name;
			rule->part_count = 0;
			rule->below_parts = false;
			return;
		}
		if (number == rule->part_count)
			rule->parts[rule->part_count++] =
				(struct class_part){.name = name, .size = size};
		rule->parts[number].images++;
		rule->below_parts |= strchr(name + size + 1, '/') != NULL;
	}
}

void class_rule_learn(struct class_rule *rule, enum class_from from, const struct catalog *catalog)
{
	bool any = false;

	for (uint64_t i = 0; i < catalog->count && !any; i++)
		any = catalog->samples[i].class == CATALOG_CLASS_OF_NAME;
	*rule = (struct class_rule){.from = any ? from : CLASS_NONE, .shared = ""};
	find_shared_folders(rule, catalog);
	find_parts(rule, catalog);
}

size_t class_rule_find_part(const struct class_rule *rule, const char *name)
{
	size_t number = 0;

	name = filter_plain_name(name);
	if (strncmp(name, rule->shared, rule->shared_size) != 0)
		return rule->part_count;
	name += rule->shared_size;
	while (number < rule->part_count &&
	       (strncmp(rule->parts[number].name, name, rule->parts[number].size) != 0 ||
		name[rule->parts[number].size] != '/'))
		number++;
	return number;
}

const char *class_rule_apply(const struct class_rule *rule, const char *name, char *class_name)
{
	const char *begin = filter_plain_name(name), *end;

	switch (rule->from) {
	case CLASS_AUTO:
		if (strncmp(begin, rule->shared, rule->shared_size) != 0)
			return NULL;
		begin += rule->shared_size;
		end = strchr(begin, '/');
		if (rule->below_parts && end) {
			begin = end + 1;
			end = strchr(begin, '/');
		}
		break;
	case CLASS_TOP:
		end = strchr(begin, '/');
		break;
	case CLASS_PARENT:
		end = strrchr(begin, '/');
		for (const char *p = begin; end && p < end; p++)
			begin = *p == '/' ? p + 1 : begin;
		break;
	default:
		return NULL;
	}
	if (!end || end == begin)
		return NULL;
	memcpy(class_name, begin, (size_t)(end - begin));
	class_name[end - begin] = 0;
	return strcmp(class_name, ".") != 0 && strcmp(class_name, "..") != 0 ? class_name : NULL;
}
