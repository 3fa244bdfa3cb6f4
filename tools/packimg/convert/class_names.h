/*
 * Classes from the folders of names, the same for files in a folder and members of an archive. What
 * a name's folders mean can only be told when all are known: folders that hold every image
 * ("data/") say nothing, and where the first folders behind them are called like the parts of a
 * split ("train/", "val/"), the classes are the folders in those, and each may become a dataset of
 * its own. Learned from all samples once, then only read; names stay the catalogue's.
 */
#pragma once

#include "tools/packimg/source/catalog.h"

enum {
	CLASS_PARTS_MAX = 16,
};

/* Images below a folder that is called like a part of a split. */
struct class_part {
	const char *name; /* not terminated */
	size_t size;
	uint64_t images;
};

struct class_rule {
	enum class_from from;
	const char *shared; /* folders that hold every image, up to the last '/'; not terminated */
	size_t shared_size;
	/* if all first folders behind those are parts of a split */
	struct class_part parts[CLASS_PARTS_MAX];
	size_t part_count;
	/* a name that is in none, when there are no parts; NULL: no names at all */
	const char *stranger;
	bool below_parts; /* classes are the folders in them; otherwise they hold images alone */
};

/* From the samples whose class is CATALOG_CLASS_OF_NAME. */
void class_rule_learn(struct class_rule *rule, enum class_from from, const struct catalog *catalog);
/* The number of the part that a name is in; part_count: none. */
size_t class_rule_part(const struct class_rule *rule, const char *name);
/*
 * The class that a name's folders give, into class_name (of at least strlen(name)+1 bytes); NULL:
 * none.
 */
const char *class_rule_apply(const struct class_rule *rule, const char *name, char *class_name);
