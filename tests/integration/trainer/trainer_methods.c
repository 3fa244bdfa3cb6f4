/*
 * Methods that a recipe asks for, by what they make of a run: averages, label smoothing, image
 * sizes that grow, AdamW, lookahead, a bias that rests; resumed, and on an emulated GPU.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The exported model is the average; with a warm-up as long as the run, the average is the weights.
 */
static void test_averaged(void **state)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *model, *checkpoint;
	assert_int_equal(safetensors_open(in("unbroken", "model.safetensors"), &model, error), 0);
	assert_int_equal(safetensors_open(in("unbroken", "checkpoint-00000040.safetensors"),
					  &checkpoint, error),
			 0);
	for (size_t i = 0; i < safetensors_count(model); i++) {
		const struct safetensors_tensor *t = safetensors_at(model, i);
		char name[256];
		snprintf(name, sizeof(name), "ema.%s", t->name);
		assert_memory_equal(values(0, model, t->name), values(1, checkpoint, name),
				    t->size);
	}
	assert_memory_not_equal(values(0, checkpoint, "bn1.running_mean"),
				values(1, checkpoint, "ema.bn1.running_mean"),
				safetensors_find(model, "bn1.running_mean")->size);
	safetensors_close(model);
	safetensors_close(checkpoint);
	expect(run("plain", "train.ema=0", NULL), 0);
	expect(run("following", "train.ema_warmup=2", NULL), 0);
	same_losses("plain", "following");
	same_file("plain", "following", "model.safetensors");
}

/* The smoothed loss is linear in the smoothing while the weights are the same. */
static void test_smoothed(void **state)
{
	static const char *const settings[3] = {"train.label_smoothing=0",
						"train.label_smoothing=0.25",
						"train.label_smoothing=0.5"};
	double loss[3];
	for (int i = 0; i < 3; i++) {
		static struct losses losses;
		expect(run("smoothed", "--overwrite", "train.epochs=0.05", "schedule.warmup=0",
			   settings[i], NULL),
		       0);
		read_log("smoothed", &losses);
		assert_int_equal(losses.steps, 1);
		loss[i] = strtod(losses.step[0], NULL);
	}
	assert_true(fabs(loss[0] - loss[2]) > 1e-4);
	assert_true(fabs(loss[1] - (loss[0] + loss[2]) / 2) < 1e-5);
}

/* Image sizes that follow a schedule of epochs, resumed in the second size. */
static void test_growing(void **state)
{
	static const char pipeline[] = "data.pipeline=random_resized_crop(16@0;24@1) hflip(0.5)";
	expect(run("growing", pipeline, NULL), 0);
	pid_t pid = start("grown", pipeline, NULL);
	wait_for_step("grown", pid, 26);
	kill(pid, SIGKILL);
	finish(pid, "grown");
	expect(run("grown", "--resume", pipeline, NULL), 0);
	same_losses("growing", "grown");
}

/* AdamW with clipping: resumed bit for bit, and the same training on a GPU. */
static void test_adamw(void **state)
{
	static const char name[] = "optim.name=adamw", lr[] = "optim.lr=0.005",
			  clip[] = "optim.clip_norm=0.5", decay[] = "optim.weight_decay=0.05";
	expect(run("adamw", name, lr, clip, decay, NULL), 0);
	pid_t pid = start("adamw-stopped", name, lr, clip, decay, NULL);
	wait_for_step("adamw-stopped", pid, 9);
	kill(pid, SIGTERM);
	expect(finish(pid, "adamw-stopped"), STOPPED);
	expect(run("adamw-stopped", "--resume", name, lr, clip, decay, NULL), 0);
	same_losses("adamw", "adamw-stopped");
	expect(run("adamw-unclipped", name, lr, decay, NULL), 0);
	assert_true(apart("adamw", "adamw-unclipped") > 1e-3);
	assert_true(apart("adamw", "unbroken") > 1e-2);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("adamw-gpu", "--device=cuda", name, lr, clip, decay, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("adamw", "adamw-gpu") < 1e-3);
}

