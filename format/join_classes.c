#include "format/error.h"
#include "format/join_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A class of the union. The text belongs to a part. */
struct class_name {
	const char *text;
	uint64_t size;      /* bytes, terminator included */
	uint32_t last_part; /* the last part that has the class */
};

/* The union of class names, found by a hash table with linear probing. */
struct class_union {
	struct class_name *names;
	uint32_t count, capacity;
	uint64_t size;   /* bytes of all names */
	uint32_t *slots; /* number of the class + 1, or 0 */
	uint32_t mask;   /* slots - 1; more than half of them stay empty */
};

static struct class_name class_get(const struct packimg *part, uint32_t class_number)
{
	struct class_name name = {0};

	/* The class names were validated when opening. */
	strings_get(&part->classes, part->class_count, class_number, &name.text, &name.size);
	return name;
}

/* Returns the part with the most classes. */
static const struct packimg *part_with_most(const struct join *join)
{
	const struct packimg *most = join->parts[0].dataset;

	for (uint32_t p = 1; p < join->part_count; p++)
		if (join->parts[p].dataset->class_count > most->class_count)
			most = join->parts[p].dataset;
	return most;
}

static bool class_equal(const struct class_name *a, const struct class_name *b)
{
	return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

/* True if the names of a part are the first names of the longest list. */
static bool begins(const struct packimg *part, const struct packimg *longest)
{
	for (uint32_t i = 0; i < part->class_count; i++) {
		struct class_name a = class_get(part, i), b = class_get(longest, i);

		if (!class_equal(&a, &b))
			return false;
	}
	return true;
}

static int too_many_classes(uint32_t count, uint64_t size, struct packimg_error *error)
{
	return packimg_fail(error, -E2BIG,
			    "the datasets to join have %u classes of different names or more, with "
			    "%" PRIu64 " bytes; at most %d classes with %d bytes are possible",
			    count, size, PACKIMG_CLASSES_MAX, PIMG_CLASSES_SIZE_MAX);
}

/* Makes a section of classes (SPEC.md, "Sources and classes") from names. */
static int classes_pack(struct packimg *joined, const struct class_name *names, uint32_t count,
			uint64_t size, struct packimg_error *error)
{
	uint64_t table_size = ((uint64_t)count + 1) * sizeof(uint64_t), offset = 0;

	if (count == 0)
		return 0;
	if (table_size + size > PIMG_CLASSES_SIZE_MAX)
		return too_many_classes(count, table_size + size, error);
	uint8_t *section = malloc(table_size + size);
	if (!section)
		return packimg_fail(error, -ENOMEM, "out of memory for class names");
	for (uint32_t i = 0; i < count; i++) {
		memcpy(section + i * sizeof(offset), &offset, sizeof(offset));
		memcpy(section + table_size + offset, names[i].text, names[i].size);
		offset += names[i].size;
	}
	memcpy(section + count * sizeof(offset), &offset, sizeof(offset));
	joined->classes = (struct section_view){.data = section, .size = table_size + size};
	joined->class_count = count;
	return 0;
}

static int union_init(struct class_union *classes, const struct join *join,
		      struct packimg_error *error)
{
	uint64_t total = 0, slots = 1;

	for (uint32_t p = 0; p < join->part_count; p++)
		total += join->parts[p].dataset->class_count;
	classes->capacity = total > PACKIMG_CLASSES_MAX ? PACKIMG_CLASSES_MAX : (uint32_t)total;
	while (slots <= 2 * (uint64_t)classes->capacity)
		slots *= 2;
	classes->mask = (uint32_t)(slots - 1);
	classes->names = calloc(classes->capacity, sizeof(*classes->names));
	classes->slots = calloc(slots, sizeof(*classes->slots));
	return classes->names && classes->slots
		       ? 0
		       : packimg_fail(error, -ENOMEM, "out of memory for class names");
}

static void union_deinit(struct class_union *classes)
{
	free(classes->names);
	free(classes->slots);
}

/* Returns the slot of a name, which is 0 if the union lacks it. */
static uint32_t *union_slot(struct class_union *classes, const struct class_name *name)
{
	uint64_t at = XXH3_64bits(name->text, name->size);

	for (;; at++) {
		uint32_t *slot = &classes->slots[at & classes->mask];
		if (*slot == 0 || class_equal(&classes->names[*slot - 1], name))
			return slot;
	}
}

static uint32_t union_append(struct class_union *classes, const struct class_name *name)
{
	classes->names[classes->count] = *name;
	classes->size += name->size;
	return classes->count++;
}

/* Adds class i of part p, unless the union has its name. */
static int union_put(struct class_union *classes, struct packimg *part, uint32_t p, uint32_t i,
		     int32_t *ret_number, struct packimg_error *error)
{
	struct class_name name = class_get(part, i);
	bool named = name.size > 1;
	uint32_t *slot = named ? union_slot(classes, &name) : NULL;
	uint32_t number;

	name.last_part = p;
	if (slot && *slot) {
		number = *slot - 1;
		if (classes->names[number].last_part == p)
			return packimg_fail(error, -EINVAL,
					    "%s: two classes are named '%.100s', and the lists of "
					    "classes to join differ, so that names must tell them "
					    "apart; rename one",
					    join_path(part), name.text);
		classes->names[number].last_part = p;
	} else if (classes->count == classes->capacity) {
		return too_many_classes(classes->count, classes->size, error);
	} else {
		number = union_append(classes, &name);
		if (slot)
			*slot = number + 1;
	}
	*ret_number = (int32_t)number;
	return 0;
}

/* Adds the classes of a part. Sets its labels unless its numbers stay the same. */
static int union_put_part(struct class_union *classes, struct join_part *part, uint32_t p,
			  struct packimg_error *error)
{
	uint32_t count = part->dataset->class_count;
	bool same = true;

	part->labels = malloc((count + (size_t)1) * sizeof(*part->labels));
	if (!part->labels)
		return packimg_fail(error, -ENOMEM, "out of memory for class names");
	for (uint32_t i = 0; i < count; i++) {
		int r = union_put(classes, part->dataset, p, i, &part->labels[i], error);
		if (r < 0)
			return r;
		same &= part->labels[i] == (int32_t)i;
	}
	if (same) {
		free(part->labels);
		part->labels = NULL;
	}
	return 0;
}

static int classes_unite(struct packimg *joined, struct packimg_error *error)
{
	struct join *join = joined->join;
	struct class_union classes = {0};

	int r = union_init(&classes, join, error);
	for (uint32_t p = 0; r == 0 && p < join->part_count; p++)
		r = union_put_part(&classes, &join->parts[p], p, error);
	r = r ?: classes_pack(joined, classes.names, classes.count, classes.size, error);
	union_deinit(&classes);
	return r;
}

static int classes_copy(struct packimg *joined, const struct packimg *part,
			struct packimg_error *error)
{
	if (part->class_count == 0)
		return 0;
	uint8_t *section = malloc(part->classes.size);
	if (!section)
		return packimg_fail(error, -ENOMEM, "out of memory for class names");
	memcpy(section, part->classes.data, part->classes.size);
	joined->classes = (struct section_view){.data = section, .size = part->classes.size};
	joined->class_count = part->class_count;
	return 0;
}

int join_classes(struct packimg *joined, struct packimg_error *error)
{
	struct join *join = joined->join;
	const struct packimg *longest = part_with_most(join);
	bool all_begin = true;

	for (uint32_t p = 0; p < join->part_count; p++) {
		const struct packimg *part = join->parts[p].dataset;

		join->parts[p].unnamed = part->class_count == 0 && longest->class_count > 0;
		all_begin = all_begin && begins(part, longest);
	}
	return all_begin ? classes_copy(joined, longest, error) : classes_unite(joined, error);
}
