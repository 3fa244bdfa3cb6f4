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

/* Checks the factors of [epoch, factor] pairs. */
static void factors(const char *settings, const double (*points)[2], size_t count)
{
	char text[512];
	snprintf(text, sizeof(text), "schedule.name=%s", settings);
	struct schedule s = make(text);
	for (size_t i = 0; i < count; i++) {
		double factor = schedule_factor(&s, points[i][0]);
		if (!(fabs(factor - points[i][1]) <= 1e-12 * (1 + fabs(points[i][1]))))
			fail_msg("%s: %.17g at epoch %g is not %.17g", settings, factor,
				 points[i][0], points[i][1]);
	}
}

#define FACTORS(settings, ...)                                                                     \
	factors(settings, (const double[][2]){__VA_ARGS__},                                        \
		sizeof((const double[][2]){__VA_ARGS__}) / sizeof(double[2]))

TEST(closed_forms)
{
	FACTORS("constant train.epochs=10", {0, 1}, {9.9, 1});
	FACTORS("cosine train.epochs=10 schedule.final=0.2", {0, 1}, {5, 0.6},
		{10.0 / 3, 0.2 + 0.8 * 0.75}, {10, 0.2}, {50, 0.2});
	FACTORS("linear train.epochs=12 schedule.warmup=2 schedule.warmup_from=0.1 "
		"schedule.final=0.5",
		{0, 0.1}, {1, 0.55}, {2, 1}, {7, 0.75}, {12, 0.5});
	FACTORS("polynomial train.epochs=4 schedule.power=2", {0, 1}, {1, 9.0 / 16}, {3, 1.0 / 16},
		{4, 0});
	/* epochs count from the start of the run, so warm-up does not move the drops */
	FACTORS("step train.epochs=90 schedule.step=30 schedule.gamma=0.1 schedule.warmup=5",
		{2.5, 0.5}, {5, 1}, {29.999, 1}, {30, 0.1}, {60, 0.01}, {90, 0.001});
	FACTORS("multi_step train.epochs=20 schedule.gamma=0.5 schedule.milestones=3,7.5,15",
		{2.9, 1}, {3, 0.5}, {7.4, 0.5}, {7.5, 0.25}, {15, 0.125});
	FACTORS("exponential train.epochs=1 schedule.gamma=1e6", {0, 1}, {0.5, 1e3}, {1, 1e6});
	for (int epoch = 0; epoch <= 20; epoch++)
		FACTORS("exponential train.epochs=20 schedule.gamma=0.9", {epoch, pow(0.9, epoch)});
	FACTORS("one_cycle train.epochs=20 schedule.peak=0.25 schedule.start=0.2 "
		"schedule.final=0.1",
		{0, 0.2}, {2.5, 0.6}, {5, 1}, {12.5, 0.55}, {20, 0.1});
	FACTORS("one_cycle train.epochs=10 schedule.peak=1 schedule.start=0", {5, 0.5}, {10, 1});
	FACTORS("one_cycle train.epochs=10 schedule.peak=0", {0, 1}, {10, 0});
	FACTORS("trapezoid train.epochs=10 schedule.warmup=2 schedule.decay=4 schedule.final=0.2",
		{1, 0.5}, {6, 1}, {7, 0.8}, {10, 0.2});
	FACTORS("trapezoid train.epochs=10 schedule.decay=4 schedule.anneal=cosine", {8, 0.5},
		{6 + 4.0 / 3, 0.75});
}

/*
 * Cyclic schedules: waves, also with amplitudes that halve per period or decay by epoch; restarts,
 * also with periods that grow or whose boundaries are not exact in binary.
 */
TEST(closed_forms_of_periods)
{
	FACTORS("triangular train.epochs=8 schedule.period=4 schedule.start=0.5", {0, 0.5},
		{1, 0.75}, {2, 1}, {3, 0.75}, {5, 0.75}, {6, 1});
	FACTORS("triangular2 train.epochs=13 schedule.period=4 schedule.start=0.5 "
		"schedule.warmup=1",
		{3, 1}, {5, 0.5}, {7, 0.75}, {10, 0.5625});
	FACTORS("exp_range train.epochs=13 schedule.period=4 schedule.start=0.5 schedule.warmup=1 "
		"schedule.gamma=0.9",
		{3, 0.5 + 0.5 * 0.81}, {8, 0.5 + 0.25 * pow(0.9, 7)});
	FACTORS("cosine train.epochs=9 schedule.period=3", {1.5, 0.5}, {2, 0.25}, {3, 1},
		{4.5, 0.5}, {9, 0});
	FACTORS("cosine train.epochs=40 schedule.period=1 schedule.cycle_mul=3 "
		"schedule.cycle_decay=0.5",
		{0.5, 0.5}, {1, 0.5}, {2.5, 0.25}, {4, 0.25}, {8.5, 0.125}, {40, 0});
	FACTORS("cosine train.epochs=4 schedule.period=0.1 schedule.cycle_mul=2", {0.3, 1},
		{0.7, 1}, {1.5, 1}, {1.1, 0.5});
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

/* With by_epoch, the rate of every schedule is constant within an epoch, also during warm-up. */
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

/*
 * The rate drops to no less than `final` if evaluations do not improve, with a cooldown after each
 * drop.
 */
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

/* Momentum is constant without base_momentum; otherwise it moves opposite to the rate. */
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

/* In every schedule, the rate does not jump at the end of warm-up. */
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
