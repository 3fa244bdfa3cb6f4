/*
 * Batch sizes that exceed the memory. With train.accumulate = auto the run determines the number of
 * micro-batches and stores it in checkpoints; --find-batch-size searches for the largest batch. The
 * recipe's batch of 16 exceeds the memory limits of these tests, on the CPU and on an emulated GPU.
 */
#include "tests/integration/trainer/trainer_fixture.h"

static const char found[] = "train.accumulate=auto";

/* Returns the number of micro-batches from the start line of a run's log. */
static unsigned micro_batches_in_log(const char *name)
{
	json_t *start = start_event(name);
	unsigned parts = (unsigned)json_integer_value(json_object_get(start, "accumulate"));
	json_decref(start);
	return parts;
}

/*
 * A run that determines the number of micro-batches equals a run with that number in its recipe,
 * also if it is interrupted.
 */
TEST(found)
{
	static const char limit[] = "train.memory_limit=0.0004";
	expect(run("refused", limit, NULL), 1);
	expect_output(
		"planning model.name = resnet_cifar with model.width = 0.5 for 16 images of 16 "
		"x 16: activations and workspace "
		"take ");
	expect_output(" are allowed; use a smaller batch. Largest: ");
	expect_output("train.accumulate=auto computes each batch in as few micro-batches as fit");
	expect(run("found", found, limit, NULL), 0);
	unsigned parts = micro_batches_in_log("found");
	assert_true(parts > 1 && 16 % parts == 0);
	char text[256], given[64];
	snprintf(text, sizeof(text),
		 "computing batches of 16 in %u micro-batches of %u per device, since larger ones "
		 "do not fit: planning model.name = resnet_cifar with model.width = 0.5 for %u "
		 "image",
		 parts, 16 / parts, 32 / parts);
	expect_output(text);
	expect_output("; batch norms use the statistics of micro-batches");
	snprintf(given, sizeof(given), "train.accumulate=%u", parts);
	expect(run("given", given, limit, NULL), 0);
	same_losses("found", "given");
	same_file("found", "given", "model.safetensors");
	assert_true(max_difference("found", "unbroken") > 1e-3);
	/*
	 * a resumed run keeps its number of micro-batches, even if memory now suffices for the
	 * whole batch
	 */
	run_killed("found-killed", 11, found, limit, NULL);
	expect(run("found-killed", "--resume", found, NULL), 0);
	same_losses("found", "found-killed");
	same_file("found", "found-killed", "model.safetensors");
	expect(run("unlimited", found, NULL), 0);
	assert_int_equal(micro_batches_in_log("unlimited"), 1);
	same_losses("unlimited", "unbroken");
}

/* With less memory than before, the resumed run uses more micro-batches and reports it. */
TEST(found_again)
{
	static const char limit[] = "train.memory_limit=0.0002", last[] = "train.epochs=2.5";
	expect(run("found", "--resume", found, limit, last, "--allow-changes", NULL), 0);
	expect_output("the losses are equivalent to those of an uninterrupted run, but not bitwise "
		      "equal");
}

/* Not even micro-batches of one image fit. */
TEST(nothing_fits)
{
	expect(run("nothing", found, "train.memory_limit=0.00001", NULL), 1);
	expect_output(
		"data.batch_size = 16 does not fit into device memory even with the smallest "
		"micro-batches, of 1 samples (train.accumulate = auto): planning model.name = "
		"resnet_cifar with model.width = 0.5 for 1 image of 16 x 16: activations and "
		"workspace take ");
	expect_output("Remedies: smaller images");
	/* mixup blends pairs, so the smallest micro-batch has two images */
	expect(run("nothing", found, "train.memory_limit=0.00001", "train.mixup=1", NULL), 1);
	expect_output("even with the smallest micro-batches, of 2");
	expect(run("nothing", "train.accumulate=some", NULL), 1);
	expect_output(
		"train.accumulate = \"some\": expected a whole number from 1 to 65536, or auto");
}

/*
 * Images grow during the run, and the number of micro-batches changes with them. In an interrupted
 * run it changes at the same step.
 */