/* Optimizers, with what may happen to gradients before: resumed bit for bit, and on a GPU. */
static void test_optimizers(void **state)
{
	static const char *const settings[][4] = {
		{"adam", "optim.name=adam", "optim.lr=0.005", "optim.centralize=true"},
		{"lars", "optim.name=lars", "optim.lr=1", "optim.clip_value=0.01"},
		{"lamb", "optim.name=lamb", "optim.lr=0.005", "optim.weight_decay=0.05"},
	};
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		const char *name = settings[i][0], *const *s = settings[i];
		char stopped[32], gpu[32];
		snprintf(stopped, sizeof(stopped), "%s-stopped", name);
		snprintf(gpu, sizeof(gpu), "%s-gpu", name);
		expect(run(name, s[1], s[2], s[3], NULL), 0);
		pid_t pid = start(stopped, s[1], s[2], s[3], NULL);
		wait_for_step(stopped, pid, 12);
		kill(pid, SIGKILL);
		finish(pid, stopped);
		expect(run(stopped, "--resume", s[1], s[2], s[3], NULL), 0);
		same_losses(name, stopped);
		same_file(name, stopped, "model.safetensors");
		assert_true(apart(name, "unbroken") > 1e-3);
		trainer = getenv("TRAINER_EMULATED");
		int status = run(gpu, "--device=cuda", s[1], s[2], s[3], NULL);
		trainer = getenv("TRAINER");
		expect(status, 0);
		assert_true(apart(name, gpu) < 1e-3);
	}
	/* what is done to gradients is seen in losses */
	expect(run("adam-plain", settings[0][1], settings[0][2], NULL), 0);
	assert_true(apart("adam", "adam-plain") > 1e-4);
	expect(run("lars-plain", settings[1][1], settings[1][2], NULL), 0);
	assert_true(apart("lars", "lars-plain") > 1e-4);
}

/* The rate drops with evaluations, and what they came to is resumed with the rest. */
static void test_plateau(void **state)
{
	/* nothing is so much better than the first evaluation, so there is a drop at every other */
	static const char name[] = "schedule.name=plateau", warmup[] = "schedule.warmup=0",
			  patience[] = "schedule.patience=1", threshold[] = "schedule.threshold=1",
			  every[] = "train.eval_every=0.15", gamma[] = "schedule.gamma=0.5";
	expect(run("plateau", name, warmup, patience, threshold, every, gamma, NULL), 0);
	pid_t pid = start("plateau-killed", name, warmup, patience, threshold, every, gamma, NULL);
	wait_for_step("plateau-killed", pid, 23);
	kill(pid, SIGKILL);
	finish(pid, "plateau-killed");
	expect(run("plateau-killed", "--resume", name, warmup, patience, threshold, gamma, NULL),
	       1);
	expect_said("train.eval_every is \"1\" but was \"0.15\" in the checkpoint");
	expect(run("plateau-killed", "--resume", name, warmup, patience, threshold, every, gamma,
		   NULL),
	       0);
	same_losses("plateau", "plateau-killed");
	/* until the first drop there is none, after three evaluations of three steps each */
	static struct losses losses, constant;
	expect(run("constant", warmup, "schedule.name=constant", NULL), 0);
	read_log("plateau", &losses);
	read_log("constant", &constant);
	for (unsigned i = 0; i < 10; i++)
		assert_string_equal(losses.step[i], constant.step[i]);
	assert_string_not_equal(losses.step[11], constant.step[11]);
}

/* A cycle of rate and momentum: resumed bit for bit, and the same training on a GPU. */
static void test_cycle(void **state)
{
	static const char name[] = "schedule.name=one_cycle", anneal[] = "schedule.anneal=cosine",
			  base[] = "schedule.base_momentum=0.6", warmup[] = "schedule.warmup=0";
	expect(run("cycle", name, anneal, base, warmup, NULL), 0);
	pid_t pid = start("cycle-killed", name, anneal, base, warmup, NULL);
	wait_for_step("cycle-killed", pid, 17);
	kill(pid, SIGKILL);
	finish(pid, "cycle-killed");
	expect(run("cycle-killed", "--resume", name, anneal, base, warmup, NULL), 0);
	same_losses("cycle", "cycle-killed");
	expect(run("cycle-rate", name, anneal, warmup, NULL), 0);
	assert_true(apart("cycle", "cycle-rate") > 1e-3);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("cycle-gpu", "--device=cuda", name, anneal, base, warmup, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("cycle", "cycle-gpu") < 1e-3);
}

