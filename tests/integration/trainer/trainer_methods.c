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

/*
 * The smoothed loss is linear in the smoothing while the weights are the same, and the divergence
 * is that less the targets' entropy.
 */
static void test_smoothed(void **state)
{
	static const char *const settings[4][2] = {
		{"train.label_smoothing=0"},
		{"train.label_smoothing=0.25"},
		{"train.label_smoothing=0.5"},
		{"train.label_smoothing=0.25", "train.loss=kl"},
	};
	const double rest = 0.25 / 10,
		     entropy = -(0.75 + rest) * log(0.75 + rest) - 9 * rest * log(rest);
	double loss[4];
	for (int i = 0; i < 4; i++) {
		static struct losses losses;
		expect(run("smoothed", "--overwrite", "train.epochs=0.05", "schedule.warmup=0",
			   settings[i][0], settings[i][1], NULL),
		       0);
		read_log("smoothed", &losses);
		assert_int_equal(losses.steps, 1);
		loss[i] = strtod(losses.step[0], NULL);
	}
	assert_true(fabs(loss[0] - loss[2]) > 1e-4);
	assert_true(fabs(loss[1] - (loss[0] + loss[2]) / 2) < 1e-5);
	assert_true(fabs(loss[3] - (loss[1] - entropy)) < 1e-5);
}

