/*
 * Methods that a recipe can select, tested by their effect on samples, targets and loss. Runs are
 * also resumed, and repeated on an emulated GPU.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <math.h>

/*
 * With equal weights the smoothed loss is linear in the smoothing, and the divergence is the
 * smoothed loss minus the entropy of the targets.
 */
TEST(smoothed)
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

/* Balanced weights follow the class counts; labels are the index modulo 10. */
TEST(balanced)
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
	assert_true(max_difference("balanced", "unbroken") > 1e-6);
	run_killed("balanced-killed", 17, balanced, NULL);
	expect(run("balanced-killed", "--resume", weights, NULL), 1);
	expect_output("but was \"balanced\" in the checkpoint");
	expect(run("balanced-killed", "--resume", balanced, NULL), 0);
	same_losses("balanced", "balanced-killed");
	/* classes without samples do not affect the weights */
	static const char more[] = "model.classes=12", plain[] = "train.label_smoothing=0";
	char ones[sizeof(weights) + 8];
	snprintf(ones, sizeof(ones), "%s, 1, 1", weights);
	expect(run("balanced-more", balanced, more, plain, one, NULL), 0);
	expect(run("weighted-more", ones, more, plain, one, NULL), 0);
	same_file("balanced-more", "weighted-more", "model.safetensors");
	expect(run_emulated("balanced-gpu", balanced, NULL), 0);
	assert_true(max_difference("balanced", "balanced-gpu") < 1e-3);
	expect(run("slip", "train.class_weights=balance", NULL), 1);
	expect_output(", or balanced");
}

/* Image sizes follow a schedule of epochs; the run is resumed at the second size. */
TEST(growing)
{
	static const char pipeline[] = "data.pipeline=random_resized_crop(16@0;24@1) hflip(0.5)";
	expect(run("growing", pipeline, NULL), 0);
	expect(run_interrupted("grown", 26, pipeline, NULL), 0);
	same_losses("growing", "grown");
}

/* Image sizes grow from step to step. The run is resumed while they grow, and repeated on a GPU. */
TEST(progressive)
{
	static const char scale[] = "data.initial_scale=0.5", delay[] = "data.delay_fraction=0.2",
			  finetune[] = "data.finetune_fraction=0.3";
	expect(run("progressive", scale, delay, finetune, NULL), 0);
	expect_output("input 8 x 8");
	expect(run_interrupted("progressive-killed", 18, scale, delay, finetune, NULL), 0);
	expect_output("input 12 x 12");
	same_losses("progressive", "progressive-killed");
	same_file("progressive", "progressive-killed", "model.safetensors");
	assert_true(max_difference("progressive", "unbroken") > 1e-3);
	expect(run_emulated("progressive-gpu", scale, delay, finetune, NULL), 0);
	assert_true(max_difference("progressive", "progressive-gpu") < 1e-3);
	expect(run("progressive-small", scale, "model.name=speednet", NULL), 1);
	expect_output(
		"images of 8 x 8 are too small for model.name = speednet, which needs at least 9");
}

/*
 * Trains only on samples with high losses: resumed bit for bit, with other methods, and on a GPU.
 * Selecting the whole batch is the same as no selection.
 */
TEST(selective)
{
	static const char keep[] = "train.selective_backprop=0.5",
			  begin[] = "train.selective_start=0.1", end[] = "train.selective_end=0.8",
			  mixup[] = "train.mixup=0.4", parts[] = "train.accumulate=2",
			  sam[] = "train.sam=0.05", colout[] = "data.colout=0.1";
	static struct losses losses, plain;
	expect(run("selective", keep, begin, end, NULL), 0);
	read_log("selective", &losses);
	read_log("unbroken", &plain);
	/*
	 * the first four of 40 steps select nothing; the fifth step starts with the same weights,
	 * so only the selection changes its loss
	 */
	for (unsigned i = 0; i < 4; i++)
		assert_string_equal(losses.step[i], plain.step[i]);
	assert_string_not_equal(losses.step[4], plain.step[4]);
	assert_true(strtod(losses.step[4], NULL) > strtod(plain.step[4], NULL));
	expect(run_interrupted("selective-killed", 12, keep, begin, end, NULL), 0);
	same_losses("selective", "selective-killed");
	same_file("selective", "selective-killed", "model.safetensors");
	expect(run("selective-all", "train.selective_backprop=1", begin, end,
		   "train.selective_interrupt=0", NULL),
	       0);
	same_losses("unbroken", "selective-all");
	same_file("unbroken", "selective-all", "model.safetensors");
	expect(run("selective-more", keep, begin, end, mixup, parts, sam, colout, NULL), 0);
	expect(run_emulated("selective-gpu", keep, begin, end, NULL), 0);
	expect(run_emulated("selective-more-gpu", keep, begin, end, mixup, parts, sam, colout,
			    NULL),
	       0);
	assert_true(max_difference("selective", "selective-gpu") < 1e-3);
	assert_true(max_difference("selective-more", "selective-more-gpu") < 1e-3);
	expect(run("selective-odd", "train.selective_backprop=0.45", parts, NULL), 1);
	expect_output("train.selective_backprop = 0.45 keeps 7 of data.batch_size = 16, which is");
	expect(run("selective-pairs", "train.selective_backprop=0.45", mixup, NULL), 1);
	expect_output("is not divisible into 1 micro-batch of pairs to blend");
}

