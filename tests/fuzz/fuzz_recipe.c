/*
 * Arbitrary text as a recipe. A recipe that parses must be the same after writing and parsing it
 * again, because checkpoints store it.
 */
#include "tests/fuzz/fuzz.h"
#include "trainer/recipe/recipe.h"

#include <stdlib.h>
#include <string.h>

static void read_back(const struct recipe *recipe)
{
	char error[RECIPE_ERROR_MAX], a[RECIPE_TEXT_MAX], b[RECIPE_TEXT_MAX], *text = NULL;
	size_t size = 0;
	struct recipe copy;
	FILE *file = open_memstream(&text, &size);

	if (!file || recipe_write(recipe, file) || fclose(file) || recipe_init(&copy))
		abort();
	if (recipe_load_text(&copy, "copy", text, error)) {
		fprintf(stderr, "%s\n%s", error, text);
		abort();
	}
	for (size_t i = 0; i < recipe_keys_count; i++)
		if (recipe_key_text(recipe, &recipe_keys[i], a, sizeof(a)) < 0 ||
		    recipe_key_text(&copy, &recipe_keys[i], b, sizeof(b)) < 0 ||
		    strcmp(a, b) != 0) {
			fprintf(stderr, "%s.%s: \"%s\" and \"%s\"\n", recipe_keys[i].section,
				recipe_keys[i].name, a, b);
			abort();
		}
	recipe_deinit(&copy);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[RECIPE_ERROR_MAX];
	struct recipe recipe;
	char *text = malloc(size + 1);

	if (!text || recipe_init(&recipe))
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (recipe_load_text(&recipe, "fuzz.ini", text, error) == 0) {
		recipe_check(&recipe, true, error);
		read_back(&recipe);
	}
	recipe_deinit(&recipe);
	free(text);
	return 0;
}
