#include "draw.h"

#include <assert.h>

static double uniform(struct random_stream *random, const double range[2])
{
	return range[0] + (range[1] - range[0]) * (double)random_float(random);
}

static struct effect *append(struct effect_list *list, enum effect_kind kind)
{
	assert(list->count < EFFECTS_MAX);
	struct effect *effect = &list->effects[list->count++];

	*effect = (struct effect){.kind = kind};
	return effect;
}

/* torchvision's ColorJitter: an order, then a factor for each. */
static void draw_jitter(const struct step *step, struct random_stream *random,
			struct effect_list *list)
{
	static const enum effect_kind kinds[STEP_JITTERS] = {EFFECT_BRIGHTNESS, EFFECT_CONTRAST,
							     EFFECT_SATURATION, EFFECT_HUE};
	unsigned order[STEP_JITTERS] = {0, 1, 2, 3};
	double factors[STEP_JITTERS];

	for (unsigned i = STEP_JITTERS - 1; i > 0; i--) {
		unsigned j = random_below(random, i + 1), kept = order[i];

		order[i] = order[j];
		order[j] = kept;
	}
	for (unsigned i = 0; i < STEP_JITTERS; i++)
		factors[i] = uniform(random, step->jitter[i]);
	for (unsigned i = 0; i < STEP_JITTERS; i++) {
		unsigned which = order[i];
		double neutral = which == STEP_JITTER_HUE ? 0 : 1;

		if (step->jitter[which][0] != neutral || step->jitter[which][1] != neutral)
			append(list, kinds[which])->factor = factors[which];
	}
}

unsigned draw_effects_max(const struct step *step)
{
	return step->kind == STEP_COLOR_JITTER ? STEP_JITTERS : 1;
}

void draw_effects(const struct step *step, uint32_t width, uint32_t height,
		  struct random_stream *random, struct effect_list *list)
{
	if ((double)random_float(random) >= step->probability)
		return;
	switch (step->kind) {
	case STEP_COLOR_JITTER:
		draw_jitter(step, random, list);
		return;
	case STEP_GRAYSCALE:
		append(list, EFFECT_GRAYSCALE);
		return;
	case STEP_INVERT:
		append(list, EFFECT_INVERT);
		return;
	case STEP_SOLARIZE:
		append(list, EFFECT_SOLARIZE)->factor = step->amount;
		return;
	case STEP_POSTERIZE:
		append(list, EFFECT_POSTERIZE)->bits = (unsigned)step->amount;
		return;
	case STEP_AUTOCONTRAST:
		append(list, EFFECT_AUTOCONTRAST);
		return;
	case STEP_EQUALIZE:
		append(list, EFFECT_EQUALIZE);
		return;
	default:
		return;
	}
}
