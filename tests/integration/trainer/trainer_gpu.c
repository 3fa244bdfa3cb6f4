/*
 * Runs on an emulated GPU: access to batches, reports of patterns without a plan, minimum number of
 * slots.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <math.h>
#include <signal.h>

static void expect_batches(const char *run, const char *how)
{
	json_t *line = start_event(run);
	assert_string_equal(json_string_value(json_object_get(line, "batches")), how);
	json_decref(line);
}

/*
 * Each step's MFU must follow from its rate and the FLOP count that the trainer prints. The
 * emulated GPU has 4 x 128 x 2 FLOP per cycle at 1 GHz in fp32.
 */
static void check_mfu(const char *run)
{
	const char *step = strstr(said, "step     ");
	double gflop = step ? strtod(step + 9, NULL) : 0;
	char line[8192];
	unsigned steps = 0;
	FILE *file = fopen(run_path(run, "log.jsonl"), "r");
	assert_non_null(file);
	assert_true(gflop > 0);
	expect_output("MFU ");
	while (fgets(line, sizeof(line), file)) {
		json_t *json = json_loads(line, 0, NULL);
		const char *event = json_string_value(json_object_get(json, "event"));
		double rate = json_number_value(json_object_get(json, "images_per_second"));
		double mfu = json_number_value(json_object_get(json, "mfu"));
		if (strcmp(event, "step") == 0 && rate > 0) {
			assert_true(fabs(mfu / rate * 1024 - gflop) < 0.00051);
			steps++;
		}
		json_decref(json);
	}
	fclose(file);
	assert_true(steps > 0);
}

/*
 * Batches are the same whether the GPU maps the ring read-only, maps it writable, or copies. The
 * run reports the method once, with or without evaluations.
 */
TEST(mapped)
{
	static const char asks[] = "requesting a writable mapping from the daemon",
			  copies[] = "batches are staged";
	static const struct {
		const char *run, *registering, *writable_rings, *batches, *why;
	} ways[] = {
		{"read-only", NULL, "yes", "direct", NULL},
		{"writable", "writable", "yes", "direct", NULL},
		{"staged", "none", "yes", "staged", "could not be registered"},
		{"forbidden", "writable", "no", "staged", "set writable_rings = yes"},
	};
	char setting[64];
	for (unsigned i = 0; i < 4; i++) {
		snprintf(setting, sizeof(setting), "access.writable_rings=%s",
			 ways[i].writable_rings);
		fixture_start(&fixture, NULL, "--set", setting, NULL);
		trainer = getenv("TRAINER_EMULATED");
		if (ways[i].registering)
			setenv("LOADERD_EMULATED_REGISTERING", ways[i].registering, 1);
		int status = run(ways[i].run, "--device", "cuda", "--socket", fixture.socket,
				 "train.epochs=1", "train.eval_every=0.5", NULL);
		unsetenv("LOADERD_EMULATED_REGISTERING");
		trainer = getenv("TRAINER");
		fixture_stop(&fixture, SIGTERM);
		expect(status, 0);
		assert_int_equal(count_output(asks), ways[i].registering != NULL);
		assert_int_equal(count_output(copies), ways[i].why != NULL);
		if (ways[i].why)
			expect_output(ways[i].why);
		expect_batches(ways[i].run, ways[i].batches);
		same_losses(ways[0].run, ways[i].run);
	}
	check_mfu(ways[3].run);
}

/*
 * Patterns without a plan run unfused. The run names them, including those of evaluation; with
 * plans for all patterns it reports nothing.
 */
TEST(taken_apart)
{
	static const char *const runs[] = {"fused", "apart"};
	unsigned expected;
	for (unsigned i = 0; i < 2; i++) {
		trainer = getenv("TRAINER_EMULATED");
		if (i)
			setenv("LOADERD_EMULATED_PLANS", "plain", 1);
		int status = run(runs[i], "--device=cuda", "--fusion=c", "train.epochs=0.2",
				 "schedule.warmup=0", NULL);
		unsetenv("LOADERD_EMULATED_PLANS");
		trainer = getenv("TRAINER");
		expect(status, 0);
		expected = count_output("training, 16 x 16: ");
		assert_int_equal(count_output(": no plan for "),
				 expected + count_output("evaluation, 16 x 16: "));
		json_t *start = start_event(runs[i]);
		assert_int_equal(json_integer_value(json_object_get(start, "fallbacks")), expected);
		json_decref(start);
		if (!i)
			assert_int_equal(count_output("no plan"), 0);
	}
	assert_true(expected > 0);
	expect_output("training, 16 x 16: conv1: no plan for forward 3x3");
	expect_output("evaluation, 16 x 16: conv1: no plan for forward 3x3");
}

/*
 * Slots stay held while the device reads their batches, in training and evaluation, but one slot
 * always remains for the next batch.
 */
TEST(few_slots)
{
	trainer = getenv("TRAINER_EMULATED");
	int most = run("many-slots", "--device", "cuda", "train.epochs=1", "data.slots=9", NULL);
	int least = run("few-slots", "--device", "cuda", "train.epochs=1", "data.slots=2", NULL);
	trainer = getenv("TRAINER");
	expect(least, 0);
	expect(most, 0);
	same_losses("many-slots", "few-slots");
}

/* Advice that a run prints before its first step, or does not print. */
TEST(advice)
{
	static const struct {
		const char *device, *batch, *precision;
		unsigned advices;
		const char *words;
	} cases[] = {
		{"cpu", "16", "train.precision=fp32", 0, NULL},
		{"cpu", "12", "train.precision=fp32", 1,
		 "batch norms compute statistics over 12 images"},
		{"cuda", "20", "train.precision=bf16", 1,
		 "with multiples of 8: 24 images take about"},
		{"cuda", "24", "train.precision=bf16", 0, NULL},
		{"cuda", "20", "train.precision=fp32", 1, "fp32 does not use the tensor cores"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char batch[32];
		snprintf(batch, sizeof(batch), "data.batch_size=%s", cases[i].batch);
		trainer = getenv("TRAINER_EMULATED");
		int status =
			run("advised", "--overwrite", "--device", cases[i].device, batch,
			    cases[i].precision, "train.epochs=0.03", "schedule.warmup=0", NULL);
		trainer = getenv("TRAINER");
		expect(status, 0);
		assert_int_equal(count_output("hint     "), cases[i].advices);
		if (cases[i].words)
			expect_output(cases[i].words);
	}
}

TEST_MAIN(trainer_setup, trainer_teardown)
