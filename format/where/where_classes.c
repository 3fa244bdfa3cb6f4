#include "format/base/text/nearest.h"
#include "format/where/where_parser.h"
#include "format/where/where_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Classes that are compared with a misspelt name, at most. */
enum { CLASSES_OFFERED_MAX = 1 << 16 };

int where_classes_add(struct where_parser *parser, const struct where_text *text, size_t position)
{
	int r = where_grow(&parser->classes, &parser->class_room, parser->class_count,
			   sizeof(*parser->classes));
	if (r < 0)
		return r;
	parser->classes[parser->class_count++] = (struct where_class_literal){*text, position};
	return 0;
}

static int compare_text(const void *a, const void *b)
{
	const struct where_class_literal *x = a, *y = b;

	return where_text_order(&x->text, &y->text);
}

/* By text, then by position. */
static int compare_literal(const void *a, const void *b)
{
	const struct where_class_literal *x = a, *y = b;
	int order = compare_text(a, b);

	return order ? order : (x->position > y->position) - (x->position < y->position);
}

/* Keeps the first of several equal texts in a sorted array. */
static size_t drop_duplicates(struct where_class_literal *literals, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (kept == 0 || compare_text(&literals[kept - 1], &literals[i]) != 0)
			literals[kept++] = literals[i];
	return kept;
}

static int fail_no_class(const struct where_parser *parser,
			 const struct where_class_literal *literal)
{
	int size = literal->text.size < WHERE_SHOWN_MAX ? (int)literal->text.size : WHERE_SHOWN_MAX;
	uint32_t count = packimg_class_count(parser->dataset);
	char name[WHERE_SHOWN_MAX + 1];
	struct nearest nearest = nearest_to(name);

	if (count == 0)
		return where_fail(parser, literal->position,
				  "the dataset has no names of classes; use label, the number");
	memcpy(name, literal->text.bytes, (size_t)size);
	name[size] = 0;
	for (uint32_t i = 0; i < count && i < CLASSES_OFFERED_MAX; i++)
		nearest_offer(&nearest, packimg_class_name(parser->dataset, i));
	return where_fail(parser, literal->position, "the dataset has no class \"%s\"%s%.*s%s",
			  name, nearest.meant ? "; did you mean \"" : "", WHERE_SHOWN_MAX,
			  nearest.meant ? nearest.meant : "",
			  nearest.meant ? "\"?" : "; packimg info --classes lists them");
}

/* Searches all literals in one pass over the classes, of which there may be millions. */
int where_classes_check(struct where_parser *parser)
{
	struct where_class_literal *literals = parser->classes;
	const struct where_class_literal *missing = NULL;

	if (parser->class_count == 0)
		return 0;
	qsort(literals, parser->class_count, sizeof(*literals), compare_literal);
	size_t count = drop_duplicates(literals, parser->class_count);
	for (uint32_t i = 0; i < packimg_class_count(parser->dataset); i++) {
		const char *name = packimg_class_name(parser->dataset, i);
		struct where_class_literal class = {.text = {name, strlen(name)}};
		struct where_class_literal *found =
			bsearch(&class, literals, count, sizeof(*literals), compare_text);

		if (found)
			found->found = true;
	}
	for (size_t i = 0; i < count; i++)
		if (!literals[i].found && (!missing || literals[i].position < missing->position))
			missing = &literals[i];
	return missing ? fail_no_class(parser, missing) : 0;
}
