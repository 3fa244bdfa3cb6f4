#include "trainer/algorithms/schedule.h"

#include <math.h>

void schedule_init(struct schedule *schedule, const struct recipe *recipe)
{
	*schedule = (struct schedule){.keys = recipe->schedule, .epochs = recipe->train.epochs};
}

/*
 * Returns a number of periods, rounded to a whole number if it differs only by a rounding error.
 * Positions are quotients of steps and may miss a boundary: 0.3 / 0.1 is slightly less than 3.
 */
static double snap_to_integer(double count)
{
	double whole = round(count);
	return fabs(count - whole) < 1e-12 * fmax(1, whole) ? whole : count;
}

struct cycle {
	double index; /* number of complete periods before this one */
	double phase; /* position within the period, 0 to 1 */
};

/* Returns the period at a position. Each period is `growth` times as long as the previous one. */
static struct cycle cycle_at(double position, double period, double growth)
{
	if (growth == 1) {
		double count = snap_to_integer(position / period);
		return (struct cycle){floor(count), count - floor(count)};
	}
	double index =
		floor(snap_to_integer(log1p(position / period * (growth - 1)) / log(growth)));
	/* total length of the previous periods, in units of the first one */
	double before = (pow(growth, index) - 1) / (growth - 1);
	double phase = (position / period - before) / pow(growth, index);
	return (struct cycle){index, fmin(fmax(phase, 0), 1)};
}

/* ---- schedules ---- */

/* Position in the run. */
struct position {
	const struct recipe_schedule *keys;
	double epoch;
	/* epochs since the end of warm-up; epochs from there to the end of the run */
	double past, length;
	double t; /* past / length, 0 to 1 */
	const struct plateau *plateau;
	/* output of cyclic schedules: position of the rate within its range, 0 to 1 */
	double height;
};

static double constant(struct position *at)
{
	return 1;
}

static double cosine(struct position *at)
{
	double final = at->keys->final, period = at->keys->period;
	struct cycle cycle = {0, at->t};
	/* a restart does not begin at the end of the run: the last period includes it */
	if (period > 0 && at->past < at->length)
		cycle = cycle_at(at->past, period, at->keys->cycle_mul);
	double highest = fmax(final, pow(at->keys->cycle_decay, cycle.index));
	return final + (highest - final) * (1 + cos(M_PI * cycle.phase)) / 2;
}

static double linear(struct position *at)
{
	return 1 - (1 - at->keys->final) * at->t;
}

/* Interpolates between two values after `passed` of `length` epochs. */
static double anneal(const struct position *at, double from, double to, double passed,
		     double length)
{
	if (at->keys->anneal == RECIPE_ANNEAL_COSINE)
		return to + (from - to) * (1 + cos(M_PI * passed / length)) / 2;
	return from + (to - from) * passed / length;
}

/* Rises from `start` to the peak, 1, then falls to `final`. */
static double one_cycle(struct position *at)
{
	double peak = at->keys->peak * at->length, passed = at->past - peak;
	if (at->past < peak) {
		at->height = anneal(at, 0, 1, at->past, peak);
		return anneal(at, at->keys->start, 1, at->past, peak);
	}
	at->height = 1;
	if (at->length <= peak)
		return 1;
	at->height = anneal(at, 1, 0, passed, at->length - peak);
	return anneal(at, 1, at->keys->final, passed, at->length - peak);
}

static double step(struct position *at)
{
	return pow(at->keys->gamma, floor(snap_to_integer(at->epoch / at->keys->step)));
}

static double multi_step(struct position *at)
{
	double factor = 1;
	for (unsigned i = 0; i < at->keys->milestones.count; i++)
		if (at->epoch >= at->keys->milestones.value[i])
			factor *= at->keys->gamma;
	return factor;
}

static double exponential(struct position *at)
{
	return pow(at->keys->gamma, at->epoch);
}

static double polynomial(struct position *at)
{
	return at->keys->final + (1 - at->keys->final) * pow(1 - at->t, at->keys->power);
}

/*
 * In each period, rises from `start` and falls back. The amplitude is scaled by powers of `shrink`.
 */
static double triangle_wave(struct position *at, double shrink, bool by_period)
{
	double low = at->keys->start;
	if (at->length <= 0)
		return low;
	double period = at->keys->period > 0 ? at->keys->period : at->length;
	struct cycle cycle = cycle_at(at->past, period, 1);
	at->height = cycle.phase < 0.5 ? 2 * cycle.phase : 2 - 2 * cycle.phase;
	at->height *= pow(shrink, by_period ? cycle.index : at->past);
	return low + (1 - low) * at->height;
}

static double triangular(struct position *at)
{
	return triangle_wave(at, 1, true);
}

static double triangular2(struct position *at)
{
	return triangle_wave(at, 0.5, true);
}

static double exp_range(struct position *at)
{
	return triangle_wave(at, at->keys->gamma, false);
}

/* Stays at 1, then falls to `final` in the last epochs. */
static double trapezoid(struct position *at)
{
	double decay = at->keys->decay, passed = at->past - (at->length - decay);
	return passed > 0 ? anneal(at, 1, at->keys->final, passed, decay) : 1;
}

static double plateau(struct position *at)
{
	double drops = at->plateau ? (double)at->plateau->drops : 0;
	return fmax(pow(at->keys->gamma, drops), at->keys->final);
}

static double (*const schedules[])(struct position *at) = {
#define FUNCTION(constant, name) name,
	SCHEDULES(FUNCTION)
#undef FUNCTION
};

static double evaluate(const struct schedule *schedule, double epoch, double *ret_height)
{
	const struct recipe_schedule *keys = &schedule->keys;
	struct position at = {
		.keys = keys,
		.length = schedule->epochs - keys->warmup,
		.plateau = schedule->plateau,
	};
	epoch = fmin(keys->by_epoch ? floor(epoch) : epoch, schedule->epochs);
	at.epoch = fmax(epoch, keys->warmup);
	at.past = at.epoch - keys->warmup;
	at.t = at.length > 0 ? at.past / at.length : 0;
	double factor = schedules[keys->name](&at);
	*ret_height = at.height;
	if (epoch >= keys->warmup)
		return factor;
	return keys->warmup_from * factor + (1 - keys->warmup_from) * factor * epoch / keys->warmup;
}

double schedule_factor(const struct schedule *schedule, double epoch)
{
	double height;
	return evaluate(schedule, epoch, &height);
}

double schedule_momentum(const struct schedule *schedule, double epoch, double highest)
{
	double height, base = schedule->keys.base_momentum;
	evaluate(schedule, epoch, &height);
	return base > 0 ? highest - (highest - base) * height : highest;
}
