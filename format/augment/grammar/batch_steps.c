/* Steps for finished samples, at the end of a pipeline: copy_paste, mixup, cutmix and targets. */
#include "format/augment/grammar/parser.h"

#include <errno.h>

int parser_fail_views(struct parser *parser, int position)
{
	return fail(parser, position,
		    "copy_paste, mixup, cutmix and targets are for pipelines that make one image "
		    "of each sample: leave them or the views out");
}

int parser_check_last(struct parser *parser, const struct rule *rule, int position)
{
	if (parser->pipeline->paste.position >= 0)
		return fail(parser, position,
			    "%s must stand before copy_paste, which acts on finished samples",
			    rule->name);
	if (parser->pipeline->batch.position < 0)
		return 0;
	return fail(parser, position,
		    "%s must stand before mixup, cutmix and targets, which act on batches of "
		    "finished samples",
		    rule->name);
}

static int set_targets(struct parser *parser, const struct transform *transform)
{
	struct pipeline_batch *batch = &parser->pipeline->batch;
	const struct transform_batch *given = &transform->batch;

	batch->targets = given->pairs ? PIPELINE_TARGETS_PAIRS : PIPELINE_TARGETS_DENSE;
	batch->label_smoothing = given->smoothing;
	batch->classes = given->counts ? given->classes : 0;
	if (given->pairs && (given->smoothing > 0 || given->counts))
		return fail(parser, transform->position,
			    "targets(pairs) is labels, which need no number of classes and take no "
			    "smoothing: leave %s out%s",
			    given->smoothing > 0 ? "label_smoothing" : "num_classes",
			    given->smoothing > 0 ? ", and smooth in the loss" : "");
	return 0;
}

static int set_paste(struct parser *parser, const struct rule *rule,
		     const struct transform *transform)
{
	struct pipeline *pipeline = parser->pipeline;

	if (pipeline->paste.position >= 0)
		return fail(parser, transform->position, "%s is given twice", rule->name);
	if (pipeline->batch.position >= 0)
		return parser_check_last(parser, rule, transform->position);
	pipeline->paste = transform->paste;
	pipeline->paste.position = transform->position;
	pipeline->paste.values = transform->values;
	pipeline->paste.probability = transform->probability;
	return 0;
}

int parser_batch_step(struct parser *parser, const struct rule *rule,
		      const struct transform *transform)
{
	struct pipeline *pipeline = parser->pipeline;
	struct pipeline_batch *batch = &pipeline->batch;
	bool cuts = rule->kind == TRANSFORM_CUTMIX;
	double *alpha = cuts ? &batch->mix.cutmix : &batch->mix.mixup;

	if (pipeline->view_name[0])
		return parser_fail_views(parser, transform->position);
	if (rule->kind == TRANSFORM_COPY_PASTE)
		return set_paste(parser, rule, transform);
	if (rule->kind == TRANSFORM_TARGETS ? batch->targets != PIPELINE_NO_TARGETS : *alpha > 0)
		return fail(parser, transform->position, "%s is given twice", rule->name);
	if (batch->position < 0)
		batch->position = transform->position;
	if (rule->kind == TRANSFORM_TARGETS)
		return set_targets(parser, transform);
	*alpha = transform->batch.alpha;
	if (transform->batch.chance)
		pipeline->batch_p[cuts] = transform->probability;
	return 0;
}

/* Shares what the given probabilities leave among the methods for which none is given. */
static int set_probabilities(struct parser *parser)
{
	struct pipeline *pipeline = parser->pipeline;
	struct mix_rule *rule = &pipeline->batch.mix;
	const bool on[2] = {rule->mixup > 0, rule->cutmix > 0};
	double *p = pipeline->batch_p, left = 1;
	int open = 0;

	for (int i = 0; i < 2; i++) {
		open += on[i] && p[i] < 0;
		left -= on[i] && p[i] > 0 ? p[i] : 0;
	}
	if (left < -1e-9)
		return fail(parser, pipeline->batch.position,
			    "a batch is mixed by mixup or by cutmix, so that their p of %.7g and "
			    "%.7g may add up to 1 at most",
			    p[0], p[1]);
	for (int i = 0; i < 2; i++)
		p[i] = !on[i] ? 0 : p[i] < 0 ? left / open : p[i];
	rule->prob = p[0] + p[1];
	rule->switch_prob = rule->prob > 0 ? p[1] / rule->prob : 0;
	return 0;
}

int parser_check_batch(struct parser *parser)
{
	struct pipeline_batch *batch = &parser->pipeline->batch;

	if (batch->position < 0)
		return 0;
	if (batch->targets == PIPELINE_NO_TARGETS)
		batch->targets = PIPELINE_TARGETS_DENSE;
	return pipeline_mixes(parser->pipeline) ? set_probabilities(parser) : 0;
}