TEST(found_while_growing)
{
	static const char pipeline[] = "data.pipeline=random_resized_crop(16@0;24@1) hflip(0.5)",
			  limit[] = "train.memory_limit=0.0018", val[] = "data.val=";
	expect(run("grows", pipeline, found, limit, val, NULL), 0);
	assert_int_equal(micro_batches_in_log("grows"), 1);
	expect_output("since larger ones do not fit: planning model.name = resnet_cifar with "
		      "model.width = "
		      "0.5 for 16 images of 24 x 24");
	expect(run_interrupted("grows-killed", 11, pipeline, found, limit, val, NULL), 0);
	same_losses("grows", "grows-killed");
}

TEST(found_on_a_gpu)
{
	static const char limit[] = "train.memory_limit=0.0006";
	expect(run_emulated("found-gpu", found, limit, NULL), 0);
	char given[64];
	unsigned parts = micro_batches_in_log("found-gpu");
	assert_true(parts > 1);
	expect_output("GiB are allowed: activations and workspace take ");
	snprintf(given, sizeof(given), "train.accumulate=%u", parts);
	expect(run("given-cpu", given, NULL), 0);
	assert_true(max_difference("given-cpu", "found-gpu") < 1e-3);
}

/* Runs on an emulated GPU with this much memory. */
static int run_in(unsigned kib, const char *name, const char *setting, const char *other)
{
	char bytes[32];
	snprintf(bytes, sizeof(bytes), "%u", kib << 10);
	setenv("LOADERD_EMULATED_MEMORY", bytes, 1);
	int status = run_emulated(name, "data.val=", setting, other, NULL);
	unsetenv("LOADERD_EMULATED_MEMORY");
	return status;
}

/*
 * A batch fits according to the memory plan but fails in the step: float images take more memory
 * than the bytes that the plan assumes. With train.accumulate = auto, a warm-up before the first
 * step detects this, and the run uses micro-batches.
 */
TEST(found_by_warmup)
{
	static const char floats[] = "data.pipeline=random_crop(16, padding=2) hflip(0.5) to(f32)";
	unsigned fails = 0, fits = 16 << 10;
	while (fits - fails > 4) {
		unsigned middle = (fits + fails) / 2;
		*(run_in(middle, "room", "--dry-run", NULL) ? &fails : &fits) = middle;
	}
	expect(run_in(fits, "room", floats, NULL), 1);
	expect_output("step 1: feeding a batch: memory for a batch: ");
	expect_output(
		"; no checkpoint has been written yet. Remedies: end other programs that have "
		"taken device memory");
	expect(run_in(fits, "warmed", floats, found), 0);
	assert_int_equal(micro_batches_in_log("warmed"), 2);
	expect_output("since larger ones do not fit: computing model.name = resnet_cifar for 16 "
		      "images of 16 "
		      "x 16: memory for a batch: ");
	expect(run_in(16 << 10, "warmed-given", floats, "train.accumulate=2"), 0);
	same_losses("warmed", "warmed-given");
	same_file("warmed", "warmed-given", "model.safetensors");
}

/*
 * The warm-up has no effect on the run, even with running statistics, random draws of dropout and
 * mixup, loss scaling and momentum.
 */
TEST(warmup_is_forgotten)
{
	static const char *const methods[] = {"train.mixup=0.4", "model.dropout=0.2",
					      "train.sam=0.05", "data.colout=0.15"};
	for (int gpu = 0; gpu < 2; gpu++) {
		const char *device = gpu ? "--device=cuda" : "--device=cpu";
		trainer = getenv(gpu ? "TRAINER_EMULATED" : "TRAINER");
		int status = 0;
		for (int given = 0; given < 2 && !status; given++)
			status = run(given ? "given-all" : "found-all", device, "--overwrite",
				     "data.val=", given ? "train.accumulate=1" : found, methods[0],
				     methods[1], methods[2], methods[3], NULL);
		trainer = getenv("TRAINER");
		expect(status, 0);
		same_losses("given-all", "found-all");
		same_file("given-all", "found-all", "model.safetensors");
	}
}

