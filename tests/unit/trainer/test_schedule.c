/* Every schedule against its closed form, derived by hand or from an independent recurrence. */
#include "tests/test.h"
#include "trainer/algorithms/schedule.h"

#include <math.h>

static struct schedule make(const char *settings)
{
	char error[RECIPE_ERROR_MAX], text[512];
	struct recipe recipe;
	assert_int_equal(recipe_init(&recipe), 0);
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if (recipe_override(&recipe, word, error))
			fail_msg("%s", error);
	struct schedule schedule;
	schedule_init(&schedule, &recipe);
	recipe_deinit(&recipe);
	return schedule;
}

static void near(double a, double b)
{
	if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b))))
		fail_msg("%.17g is not %.17g", a, b);
}

TEST(constant)
{
	struct schedule s = make("schedule.name=constant train.epochs=10");
	near(schedule_factor(&s, 0), 1);
	near(schedule_factor(&s, 9.9), 1);
}

TEST(cosine)
{
	struct schedule s = make("schedule.name=cosine train.epochs=10 schedule.final=0.2");
	near(schedule_factor(&s, 0), 1);
	near(schedule_factor(&s, 5), 0.6);
	near(schedule_factor(&s, 10.0 / 3), 0.2 + 0.8 * 0.75);
	near(schedule_factor(&s, 10), 0.2);
	near(schedule_factor(&s, 50), 0.2);
}

TEST(cosine_restarts)
{
	struct schedule s = make("schedule.name=cosine train.epochs=9 schedule.period=3");
	near(schedule_factor(&s, 1.5), 0.5);
	near(schedule_factor(&s, 2), 0.25);
	near(schedule_factor(&s, 3), 1);
	near(schedule_factor(&s, 4.5), 0.5);
	near(schedule_factor(&s, 9), 0);
}

/*
 * A step on a boundary belongs to the period that begins there, even if the boundary is not exact
 * in binary.
 */
TEST(boundaries_at_fractions)
{
	struct schedule drops = make("schedule.name=step train.epochs=3 schedule.step=0.1 "
				     "schedule.gamma=0.5");
	struct schedule restarts = make("schedule.name=cosine train.epochs=4 schedule.period=0.1 "
					"schedule.warmup=0.7");
	struct schedule waves = make("schedule.name=triangular train.epochs=3 schedule.period=0.1 "
				     "schedule.start=0.25");
	for (int i = 0; i < 30; i++) {
		near(schedule_factor(&drops, i / 10.0), pow(0.5, i));
		near(schedule_factor(&drops, (10 * i + 9) / 100.0), pow(0.5, i));
		near(schedule_factor(&restarts, (i + 7) / 10.0), 1);
		near(schedule_factor(&waves, i / 10.0), 0.25);
		near(schedule_factor(&waves, (2 * i + 1) / 20.0), 1);
	}
}

TEST(linear_with_warmup)
{
	struct schedule s = make("schedule.name=linear train.epochs=12 schedule.warmup=2 "
				 "schedule.warmup_from=0.1 schedule.final=0.5");
	near(schedule_factor(&s, 0), 0.1);
	near(schedule_factor(&s, 1), 0.55);
	near(schedule_factor(&s, 2), 1);
	near(schedule_factor(&s, 7), 0.75);
	near(schedule_factor(&s, 12), 0.5);
}

TEST(polynomial)
{
	struct schedule s = make("schedule.name=polynomial train.epochs=4 schedule.power=2");
	near(schedule_factor(&s, 0), 1);
	near(schedule_factor(&s, 1), 9.0 / 16);
	near(schedule_factor(&s, 3), 1.0 / 16);
	near(schedule_factor(&s, 4), 0);
}

/* Drops count from the start of the run, so warm-up does not move them. */
TEST(step_with_warmup)
{
	struct schedule s = make("schedule.name=step train.epochs=90 schedule.step=30 "
				 "schedule.gamma=0.1 schedule.warmup=5");
	near(schedule_factor(&s, 2.5), 0.5);
	near(schedule_factor(&s, 5), 1);
	near(schedule_factor(&s, 29.999), 1);
	near(schedule_factor(&s, 30), 0.1);
	near(schedule_factor(&s, 60), 0.01);
	near(schedule_factor(&s, 90), 0.001);
}

