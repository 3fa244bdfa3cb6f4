/*
 * Derives classes from the folders in names, alike for files in a folder and members of an archive.
 * The meaning of folders depends on all names: leading folders that hold every image ("data/") are
 * ignored; if the first folders after them are named like parts of a split ("train/", "val/"), the
 * classes are the folders inside those, and each part may become a dataset. Learned once from all
 * samples, then read-only; names belong to the catalogue.
 */
#pragma once

#include "tools/packimg/source/catalog.h"

enum {
	CLASS_PARTS_MAX = 16,
};

/* Images below a folder that is named like a part of a split. */
struct class_part {
	const char *name; /* not terminated */
	size_t size;
	uint64_t images;
};

struct class_rule {
	enum class_from from;
	const char *shared; /* folders that hold every image, up to the last '/'; not terminated */
	size_t shared_size;
	/* set if all first folders after those are parts of a split */
	struct class_part parts[CLASS_PARTS_MAX];
	size_t part_count;
	/* a name that is in no part, if there are no parts; NULL if there are no names at all */
	const char *outside_parts;
	/* classes are the folders inside the parts; otherwise parts hold only images */
	bool below_parts;
};

/* Learns from the samples whose class is CATALOG_CLASS_OF_NAME. */
void class_rule_learn(struct class_rule *rule, enum class_from from, const struct catalog *catalog);
/* Returns the number of the part that contains a name; part_count if none. */
size_t class_rule_part(const struct class_rule *rule, const char *name);
/*
 * Returns the class that a name's folders give, written to class_name (at least strlen(name)+1
 * bytes); NULL if none.
 */
const char *class_rule_apply(const struct class_rule *rule, const char *name, char *class_name);