/*
 * Each image occurs twice in its batch, so an epoch has as many steps as with half the batch size.
 * The run is resumed, and repeated on a GPU.
 */
TEST(repeats)
{
	static const char repeats[] = "data.repeats=2", epochs[] = "train.epochs=0.5";
	static struct losses losses;
	expect(run("repeats", repeats, epochs, "log.samples=yes", NULL), 0);
	read_log("repeats", &losses);
	assert_int_equal(losses.steps, 20); /* 325 images, 8 different ones per step */
	json_t *line =
		json_load_file(run_path("repeats", "samples.jsonl"), JSON_DISABLE_EOF_CHECK, NULL);
	json_t *samples = json_object_get(line, "samples");
	assert_int_equal(json_array_size(samples), 16);
	for (size_t i = 0; i < 8; i++)
		assert_true(json_equal(json_array_get(samples, i), json_array_get(samples, 8 + i)));
	json_decref(line);
	run_killed("repeats-killed", 9, repeats, epochs, NULL);
	expect(run("repeats-killed", "--resume", epochs, NULL), 1);
	expect_output("data.repeats is \"1\" but was \"2\" in the checkpoint");
	expect(run("repeats-killed", "--resume", repeats, epochs, NULL), 0);
	same_losses("repeats", "repeats-killed");
	expect(run_emulated("repeats-gpu", repeats, epochs, NULL), 0);
	assert_true(max_difference("repeats", "repeats-gpu") < 1e-3);
}

/*
 * With data.augment = device, the device runs the last transforms of the pipeline and gives the
 * same images bit for bit, with all methods that split a batch. A run is resumed, the last time
 * with these transforms in the daemon, and repeated on a GPU.
 */
TEST(deferred)
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
	assert_true(max_difference("undeferred", "unbroken") > 1e-3);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		snprintf(at_daemon, sizeof(at_daemon), "undeferred-%zu", i);
		snprintf(at_device, sizeof(at_device), "deferred-%zu", i);
		expect(run(at_daemon, pipeline, others[i][0], others[i][1], others[i][2], NULL), 0);
		expect(run(at_device, device, pipeline, others[i][0], others[i][1], others[i][2],
			   NULL),
		       0);
		same_losses(at_daemon, at_device);
	}
	run_killed("deferred-killed", 9, device, pipeline, NULL);
	run_killed("deferred-killed", 23, "--resume", device, pipeline, NULL);
	expect(run("deferred-killed", "--resume", pipeline, NULL), 0);
	same_losses("deferred", "deferred-killed");
	expect(run_emulated("deferred-gpu", device, pipeline, NULL), 0);
	assert_true(max_difference("deferred", "deferred-gpu") < 1e-3);
	expect(run("deferred-floats", device, "data.pipeline=resize(32x32) to(f32)", NULL), 1);
	expect_output("data.pipeline: transforms can be deferred only where bytes are delivered");
	expect_output("; or set data.augment=daemon");
}

/*
 * Each step draws its blended samples independently. The draws are the same after an interruption,
 * in micro-batches and on a GPU.
 */
TEST(mixed)
{
	static const char mixup[] = "train.mixup=0.8", cutmix[] = "train.cutmix=1",
			  prob[] = "train.mix_prob=0.8", by[] = "train.mix_by=sample";
	expect(run("mixed", mixup, cutmix, prob, by, NULL), 0);
	expect(run_interrupted("mixed-killed", 17, mixup, cutmix, prob, by, NULL), 0);
	same_losses("mixed", "mixed-killed");
	expect(run("unmixed", mixup, cutmix, "train.mix_prob=0", NULL), 0);
	assert_true(max_difference("mixed", "unmixed") > 1e-3);
	same_losses("unmixed", "unbroken");
	expect(run_emulated("mixed-gpu", mixup, cutmix, prob, by, NULL), 0);
	assert_true(max_difference("mixed", "mixed-gpu") < 1e-3);
	/* also with rows and columns dropped, in micro-batches */
	static const char colout[] = "data.colout=0.2", parts[] = "train.accumulate=2";
	expect(run("thinned", mixup, colout, parts, NULL), 0);
	expect(run_interrupted("thinned-killed", 17, mixup, colout, parts, NULL), 0);
	same_losses("thinned", "thinned-killed");
	expect(run("whole", mixup, parts, NULL), 0);
	assert_true(max_difference("thinned", "whole") > 1e-3);
	expect(run_emulated("thinned-gpu", mixup, colout, parts, NULL), 0);
	assert_true(max_difference("thinned", "thinned-gpu") < 1e-3);
	expect(run("odd", mixup, "data.batch_size=15", NULL), 1);
	expect_output("train.mixup blends pairs of samples, but data.batch_size = 15");
}

