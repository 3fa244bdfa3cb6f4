#include "format/augment/grammar/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parses the name of a view. */
static int parse_view_name(struct parser *parser, const struct pipeline *whole,
			   char ret_name[PIPELINE_NAME_MAX + 1])
{
	const char *name = parser->text + parser->at;
	int size = 0, position = parser->at;

	while (parser_is_word(name[size]))
		size++;
	if (size == 0 || parser_is_digit(*name))
		return fail_expected(parser, "a name after 'view', as in 'view global(2) { ... }'");
	if (size > PIPELINE_NAME_MAX)
		return fail(parser, position, "the name of a view has at most %d bytes",
			    PIPELINE_NAME_MAX);
	memcpy(ret_name, name, (size_t)size);
	ret_name[size] = 0;
	for (unsigned i = 0; i < whole->view_count; i++)
		if (strcmp(whole->views[i]->view_name, ret_name) == 0)
			return fail(parser, position,
				    "there are two views %s: give them different names, or more "
				    "copies to one, as in 'view %s(2) { ... }'",
				    ret_name, ret_name);
	parser->at += size;
	parser_skip_space(parser);
	return 0;
}

/* Parses [ "(" COPIES ")" ]. */
static int parse_copies(struct parser *parser, const struct pipeline *whole, unsigned *ret_copies)
{
	unsigned before = pipeline_view_copies(whole);
	int position = parser->at;
	int64_t copies = 1;

	if (parser_take_mark(parser, '(')) {
		position = parser->at;
		copies = parser_take_integer(parser);
		if (copies < 0)
			return fail_expected(parser, "the number of copies of the view");
		parser_skip_space(parser);
		if (!parser_take_mark(parser, ')'))
			return fail_expected(parser, "')' after the number of copies");
	}
	if (copies == 0)
		return fail(parser, position, "a view has at least 1 copy; leave it out instead");
	if (copies > PIPELINE_VIEWS_MAX || before + (unsigned)copies > PIPELINE_VIEWS_MAX)
		return pipeline_fail(parser->error, -E2BIG, position,
				     "a pipeline has at most %d copies of all views",
				     PIPELINE_VIEWS_MAX);
	*ret_copies = (unsigned)copies;
	return 0;
}

/* Parses what a view adds to the steps before the first one, which `view` begins with. */
static int parse_view_steps(struct parser *parser, struct pipeline *view)
{
	struct parser inner = *parser;
	int r;

	inner.pipeline = view;
	r = parser_steps(&inner, '}');
	if (r == 0 && parser_view_comes(&inner))
		return fail(&inner, inner.at, "a view contains no other views: end it with '}'");
	if (r == 0 && !parser_take_mark(&inner, '}'))
		return fail_expected(&inner, "a transform or '}' in view %s", view->view_name);
	if (r == 0)
		r = parser_check_format(&inner);
	parser->at = inner.at;
	return r;
}

/* Parses a view and adds it to the pipeline, which owns it even after an error. */
static int parse_view(struct parser *parser)
{
	struct pipeline *whole = parser->pipeline;
	char name[PIPELINE_NAME_MAX + 1];
	unsigned copies = 1;

	parser->at += (int)strlen("view");
	parser_skip_space(parser);
	int r = parse_view_name(parser, whole, name);
	if (r == 0)
		r = parse_copies(parser, whole, &copies);
	if (r < 0)
		return r;
	if (!parser_take_mark(parser, '{'))
		return fail_expected(parser, "'{' and the steps of view %s", name);
	struct pipeline *view = malloc(sizeof(*view));
	if (!view)
		return pipeline_fail(parser->error, -ENOMEM, -1, "out of memory");
	*view = *whole;
	memset(view->views, 0, sizeof(view->views));
	view->view_count = 0;
	view->shared_transforms = whole->transform_count;
	view->copies = copies;
	memcpy(view->view_name, name, sizeof(name));
	whole->views[whole->view_count++] = view;
	return parse_view_steps(parser, view);
}

/* Finished pictures of all views are alike but for their size: clients take one format. */
static int check_formats(struct parser *parser, int position)
{
	const struct pipeline *first = parser->pipeline->views[0];
	const struct pipeline *last = parser->pipeline->views[parser->pipeline->view_count - 1];

	if (first->element == last->element && first->layout == last->layout &&
	    first->channels == last->channels)
		return 0;
	return fail(parser, position,
		    "views %s and %s differ in to, layout or channels: write these steps before "
		    "the first view, or alike in all",
		    first->view_name, last->view_name);
}

int parser_views(struct parser *parser)
{
	if (parser->pipeline->batch.position >= 0)
		return parser_fail_views(parser, parser->pipeline->batch.position);
	if (parser->pipeline->paste.position >= 0)
		return parser_fail_views(parser, parser->pipeline->paste.position);
	while (parser->text[parser->at]) {
		int position = parser->at;

		if (!parser_view_comes(parser))
			return fail(parser, parser->at,
				    "only views may follow a view: write the step into one, or "
				    "before the first");
		int r = parse_view(parser);
		if (r == 0)
			r = check_formats(parser, position);
		if (r < 0)
			return r;
	}
	return 0;
}
