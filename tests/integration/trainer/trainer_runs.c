/*
 * Runs of the trainer as a process: output of an uninterrupted run, refusals and failures; with a
 * private daemon, with a shared daemon, and in a directory shared with another trainer.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

/* Asserts that weights record the class names and, if images were bytes, the normalisation. */
static void expect_described(const char *run, const char *name, bool normalised)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *file;
	assert_int_equal(safetensors_open(run_path(run, name), &file, error), 0);
	assert_int_equal(!!safetensors_metadata(file, "trainer.mean"), normalised);
	assert_int_equal(!!safetensors_metadata(file, "trainer.std"), normalised);
	assert_non_null(safetensors_metadata(file, "trainer.class_names"));
	assert_string_equal(safetensors_metadata(file, "trainer.class_names"),
			    "[\"zero\",\"one\",\"two\",\"three\",\"four\",\"five\",\"six\","
			    "\"seven\",\"eight\",\"nine\"]");
	safetensors_close(file);
}

/* The reference run and its output. */
TEST(unbroken)
{
	static struct losses losses;
	expect(run("unbroken", NULL), 0);
	read_log("unbroken", &losses);
	assert_int_equal(losses.steps, STEPS);
	assert_int_equal(losses.evals, 2);
	assert_string_not_equal(losses.step[0], losses.step[STEPS - 1]);
	assert_true(exists("unbroken", "checkpoint-00000040.safetensors"));
	assert_true(exists("unbroken", "checkpoint-00000035.safetensors"));
	assert_false(exists("unbroken", "checkpoint-00000028.safetensors"));
	assert_true(exists("unbroken", "best.safetensors"));
	assert_true(exists("unbroken", "model.safetensors"));
	json_t *summary = json_load_file(run_path("unbroken", "summary.json"), 0, NULL);
	assert_string_equal(json_string_value(json_object_get(summary, "outcome")), "finished");
	assert_int_equal(json_integer_value(json_object_get(summary, "steps")), STEPS);
	assert_int_equal(json_integer_value(json_object_get(summary, "images")), STEPS * 16);
	assert_int_equal(json_integer_value(json_object_get(summary, "val_samples")), 50);
	json_decref(summary);
	expect_described("unbroken", "best.safetensors", true);
	expect_described("unbroken", "model.safetensors", true);
	expect_described("unbroken", "checkpoint-00000040.safetensors", true);
	expect(run("floats", "data.pipeline=to(f32)", "data.val_pipeline=to(f32)",
		   "train.epochs=0.3", NULL),
	       0);
	expect_described("floats", "model.safetensors", false);
	expect(run("again", NULL), 0);
	same_losses("unbroken", "again");
	same_file("unbroken", "again", "model.safetensors");
}

/* A run is neither overwritten by accident nor continued with a recipe that changes it. */
TEST(refused)
{
	expect(run("unbroken", NULL), 1);
	expect_output("use --resume to continue it");
	expect(run("unbroken", "--resume", "--dry-run", NULL), 0);
	expect_output("resumed at step 40 (epoch 2, batch 0), the last one: ");
	expect(run("unbroken", "--resume", "optim.lr=0.2", NULL), 1);
	expect_output("optim.lr is \"0.2\" but was \"0.1\" in the checkpoint");
	expect(run("unbroken", "--resume", "--allow-changes", "model.width=1", NULL), 1);
	expect_output("model.width");
	expect(run("unbroken", "--resume", "--seed", "5", NULL), 1);
	expect_output("train.seed");
	char other[PATH_MAX + 100];
	snprintf(other, sizeof(other), "data.train=%s", validation);
	expect(run("unbroken", "--resume", other, NULL), 1);
	expect_output("data.train has 50 samples, but had 325");
	expect(run("refused", "data.batch_size=326", NULL), 1);
	expect_output("data.batch_size = 326 exceeds the 325 samples");
	expect(run("refused", "--dry-run", "data.pipeline=to(f32) layout(nchw)", NULL), 1);
	expect_output("data.pipeline delivers planes (nchw)");
	/* options of evaluation are checked before the first step */
	expect(run("refused", "data.val_pipeline=layout(nchw)", NULL), 1);
	expect_output("data.val_pipeline delivers planes (nchw)");
	expect(run("refused", "data.val_pipeline=to(f32)", NULL), 1);
	expect_output("data.pipeline delivers u8, data.val_pipeline floats");
	expect(run("refused", "data.val_pipeline=resise(16)", NULL), 1);
	expect_output("data.val_pipeline: at byte 0: there is no transform 'resise'");
	expect(run("refused", "data.val_pipeline=random_crop(17)", NULL), 1);
	expect_output("data.val, data.val_pipeline: ");
	assert_false(exists("refused", "log.jsonl"));
	expect(run("refused", "train.precision=fp16", "--device=cpu", NULL), 1);
	expect_output("train.device = cpu: the CPU does not train in fp16");
	expect(run("refused", "data.pipeline=hflop(1)", NULL), 1);
	expect_output("data.pipeline: at byte 0: ");
	expect(run("refused", "data.train=/nonexistent.pimg", NULL), 1);
	expect_output("data.train: ");
	expect_output("/nonexistent.pimg");
	expect(run("refused", "data.val=/nonexistent.pimg", NULL), 1);
	expect_output("data.val: ");
	expect(run("refused", "model.classes=4", NULL), 1);
	expect_output("model.classes = 4");
	expect(run("refused", "--socket", "/nonexistent/socket", NULL), 1);
	expect(run("refused", "data.bathc_size=3", NULL), 1);
	expect_output("did you mean data.batch_size?");
}