/* Lookahead: at its updates the weights are their average, and so a resumed run goes on. */
static void test_ahead(void **state)
{
	static const char *const settings[] = {"train.lookahead=yes", "train.ema_every=5",
					       "train.ema_rise=3"};
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *checkpoint;
	expect(run("ahead", settings[0], settings[1], settings[2], NULL), 0);
	assert_int_equal(safetensors_open(in("ahead", "checkpoint-00000040.safetensors"),
					  &checkpoint, error),
			 0);
	unsigned averages = 0;
	for (size_t i = 0; i < safetensors_count(checkpoint); i++) {
		const struct safetensors_tensor *t = safetensors_at(checkpoint, i);
		if (strncmp(t->name, "ema.", 4) != 0)
			continue;
		assert_memory_equal(values(0, checkpoint, t->name),
				    values(1, checkpoint, t->name + 4), t->size);
		averages++;
	}
	assert_true(averages > 0);
	safetensors_close(checkpoint);
	pid_t pid = start("caught", settings[0], settings[1], settings[2], NULL);
	wait_for_step("caught", pid, 23);
	kill(pid, SIGKILL);
	finish(pid, "caught");
	expect(run("caught", "--resume", settings[0], settings[1], settings[2], NULL), 0);
	same_losses("ahead", "caught");
	same_file("ahead", "caught", "model.safetensors");
	assert_true(apart("ahead", "unbroken") > 1e-3);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("ahead-gpu", "--device=cuda", settings[0], settings[1], settings[2], NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("ahead", "ahead-gpu") < 1e-3);
}

/*
 * The bias of the convolution that whitens is as its last trained epoch left it, while others go
 * on.
 */
static void expect_settled(const char *name)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *then, *now;
	assert_int_equal(
		safetensors_open(in(name, "checkpoint-00000020.safetensors"), &then, error), 0);
	assert_int_equal(safetensors_open(in(name, "checkpoint-00000040.safetensors"), &now, error),
			 0);
	const float *bias = values(0, then, "whiten.bias");
	assert_true(bias[0] != 0);
	assert_memory_equal(bias, values(1, now, "whiten.bias"), 24 * sizeof(float));
	assert_memory_not_equal(values(0, then, "group1.bn1.bias"),
				values(1, now, "group1.bn1.bias"), 8 * sizeof(float));
	safetensors_close(then);
	safetensors_close(now);
}

/*
 * What is trained for a part of the run only: also where steps are replayed, and where a run
 * resumes after that part.
 */
static void test_settled(void **state)
{
	static const char net[] = "model.name=speednet", width[] = "model.width=0.125",
			  decay[] = "optim.decay_all=yes", bias[] = "optim.whiten_bias_epochs=1",
			  keep[] = "checkpoint.keep=99";
	expect(run("settled", net, width, decay, bias, keep, NULL), 0);
	expect_settled("settled");
	pid_t pid = start("settled-killed", net, width, decay, bias, keep, NULL);
	wait_for_step("settled-killed", pid, 30);
	kill(pid, SIGKILL);
	finish(pid, "settled-killed");
	expect(run("settled-killed", "--resume", net, width, decay, bias, keep, NULL), 0);
	same_losses("settled", "settled-killed");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("settled-gpu", "--device=cuda", net, width, decay, bias, keep, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	expect_settled("settled-gpu");
	assert_true(apart("settled", "settled-gpu") < 1e-3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_averaged),   cmocka_unit_test(test_smoothed),
		cmocka_unit_test(test_growing),    cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_ahead),      cmocka_unit_test(test_settled),
		cmocka_unit_test(test_plateau),    cmocka_unit_test(test_cycle),
		cmocka_unit_test(test_optimizers),
	};
	return cmocka_run_group_tests(tests, trainer_setup_unbroken, trainer_teardown);
}
