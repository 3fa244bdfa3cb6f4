/*
 * Weight updates: optimizers, schedules, averages, Lookahead, SAM, micro-batches, and training that
 * ends early for the bias only. Runs are also resumed, and repeated on an emulated GPU.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <math.h>
#include <signal.h>

/*
 * The exported model is the average. If the warm-up is as long as the run, the average equals the
 * weights.
 */
TEST(averaged)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *model, *checkpoint;
	assert_int_equal(safetensors_open(run_path("unbroken", "model.safetensors"), &model, error),
			 0);
	assert_int_equal(safetensors_open(run_path("unbroken", "checkpoint-00000040.safetensors"),
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

/* AdamW with clipping: resumed bit for bit, and the same training on a GPU. */
TEST(adamw)
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
	assert_true(max_difference("adamw", "adamw-unclipped") > 1e-3);
	assert_true(max_difference("adamw", "unbroken") > 1e-2);
	expect(run_emulated("adamw-gpu", name, lr, clip, decay, NULL), 0);
	assert_true(max_difference("adamw", "adamw-gpu") < 1e-3);
}

/*
 * Optimizers, with changes to the gradients and with random draws: resumed bit for bit, and on a
 * GPU.
 */
TEST(optimizers)
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
		expect(run_interrupted(stopped, 12, s[1], s[2], s[3], NULL), 0);
		same_losses(name, stopped);
		same_file(name, stopped, "model.safetensors");
		assert_true(max_difference(name, "unbroken") > 1e-3);
		expect(run_emulated(gpu, s[1], s[2], s[3], NULL), 0);
		assert_true(max_difference(name, gpu) < 1e-3);
	}
	/* changes to gradients show in the losses */
	expect(run("adam-plain", settings[0][1], settings[0][2], NULL), 0);
	assert_true(max_difference("adam", "adam-plain") > 1e-4);
	expect(run("lars-plain", settings[1][1], settings[1][2], NULL), 0);
	assert_true(max_difference("lars", "lars-plain") > 1e-4);
}

/* The rate drops depending on earlier evaluations; a resumed run restores their history. */
TEST(plateau)
{
	/*
	 * no evaluation improves on the first by the threshold, so every second one reduces the
	 * rate
	 */
	static const char name[] = "schedule.name=plateau", warmup[] = "schedule.warmup=0",
			  patience[] = "schedule.patience=1", threshold[] = "schedule.threshold=1",
			  every[] = "train.eval_every=0.15", gamma[] = "schedule.gamma=0.5";
	expect(run("plateau", name, warmup, patience, threshold, every, gamma, NULL), 0);
	run_killed("plateau-killed", 23, name, warmup, patience, threshold, every, gamma, NULL);
	expect(run("plateau-killed", "--resume", name, warmup, patience, threshold, gamma, NULL),
	       1);
	expect_output("train.eval_every is \"1\" but was \"0.15\" in the checkpoint");
	expect(run("plateau-killed", "--resume", name, warmup, patience, threshold, every, gamma,
		   NULL),
	       0);
	same_losses("plateau", "plateau-killed");
	/* the first reduction comes after three evaluations, which are three steps apart */
	static struct losses losses, constant;
	expect(run("constant", warmup, "schedule.name=constant", NULL), 0);
	read_log("plateau", &losses);
	read_log("constant", &constant);
	for (unsigned i = 0; i < 10; i++)
		assert_string_equal(losses.step[i], constant.step[i]);
	assert_string_not_equal(losses.step[11], constant.step[11]);
}

/* A cycle of rate and momentum: resumed bit for bit, and the same training on a GPU. */
TEST(cycle)
{
	static const char name[] = "schedule.name=one_cycle", anneal[] = "schedule.anneal=cosine",
			  base[] = "schedule.base_momentum=0.6", warmup[] = "schedule.warmup=0";
	expect(run("cycle", name, anneal, base, warmup, NULL), 0);
	expect(run_interrupted("cycle-killed", 17, name, anneal, base, warmup, NULL), 0);
	same_losses("cycle", "cycle-killed");
	expect(run("cycle-rate", name, anneal, warmup, NULL), 0);
	assert_true(max_difference("cycle", "cycle-rate") > 1e-3);
	expect(run_emulated("cycle-gpu", name, anneal, base, warmup, NULL), 0);
	assert_true(max_difference("cycle", "cycle-gpu") < 1e-3);
}

/*
 * Lookahead: each of its updates sets the weights to their average, and a resumed run continues
 * with them.
 */
