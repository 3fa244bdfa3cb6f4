/*
 * Documents that repeat the table of transforms: loaderd(1) lists each transform's name, sentence,
 * parameters and defaults, and proto/SPEC.md the transforms that a client can run. A failure prints
 * the expected text.
 */
#include "format/augment/deferrable.h"
#include "format/augment/grammar/grammar_rules.h"
#include "format/augment/transform_list.h"
#include "tests/test.h"

#include <ctype.h>

enum { TEXT_MAX = 1 << 18, SIGNATURE_MAX = 512 };

static char *manual, *specification;

/* Returns a document with each sequence of white space replaced by one blank. */
static char *read_document(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = malloc(TEXT_MAX);
	size_t size = 0;

	assert_non_null(file);
	assert_non_null(text);
	for (int c = getc(file); c != EOF; c = getc(file)) {
		assert_true(size + 1 < TEXT_MAX);
		if (!isspace(c))
			text[size++] = (char)c;
		else if (size && text[size - 1] != ' ')
			text[size++] = ' ';
	}
	text[size] = 0;
	fclose(file);
	return text;
}

__attribute__((format(printf, 2, 3))) static void add(char text[SIGNATURE_MAX], const char *format,
						      ...)
{
	size_t used = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + used, SIGNATURE_MAX - used, format, arguments);
	va_end(arguments);
	assert_true(strlen(text) + 1 < SIGNATURE_MAX);
}

/* Appends the words of an argument as *a*|*b*. */
static void add_words(char text[SIGNATURE_MAX], const char *words)
{
	for (int i = 0; *words; i++) {
		int size = (int)strcspn(words, "|");

		add(text, "%s*%.*s*", i ? "|" : "", size, words);
		words += size + (words[size] == '|');
	}
}

/*
 * Formats a transform as in loaderd(1): *name*(_required_, *key*=default, ...). normalize has three
 * sets of mutually exclusive arguments, so only its name is expected.
 */
static void write_signature(const struct transform_entry *entry, char text[SIGNATURE_MAX])
{
	*text = 0;
	add(text, "*%s*(", entry->name);
	for (size_t i = 0; i < entry->argument_count; i++) {
		const struct transform_argument *argument = &entry->arguments[i];

		if (!argument->required && !*argument->otherwise)
			return;
		add(text, i ? ", " : "");
		if (!argument->required)
			add(text, "*%s*=%s", argument->name, argument->otherwise);
		else if (!*argument->form)
			add_words(text, argument->words);
		else
			add(text, "_%s_", argument->name);
	}
	add(text, ")");
}

/* Removes the marks of bold and underlined text, which are also in names. */
static void remove_marks(char *text)
{
	char *to = text;

	for (; *text; text++)
		if (*text != '*' && *text != '_')
			*to++ = *text;
	*to = 0;
}

TEST(manual_has_every_transform)
{
	char signature[SIGNATURE_MAX], sentence[SIGNATURE_MAX], *plain = strdup(manual);
	struct transform_entry entry;
	unsigned missing = 0;

	assert_non_null(plain);
	remove_marks(plain);
	for (size_t i = 0; transform_list_get(i, &entry); i++) {
		assert_non_null(grammar_find(entry.name));
		write_signature(&entry, signature);
		if (!strstr(manual, signature)) {
			missing++;
			fprintf(stderr, "loaderd.1.scd, PIPELINES, lacks: %s\n", signature);
		}
		assert_true(snprintf(sentence, sizeof(sentence), "%s", entry.text) < SIGNATURE_MAX);
		remove_marks(sentence);
		if (!strstr(plain, sentence)) {
			missing++;
			fprintf(stderr, "loaderd.1.scd, PIPELINES, %s, lacks: %s\n", entry.name,
				entry.text);
		}
	}
	free(plain);
	assert_int_equal(missing, 0);
}

/* The list has every transform, and each entry the arguments of the grammar. */
TEST(list_is_complete)
{
	struct transform_entry entry;
	size_t i = 0;

	for (; grammar_rules[i].name; i++) {
		size_t count = 0;

		assert_true(transform_list_get(i, &entry));
		assert_string_equal(entry.name, grammar_rules[i].name);
		while (count < PARAMETERS_MAX && grammar_rules[i].parameters[count].key)
			count++;
		assert_int_equal(entry.argument_count, count);
	}
	assert_false(transform_list_get(i, &entry));
}

/* The manual's PIPELINES section describes no transform that does not exist. */
TEST(manual_has_no_other_transform)
{
	const char *at = strstr(manual, "# PIPELINES "),
		   *end = strstr(manual, "# ORDER AND RESUME ");
	char name[NAME_MAX_SIZE];
	unsigned found = 0;

	assert_non_null(at);
	assert_non_null(end);
	for (; at < end; at++) {
		int size = 0;

		/* matches "*name*(" but not a reference to another page, as in "*packimg*(1)" */
		if (sscanf(at, "*%31[a-z_]*(%n", name, &size) != 1 || !size ||
		    isdigit((unsigned char)at[size]))
			continue;
		found++;
		if (!grammar_find(name))
			fail_msg("loaderd.1.scd, PIPELINES, describes %s, which is no transform",
				 name);
	}
	assert_true(found > 20);
}

/* Returns the next name of DEFERRABLE_TRANSFORMS, or NULL. */
static const char *next_deferrable(const char **at, char name[NAME_MAX_SIZE])
{
	size_t size = strcspn(*at, ",");

	if (!size)
		return NULL;
	assert_true(size < NAME_MAX_SIZE);
	memcpy(name, *at, size);
	name[size] = 0;
	*at += size + strlen(", ");
	return name;
}

/* SPEC.md lists the deferrable transforms that change pixels, in order, as "`a`, `b` and `c`". */
TEST(specification_has_deferrable_transforms)
{
	const char *at = DEFERRABLE_TRANSFORMS;
	char name[NAME_MAX_SIZE], list[SIGNATURE_MAX] = "";

	while (next_deferrable(&at, name)) {
		const struct rule *rule = grammar_find(name);

		assert_non_null(rule);
		if (rule->kind >= TRANSFORM_GEOMETRY_COUNT)
			add(list, "%s`%s`", !*list ? "" : *at ? ", " : " and ", name);
		else if (!strstr(specification, name))
			fail_msg("proto/SPEC.md, Deferred transforms, lacks `%s`", name);
	}
	if (!strstr(specification, list))
		fail_msg("proto/SPEC.md, Deferred transforms, lacks: %s", list);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	manual = read_document(argv[1]);
	specification = read_document(argv[2]);
	int r = test_run(NULL, NULL);

	free(manual);
	free(specification);
	return r;
}
