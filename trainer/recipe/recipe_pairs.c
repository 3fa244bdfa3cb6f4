#include "trainer/model/networks.h"
#include "trainer/recipe/recipe_value.h"

#include <string.h>

/* True if the recipe's network is of this family (trainer/model/networks.h). */
static bool of_family(const struct recipe *recipe, const char *family)
{
	static const struct {
		const char *family, *network;
	} rows[] = {
#define ROW(family, network, ...) {#family, #network},
		NETWORKS(ROW)
#undef ROW
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strcmp(rows[i].network, recipe->model.name) == 0)
			return strcmp(rows[i].family, family) == 0;
	return false;
}

static bool is_regression(const struct recipe *recipe)
{
	return recipe->train.loss == RECIPE_LOSS_SQUARED || recipe->train.loss == RECIPE_LOSS_HUBER;
}

int recipe_check_pairs(const struct recipe *r, char *error)
{
	const struct {
		const char *section, *name, *other_section, *other_name, *reason;
		bool both;
	} rows[] = {
#define REFUSED(section, name, on, other_section, other_name, other_on, reason)                    \
	{#section, #name, #other_section, #other_name, reason, (on) && (other_on)},
#include "trainer/recipe/recipe_pairs.inc"
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char value[RECIPE_TEXT_MAX], other[RECIPE_TEXT_MAX];
		const struct recipe_key *key = recipe_find_key(rows[i].section, rows[i].name);
		const struct recipe_key *other_key =
			recipe_find_key(rows[i].other_section, rows[i].other_name);
		if (!rows[i].both)
			continue;
		if (recipe_key_text(r, key, value, sizeof(value)) < 0 ||
		    recipe_key_text(r, other_key, other, sizeof(other)) < 0)
			return -ENOSPC;
		return recipe_fail(error,
				   "%s.%s = %.200s and %s.%s = %.200s cannot be combined: %s",
				   key->section, key->name, value, other_key->section,
				   other_key->name, other, rows[i].reason);
	}
	return 0;
}