TEST(ahead)
{
	static const char *const settings[] = {"train.ema_lookahead=yes", "train.ema_every=5",
					       "train.ema_rise=3"};
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *checkpoint;
	expect(run("ahead", settings[0], settings[1], settings[2], NULL), 0);
	assert_int_equal(safetensors_open(run_path("ahead", "checkpoint-00000040.safetensors"),
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
	expect(run_interrupted("caught", 23, settings[0], settings[1], settings[2], NULL), 0);
	same_losses("ahead", "caught");
	same_file("ahead", "caught", "model.safetensors");
	assert_true(max_difference("ahead", "unbroken") > 1e-3);
	expect(run_emulated("ahead-gpu", settings[0], settings[1], settings[2], NULL), 0);
	assert_true(max_difference("ahead", "ahead-gpu") < 1e-3);
}

/* Asserts that samples.jsonl of both runs has the same steps, except for the time. */
static void same_samples(const char *a, const char *b)
{
	FILE *x = fopen(run_path(a, "samples.jsonl"), "r"),
	     *y = fopen(run_path(b, "samples.jsonl"), "r");
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

/* Counts the steps whose top-1 accuracy is impossible with a batch of four samples. */
static unsigned of_more_than_four(const char *run)
{
	FILE *file = fopen(run_path(run, "log.jsonl"), "r");
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
 * Micro-batches: the same number of steps with the same samples; resumed within an epoch, and the
 * same training on a GPU.
 */
TEST(accumulated)
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
	/* batch norms see four samples instead of sixteen */
	assert_true(max_difference("accumulated", "unbroken") > 1e-3);
	expect(run_interrupted("accumulated-killed", 11, parts, samples, NULL), 0);
	same_losses("accumulated", "accumulated-killed");
	same_file("accumulated", "accumulated-killed", "model.safetensors");
	same_samples("accumulated", "accumulated-killed");
	expect(run_emulated("accumulated-gpu", parts, NULL), 0);
	assert_true(max_difference("accumulated", "accumulated-gpu") < 1e-3);
	expect(run("uneven", "train.accumulate=3", NULL), 1);
	expect_output(
		"data.batch_size = 16 is not a multiple of train.accumulate = 3 times 1 rank: "
		"it is the total over all micro-batches; the next multiple is 18");
}

/* Finds the same rate each time and leaves an existing run unchanged. */
TEST(find_rate)
{
	static char first[16384], again[16384], option[PATH_MAX + 64];
	snprintf(option, sizeof(option), "--find-lr=%s", run_path("unbroken", "found"));
	expect(run("unbroken", option, NULL), 0);
	expect_output("steepest descent of the loss at     optim.lr=");
	double steepest = strtod(strstr(said, "optim.lr=") + strlen("optim.lr="), NULL);
	assert_true(steepest > 1e-4 && steepest < 10);
	FILE *file = fopen(run_path("unbroken", "found.csv"), "r");
	first[fread(first, 1, sizeof(first) - 1, file)] = '\0';
	fclose(file);
	assert_non_null(strstr(first, "step,lr,loss,smoothed\n1,1e-06,"));
	/* without a warm-up, this is the loss of the first step of any training */
	static struct losses losses;
	read_log("unbroken", &losses);
	assert_int_equal(losses.steps, STEPS);
	double loss = strtod(strstr(first, "1,1e-06,") + strlen("1,1e-06,"), NULL);
	assert_true(fabs(loss / strtod(losses.step[0], NULL) - 1) < 1e-6);
	expect_in_file("unbroken", "found.svg",
		       ">dots: losses of steps; line: their running mean<");
	snprintf(option, sizeof(option), "--find-lr=%s", run_path("unbroken", "again"));
	expect(run("unbroken", option, "schedule.name=cosine", "optim.lr=3", NULL), 0);
	file = fopen(run_path("unbroken", "again.csv"), "r");
	again[fread(again, 1, sizeof(again) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(first, again);
	expect(run("unbroken", option, "--resume", NULL), 1);
	expect_output(
		"--find-lr starts from the initial weights and does nothing else: it cannot be "
		"combined with --resume");
}

/* SAM in every second step, in micro-batches. */
TEST(sharpness)
{
	static const char rho[] = "train.sam=0.1", every[] = "train.sam_every=2",
			  parts[] = "train.accumulate=2", plain[] = "train.ema=0";
	expect(run("sharp", rho, every, parts, NULL), 0);
	expect(run_interrupted("sharp-killed", 11, rho, every, parts, NULL), 0);
	same_losses("sharp", "sharp-killed");
	same_file("sharp", "sharp-killed", "model.safetensors");
	expect(run("blunt", parts, NULL), 0);
	/*
	 * the first step makes no second pass; the second step reports the loss of its first pass,
	 * which equals the loss without SAM
	 */
	static struct losses sharp, blunt;
	read_log("sharp", &sharp);
	read_log("blunt", &blunt);
	assert_string_equal(sharp.step[1], blunt.step[1]);
	assert_true(max_difference("sharp", "blunt") > 1e-3);
	expect(run("sharp-alone", rho, plain, NULL), 0);
	expect(run_emulated("sharp-gpu", rho, plain, NULL), 0);
	assert_true(max_difference("sharp-alone", "sharp-gpu") < 2e-3);
}

/* Lookahead with separate slow weights. */
TEST(slow)
{
	static const char every[] = "train.lookahead=5", plain[] = "train.ema=0";
	expect(run("slow", every, NULL), 0);
	expect(run_interrupted("slow-killed", 13, every, NULL), 0);
	same_losses("slow", "slow-killed");
	same_file("slow", "slow-killed", "model.safetensors");
	static struct losses slow, fast;
	read_log("slow", &slow);
	read_log("unbroken", &fast);
	for (unsigned i = 0; i < 5; i++)
		assert_string_equal(slow.step[i], fast.step[i]);
	assert_string_not_equal(slow.step[5], fast.step[5]);
	expect(run("slow-alone", every, plain, NULL), 0);
	expect(run_emulated("slow-gpu", every, plain, NULL), 0);
	assert_true(max_difference("slow-alone", "slow-gpu") < 1e-3);
}

/* Largest difference of a tensor between two files, relative to the largest element. */
static double tensors_apart(const char *a, const char *b, const char *in_a, const char *in_b,
			    const char *first, const char *second)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *x, *y;
	assert_int_equal(safetensors_open(run_path(a, in_a), &x, error), 0);
	assert_int_equal(safetensors_open(run_path(b, in_b), &y, error), 0);
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
 * Batch norm statistics of an average over a single set of weights, computed from one batch, equal
 * those that the next step computes. A resumed average is the same bit for bit.
 */
TEST(mean)
{
	static const char from[] = "train.swa=1.25", every[] = "train.swa_every=0.2",
			  batches[] = "train.swa_batches=3", constant[] = "schedule.name=constant",
			  warmup[] = "schedule.warmup=0", all[] = "model.bn_momentum=1";
	expect(run("mean", from, every, batches, NULL), 0);
	expect(run_interrupted("mean-killed", 32, from, every, batches, NULL), 0);
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
	expect(run_emulated("mean-gpu", from, every, batches, NULL), 0);
	assert_true(max_difference("mean", "mean-gpu") < 1e-3);
	assert_true(tensors_apart("mean", "mean-gpu", "model.safetensors", "model.safetensors",
				  "bn1.running_var", "bn1.running_var") < 1e-2);
	assert_true(tensors_apart("mean", "mean-gpu", "model.safetensors", "model.safetensors",
				  "fc.weight", "fc.weight") < 1e-2);
	expect(run("late", "train.swa=2", NULL), 1);
	expect_output("train.swa = 2 leaves nothing of train.epochs = 2 to average");
}

/*
 * Asserts that the bias of the whitening convolution keeps the value of its last trained epoch
 * while other parameters change.
 */
static void expect_settled(const char *name)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *then, *now;
	assert_int_equal(
		safetensors_open(run_path(name, "checkpoint-00000020.safetensors"), &then, error),
		0);
	assert_int_equal(
		safetensors_open(run_path(name, "checkpoint-00000040.safetensors"), &now, error),
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
 * Parameters trained only for a part of the run: also with replayed steps, and if a run resumes
 * after that part.
 */
TEST(settled)
{
	static const char net[] = "model.name=speednet", width[] = "model.width=0.125",
			  decay[] = "optim.decay_all=yes", bias[] = "optim.whiten_bias_epochs=1",
			  keep[] = "checkpoint.keep=99";
	expect(run("settled", net, width, decay, bias, keep, NULL), 0);
	expect_settled("settled");
	expect(run_interrupted("settled-killed", 30, net, width, decay, bias, keep, NULL), 0);
	same_losses("settled", "settled-killed");
	expect(run_emulated("settled-gpu", net, width, decay, bias, keep, NULL), 0);
	expect_settled("settled-gpu");
	assert_true(max_difference("settled", "settled-gpu") < 1e-3);
}

TEST_MAIN(trainer_setup_unbroken, trainer_teardown)
