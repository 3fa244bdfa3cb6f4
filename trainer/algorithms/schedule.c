#include "trainer/algorithms/schedule.h"

#include <math.h>

void schedule_init(struct schedule *schedule, const struct recipe *recipe)
{
	*schedule = (struct schedule){.keys = recipe->schedule, .epochs = recipe->train.epochs};
}

/*
 * Periods that have passed. Positions are quotients of steps, so that a boundary may be missed by a
 * rounding: 0.3 / 0.1 is a little less than 3. What differs from a whole number by no more counts
 * as that number.
 */
static double periods(double position, double period)
{
	double count = position / period, whole = round(count);
	return fabs(count - whole) < 1e-12 * fmax(1, whole) ? whole : count;
}

/* How much of the current one has. */
static double phase_of(double position, double period)
{
	double count = periods(position, period);
	return count - floor(count);
}

/* ---- the schedules proper ---- */

/* Where the run stands. */
struct position {
	const struct recipe_schedule *keys;
	double epoch;
	double past, length; /* epochs since the end of warm-up, and until the end of the run */
	double t;            /* the share that has passed, 0 to 1 */
};

static double constant(const struct position *at)
{
	return 1;
}

static double cosine(const struct position *at)
{
	double final = at->keys->final, period = at->keys->period;
	/* The run's very end belongs to the last period, not to a new one. */
	double t = period > 0 && at->past < at->length ? phase_of(at->past, period) : at->t;
	return final + (1 - final) * (1 + cos(M_PI * t)) / 2;
}

static double linear(const struct position *at)
{
	return 1 - (1 - at->keys->final) * at->t;
}

/* Straight from start to 1 at the peak, then straight to final. */
static double one_cycle(const struct position *at)
{
	double peak = at->keys->peak * at->length, start = at->keys->start;
	if (at->past < peak)
		return start + (1 - start) * at->past / peak;
	if (at->length <= peak)
		return 1;
	return 1 - (1 - at->keys->final) * (at->past - peak) / (at->length - peak);
}

static double step(const struct position *at)
{
	return pow(at->keys->gamma, floor(periods(at->epoch, at->keys->step)));
}

static double multi_step(const struct position *at)
{
	double factor = 1;
	for (unsigned i = 0; i < at->keys->milestones.count; i++)
		if (at->epoch >= at->keys->milestones.value[i])
			factor *= at->keys->gamma;
	return factor;
}

static double exponential(const struct position *at)
{
	return pow(at->keys->gamma, at->epoch);
}

static double polynomial(const struct position *at)
{
	return at->keys->final + (1 - at->keys->final) * pow(1 - at->t, at->keys->power);
}

/* From start to 1 and back in each period. */
static double triangular(const struct position *at)
{
	double low = at->keys->start;
	if (at->length <= 0)
		return low;
	double phase = phase_of(at->past, at->keys->period > 0 ? at->keys->period : at->length);
	return low + (1 - low) * (phase < 0.5 ? 2 * phase : 2 - 2 * phase);
}

static double (*const schedules[])(const struct position *at) = {
#define FUNCTION(constant, name) name,
	SCHEDULES(FUNCTION)
#undef FUNCTION
};

double schedule_factor(const struct schedule *schedule, double epoch)
{
	const struct recipe_schedule *keys = &schedule->keys;
	double (*proper)(const struct position *at) = schedules[keys->name];
	struct position at = {.keys = keys, .length = schedule->epochs - keys->warmup};
	epoch = fmin(epoch, schedule->epochs);
	at.epoch = fmax(epoch, keys->warmup);
	at.past = at.epoch - keys->warmup;
	at.t = at.length > 0 ? at.past / at.length : 0;
	double factor = proper(&at);
	if (epoch >= keys->warmup)
		return factor;
	return keys->warmup_from * factor + (1 - keys->warmup_from) * factor * epoch / keys->warmup;
}