TEST(multi_step)
{
	struct schedule s = make("schedule.name=multi_step train.epochs=20 schedule.gamma=0.5 "
				 "schedule.milestones=3,7.5,15");
	near(schedule_factor(&s, 2.9), 1);
	near(schedule_factor(&s, 3), 0.5);
	near(schedule_factor(&s, 7.4), 0.5);
	near(schedule_factor(&s, 7.5), 0.25);
	near(schedule_factor(&s, 15), 0.125);
}

TEST(exponential)
{
	struct schedule s = make("schedule.name=exponential train.epochs=1 schedule.gamma=1e6");
	near(schedule_factor(&s, 0), 1);
	near(schedule_factor(&s, 0.5), 1e3);
	near(schedule_factor(&s, 1), 1e6);
	s = make("schedule.name=exponential train.epochs=20 schedule.gamma=0.9");
	double expected = 1;
	for (int epoch = 0; epoch <= 20; epoch++, expected *= 0.9)
		near(schedule_factor(&s, epoch), expected);
}

TEST(one_cycle)
{
	struct schedule s = make("schedule.name=one_cycle train.epochs=20 schedule.peak=0.25 "
				 "schedule.start=0.2 schedule.final=0.1");
	near(schedule_factor(&s, 0), 0.2);
	near(schedule_factor(&s, 2.5), 0.6);
	near(schedule_factor(&s, 5), 1);
	near(schedule_factor(&s, 12.5), 0.55);
	near(schedule_factor(&s, 20), 0.1);
	s = make("schedule.name=one_cycle train.epochs=10 schedule.peak=1 schedule.start=0");
	near(schedule_factor(&s, 5), 0.5);
	near(schedule_factor(&s, 10), 1);
	s = make("schedule.name=one_cycle train.epochs=10 schedule.peak=0");
	near(schedule_factor(&s, 0), 1);
	near(schedule_factor(&s, 10), 0);
}

TEST(triangular)
{
	struct schedule s = make(
		"schedule.name=triangular train.epochs=8 schedule.period=4 schedule.start=0.5");
	near(schedule_factor(&s, 0), 0.5);
	near(schedule_factor(&s, 1), 0.75);
	near(schedule_factor(&s, 2), 1);
	near(schedule_factor(&s, 3), 0.75);
	near(schedule_factor(&s, 5), 0.75);
	near(schedule_factor(&s, 6), 1);
}

/* Waves that halve each time, and waves that shrink by a power of the epochs since warm-up. */
TEST(waves_that_shrink)
{
	struct schedule s = make("schedule.name=triangular2 train.epochs=13 schedule.period=4 "
				 "schedule.start=0.5 schedule.warmup=1");
	near(schedule_factor(&s, 3), 1);
	near(schedule_factor(&s, 5), 0.5);
	near(schedule_factor(&s, 7), 0.75);
	near(schedule_factor(&s, 10), 0.5625);
	s = make("schedule.name=exp_range train.epochs=13 schedule.period=4 schedule.start=0.5 "
		 "schedule.warmup=1 schedule.gamma=0.9");
	near(schedule_factor(&s, 3), 0.5 + 0.5 * 0.81);
	near(schedule_factor(&s, 8), 0.5 + 0.25 * pow(0.9, 7));
}

/*
 * Periods of 1, 3 and 9 epochs, and periods that begin with 0.1, whose boundaries are not exact in
 * binary.
 */
TEST(periods_that_grow)
{
	struct schedule s = make("schedule.name=cosine train.epochs=40 schedule.period=1 "
				 "schedule.cycle_mul=3 schedule.cycle_decay=0.5");
	near(schedule_factor(&s, 0.5), 0.5);
	near(schedule_factor(&s, 1), 0.5);
	near(schedule_factor(&s, 2.5), 0.25);
	near(schedule_factor(&s, 4), 0.25);
	near(schedule_factor(&s, 8.5), 0.125);
	near(schedule_factor(&s, 40), 0);
	s = make("schedule.name=cosine train.epochs=4 schedule.period=0.1 schedule.cycle_mul=2");
	near(schedule_factor(&s, 0.3), 1);
	near(schedule_factor(&s, 0.7), 1);
	near(schedule_factor(&s, 1.5), 1);
	near(schedule_factor(&s, 1.1), 0.5);
}