/* Balanced weights are what samples are counted to be: labels are those of the index, modulo 10. */
static void test_balanced(void **state)
{
	static const char balanced[] = "train.class_weights=balanced", one[] = "train.epochs=1";
	char weights[512] = "train.class_weights=";
	const int samples = 325, classes = 10;
	for (int i = 0; i < classes; i++) {
		int count = samples / classes + (i < samples % classes);
		size_t length = strlen(weights);
		snprintf(weights + length, sizeof(weights) - length, "%s%.17g", i ? ", " : "",
			 samples / ((double)classes * count));
	}
	expect(run("balanced", balanced, NULL), 0);
	expect(run("weighted", weights, NULL), 0);
	same_losses("balanced", "weighted");
	same_file("balanced", "weighted", "model.safetensors");
	assert_true(apart("balanced", "unbroken") > 1e-6);
	pid_t pid = start("balanced-killed", balanced, NULL);
	wait_for_step("balanced-killed", pid, 17);
	kill(pid, SIGKILL);
	finish(pid, "balanced-killed");
	expect(run("balanced-killed", "--resume", weights, NULL), 1);
	expect_said("but was \"balanced\" in the checkpoint");
	expect(run("balanced-killed", "--resume", balanced, NULL), 0);
	same_losses("balanced", "balanced-killed");
	/* classes without samples count as none */
	static const char more[] = "model.classes=12", plain[] = "train.label_smoothing=0";
	char ones[sizeof(weights) + 8];
	snprintf(ones, sizeof(ones), "%s, 1, 1", weights);
	expect(run("balanced-more", balanced, more, plain, one, NULL), 0);
	expect(run("weighted-more", ones, more, plain, one, NULL), 0);
	same_file("balanced-more", "weighted-more", "model.safetensors");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("balanced-gpu", "--device=cuda", balanced, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("balanced", "balanced-gpu") < 1e-3);
	expect(run("slip", "train.class_weights=balance", NULL), 1);
	expect_said("with commas between, or balanced");
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

/* Image sizes that grow from step to step: resumed while they do, and on a GPU. */
static void test_progressive(void **state)
{
	static const char scale[] = "data.initial_scale=0.5", delay[] = "data.delay_fraction=0.2",
			  finetune[] = "data.finetune_fraction=0.3";
	expect(run("progressive", scale, delay, finetune, NULL), 0);
	expect_said("input 8 x 8");
	pid_t pid = start("progressive-killed", scale, delay, finetune, NULL);
	wait_for_step("progressive-killed", pid, 18);
	kill(pid, SIGKILL);
	finish(pid, "progressive-killed");
	expect(run("progressive-killed", "--resume", scale, delay, finetune, NULL), 0);
	expect_said("input 12 x 12");
	same_losses("progressive", "progressive-killed");
	same_file("progressive", "progressive-killed", "model.safetensors");
	assert_true(apart("progressive", "unbroken") > 1e-3);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("progressive-gpu", "--device=cuda", scale, delay, finetune, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("progressive", "progressive-gpu") < 1e-3);
	expect(run("progressive-small", scale, "model.name=speednet", NULL), 1);
	expect_said("images of 8 x 8 are too small for model.name = speednet, which needs 9");
}

/*
 * Samples with high losses alone: resumed bit for bit, with other methods, and on a GPU. All of a
 * batch, it is the batch.
 */
static void test_selective(void **state)
{
	static const char keep[] = "train.selective_backprop=0.5",
			  begin[] = "train.selective_start=0.1", end[] = "train.selective_end=0.8",
			  mixup[] = "train.mixup=0.4", parts[] = "train.accumulate=2",
			  sam[] = "train.sam=0.05", colout[] = "data.colout=0.1";
	static struct losses losses, plain;
	expect(run("selective", keep, begin, end, NULL), 0);
	read_log("selective", &losses);
	read_log("unbroken", &plain);
	/* four of 40 steps go before, and in the first one weights are the same still */
	for (unsigned i = 0; i < 4; i++)
		assert_string_equal(losses.step[i], plain.step[i]);
	assert_string_not_equal(losses.step[4], plain.step[4]);
	assert_true(strtod(losses.step[4], NULL) > strtod(plain.step[4], NULL));
	pid_t pid = start("selective-killed", keep, begin, end, NULL);
	wait_for_step("selective-killed", pid, 12);
	kill(pid, SIGKILL);
	finish(pid, "selective-killed");
	expect(run("selective-killed", "--resume", keep, begin, end, NULL), 0);
	same_losses("selective", "selective-killed");
	same_file("selective", "selective-killed", "model.safetensors");
	expect(run("selective-all", "train.selective_backprop=1", begin, end,
		   "train.selective_interrupt=0", NULL),
	       0);
	same_losses("unbroken", "selective-all");
	same_file("unbroken", "selective-all", "model.safetensors");
	expect(run("selective-more", keep, begin, end, mixup, parts, sam, colout, NULL), 0);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("selective-gpu", "--device=cuda", keep, begin, end, NULL);
	if (!status)
		status = run("selective-more-gpu", "--device=cuda", keep, begin, end, mixup, parts,
			     sam, colout, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("selective", "selective-gpu") < 1e-3);
	assert_true(apart("selective-more", "selective-more-gpu") < 1e-3);
	expect(run("selective-odd", "train.selective_backprop=0.45", parts, NULL), 1);
	expect_said("train.selective_backprop = 0.45 keeps 7 of data.batch_size = 16, which does");
	expect(run("selective-pairs", "train.selective_backprop=0.45", mixup, NULL), 1);
	expect_said("does not divide into 1 micro-batch of pairs to be mixed");
}

/* Each image twice in its batch: an epoch is as many steps as of half the batch; resumed; a GPU. */
static void test_repeats(void **state)
{
	static const char repeats[] = "data.repeats=2", epochs[] = "train.epochs=0.5";
	static struct losses losses;
	expect(run("repeats", repeats, epochs, "log.samples=yes", NULL), 0);
	read_log("repeats", &losses);
	assert_int_equal(losses.steps, 20); /* 325 images, by 8 */
	json_t *line = json_load_file(in("repeats", "samples.jsonl"), JSON_DISABLE_EOF_CHECK, NULL);
	json_t *samples = json_object_get(line, "samples");
	assert_int_equal(json_array_size(samples), 16);
	for (size_t i = 0; i < 8; i++)
		assert_true(json_equal(json_array_get(samples, i), json_array_get(samples, 8 + i)));
	json_decref(line);
	pid_t pid = start("repeats-killed", repeats, epochs, NULL);
	wait_for_step("repeats-killed", pid, 9);
	kill(pid, SIGKILL);
	finish(pid, "repeats-killed");
	expect(run("repeats-killed", "--resume", epochs, NULL), 1);
	expect_said("data.repeats is \"1\" but was \"2\" in the checkpoint");
	expect(run("repeats-killed", "--resume", repeats, epochs, NULL), 0);
	same_losses("repeats", "repeats-killed");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("repeats-gpu", "--device=cuda", repeats, epochs, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("repeats", "repeats-gpu") < 1e-3);
}

/*
 * The last steps of the pipeline by the device, which come to the same images, bit for bit: with
 * all that takes a batch apart; resumed; a GPU.
 */
static void test_deferred(void **state)
{
	static const char device[] = "data.augment=device",
			  pipeline[] = "data.pipeline=resize(34x34) random_crop(32, padding=2, "
				       "fill=reflect) hflip(alternate) color_jitter(0.4, 0.4, 0.4, "
				       "0.1) random_erasing(0.5, value=random)";
	static const char *const others[][3] = {
		{"model.whiten=yes", "model.name=speednet", "model.width=0.125"},
		{"train.accumulate=2", "data.repeats=2", "train.epochs=0.5"},
		{"train.selective_backprop=0.5", "train.selective_start=0",
		 "train.selective_end=1"},
		{"train.mixup=0.4", "data.colout=0.15", "train.sam=0.05"},
		{"train.swa=0.5", "data.initial_scale=0.5", NULL},
	};
	char at_daemon[32], at_device[32];
	expect(run("deferred", device, pipeline, NULL), 0);
	expect(run("undeferred", pipeline, NULL), 0);
	same_losses("undeferred", "deferred");
	assert_true(apart("undeferred", "unbroken") > 1e-3);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		snprintf(at_daemon, sizeof(at_daemon), "undeferred-%zu", i);
		snprintf(at_device, sizeof(at_device), "deferred-%zu", i);
		expect(run(at_daemon, pipeline, others[i][0], others[i][1], others[i][2], NULL), 0);
		expect(run(at_device, device, pipeline, others[i][0], others[i][1], others[i][2],
			   NULL),
		       0);
		same_losses(at_daemon, at_device);
	}
	pid_t pid = start("deferred-killed", device, pipeline, NULL);
	wait_for_step("deferred-killed", pid, 9);
	kill(pid, SIGKILL);
	finish(pid, "deferred-killed");
	expect(run("deferred-killed", "--resume", device, pipeline, NULL), 0);
	same_losses("deferred", "deferred-killed");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("deferred-gpu", "--device=cuda", device, pipeline, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("deferred", "deferred-gpu") < 1e-3);
	expect(run("deferred-floats", device, "data.pipeline=resize(32x32) to(f32)", NULL), 1);
	expect_said("data.pipeline: steps can be deferred only where bytes are delivered");
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

/*
 * Optimizers, with what may happen to gradients before, and what draws at random: resumed bit for
 * bit, and on a GPU.
 */
static void test_optimizers(void **state)
{
	static const char *const settings[][4] = {
		{"adam", "optim.name=adam", "optim.lr=0.005", "optim.centralize=true"},
		{"lars", "optim.name=lars", "optim.lr=1", "optim.clip_value=0.01"},
		{"lamb", "optim.name=lamb", "optim.lr=0.005", "optim.weight_decay=0.05"},
		{"muon", "optim.name=muon", "optim.lr=0.01", "optim.weight_decay=0.05"},
		{"drops", "model.drop_path=0.3", "model.dropout=0.3", "optim.lr=0.01"},
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

/* Blended samples: drawn anew at each step, the same after an interruption, in parts, on a GPU. */
static void test_mixed(void **state)
{
	static const char mixup[] = "train.mixup=0.8", cutmix[] = "train.cutmix=1",
			  prob[] = "train.mix_prob=0.8", by[] = "train.mix_by=sample";
	expect(run("mixed", mixup, cutmix, prob, by, NULL), 0);
	pid_t pid = start("mixed-killed", mixup, cutmix, prob, by, NULL);
	wait_for_step("mixed-killed", pid, 17);
	kill(pid, SIGKILL);
	finish(pid, "mixed-killed");
	expect(run("mixed-killed", "--resume", mixup, cutmix, prob, by, NULL), 0);
	same_losses("mixed", "mixed-killed");
	expect(run("unmixed", mixup, cutmix, "train.mix_prob=0", NULL), 0);
	assert_true(apart("mixed", "unmixed") > 1e-3);
	same_losses("unmixed", "unbroken");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("mixed-gpu", "--device=cuda", mixup, cutmix, prob, by, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("mixed", "mixed-gpu") < 1e-3);
	/* and with rows and columns left out, in micro-batches */
	static const char colout[] = "data.colout=0.2", parts[] = "train.accumulate=2";
	expect(run("thinned", mixup, colout, parts, NULL), 0);
	pid = start("thinned-killed", mixup, colout, parts, NULL);
	wait_for_step("thinned-killed", pid, 17);
	kill(pid, SIGKILL);
	finish(pid, "thinned-killed");
	expect(run("thinned-killed", "--resume", mixup, colout, parts, NULL), 0);
	same_losses("thinned", "thinned-killed");
	expect(run("whole", mixup, parts, NULL), 0);
	assert_true(apart("thinned", "whole") > 1e-3);
	trainer = getenv("TRAINER_EMULATED");
	status = run("thinned-gpu", "--device=cuda", mixup, colout, parts, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("thinned", "thinned-gpu") < 1e-3);
	expect(run("odd", mixup, "data.batch_size=15", NULL), 1);
	expect_said("train.mixup blends pairs of samples, and data.batch_size = 15");
}

/* Lookahead: at its updates the weights are their average, and so a resumed run goes on. */
static void test_ahead(void **state)
{
	static const char *const settings[] = {"train.ema_lookahead=yes", "train.ema_every=5",
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

/* What samples.jsonl says of each step, but for when it was. */
static void same_samples(const char *a, const char *b)
{
	FILE *x = fopen(in(a, "samples.jsonl"), "r"), *y = fopen(in(b, "samples.jsonl"), "r");
	static char mine[4096], other[4096];
	unsigned lines = 0;
	while (fgets(mine, sizeof(mine), x)) {
		assert_non_null(fgets(other, sizeof(other), y));
		assert_string_equal(strstr(mine, "\"samples\":"), strstr(other, "\"samples\":"));
		lines++;
	}
	assert_null(fgets(other, sizeof(other), y));
	assert_int_equal(lines, STEPS);
	fclose(x);
	fclose(y);
}

/* Steps whose top-1 is none that four samples could have. */
static unsigned of_more_than_four(const char *run)
{
	FILE *file = fopen(in(run, "log.jsonl"), "r");
	static char line[4096];
	unsigned found = 0;
	while (fgets(line, sizeof(line), file)) {
		const char *top1 = strstr(line, "\"top1\":");
		if (!top1 || !strstr(line, "\"event\":\"step\""))
			continue;
		double quarters = 4 * strtod(top1 + strlen("\"top1\":"), NULL);
		found += quarters != floor(quarters);
	}
	fclose(file);
	return found;
}

/*
 * Batches in micro-batches: as many steps, of the same samples; resumed between those of one epoch,
 * and the same training on a GPU.
 */
static void test_accumulated(void **state)
{
	static const char parts[] = "train.accumulate=4", samples[] = "log.samples=true";
	expect(run("accumulated", parts, samples, NULL), 0);
	expect(run("at-once", samples, NULL), 0);
	same_losses("at-once", "unbroken");
	same_samples("accumulated", "at-once");
	static struct losses losses;
	read_log("accumulated", &losses);
	assert_int_equal(losses.steps, STEPS);
	assert_true(of_more_than_four("accumulated") > STEPS / 4);
	/* batch norms see four samples in place of sixteen */
	assert_true(apart("accumulated", "unbroken") > 1e-3);
	pid_t pid = start("accumulated-killed", parts, samples, NULL);
	wait_for_step("accumulated-killed", pid, 11);
	kill(pid, SIGKILL);
	finish(pid, "accumulated-killed");
	expect(run("accumulated-killed", "--resume", parts, samples, NULL), 0);
	same_losses("accumulated", "accumulated-killed");
	same_file("accumulated", "accumulated-killed", "model.safetensors");
	same_samples("accumulated", "accumulated-killed");
	trainer = getenv("TRAINER_EMULATED");
	int status = run("accumulated-gpu", "--device=cuda", parts, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("accumulated", "accumulated-gpu") < 1e-3);
	expect(run("uneven", "train.accumulate=3", NULL), 1);
	expect_said("data.batch_size = 16 does not divide by train.accumulate = 3 and 1 rank: it "
		    "is all micro-batches together, so take 18");
}

/* A rate is found, the same each time, and a run that is there is not touched. */
static void test_find_rate(void **state)
{
	static char first[16384], again[16384], option[PATH_MAX + 64];
	snprintf(option, sizeof(option), "--find-lr=%s", in("unbroken", "found"));
	expect(run("unbroken", option, NULL), 0);
	expect_said("the loss falls steepest at          optim.lr=");
	double steepest = strtod(strstr(said, "optim.lr=") + strlen("optim.lr="), NULL);
	assert_true(steepest > 1e-4 && steepest < 10);
	FILE *file = fopen(in("unbroken", "found.csv"), "r");
	first[fread(first, 1, sizeof(first) - 1, file)] = '\0';
	fclose(file);
	assert_non_null(strstr(first, "step,lr,loss,smoothed\n1,1e-06,"));
	/* warm-up is left out, so this is the first loss of any training */
	static struct losses losses;
	read_log("unbroken", &losses);
	assert_int_equal(losses.steps, STEPS);
	double loss = strtod(strstr(first, "1,1e-06,") + strlen("1,1e-06,"), NULL);
	assert_true(fabs(loss / strtod(losses.step[0], NULL) - 1) < 1e-6);
	assert_true(exists("unbroken", "found.svg"));
	snprintf(option, sizeof(option), "--find-lr=%s", in("unbroken", "again"));
	expect(run("unbroken", option, "schedule.name=cosine", "optim.lr=3", NULL), 0);
	file = fopen(in("unbroken", "again.csv"), "r");
	again[fread(again, 1, sizeof(again) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(first, again);
	expect(run("unbroken", option, "--resume", NULL), 1);
	expect_said("--find-lr begins with the initial weights and does nothing else: leave out "
		    "--resume");
}

/* SAM, at every other step, in micro-batches. */
static void test_sharpness(void **state)
{
	static const char rho[] = "train.sam=0.1", every[] = "train.sam_every=2",
			  parts[] = "train.accumulate=2", plain[] = "train.ema=0";
	expect(run("sharp", rho, every, parts, NULL), 0);
	pid_t pid = start("sharp-killed", rho, every, parts, NULL);
	wait_for_step("sharp-killed", pid, 11);
	kill(pid, SIGKILL);
	finish(pid, "sharp-killed");
	expect(run("sharp-killed", "--resume", rho, every, parts, NULL), 0);
	same_losses("sharp", "sharp-killed");
	same_file("sharp", "sharp-killed", "model.safetensors");
	expect(run("blunt", parts, NULL), 0);
	/* the first step has no second pass, and the loss of the next is that of its first */
	static struct losses sharp, blunt;
	read_log("sharp", &sharp);
	read_log("blunt", &blunt);
	assert_string_equal(sharp.step[1], blunt.step[1]);
	assert_true(apart("sharp", "blunt") > 1e-3);
	expect(run("sharp-alone", rho, plain, NULL), 0);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("sharp-gpu", "--device=cuda", rho, plain, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("sharp-alone", "sharp-gpu") < 2e-3);
}

/* Lookahead with slow weights of its own. */
static void test_slow(void **state)
{
	static const char every[] = "train.lookahead=5", plain[] = "train.ema=0";
	expect(run("slow", every, NULL), 0);
	pid_t pid = start("slow-killed", every, NULL);
	wait_for_step("slow-killed", pid, 13);
	kill(pid, SIGKILL);
	finish(pid, "slow-killed");
	expect(run("slow-killed", "--resume", every, NULL), 0);
	same_losses("slow", "slow-killed");
	same_file("slow", "slow-killed", "model.safetensors");
	static struct losses slow, fast;
	read_log("slow", &slow);
	read_log("unbroken", &fast);
	for (unsigned i = 0; i < 5; i++)
		assert_string_equal(slow.step[i], fast.step[i]);
	assert_string_not_equal(slow.step[5], fast.step[5]);
	expect(run("slow-alone", every, plain, NULL), 0);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("slow-gpu", "--device=cuda", every, plain, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("slow-alone", "slow-gpu") < 1e-3);
}

/* How far a tensor of two files is apart at most, as a share of the largest element. */
static double tensors_apart(const char *a, const char *b, const char *in_a, const char *in_b,
			    const char *first, const char *second)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *x, *y;
	assert_int_equal(safetensors_open(in(a, in_a), &x, error), 0);
	assert_int_equal(safetensors_open(in(b, in_b), &y, error), 0);
	size_t count = safetensors_find(x, first)->size / sizeof(float);
	const float *v = values(0, x, first), *w = values(1, y, second);
	double most = 0, size = 0;
	for (size_t i = 0; i < count; i++) {
		most = fmax(most, fabs((double)v[i] - (double)w[i]));
		size = fmax(size, fabs((double)w[i]));
	}
	safetensors_close(x);
	safetensors_close(y);
	return most / size;
}

/*
 * Statistics of a mean of one set of weights, from one batch, are those that the next step would
 * have; and the mean is resumed bit for bit.
 */
static void test_mean(void **state)
{
	static const char from[] = "train.swa=1.25", every[] = "train.swa_every=0.2",
			  batches[] = "train.swa_batches=3", constant[] = "schedule.name=constant",
			  warmup[] = "schedule.warmup=0", all[] = "model.bn_momentum=1";
	expect(run("mean", from, every, batches, NULL), 0);
	pid_t pid = start("mean-killed", from, every, batches, NULL);
	wait_for_step("mean-killed", pid, 32);
	kill(pid, SIGKILL);
	finish(pid, "mean-killed");
	expect(run("mean-killed", "--resume", from, every, batches, NULL), 0);
	same_losses("mean", "mean-killed");
	same_file("mean", "mean-killed", "model.safetensors");
	static struct losses mean, plain;
	read_log("mean", &mean);
	read_log("unbroken", &plain);
	for (unsigned i = 0; i < STEPS; i++)
		assert_string_equal(mean.step[i], plain.step[i]);
	assert_string_equal(mean.eval[0], plain.eval[0]);
	assert_string_not_equal(mean.eval[1], plain.eval[1]);
	expect(run("one", "train.epochs=1", "train.swa=0.99", "train.swa_batches=1", constant,
		   warmup, all, NULL),
	       0);
	expect(run("next", "train.epochs=1.05", constant, warmup, all, NULL), 0);
	assert_true(tensors_apart("one", "next", "model.safetensors",
				  "checkpoint-00000021.safetensors", "bn1.running_mean",
				  "bn1.running_mean") < 1e-5);
	assert_true(tensors_apart("one", "next", "model.safetensors",
				  "checkpoint-00000021.safetensors", "layer3.0.bn2.running_var",
				  "layer3.0.bn2.running_var") < 1e-5);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("mean-gpu", "--device=cuda", from, every, batches, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("mean", "mean-gpu") < 1e-3);
	assert_true(tensors_apart("mean", "mean-gpu", "model.safetensors", "model.safetensors",
				  "bn1.running_var", "bn1.running_var") < 1e-2);
	assert_true(tensors_apart("mean", "mean-gpu", "model.safetensors", "model.safetensors",
				  "fc.weight", "fc.weight") < 1e-2);
	expect(run("late", "train.swa=2", NULL), 1);
	expect_said("train.swa = 2 leaves nothing of train.epochs = 2 to average");
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

/*
 * Groups of a batch have the statistics that micro-batches of their size have, and so the losses;
 * resumed, on a GPU, and in the statistics of a mean of weights.
 */
static void test_ghosts(void **state)
{
	static const char ghost[] = "model.ghost_batch=8", swa[] = "train.swa=1",
			  every[] = "train.swa_every=0", ema[] = "train.ema=0";
	expect(run("ghosts", ghost, swa, every, ema, NULL), 0);
	pid_t pid = start("ghosts-killed", ghost, swa, every, ema, NULL);
	wait_for_step("ghosts-killed", pid, 13);
	kill(pid, SIGKILL);
	finish(pid, "ghosts-killed");
	expect(run("ghosts-killed", "--resume", ghost, swa, every, ema, NULL), 0);
	same_losses("ghosts", "ghosts-killed");
	same_file("ghosts", "ghosts-killed", "model.safetensors");
	expect(run("ghosts-parts", "train.accumulate=2", swa, every, ema, NULL), 0);
	assert_true(apart("ghosts", "ghosts-parts") < 1e-3);
	assert_true(apart("ghosts", "unbroken") > 1e-3);
	/* the statistics of the mean are of all groups alike, but for the momentum in a pass */
	static struct losses losses, parts;
	read_log("ghosts", &losses);
	read_log("ghosts-parts", &parts);
	double one = strtod(losses.eval[losses.evals - 1], NULL);
	double other = strtod(parts.eval[parts.evals - 1], NULL);
	assert_true(fabs(one / other - 1) < 1e-2);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("ghosts-gpu", "--device=cuda", ghost, swa, every, ema, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("ghosts", "ghosts-gpu") < 1e-3);
	expect(run("ghosts-large", "model.ghost_batch=17", NULL), 1);
	expect_said("model.ghost_batch = 17 is more than the 16 samples that a batch norm sees");
}

/*
 * A teacher: its loss beside the labels' is linear in its weight while the weights are the same,
 * and none where it is the network itself; resumed bit for bit, with the same one alone; in parts,
 * for blended and thinned batches, on a GPU.
 */
static void test_taught(void **state)
{
	static char teacher[PATH_MAX + 64], of[PATH_MAX + 64], start_from[PATH_MAX + 64],
		other[PATH_MAX + 64], checkpoint[PATH_MAX + 64];
	static const char one[] = "train.epochs=0.05", cold[] = "schedule.warmup=0",
			  again[] = "--overwrite", plain[] = "train.label_smoothing=0",
			  all[] = "train.teacher_weight=1", mixup[] = "train.mixup=0.8",
			  colout[] = "data.colout=0.2", parts[] = "train.accumulate=2",
			  sam[] = "train.sam=0.05";
	static struct losses losses;
	double loss[3];
	snprintf(teacher, sizeof(teacher), "train.teacher=%s", in("unbroken", "model.safetensors"));
	snprintf(of, sizeof(of), "train.teacher_recipe=%s", in("unbroken", "recipe.ini"));
	for (int i = 0; i < 3; i++) {
		const char *weight = i == 0   ? "train.teacher_weight=0.25"
				     : i == 1 ? "train.teacher_weight=0.5"
					      : all;
		expect(run("share", again, one, cold, teacher, of, weight, NULL), 0);
		read_log("share", &losses);
		loss[i] = strtod(losses.step[0], NULL);
	}
	assert_true(fabs(loss[0] - loss[2]) > 1e-3);
	assert_true(fabs(loss[1] - (loss[0] * 2 + loss[2]) / 3) < 1e-5);
	/* frozen, it normalises as in evaluation: it is its own teacher */
	snprintf(start_from, sizeof(start_from), "model.pretrained=%s",
		 in("unbroken", "model.safetensors"));
	expect(run("itself", one, cold, teacher, of, all, start_from,
		   "train.freeze=*bn* *downsample*", NULL),
	       0);
	read_log("itself", &losses);
	assert_true(fabs(strtod(losses.step[0], NULL)) < 1e-6);
	/* a checkpoint says itself what it is */
	snprintf(checkpoint, sizeof(checkpoint), "train.teacher=%s",
		 in("unbroken", "checkpoint-00000040.safetensors"));
	expect(run("from-checkpoint", one, cold, checkpoint, NULL), 0);
	expect(run("taught", teacher, of, mixup, colout, parts, sam, NULL), 0);
	pid_t pid = start("taught-killed", teacher, of, mixup, colout, parts, sam, NULL);
	wait_for_step("taught-killed", pid, 17);
	kill(pid, SIGKILL);
	finish(pid, "taught-killed");
	expect(run("taught-killed", "--resume", mixup, colout, parts, sam, NULL), 1);
	expect_said("train.teacher is not set, but a teacher was there when the checkpoint was "
		    "written");
	snprintf(other, sizeof(other), "train.teacher=%s", in("unbroken", "best.safetensors"));
	expect(run("taught-killed", "--resume", checkpoint, mixup, colout, parts, sam, NULL), 1);
	expect_said("is another teacher, or of another network, than when the checkpoint was "
		    "written");
	expect(run("taught-killed", "--resume", teacher, of, mixup, colout, parts, sam, NULL), 0);
	same_losses("taught", "taught-killed");
	same_file("taught", "taught-killed", "model.safetensors");
	expect(run("untaught", mixup, colout, parts, sam, NULL), 0);
	assert_true(apart("taught", "untaught") > 1e-3);
	expect(run("taught-alone", teacher, of, mixup, plain, NULL), 0);
	trainer = getenv("TRAINER_EMULATED");
	int status = run("taught-gpu", "--device=cuda", teacher, of, mixup, plain, NULL);
	trainer = getenv("TRAINER");
	expect(status, 0);
	assert_true(apart("taught-alone", "taught-gpu") < 1e-3);
	expect(run("who", teacher, NULL), 1);
	expect_said("does not say what network it is: give train.teacher_recipe");
	snprintf(other, sizeof(other), "train.teacher_recipe=%s", in("who", "none.ini"));
	expect(run("who", teacher, other, NULL), 1);
	expect_said("train.teacher_recipe: ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_averaged),    cmocka_unit_test(test_smoothed),
		cmocka_unit_test(test_growing),     cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_ahead),       cmocka_unit_test(test_settled),
		cmocka_unit_test(test_plateau),     cmocka_unit_test(test_cycle),
		cmocka_unit_test(test_optimizers),  cmocka_unit_test(test_accumulated),
		cmocka_unit_test(test_mixed),       cmocka_unit_test(test_find_rate),
		cmocka_unit_test(test_sharpness),   cmocka_unit_test(test_slow),
		cmocka_unit_test(test_mean),        cmocka_unit_test(test_ghosts),
		cmocka_unit_test(test_progressive), cmocka_unit_test(test_selective),
		cmocka_unit_test(test_repeats),     cmocka_unit_test(test_taught),
		cmocka_unit_test(test_balanced),    cmocka_unit_test(test_deferred),
	};
	return cmocka_run_group_tests(tests, trainer_setup_unbroken, trainer_teardown);
}
