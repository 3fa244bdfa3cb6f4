/* Prints the RECIPES section of trainer(1). Used by the build, not installed. */
#include "trainer/recipe/recipe.h"

int main(void)
{
	recipe_help_scdoc(stdout);
	return fflush(stdout) != 0;
}