/*
 * --evaluate of a trained model gives the result found in training; mirrored and shifted views have
 * an effect.
 */
static void evaluate(const char *pretrained)
{
	static struct losses before, after, flipped, mirrored, shifted, turned;
	expect(run("evaluated", pretrained, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	read_log("unbroken", &before);
	read_log("evaluated", &after);
	assert_int_equal(after.evals, 1);
	assert_string_equal(strchr(before.eval[1], ' '), strchr(after.eval[0], ' '));
	/*
	 * the same result as a line of JSON, and no file; also for the averaged weights of a
	 * checkpoint
	 */
	const char *const alone[] = {pretrained, "--resume"};
	json_t *summary = json_load_file(run_path("unbroken", "summary.json"), 0, NULL);
	for (int i = 0; i < 2; i++) {
		expect(run("unbroken", "--evaluate", alone[i], NULL), 0);
		assert_non_null(strrchr(said, '{'));
		json_t *result = json_loads(strrchr(said, '{'), 0, NULL);
		const char *key;
		json_t *value;
		assert_int_equal(json_object_size(result), 4);
		json_object_foreach(result, key, value)
			assert_true(json_equal(value, json_object_get(summary, key)));
		json_decref(result);
	}
	json_decref(summary);
	/* also on another device; the learning rate has no effect */
	expect(run("unbroken", "--evaluate", "--resume", "--device=cpu", "optim.lr=0.2", NULL), 0);
	expect(run("nothing", "--evaluate", pretrained, NULL), 0);
	assert_false(exists("nothing", ""));
	expect(run("nothing", "--evaluate", NULL), 1);
	expect_output("--evaluate: no weights are given: set model.pretrained=FILE");
	expect(run("nothing", "--evaluate", pretrained, "model.classes=12", NULL), 1);
	expect_output("model.safetensors has no last layer with 12 classes");
	expect(run("nothing", "--evaluate", pretrained, "--resume", NULL), 1);
	expect_output("--evaluate --resume: ");
	expect_output("nothing/ contains no checkpoint");
	expect(run("nothing", "--evaluate", pretrained, "data.val=", NULL), 1);
	expect_output("--evaluate: data.val is not set");

	/* Averaging over mirror images: mirroring the images changes nothing but rounding. */
	expect(run("flipped", pretrained, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_flip=yes", NULL),
	       0);
	expect(run("mirrored", pretrained, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_flip=yes", "data.val_pipeline=hflip(1)", NULL),
	       0);
	read_log("flipped", &flipped);
	read_log("mirrored", &mirrored);
	double loss = strtod(strchr(flipped.eval[0], ' '), NULL);
	assert_true(fabs(loss - strtod(strchr(mirrored.eval[0], ' '), NULL)) < 1e-5);
	assert_true(fabs(loss - strtod(strchr(after.eval[0], ' '), NULL)) > 1e-5);

	expect(run("shifted", pretrained, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_shift=1", NULL),
	       0);
	expect(run("turned", pretrained, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_shift=15", NULL),
	       0);
	read_log("shifted", &shifted);
	read_log("turned", &turned);
	loss = strtod(strchr(shifted.eval[0], ' '), NULL);
	assert_true(fabs(loss - strtod(strchr(after.eval[0], ' '), NULL)) > 1e-5);
	assert_true(fabs(loss - strtod(strchr(turned.eval[0], ' '), NULL)) > 1e-5);
	expect(run("shifted", "--overwrite", "train.eval_shift=16", NULL), 1);
	expect_output("train.eval_shift = 16 is too large for the images of data.val, 16 x 16: use "
		      "at most 15");
}

/* Writes the model of "unbroken" with last-layer weights that give infinite logits. */
static void write_overflowing(const char *path)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *file;
	struct safetensors_tensor tensors[256];
	assert_int_equal(safetensors_open(run_path("unbroken", "model.safetensors"), &file, error),
			 0);
	size_t count = safetensors_count(file);
	assert_true(count <= 256);
	for (size_t i = 0; i < count; i++) {
		tensors[i] = *safetensors_at(file, i);
		tensors[i].data = values((unsigned)i, file, tensors[i].name);
		for (size_t k = 0;
		     strcmp(tensors[i].name, "fc.weight") == 0 && k < tensors[i].size / 4; k++)
			((float *)(uintptr_t)tensors[i].data)[k] = FLT_MAX;
	}
	struct safetensors_writer writer = {tensors, count, NULL, 0, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	safetensors_close(file);
}

/*
 * A loss that is not finite ends the run with the step and remedies, also in fine-tuning and with
 * --evaluate.
 */
TEST(diverged)
{
	char argument[PATH_MAX + 400];
	snprintf(argument, sizeof(argument), "model.pretrained=%s",
		 run_path("unbroken", "model.safetensors"));
	evaluate(argument);

	snprintf(argument, sizeof(argument), "model.pretrained=%s/bad.safetensors", fixture.folder);
	write_overflowing(strchr(argument, '=') + 1);
	expect(run("diverged", argument, NULL), 1);
	expect_output("step 1 (epoch 0.000): the loss is");
	expect_output("a lower optim.lr");
	expect_end("diverged", "failed", "step 1 (epoch 0.000): the loss is");
	assert_false(exists("diverged", "model.safetensors"));
	expect(run("not-finite", argument, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	json_t *summary = json_load_file(run_path("not-finite", "summary.json"), 0, NULL);
	assert_true(json_is_null(json_object_get(summary, "val_loss")));
	json_decref(summary);
	/* --detect-anomaly names the tensor, on every kind of device */
	for (int gpu = 0; gpu < 2; gpu++) {
		trainer = getenv(gpu ? "TRAINER_EMULATED" : "TRAINER");
		int status = run("anomaly", argument, "--detect-anomaly",
				 gpu ? "--device=cuda" : "--device=cpu", NULL);
		trainer = getenv("TRAINER");
		expect(status, 1);
		expect_output("step 1: computing: fc: its result is not finite");
	}
}

/* With a shared daemon the run is the same. */
TEST(shared_daemon)
{
	fixture_start(&fixture, NULL, NULL);
	expect(run("shared", "--socket", fixture.socket, NULL), 0);
	same_losses("unbroken", "shared");
	pid_t pid = start("orphan", "--socket", fixture.socket, "data.reconnect=0", NULL);
	wait_for_step("orphan", pid, 10);
	fixture_stop(&fixture, SIGKILL);
	expect(finish(pid, "orphan"), 1);
	/*
	 * If the batches in the ring last to the end of the epoch, the trainer fails when it opens
	 * the evaluation's feed.
	 */
	const char *words = count_output("lost the connection to the daemon")
				    ? "lost the connection to the daemon"
				    : "No daemon listens on";
	expect_output(words);
	expect_end("orphan", "failed", words);
	expect(run("orphan", "--resume", NULL), 0);
	same_losses("unbroken", "orphan");
	expect_end("orphan", "finished", NULL);
}

/* Returns the trainer's child daemon, 0 if it has none. */
static pid_t private_daemon_of(pid_t pid)
{
	char path[64];
	int daemon = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *file = fopen(path, "re");
	if (file && fscanf(file, "%d", &daemon) != 1)
		daemon = 0;
	if (file)
		fclose(file);
	return daemon;
}

static void expect_reconnects(const char *run, unsigned expected)
{
	unsigned events = 0;
	char line[1 << 16];
	FILE *file = fopen(run_path(run, "log.jsonl"), "re");
	while (fgets(line, sizeof(line), file))
		events += strstr(line, "\"event\":\"reconnect\"") != NULL;
	fclose(file);
	assert_int_equal(events, expected);
	assert_int_equal(count_output("; the feed goes on at epoch "), expected);
}

/* Kills the daemon at this step. Stops the trainer meanwhile, so that it does not finish first. */
static void kill_at(const char *run, pid_t pid, unsigned step, bool own)
{
	wait_for_step(run, pid, step);
	kill(pid, SIGSTOP);
	if (own)
		kill(private_daemon_of(pid), SIGKILL);
	else
		fixture_stop(&fixture, SIGKILL);
	kill(pid, SIGCONT);
}

/* The run is the same if its daemon, a service or a private one, is killed and replaced. */
static void survive(const char *device, const char *undisturbed, const char *served,
		    const char *alone)
{
	expect(run(undisturbed, device, "train.epochs=10", NULL), 0);
	fixture_start(&fixture, NULL, NULL);
	pid_t pid = start(served, device, "train.epochs=10", "--socket", fixture.socket, NULL);
	for (unsigned step = 5; step <= 105; step += 100) {
		kill_at(served, pid, step, false);
		usleep(100000);
		fixture_start(&fixture, NULL, NULL);
	}
	expect(finish(pid, served), 0);
	expect_reconnects(served, 2);
	same_losses(undisturbed, served);
	fixture_stop(&fixture, SIGTERM);

	pid = start(alone, device, "train.epochs=10", NULL);
	kill_at(alone, pid, 5, true);
	expect(finish(pid, alone), 0);
	expect_reconnects(alone, 1);
	same_losses(undisturbed, alone);
	same_file(undisturbed, alone, "model.safetensors");
}

/* On a CPU, and on a GPU that pins the memory of batches. */
TEST(daemons_die)
{
	survive("--device=cpu", "undisturbed", "served", "alone");
	trainer = getenv("TRAINER_EMULATED");
	survive("--device=cuda", "undisturbed-gpu", "served-gpu", "alone-gpu");
	trainer = getenv("TRAINER");
}

static unsigned sockets_of(pid_t pid)
{
	char path[PATH_MAX], target[64];
	unsigned count = 0;
	for (int fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
		ssize_t n = readlink(path, target, sizeof(target));
		count += n > 7 && strncmp(target, "socket:", 7) == 0;
	}
	return count;
}

/*
 * Another trainer runs after a trainer has checked the directory and before it has locked it. The
 * other trainer's output is kept.
 */
TEST(overtaken)
{
	static const char checkpoint[] = "checkpoint-00000040.safetensors", log[] = "log.jsonl";
	fixture_start(&fixture, NULL, NULL);
	for (int resumes = 0; resumes < 2; resumes++) {
		const char *name = resumes ? "overtaken-resumed" : "overtaken";
		mkdir(run_path(name, ""), 0777);
		kill(fixture.daemon, SIGSTOP);
		pid_t pid =
			start(name, "--socket", fixture.socket, resumes ? "--resume" : NULL, NULL);
		for (int i = 0; i < 60000 && sockets_of(pid) == 0; i++)
			usleep(1000);
		assert_int_equal(link(run_path("unbroken", checkpoint), run_path(name, checkpoint)),
				 0);
		assert_int_equal(link(run_path("unbroken", log), run_path(name, log)), 0);
		kill(fixture.daemon, SIGCONT);
		expect(finish(pid, name), 1);
		expect_output("another trainer has written checkpoints to this folder");
		assert_true(exists(name, checkpoint));
	}
	fixture_stop(&fixture, SIGTERM);
	/* The log is a hard link to that of "unbroken" and must not have been truncated. */
	same_losses("unbroken", "again");
}

/* --plan does not train; without cuDNN it reports what is missing. */
TEST(planned)
{
	int status = run("planned", "--plan=" DEVICES "/h200.json", "--size=32", NULL);
	if (status == 0) {
		expect_output("images/s");
		expect_output("MB total,");
	} else {
		expect(status, 1);
		expect_output(strstr(said, "built without") ? "install" : "Install");
	}
	assert_false(exists("planned", "log.jsonl"));
	bool built = !strstr(said, "built without");
	/*
	 * Every fused pattern has a plan without any environment variable, because the stub of the
	 * CUDA driver is in the trainer's directory.
	 */
	int every = run("planned", "--plan=" DEVICES "/h200.json", "model.name=resnet50",
			"model.width=1", "data.batch_size=256", "train.precision=fp16", NULL);
	if (status == 0) {
		expect(every, 0);
		expect_output("patterns of this level without a plan: 0\n");
	}
	int many = run("planned", "--plan=" DEVICES "/h200.json", "--ranks=8", "--size=32", NULL);
	expect(many, status);
	expect_output(status == 0 ? "images/s\n8 x 1 " : "built without");
	expect(run("planned", "--plan=/nonexistent.json", NULL), 1);
	expect_output(built ? "/nonexistent.json" : "built without");
	/* errors in a device description name its file */
	char option[PATH_MAX + 300];
	snprintf(option, sizeof(option), "--plan=%s/incomplete.json", fixture.folder);
	FILE *file = fopen(strchr(option, '/'), "w");
	fputs("{\"deviceName\": \"G\", \"deviceVer\": 900, \"multiProcessorCount\": 1, "
	      "\"totalGlobalMem\": 1, \"roofline\": {\"source\": \"\", \"bytes_per_second\": 1, "
	      "\"flops_per_second\": {\"fp32\": 1, \"fp16\": 1, \"bf16\": 1}}}",
	      file);
	fclose(file);
	expect(run("planned", option, NULL), 1);
	expect_output(built ? "incomplete.json: " : "built without");
}

/* The recipe saved with a run can continue that run, from any working directory. */
TEST(own_recipe)
{
	char command[4 * PATH_MAX];
	const char *folder = run_path("own", "");
	expect(run("own", "train.epochs=0.3", NULL), 0);
	snprintf(command, sizeof(command),
		 "cd / && %s %srecipe.ini --resume --dry-run 2>&1 && "
		 "cd %s && %s recipe.ini --resume --dry-run 2>&1",
		 trainer, folder, folder, trainer);
	FILE *output = popen(command, "r");
	assert_non_null(output);
	said[fread(said, 1, sizeof(said) - 1, output)] = '\0';
	expect(pclose(output), 0);
	assert_int_equal(count_output("resumed at step 6 "), 2);
	expect_output("/own\n");
	expect_output(" into .\n");
	assert_int_equal(count_output("run      6 steps (0.3 epochs) into "), 2);
}

/*
 * The trainer creates the output directory and its parents. It does not touch an existing path that
 * is not a directory.
 */
TEST(folders)
{
	char output[PATH_MAX + 300];
	snprintf(output, sizeof(output), "--output=%s", run_path("above/below", ""));
	expect(run("folders", output, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	assert_true(exists("above/below", "log.jsonl"));
	snprintf(output, sizeof(output), "--output=%s", run_path("above/below", "recipe.ini"));
	expect(run("folders", output, NULL), 1);
	expect_output("recipe.ini is a file, not a folder");
	snprintf(output, sizeof(output), "--output=%s",
		 run_path("above/below", "recipe.ini/deeper"));
	expect(run("folders", output, NULL), 1);
	expect_output("deeper: cannot create the folder: Not a directory");
}

/* Messages use the singular for one. */
TEST(singular)
{
	expect(run("singular", "--dry-run", "train.device=cpu", "train.threads=1", "train.epochs=1",
		   "data.batch_size=325", NULL),
	       0);
	expect_output(" 1 batch of 325 per epoch\n");
	expect_output(", 1 thread\n");
	expect_output("run      1 step (1 epoch) into");
	expect(run("singular", "train.epochs=1", "schedule.warmup=1", NULL), 1);
	expect_output("schedule.warmup = 1 epoch leaves nothing");
}

/* More threads than CPUs are allowed, for comparing results, with a warning that they are slow. */
TEST(many_threads)
{
	expect(run("threads", "--dry-run", "train.device=cpu", "train.threads=1024", NULL), 0);
	expect_output("train.threads = 1024, but there ");
	expect_output("train.threads=0 uses one thread per CPU");
	expect(run("threads", "--dry-run", "train.device=cpu", "train.threads=1", NULL), 0);
	assert_int_equal(count_output("train.threads"), 0);
}

TEST(environment)
{
	setenv("LOADERD_ISA", "avx3", 1);
	int status = run("environment", "train.device=cpu", NULL);
	unsetenv("LOADERD_ISA");
	expect(status, 1);
	expect_output("LOADERD_ISA = \"avx3\" in the environment: expected c, avx2, avx512bw or "
		      "avx512");
	assert_false(exists("environment", "log.jsonl"));
}

/* Options without effect in their context are errors. */
TEST(misplaced)
{
	expect(run("misplaced", "--size=64", NULL), 1);
	expect_output("--size=64 requires --plan");
	expect(run("misplaced", "--ranks=8", NULL), 1);
	expect_output("--ranks=8 requires --plan; mpirun -n 8 trains");
	expect(run("misplaced", "--plan=x", "--ranks=0", NULL), 1);
	expect_output("--ranks=0: expected a number of GPUs from 1 to 65536");
	expect(run("misplaced", "--resume", "old.safetensors", NULL), 1);
	expect_output("use --resume=old.safetensors for a checkpoint, "
		      "model.pretrained=old.safetensors for weights");
	expect(run("misplaced", "--resume=/", NULL), 1);
	expect_output("--resume=/ is a folder: use --resume --output=/ for its newest checkpoint");
	expect(run("misplaced", "--output=", NULL), 1);
	expect_output("--output is empty");
	assert_false(exists("misplaced", ""));
}

static int setup(void **state)
{
	trainer_threads = 2;
	return trainer_setup(state);
}

TEST_MAIN(setup, trainer_teardown)