/* Images grow beyond the available memory: the run saves its state before it fails. */
TEST(grows_too_large)
{
	static const char pipeline[] = "data.pipeline=random_resized_crop(16@0;24@1) hflip(0.5)",
			  limit[] = "train.memory_limit=0.0018", val[] = "data.val=";
	char goes_on[64];
	expect(run("outgrows", pipeline, limit, val, NULL), 1);
	expect_output("for 16 images of 24 x 24: activations and workspace take ");
	expect_output(". train.accumulate=auto computes each batch in as few micro-batches as fit");
	snprintf(goes_on, sizeof(goes_on), "--resume continues from step %d", STEPS / 2);
	expect_output(goes_on);
	expect(run("outgrows", "--resume", pipeline, limit, val, found, NULL), 0);
	same_losses("grows", "outgrows");
}

static unsigned read_table(const char *path, double (*ret_rows)[5])
{
	char line[256];
	unsigned rows = 0;
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line,
			    "batch_size,images_per_second,ms_per_step,arena_mib,training_time\n");
	while (fgets(line, sizeof(line), file)) {
		char *at = line;
		for (int i = 0; i < 5; i++, at += *at == ',')
			ret_rows[rows][i] = strtod(at, &at);
		rows++;
	}
	fclose(file);
	return rows;
}

/* Finds the exact largest batch within the limit, and leaves an existing run unchanged. */
TEST(batch_size)
{
	static const char limit[] = "train.memory_limit=0.0025", val[] = "data.val=";
	char option[PATH_MAX + 64], size[64];
	double rows[16][5];
	snprintf(option, sizeof(option), "--find-batch-size=%s", run_path("unbroken", "batch"));
	expect(run("unbroken", option, limit, val, "train.threads=1", NULL), 0);
	unsigned count = read_table(run_path("unbroken", "batch.csv"), rows);
	assert_true(count >= 3 && rows[0][0] == 8 && rows[1][0] == 16);
	expect_in_file("unbroken", "batch.svg", ">dots: single measurements; line: their median<");
	unsigned largest = (unsigned)rows[count - 1][0];
	assert_true(largest % 8 == 0 && largest < 320);
	expect_output("measuring the gradient noise scale over 50 steps\n");
	expect_output("batches of 8 images fit\n");
	expect_output(" images do not fit\n");
	expect_output("batches of 8 images: ");
	expect_output(" images/s, pass 3 of 3\n");
	expect_output("images, from gradients of 2 and of 16 images over 50 steps");
	expect_output("suggested           data.batch_size=");
	double best = 1e9;
	for (unsigned i = 0; i < count; i++) {
		assert_true(rows[i][1] > 0 && rows[i][3] > 0 && rows[i][3] < 0.0025 * 1024);
		best = rows[i][4] < best ? rows[i][4] : best;
	}
	assert_true(best == 1);
	snprintf(size, sizeof(size), "data.batch_size=%u", largest);
	expect(run("fits", size, limit, val, "--dry-run", NULL), 0);
	snprintf(size, sizeof(size), "data.batch_size=%u", largest + 8);
	expect(run("fits", size, limit, val, "--dry-run", NULL), 1);
	expect_output("are allowed; use a smaller batch");
}

/*
 * --find-batch-size if the whole dataset fits, if a batch cannot be divided for the noise scale, if
 * nothing fits, and with an incompatible option.
 */
TEST(batch_size_bounds)
{
	char option[PATH_MAX + 64];
	snprintf(option, sizeof(option), "--find-batch-size=%s", run_path("unbroken", "bound"));
	expect(run("unbroken", option, "data.batch_size=1", "data.val=", "train.threads=1", NULL),
	       0);
	expect_output("largest that fits   320: larger sizes were not tried, since an epoch has "
		      "only 325 samples");
	expect_output("noise scale         unknown: data.batch_size = 1 is not divisible");
	expect(run("unbroken", option, "train.memory_limit=0.0003", "data.batch_size=1",
		   "data.val=", NULL),
	       1);
	expect_output(
		"--find-batch-size: even batches of 8 images do not fit: planning model.name");
	expect(run("unbroken", option, "--resume", NULL), 1);
	expect_output("--find-batch-size starts from the initial weights and does nothing else");
}