/*
 * Ghost batches have the statistics, and therefore the losses, of micro-batches of their size. The
 * run is resumed, repeated on a GPU, and computes the statistics of averaged weights.
 */
TEST(ghosts)
{
	static const char ghost[] = "model.ghost_batch=8", swa[] = "train.swa=1",
			  every[] = "train.swa_every=0", ema[] = "train.ema=0";
	expect(run("ghosts", ghost, swa, every, ema, NULL), 0);
	expect(run_interrupted("ghosts-killed", 13, ghost, swa, every, ema, NULL), 0);
	same_losses("ghosts", "ghosts-killed");
	same_file("ghosts", "ghosts-killed", "model.safetensors");
	expect(run("ghosts-parts", "train.accumulate=2", swa, every, ema, NULL), 0);
	assert_true(max_difference("ghosts", "ghosts-parts") < 1e-3);
	assert_true(max_difference("ghosts", "unbroken") > 1e-3);
	/*
	 * the statistics of the averaged weights cover all ghost batches equally, except for the
	 * momentum within a pass
	 */
	static struct losses losses, parts;
	read_log("ghosts", &losses);
	read_log("ghosts-parts", &parts);
	double one = strtod(losses.eval[losses.evals - 1], NULL);
	double other = strtod(parts.eval[parts.evals - 1], NULL);
	assert_true(fabs(one / other - 1) < 1e-2);
	expect(run_emulated("ghosts-gpu", ghost, swa, every, ema, NULL), 0);
	assert_true(max_difference("ghosts", "ghosts-gpu") < 1e-3);
	expect(run("ghosts-large", "model.ghost_batch=17", NULL), 1);
	expect_output("model.ghost_batch = 17 exceeds the 16 samples that a batch norm sees");
}

/*
 * Distillation:
 * - with equal weights of the network, the loss is linear in the teacher's weight;
 * - the teacher's term is zero if the teacher is the network itself;
 * - a run resumes bit for bit, but only with the same teacher;
 * - it works in micro-batches, with mixup and colout, and on a GPU.
 */
TEST(taught)
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
	snprintf(teacher, sizeof(teacher), "train.teacher=%s",
		 run_path("unbroken", "model.safetensors"));
	snprintf(of, sizeof(of), "train.teacher_recipe=%s", run_path("unbroken", "recipe.ini"));
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
	/* with frozen batch norms the network normalises as in evaluation and equals its teacher */
	snprintf(start_from, sizeof(start_from), "model.pretrained=%s",
		 run_path("unbroken", "model.safetensors"));
	expect(run("itself", one, cold, teacher, of, all, start_from,
		   "train.freeze=*bn* *downsample*", NULL),
	       0);
	read_log("itself", &losses);
	assert_true(fabs(strtod(losses.step[0], NULL)) < 1e-6);
	/* a checkpoint contains a description of its network */
	snprintf(checkpoint, sizeof(checkpoint), "train.teacher=%s",
		 run_path("unbroken", "checkpoint-00000040.safetensors"));
	expect(run("from-checkpoint", one, cold, checkpoint, NULL), 0);
	expect(run("taught", teacher, of, mixup, colout, parts, sam, NULL), 0);
	run_killed("taught-killed", 17, teacher, of, mixup, colout, parts, sam, NULL);
	expect(run("taught-killed", "--resume", mixup, colout, parts, sam, NULL), 1);
	expect_output("train.teacher is not set, but there was a teacher when the checkpoint was "
		      "written");
	snprintf(other, sizeof(other), "train.teacher=%s",
		 run_path("unbroken", "best.safetensors"));
	expect(run("taught-killed", "--resume", checkpoint, mixup, colout, parts, sam, NULL), 1);
	expect_output("is another teacher or network than when the checkpoint was "
		      "written");
	expect(run("taught-killed", "--resume", teacher, of, mixup, colout, parts, sam, NULL), 0);
	same_losses("taught", "taught-killed");
	same_file("taught", "taught-killed", "model.safetensors");
	expect(run("untaught", mixup, colout, parts, sam, NULL), 0);
	assert_true(max_difference("taught", "untaught") > 1e-3);
	expect(run("taught-alone", teacher, of, mixup, plain, NULL), 0);
	expect(run_emulated("taught-gpu", teacher, of, mixup, plain, NULL), 0);
	assert_true(max_difference("taught-alone", "taught-gpu") < 1e-3);
	expect(run("who", teacher, NULL), 1);
	expect_output("does not record its network: set train.teacher_recipe");
	snprintf(other, sizeof(other), "train.teacher_recipe=%s", run_path("who", "none.ini"));
	expect(run("who", teacher, other, NULL), 1);
	expect_output("train.teacher_recipe: ");
}

TEST_MAIN(trainer_setup_unbroken, trainer_teardown)
