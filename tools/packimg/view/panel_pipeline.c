#include "tools/packimg/view/panel_pipeline.h"

#include "format/augment/frame.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <stdio.h>

static int fix_size(struct panel_pipeline *pipeline, const struct packimg *dataset,
		    struct packimg_error *error)
{
	struct packimg_sample sample;
	struct pipeline_error fault;

	if (pipeline_has_size(pipeline->parsed))
		return 0;
	if (packimg_sample(dataset, 0, &sample))
		return packimg_fail(error, -EBADMSG, "the first index record is damaged");
	int r = pipeline_fix_size(pipeline->parsed, sample.width, sample.height, &fault);
	return r ? packimg_fail(error, r, "--pipeline: %s", fault.text) : 0;
}

static int fix_statistics(struct panel_pipeline *pipeline, const struct packimg *dataset,
			  struct packimg_error *error)
{
	double mean[3], std[3];
	struct pipeline_error fault;

	if (!pipeline_needs_statistics(pipeline->parsed))
		return 0;
	if (packimg_statistics(dataset, mean, std))
		return packimg_fail(error, -EINVAL,
				    "--pipeline: normalize(dataset): the dataset records no "
				    "statistics; give mean= and std=");
	int r = pipeline_fix_statistics(pipeline->parsed, mean, std, &fault);
	return r ? packimg_fail(error, r, "--pipeline: %s", fault.text) : 0;
}

int panel_pipeline_open(struct panel_pipeline *pipeline, const struct packimg *dataset,
			struct packimg_error *error)
{
	struct pipeline_error fault = {.position = -1};
	int r = pipeline_parse(pipeline->text, &pipeline->parsed, &fault);

	if (r && fault.position >= 0)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	if (r)
		return packimg_fail(error, r, "--pipeline: %s", fault.text);
	r = pipeline_check_values(pipeline->parsed, packimg_schema(dataset), &fault);
	if (r)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	r = pipeline_find_boxes(pipeline->parsed, packimg_schema(dataset), &pipeline->boxes,
				&fault);
	if (r)
		return packimg_fail(error, r, "--pipeline: at byte %d: %s", fault.position,
				    fault.text);
	r = fix_size(pipeline, dataset, error);
	r = r ?: fix_statistics(pipeline, dataset, error);
	if (r)
		return r;
	pipeline_shape(pipeline->parsed, pipeline->epoch, &pipeline->shape);
	pipeline->moves_shapes = pipeline_check_frame(pipeline->parsed, true, &fault) == 0;
	if (!pipeline->moves_shapes)
		snprintf(pipeline->refusal, sizeof(pipeline->refusal), "%s", fault.text);
	if (!pipeline->moves_shapes && pipeline->boxes >= 0)
		return packimg_fail(error, -EINVAL, "--pipeline: %s", fault.text);
	pipeline->moves_masks = pipeline_check_frame(pipeline->parsed, false, &fault) == 0;
	if (!pipeline->moves_masks)
		snprintf(pipeline->mask_refusal, sizeof(pipeline->mask_refusal), "%s", fault.text);
	return 0;
}

void panel_pipeline_close(struct panel_pipeline *pipeline)
{
	pipeline_free(pipeline->parsed);
}