/* The noise scale on a GPU agrees with the CPU's. */
TEST(noise_on_a_gpu)
{
	static const char limit[] = "train.memory_limit=0.0008", batch[] = "data.batch_size=16";
	static const char label[] = "noise scale         ";
	char option[PATH_MAX + 64];
	double scale[2];
	snprintf(option, sizeof(option), "--find-batch-size=%s", run_path("unbroken", "gpu"));
	for (int i = 0; i < 2; i++) {
		trainer = getenv(i ? "TRAINER_EMULATED" : "TRAINER");
		int status = run("noise", option, i ? "--device=cuda" : "--device=cpu", limit,
				 batch, "data.val=", "optim.lr=0.001", "train.threads=1", NULL);
		trainer = getenv("TRAINER");
		expect(status, 0);
		expect_output(label);
		scale[i] = strtod(strstr(said, label) + strlen(label), NULL);
		assert_true(scale[i] > 0);
	}
	assert_true(scale[1] / scale[0] > 0.98 && scale[1] / scale[0] < 1.02);
}

/*
 * --overfit-batch disables everything that keeps the network from learning the batch. Also tests a
 * learning rate that is too low.
 */
TEST(overfitted)
{
	static const char overfit[] = "--overfit-batch";
	expect(run("overfitted", overfit, "optim.lr=0.05", "train.label_smoothing=0.3",
		   "train.mixup=1", "model.dropout=0.5", "train.accumulate=2", NULL),
	       0);
	expect_output("the network memorised the first batch in ");
	assert_false(exists("overfitted", "log.jsonl"));
	expect(run("overfitted", overfit, "optim.lr=1e-7", NULL), 1);
	expect_output("--overfit-batch: after 300 steps on the same images the loss is ");
	expect(run("overfitted", overfit, "--resume", NULL), 1);
	expect_output("cannot be combined with --resume");
}

static int check_gradients(const char *program, const char *device, const char *setting,
			   const char *other)
{
	trainer = getenv(program);
	int status = run("checked", "--check-gradients", "data.batch_size=8", device, setting,
			 other, NULL);
	trainer = getenv("TRAINER");
	return status;
}

/*
 * --check-gradients accepts correct gradients: with batch norm and layer norm, with random draws
 * that repeat, and on a GPU.
 */
TEST(gradients_are_followed)
{
	static const char *const settings[][2] = {
		{"train.precision=bf16", "model.dropout=0.2"},
		{"train.mixup=0.5", "train.accumulate=2"},
		{"model.name=vit_tiny_patch16", "train.freeze=blocks.?.* blocks.10.*"},
		{"model.squeeze_excite=yes", "train.recompute=1"},
	};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		expect(check_gradients("TRAINER", "--device=cpu", settings[i][0], settings[i][1]),
		       0);
		expect_output("matches the gradients of ");
		assert_int_equal(count_output("DIFFERS"), 0);
	}
	expect(check_gradients("TRAINER_EMULATED", "--device=cuda", "train.precision=fp16", NULL),
	       0);
	expect_output("matches the gradients of ");
	assert_false(exists("checked", "log.jsonl"));
}

TEST(wrong_gradients_are_found)
{
	expect(check_gradients("TRAINER_FAULTY", "--device=cpu", NULL, NULL), 1);
	assert_int_equal(count_output("DIFFERS"), 1);
	expect_output(" 1 have gradients that differ from the slope of the loss");
	expect(check_gradients("TRAINER", "--device=cpu", "--resume", NULL), 1);
	expect_output("--check-gradients starts from the initial weights and does nothing else: it "
		      "cannot be combined with --resume");
}

TEST_MAIN(trainer_setup_unbroken, trainer_teardown)
