#include "trainer/algorithms/schedule.h"

#include <math.h>

void schedule_init(struct schedule *schedule, const struct recipe *recipe)
{
	const struct recipe_schedule_keys *keys = &recipe->schedule;
	*schedule = (struct schedule){
		.name = (enum recipe_schedule)keys->name,
		.epochs = recipe->train.epochs,
		.warmup = keys->warmup,
		.warmup_from = keys->warmup_from,
		.final = keys->final,
		.step = keys->step,
		.gamma = keys->gamma,
		.milestones = keys->milestones,
		.power = keys->power,
		.peak = keys->peak * (recipe->train.epochs - keys->warmup),
		.start = keys->start,
		.period = keys->period,
	};
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

static double triangle(double position, double period, double low)
{
	double phase = phase_of(position, period);
	double height = phase < 0.5 ? 2 * phase : 2 - 2 * phase;
	return low + (1 - low) * height;
}

/* past: epochs since the end of warm-up, of `length`. */
static double proper(const struct schedule *schedule, double epoch, double past, double length)
{
	double t = length > 0 ? past / length : 0;
	double final = schedule->final;
	switch (schedule->name) {
	case RECIPE_CONSTANT:
		return 1;
	case RECIPE_COSINE:
		/* The run's very end belongs to the last period, not to a new one. */
		if (schedule->period > 0 && past < length)
			t = phase_of(past, schedule->period);
		return final + (1 - final) * (1 + cos(M_PI * t)) / 2;
	case RECIPE_LINEAR:
		return 1 - (1 - final) * t;
	case RECIPE_ONE_CYCLE:
		if (past < schedule->peak)
			return schedule->start + (1 - schedule->start) * past / schedule->peak;
		if (length <= schedule->peak)
			return 1;
		return 1 - (1 - final) * (past - schedule->peak) / (length - schedule->peak);
	case RECIPE_STEP:
		return pow(schedule->gamma, floor(periods(epoch, schedule->step)));
	case RECIPE_MULTI_STEP: {
		double factor = 1;
		for (unsigned i = 0; i < schedule->milestones.count; i++)
			if (epoch >= schedule->milestones.value[i])
				factor *= schedule->gamma;
		return factor;
	}
	case RECIPE_EXPONENTIAL:
		return pow(schedule->gamma, epoch);
	case RECIPE_POLYNOMIAL:
		return final + (1 - final) * pow(1 - t, schedule->power);
	case RECIPE_TRIANGULAR:
		if (length <= 0)
			return schedule->start;
		return triangle(past, schedule->period > 0 ? schedule->period : length,
				schedule->start);
	}
	return 1;
}

double schedule_factor(const struct schedule *schedule, double epoch)
{
	if (epoch > schedule->epochs)
		epoch = schedule->epochs;
	double length = schedule->epochs - schedule->warmup;
	if (epoch < schedule->warmup) {
		double goal = proper(schedule, schedule->warmup, 0, length);
		return schedule->warmup_from * goal +
		       (1 - schedule->warmup_from) * goal * epoch / schedule->warmup;
	}
	return proper(schedule, epoch, epoch - schedule->warmup, length);
}
