#include "bench/report/views.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/client/connection.h"

static const char blanks[] = " \t\r\n";

/* Returns the start of the next view at or after `text`, or the end of the text. */
static const char *view_begin(const char *text)
{
	int depth = 0;

	for (const char *at = text; *at; at++) {
		int begins = at == text || strchr(" \t\r\n})", at[-1]);

		depth += (*at == '(') - (*at == ')');
		if (depth == 0 && begins && strncmp(at, "view", 4) == 0 && strchr(blanks, at[4]))
			return at;
	}
	return text + strlen(text);
}

static const char *view_end(const char *view)
{
	const char *end = strchr(view, '}');

	return end ? end + 1 : view + strlen(view);
}

/* Writes the view's name and number, "global(2)", without blanks. */
static void name_view(const char *view, const char *end, char *text, size_t size)
{
	size_t used = 0;

	for (const char *at = view + 4; at < end && *at != '{' && used + 1 < size; at++)
		if (!strchr(blanks, *at))
			text[used++] = *at;
	text[used] = '\0';
}

static int measure_one(const struct settings *settings, const struct point *point, const char *view,
		       struct view_cost *cost, char *error)
{
	const char *common_end = view_begin(point->pipeline), *end = view_end(view);
	struct measurement measured = {0};
	struct point alone = *point;
	char *pipeline = malloc(strlen(point->pipeline) + 2);

	if (!pipeline)
		return error_set(error, -ENOMEM, "out of memory");
	sprintf(pipeline, "%.*s%.*s", (int)(common_end - point->pipeline), point->pipeline,
		(int)(end - view), view);
	alone.pipeline = pipeline;
	int r = point_measure(settings, &alone, &measured, error);
	for (enum stage i = 0; r == 0 && i < STAGE_WORK_COUNT; i++)
		cost->cpu_us += measured.stage_us[i];
	name_view(view, end, cost->text, sizeof(cost->text));
	free(pipeline);
	return r;
}

bool pipeline_text_has_views(const char *pipeline)
{
	return *view_begin(pipeline) != '\0';
}

int view_costs_measure(const struct settings *settings, const struct point *point,
		       struct view_costs *ret_costs, char *error)
{
	struct view_costs costs = {0};
	const char *first = view_begin(point->pipeline);

	if (*first == '\0' || *view_begin(view_end(first)) == '\0') {
		*ret_costs = costs;
		return 0;
	}
	for (const char *view = first; *view && costs.count < PIPELINE_VIEWS_MAX;
	     view = view_begin(view_end(view))) {
		int r = measure_one(settings, point, view, &costs.views[costs.count++], error);
		if (r)
			return r;
	}
	*ret_costs = costs;
	return 0;
}

void view_costs_text(const struct view_costs *costs, double together_us, FILE *out)
{
	double sum = 0;

	if (costs->count == 0)
		return;
	fprintf(out, "\nCPU time per sample with each view alone\n");
	for (unsigned i = 0; i < costs->count; i++) {
		fprintf(out, "  %-16s %9.1f us\n", costs->views[i].text, costs->views[i].cpu_us);
		sum += costs->views[i].cpu_us;
	}
	fprintf(out,
		"Together they take %.1f us, %.0f %% of the sum: what they share is done once.\n",
		together_us, 100 * together_us / sum);
}

json_t *view_costs_json(const struct view_costs *costs)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < costs->count; i++)
		json_array_append_new(list, json_pack("{s:s, s:f}", "view", costs->views[i].text,
						      "cpu_us", costs->views[i].cpu_us));
	return list;
}
