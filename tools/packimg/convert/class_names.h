/*
 * Derives classes from the folders in names, in the same way for files in a folder and members of
 * an archive. What a folder means depends on all names:
 * - Leading folders that contain every image ("data/") are ignored.
 * - If all folders at the next level are named like parts of a split ("train/", "val/"), the
 * classes are the folders inside them, and each part may become a dataset.
 * The rule is learned once from all samples and then read-only. The names belong to the catalogue.
 */
#pragma once

#include "tools/packimg/source/catalog.h"

enum {
	CLASS_PARTS_MAX = 16,
};

/* A part of a split: a folder with such a name, and its number of images. */
struct class_part {
	const char *name; /* not null-terminated */
	size_t size;
	uint64_t images;
};

struct class_rule {
	enum class_from from;
	const char *shared; /* leading folders that contain every image, up to the last '/'; not
			       null-terminated */
	size_t shared_size;
	/* parts, if all folders at the next level are named like parts of a split */
	struct class_part parts[CLASS_PARTS_MAX];
	size_t part_count;
	/* if there are no parts: a name that rules them out; NULL if there are no names */
	const char *outside_parts;
	/* classes are the folders inside the parts; false if parts contain only images */
	bool below_parts;
};

/* Learns the rule from the samples whose class is CATALOG_CLASS_OF_NAME. */
void class_rule_learn(struct class_rule *rule, enum class_from from, const struct catalog *catalog);
/* Returns the number of the part that contains a name; part_count if there is none. */
size_t class_rule_find_part(const struct class_rule *rule, const char *name);
/*
 * Returns the class given by the folders in a name, written to class_name (at least strlen(name) +
 * 1 bytes); NULL if there is none.
 */
const char *class_rule_apply(const struct class_rule *rule, const char *name, char *class_name);