TEST(trapezoid)
{
	struct schedule s = make("schedule.name=trapezoid train.epochs=10 schedule.warmup=2 "
				 "schedule.decay=4 schedule.final=0.2");
	near(schedule_factor(&s, 1), 0.5);
	near(schedule_factor(&s, 6), 1);
	near(schedule_factor(&s, 7), 0.8);
	near(schedule_factor(&s, 10), 0.2);
	s = make("schedule.name=trapezoid train.epochs=10 schedule.decay=4 schedule.anneal=cosine");
	near(schedule_factor(&s, 8), 0.5);
	near(schedule_factor(&s, 6 + 4.0 / 3), 0.75);
}

/* The rate is constant within an epoch for every schedule, also during warm-up. */
TEST(by_epoch)
{
	static const char settings[] = "schedule.name=one_cycle train.epochs=20 schedule.peak=0.5 "
				       "schedule.warmup=3 schedule.base_momentum=0.8";
	char text[256];
	snprintf(text, sizeof(text), "%s schedule.by_epoch=true", settings);
	struct schedule every = make(settings), held = make(text);
	for (int i = 0; i < 200; i++) {
		double epoch = i / 10, at = i / 10.0;
		near(schedule_factor(&held, at), schedule_factor(&every, epoch));
		near(schedule_momentum(&held, at, 0.9), schedule_momentum(&every, epoch, 0.9));
	}
	assert_true(schedule_factor(&every, 4.5) > schedule_factor(&held, 4.5));
}

/* The rate drops if evaluations do not improve, down to `final`, with a cooldown between drops. */
TEST(plateau)
{
	struct schedule s = make("schedule.name=plateau train.epochs=20 schedule.gamma=0.1 "
				 "schedule.patience=1 schedule.cooldown=1 schedule.final=0.05 "
				 "schedule.threshold=0.1 schedule.warmup=2");
	static const double losses[] = {NAN, 2, 1.9, 1.7, 1.6, 1.6, 1.6, 1.6, 1.6, 1.4};
	static const unsigned drops[] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 2};
	struct plateau plateau = {0};
	near(schedule_factor(&s, 3), 1);
	s.plateau = &plateau;
	for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++) {
		plateau_evaluated(&plateau, &s.keys, losses[i], 0);
		assert_int_equal(plateau.drops, drops[i]);
		near(schedule_factor(&s, 3), drops[i] ? drops[i] == 1 ? 0.1 : 0.05 : 1);
		near(schedule_factor(&s, 1), schedule_factor(&s, 3) / 2);
	}
	assert_true(plateau.best == 1.4 && plateau.improved == 3);
}

/* Momentum is unchanged without base_momentum; otherwise it moves opposite to the rate. */
TEST(momentum)
{
	struct schedule s = make("schedule.name=one_cycle train.epochs=20 schedule.peak=0.25 "
				 "schedule.base_momentum=0.85");
	near(schedule_momentum(&s, 0, 0.95), 0.95);
	near(schedule_momentum(&s, 5, 0.95), 0.85);
	near(schedule_momentum(&s, 12.5, 0.95), 0.9);
	near(schedule_momentum(&s, 20, 0.95), 0.95);
	s = make("schedule.name=one_cycle train.epochs=20 schedule.peak=0.25");
	assert_true(schedule_momentum(&s, 5, 0.95) == 0.95);
}

/* Warm-up joins every schedule without a jump. */
TEST(warmup_is_continuous)
{
	static const char *const names[] = {
		"constant",   "cosine",      "linear",     "one_cycle",  "step",
		"multi_step", "exponential", "polynomial", "triangular", "triangular2",
		"exp_range",  "trapezoid",   "plateau"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char text[256];
		snprintf(text, sizeof(text),
			 "schedule.name=%s train.epochs=50 schedule.warmup=3 "
			 "schedule.milestones=20,40",
			 names[i]);
		struct schedule s = make(text);
		double before = schedule_factor(&s, 3 - 1e-9), after = schedule_factor(&s, 3);
		if (fabs(before - after) > 1e-6)
			fail_msg("%s jumps from %g to %g", names[i], before, after);
		near(schedule_factor(&s, 0), 0);
	}
}

TEST(empty_run)
{
	static const char *const names[] = {"cosine",     "linear",      "one_cycle",
					    "triangular", "triangular2", "exp_range",
					    "polynomial", "trapezoid",   "plateau"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char text[256];
		snprintf(text, sizeof(text), "schedule.name=%s train.epochs=0", names[i]);
		struct schedule s = make(text);
		assert_true(isfinite(schedule_factor(&s, 0)));
	}
}
