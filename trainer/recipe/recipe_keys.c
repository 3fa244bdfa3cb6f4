#include "format/augment/deferrable.h"
#include "trainer/model/networks.h"
#include "trainer/recipe/recipe.h"

const struct recipe_section recipe_sections[] = {
	{"data", "Input: datasets, transforms, batches."},
	{"model", "The network."},
	{"optim", "The optimizer."},
	{"schedule", "The learning rate schedule. It is evaluated at every step; lengths are in "
		     "epochs and may be fractions."},
	{"train", "Length, seed, device, precision, and training methods."},
	{"log", "Logs and progress."},
	{"checkpoint", "Checkpoints."},
};
const size_t recipe_sections_count = sizeof(recipe_sections) / sizeof(recipe_sections[0]);

/* Joins the names of a table's rows into a list of words: "|sgd|adamw". */
#define NAME(constant, name, ...) "|" #name
#define RECIPE_NAMES(TABLE)       (&(TABLE(NAME))[1])

/* clang-format off */
#define SECTION(section)
#define END()
#define KEY(section, name, type, fallback, min, max, words, resume, help, step)                    \
	{#section, #name, type, offsetof(struct recipe, section.name), fallback, min, max, words,  \
	 resume, help, step},
#define TEXT(section, name, fallback, resume, help)                                                \
	KEY(section, name, RECIPE_TEXT, fallback, 0, 0, NULL, resume, help, 0)
#define ONE_OF(section, name, fallback, words, resume, help)                                       \
	KEY(section, name, RECIPE_TEXT, fallback, 0, 0, words, resume, help, 0)
#define INTEGER(section, name, fallback, min, max, resume, help)                                   \
	KEY(section, name, RECIPE_INTEGER, fallback, min, max, NULL, resume, help, 0)
#define STEPS(section, name, fallback, min, step, max, resume, help)                               \
	KEY(section, name, RECIPE_INTEGER, fallback, min, max, NULL, resume, help, step)
#define OR_AUTO(section, name, fallback, min, max, resume, help)                                   \
	KEY(section, name, RECIPE_INTEGER, fallback, min, max, "auto", resume, help, 0)
#define NUMBER(section, name, fallback, min, max, resume, help)                                    \
	KEY(section, name, RECIPE_NUMBER, fallback, min, max, NULL, resume, help, 0)
#define BOOLEAN(section, name, fallback, resume, help)                                             \
	KEY(section, name, RECIPE_BOOLEAN, fallback, 0, 0, NULL, resume, help, 0)
#define WORD(section, name, fallback, words, resume, help)                                         \
	KEY(section, name, RECIPE_WORD, fallback, 0, 0, words, resume, help, 0)
#define NUMBERS(section, name, fallback, min, max, resume, help)                                   \
	KEY(section, name, RECIPE_NUMBERS, fallback, min, max, NULL, resume, help, 0)
#define NUMBERS_OR(section, name, fallback, word, min, max, resume, help)                          \
	KEY(section, name, RECIPE_NUMBERS, fallback, min, max, word, resume, help, 0)
#define STAGES(section, name, fallback, min, max, resume, help)                                    \
	KEY(section, name, RECIPE_STAGES, fallback, min, max, NULL, resume, help, 0)
#define OPTIM_NUMBER(name, fallback, min, max, help)                                               \
	NUMBER(optim, name, fallback, min, max, RECIPE_TRAJECTORY, help)
#define OPTIM_BOOLEAN(name, fallback, help) BOOLEAN(optim, name, fallback, RECIPE_TRAJECTORY, help)
#define OPTIM_COUNT(name, fallback, min, max, help)                                                \
	INTEGER(optim, name, fallback, min, max, RECIPE_TRAJECTORY, help)
#define LOG_BOOLEAN(name, help) BOOLEAN(log, name, "false", RECIPE_FREE, help)
/* clang-format on */

const struct recipe_key recipe_keys[] = {
#include "trainer/recipe/recipe_keys.inc"
};
_Static_assert(sizeof(recipe_keys) / sizeof(recipe_keys[0]) <= RECIPE_KEYS_MAX,
	       "raise RECIPE_KEYS_MAX");
const size_t recipe_keys_count = sizeof(recipe_keys) / sizeof(recipe_keys[0]);
