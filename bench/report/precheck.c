#include "bench/report/precheck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "format/augment/pipeline.h"
#include "format/packimg.h"
#include "proto/client/connection.h"

static int check_pipeline(const char *pipeline, char *error)
{
	struct pipeline *parsed = NULL;
	struct pipeline_error why = {0};

	if (pipeline_parse_views(pipeline, &parsed, &why) < 0)
		return error_set(error, -EINVAL, "the pipeline \"%.300s\": %s", pipeline, why.text);
	pipeline_free(parsed);
	return 0;
}

static int check_batch(const struct point *point, char *error)
{
	struct packimg *dataset;
	struct packimg_error ignored;

	if (packimg_open(point->dataset, &dataset, &ignored))
		return 0;
	uint64_t samples = packimg_count(dataset);
	packimg_close(dataset);
	if (point->batch_size <= samples)
		return 0;
	return error_set(error, -EINVAL,
			 "%s: %" PRIu64 " samples are fewer than a batch of %u; name a smaller "
			 "batch, such as --batch %" PRIu64,
			 point->dataset, samples, point->batch_size,
			 samples < 128 ? (samples + 1) / 2 : UINT64_C(64));
}

int precheck_points(const struct settings *settings, struct row *rows, size_t count,
		    char error[FEED_ERROR_MAX])
{
	size_t wrong = 0;
	int r = 0;

	for (size_t i = 0; !r && !settings->socket && i < count; i++)
		r = check_pipeline(rows[i].point.pipeline, error);
	for (size_t i = 0; !r && i < count; i++) {
		rows[i].error = check_batch(&rows[i].point, rows[i].text);
		if (rows[i].error && !wrong++)
			snprintf(error, FEED_ERROR_MAX, "%s", rows[i].text);
	}
	return r ? r : wrong == count ? -EINVAL : (int)wrong;
}
