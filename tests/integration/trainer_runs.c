/*
 * The trainer as a process, on a private daemon and a small dataset: runs that are killed and
 * resumed give the losses of an unbroken one bit for bit, and everything that a run refuses or
 * leaves behind is as trainer(1) says. TRAINER and LOADERD name the programs, TRAINER_EMULATED a trainer whose GPU is emulated.
 */
#include "loaderd_fixture.h"
#include "safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 40, ARGUMENTS_MAX = 48, STOPPED = 3 };

static struct fixture fixture;
static const char *trainer;
static char dataset[PATH_MAX + 64], validation[PATH_MAX + 64], recipe[PATH_MAX + 64], said[65536];

static int setup(void **state)
{
	trainer = getenv("TRAINER");
	fixture_init(&fixture);
	snprintf(dataset, sizeof dataset, "%s",
		 fixture_dataset(&fixture, "train", 325, FIXTURE_RAW, 16));
	snprintf(validation, sizeof validation, "%s",
		 fixture_dataset(&fixture, "val", 50, FIXTURE_RAW, 16));
	snprintf(recipe, sizeof recipe, "%s/tiny.ini", fixture.folder);
	FILE *file = fopen(recipe, "w");
	fprintf(file,
		"[data]\ntrain = %s\nval = %s\nbatch_size = 16\npipeline = random_crop(16, "
		"padding=2) hflip(0.5)\n"
		"[model]\nname = resnet_cifar\ndepth = 8\nwidth = 0.5\n"
		"[optim]\nlr = 0.1\n[schedule]\nwarmup = 0.25\n"
		"[train]\nepochs = 2\nseed = 4\nthreads = 2\nprecision = fp32\nlabel_smoothing = "
		"0.1\nema = 0.9\n"
		"[log]\ninterval = 1\n[checkpoint]\nevery_steps = 7\n",
		dataset, validation);
	fclose(file);
	return 0;
}

static int teardown(void **state)
{
	fixture_deinit(&fixture);
	return 0;
}

/* Path of NAME in the folder of run RUN. */
static const char *in(const char *run, const char *name)
{
	static char paths[4][PATH_MAX + 300];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof paths[0], "%s/%s/%s", fixture.folder, run, name);
	return path;
}

/*
 * Starts the trainer with its output in RUN; standard error goes to a file there. Arguments end
 * with NULL.
 */
static pid_t start_list(const char *run, va_list list)
{
	static char output[PATH_MAX + 300];
	char log[PATH_MAX + 300];
	const char *arguments[ARGUMENTS_MAX] = {trainer, recipe, "--output", output};
	unsigned count = 4;
	assert_non_null(trainer);
	while (count < ARGUMENTS_MAX - 1 && (arguments[count] = va_arg(list, const char *)))
		count++;
	snprintf(output, sizeof output, "%s", in(run, ""));
	snprintf(log, sizeof log, "%s/%s.err", fixture.folder, run);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fd, STDERR_FILENO);
		dup2(fd, STDOUT_FILENO);
		execv(trainer, (char **)arguments);
		_exit(127);
	}
	return pid;
}

static pid_t start(const char *run, ...)
{
	va_list list;
	va_start(list, run);
	pid_t pid = start_list(run, list);
	va_end(list);
	return pid;
}

static void read_said(const char *run)
{
	char log[PATH_MAX + 300];
	snprintf(log, sizeof log, "%s/%s.err", fixture.folder, run);
	FILE *file = fopen(log, "r");
	size_t n = fread(said, 1, sizeof said - 1, file);
	said[n] = '\0';
	fclose(file);
}

/* Waits; returns the exit status, or minus the signal. */
static int finish(pid_t pid, const char *run)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	read_said(run);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void expect(int status, int expected)
{
	if (status != expected)
		fail_msg("exit status %d, expected %d:\n%s", status, expected, said);
}

static void expect_said(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" was not said, but:\n%s", text, said);
}

/* Runs to the end. */
static int run(const char *name, ...)
{
	va_list list;
	va_start(list, name);
	pid_t pid = start_list(name, list);
	va_end(list);
	return finish(pid, name);
}

/* What a log says about losses: one text per step, and one per evaluation. */
struct losses {
	char step[256][40], eval[256][120];
	unsigned steps, evals;
};

static void read_log(const char *run, struct losses *losses)
{
	char line[8192];
	FILE *file = fopen(in(run, "log.jsonl"), "r");
	uint64_t last = 0;
	assert_non_null(file);
	*losses = (struct losses){0};
	while (fgets(line, sizeof line, file)) {
		json_error_t error;
		json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, &error);
		if (!json)
			fail_msg("%s: %s", error.text, line);
		const char *event = json_string_value(json_object_get(json, "event"));
		uint64_t step = (uint64_t)json_integer_value(json_object_get(json, "step"));
		assert_true(step >= last);
		last = step;
		if (!strcmp(event, "step")) {
			assert_int_equal(step, losses->steps + 1);
			snprintf(losses->step[losses->steps++], sizeof losses->step[0], "%s",
				 json_string_value(json_object_get(json, "loss_hex")));
			double exact = json_number_value(json_object_get(json, "loss"));
			assert_true(exact == strtod(losses->step[step - 1], NULL));
		} else if (!strcmp(event, "eval")) {
			snprintf(losses->eval[losses->evals++], sizeof losses->eval[0],
				 "%llu %s %g", (unsigned long long)step,
				 json_string_value(json_object_get(json, "loss_hex")),
				 json_number_value(json_object_get(json, "top1")));
		}
		json_decref(json);
	}
	fclose(file);
}

static void same_losses(const char *a, const char *b)
{
	static struct losses x, y;
	read_log(a, &x);
	read_log(b, &y);
	assert_int_equal(x.steps, y.steps);
	assert_int_equal(x.evals, y.evals);
	for (unsigned i = 0; i < x.steps; i++)
		if (strcmp(x.step[i], y.step[i]))
			fail_msg("step %u: %s has loss %s, %s has %s", i + 1, a, x.step[i], b,
				 y.step[i]);
	for (unsigned i = 0; i < x.evals; i++)
		assert_string_equal(x.eval[i], y.eval[i]);
}

static void same_file(const char *a, const char *b, const char *name)
{
	FILE *x = fopen(in(a, name), "r"), *y = fopen(in(b, name), "r");
	assert_non_null(x);
	assert_non_null(y);
	int c;
	do {
		c = fgetc(x);
		if (c != fgetc(y))
			fail_msg("%s differs between %s and %s", name, a, b);
	} while (c != EOF);
	fclose(x);
	fclose(y);
}

static bool exists(const char *run, const char *name)
{
	return access(in(run, name), F_OK) == 0;
}

/* Waits until the log of a run that goes on has a line of this step. */
static void wait_for_step(const char *run, pid_t pid, unsigned step)
{
	char text[64];
	snprintf(text, sizeof text, "\"event\":\"step\",\"step\":%u,", step);
	for (int i = 0; i < 300000; i++) {
		FILE *file = fopen(in(run, "log.jsonl"), "r");
		char line[8192];
		while (file && fgets(line, sizeof line, file)) {
			if (strstr(line, text)) {
				fclose(file);
				return;
			}
		}
		if (file)
			fclose(file);
		if (kill(pid, 0))
			fail_msg("the trainer is gone");
		usleep(1000);
	}
	fail_msg("step %u does not come", step);
}

/* Waits until a run that goes on has removed what another left; its log is its own then. */
static void wait_until_gone(const char *run, pid_t pid, const char *name)
{
	for (int i = 0; i < 30000 && exists(run, name); i++) {
		if (kill(pid, 0))
			fail_msg("the trainer is gone");
		usleep(1000);
	}
	assert_false(exists(run, name));
}

/* The run that the others are compared with, and what it leaves. */
static void unbroken(void **state)
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
	json_t *summary = json_load_file(in("unbroken", "summary.json"), 0, NULL);
	assert_string_equal(json_string_value(json_object_get(summary, "outcome")), "finished");
	assert_int_equal(json_integer_value(json_object_get(summary, "steps")), STEPS);
	assert_int_equal(json_integer_value(json_object_get(summary, "images")), STEPS * 16);
	assert_int_equal(json_integer_value(json_object_get(summary, "val_samples")), 50);
	json_decref(summary);
	expect(run("again", NULL), 0);
	same_losses("unbroken", "again");
	same_file("unbroken", "again", "model.safetensors");
}

/* Killed at many moments and resumed each time, also before the first checkpoint. */
static void killed(void **state)
{
	unsigned kills = 0;
	expect(finish(start("killed", "--dry-run", NULL), "killed"), 0);
	assert_false(exists("killed", "log.jsonl"));
	for (unsigned step = 3; step < STEPS; step += 9, kills++) {
		pid_t pid = start("killed", "--resume", NULL);
		wait_for_step("killed", pid, step);
		usleep(step * 300);
		kill(pid, SIGKILL);
		int status = finish(pid, "killed");
		if (status == 0)
			break;
		expect(status, -SIGKILL);
	}
	assert_true(kills > 0);
	expect(run("killed", "--resume", NULL), 0);
	expect_said("resumed at step");
	same_losses("unbroken", "killed");
	same_file("unbroken", "killed", "model.safetensors");
	same_file("unbroken", "killed", "best.safetensors");
}

static void stopped(void **state)
{
	for (int i = 0; i < 2; i++) {
		pid_t pid = start("stopped", "--resume", NULL);
		wait_for_step("stopped", pid, 11 + 12 * (unsigned)i);
		kill(pid, i ? SIGINT : SIGTERM);
		expect(finish(pid, "stopped"), STOPPED);
		expect_said("--resume continues");
	}
	expect(run("stopped", "--resume", NULL), 0);
	same_losses("unbroken", "stopped");
	same_file("unbroken", "stopped", "model.safetensors");
	expect(run("stopped", "--resume", NULL), 0);
	same_losses("unbroken", "stopped");
}

/* A run is not overwritten by accident, nor continued with a recipe that changes it. */
static void refused(void **state)
{
	expect(run("unbroken", NULL), 1);
	expect_said("--resume continues it");
	expect(run("unbroken", "--resume", "optim.lr=0.2", NULL), 1);
	expect_said("optim.lr is \"0.2\" but was \"0.1\" in the checkpoint");
	expect(run("unbroken", "--resume", "--allow-changes", "model.width=1", NULL), 1);
	expect_said("model.width");
	expect(run("unbroken", "--resume", "--seed", "5", NULL), 1);
	expect_said("train.seed");
	char other[PATH_MAX + 100];
	snprintf(other, sizeof other, "data.train=%s", validation);
	expect(run("unbroken", "--resume", other, NULL), 1);
	expect_said("data.train has 50 samples, but had 325");
	expect(run("refused", "data.batch_size=326", NULL), 1);
	expect_said("data.batch_size = 326 is more than the 325 samples");
	expect(run("refused", "--dry-run", "data.pipeline=to(f32) layout(nchw)", NULL), 1);
	expect_said("data.pipeline delivers planes (nchw)");
	/* what evaluations will come to is known before the first step */
	expect(run("refused", "data.val_pipeline=layout(nchw)", NULL), 1);
	expect_said("data.val_pipeline delivers planes (nchw)");
	expect(run("refused", "data.val_pipeline=random_crop(17)", NULL), 1);
	expect_said("data.val: ");
	assert_false(exists("refused", "log.jsonl"));
	expect(run("refused", "data.pipeline=hflop(1)", NULL), 1);
	expect(run("refused", "data.train=/nonexistent.pimg", NULL), 1);
	expect_said("data.train: ");
	expect_said("/nonexistent.pimg");
	expect(run("refused", "data.val=/nonexistent.pimg", NULL), 1);
	expect_said("data.val: ");
	expect(run("refused", "model.classes=4", NULL), 1);
	expect_said("model.classes = 4");
	expect(run("refused", "--socket", "/nonexistent/socket", NULL), 1);
	expect(run("refused", "data.bathc_size=3", NULL), 1);
	expect_said("did you mean data.batch_size?");
}

/* A dataset is known by what it holds: elsewhere it is the same one, and another one of its size is not. */
static void another_dataset(void **state)
{
	char moved[PATH_MAX + 100], train[PATH_MAX + 100], val[PATH_MAX + 100];
	snprintf(moved, sizeof moved, "data.train=%s",
		 fixture_dataset(&fixture, "moved", 325, FIXTURE_RAW, 16));
	snprintf(train, sizeof train, "data.train=%s",
		 fixture_dataset(&fixture, "other", 325, FIXTURE_RAW, 17));
	snprintf(val, sizeof val, "data.val=%s",
		 fixture_dataset(&fixture, "other-val", 50, FIXTURE_JPEG, 0));
	pid_t pid = start("datasets", NULL);
	wait_for_step("datasets", pid, 8);
	kill(pid, SIGTERM);
	expect(finish(pid, "datasets"), STOPPED);
	expect(run("datasets", "--resume", train, NULL), 1);
	expect_said("other.pimg holds another dataset (");
	expect_said("train.pimg did (");
	expect_said("--allow-changes goes on");
	expect(run("datasets", "--resume", val, "data.val_pipeline=resize(16)", NULL), 1);
	expect_said("data.val = ");
	expect(run("datasets", "--resume", "--dry-run", "--allow-changes", train, NULL), 0);
	expect(run("datasets", "--resume", moved, NULL), 0);
	same_losses("unbroken", "datasets");
}

/* What is trained is saved before a run ends because an evaluation has nothing to compare with. */
static void replaced_dataset(void **state)
{
	char val[PATH_MAX + 100], other[PATH_MAX + 100];
	snprintf(other, sizeof other, "%s",
		 fixture_dataset(&fixture, "other", 50, FIXTURE_RAW, 17));
	snprintf(val, sizeof val, "data.val=%s",
		 fixture_dataset(&fixture, "replaced", 50, FIXTURE_RAW, 16));
	pid_t pid = start("replaced", val, NULL);
	wait_for_step("replaced", pid, 8);
	assert_int_equal(rename(other, strchr(val, '/')), 0);
	expect(finish(pid, "replaced"), 1);
	expect_said("replaced.pimg has been replaced by another dataset");
	/* of the first evaluation that came after */
	assert_true(exists("replaced", "checkpoint-00000020.safetensors") ||
		    exists("replaced", "checkpoint-00000040.safetensors"));
	fixture_dataset(&fixture, "replaced", 50, FIXTURE_RAW, 16);
	expect(run("replaced", "--resume", val, NULL), 0);
	same_losses("unbroken", "replaced");
}

static void spoil(const char *path, off_t at)
{
	uint8_t byte;
	int fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0xff;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* A feed that fails costs nothing of what was trained: with the disk mended the run goes on from the step before. */
static void failed_feed(void **state)
{
	struct stat status;
	char train[PATH_MAX + 100], name[64];
	snprintf(train, sizeof train, "data.train=%s",
		 fixture_dataset(&fixture, "spoilt", 325, FIXTURE_RAW, 16));
	const char *path = strchr(train, '/');
	assert_int_equal(stat(path, &status), 0);
	spoil(path, status.st_size / 3);
	expect(run("spoilt", train, "data.bad=fail", NULL), 1);
	expect_said("feed: ");
	const char *at = strstr(said, "trainer: step ");
	assert_non_null(at);
	unsigned steps = (unsigned)strtoul(at + 14, NULL, 10) - 1;
	assert_true(steps % 7 && steps % 20); /* no checkpoint was due */
	snprintf(name, sizeof name, "checkpoint-%08u.safetensors", steps);
	assert_true(exists("spoilt", name));
	spoil(path, status.st_size / 3);
	expect(run("spoilt", "--resume", train, "data.bad=fail", NULL), 0);
	same_losses("unbroken", "spoilt");
}

/* Runs that go on with another learning rate, when asked to; and --overwrite. */
static void changed(void **state)
{
	pid_t pid = start("changed", NULL);
	wait_for_step("changed", pid, 8);
	kill(pid, SIGTERM);
	expect(finish(pid, "changed"), STOPPED);
	expect(run("changed", "--resume", "--allow-changes", "optim.lr=0.01", NULL), 0);
	/* not before all that could go wrong has not */
	expect(run("changed", "--overwrite", "data.train=/nonexistent.pimg", NULL), 1);
	assert_true(exists("changed", "checkpoint-00000040.safetensors"));
	assert_true(exists("changed", "model.safetensors"));
	pid = start("changed", "--overwrite", NULL);
	wait_until_gone("changed", pid, "checkpoint-00000040.safetensors");
	wait_until_gone("changed", pid, "model.safetensors");
	wait_for_step("changed", pid, 2);
	kill(pid, SIGKILL);
	finish(pid, "changed");
	expect(run("changed", "--overwrite", NULL), 0);
	same_losses("unbroken", "changed");
}

/* A checkpoint that is cut short yields to the one before it. */
static void damaged(void **state)
{
	expect(run("damaged", "checkpoint.keep=3", NULL), 0);
	assert_int_equal(truncate(in("damaged", "checkpoint-00000040.safetensors"), 5000), 0);
	expect(run("damaged", "--resume", NULL), 0);
	expect_said("trying the checkpoint before it");
	same_losses("unbroken", "damaged");
	char argument[PATH_MAX + 400];
	assert_int_equal(truncate(in("damaged", "checkpoint-00000040.safetensors"), 50000), 0);
	snprintf(argument, sizeof argument, "--resume=%s",
		 in("damaged", "checkpoint-00000040.safetensors"));
	expect(run("damaged", argument, NULL), 1);
	expect_said("cut short");
}

/* Those that cannot be read do not count when older ones are removed. */
static void damaged_ones_are_set_aside(void **state)
{
	expect(run("aside", "checkpoint.keep=3", NULL), 0);
	assert_int_equal(truncate(in("aside", "checkpoint-00000035.safetensors"), 5000), 0);
	assert_int_equal(truncate(in("aside", "checkpoint-00000040.safetensors"), 5000), 0);
	pid_t pid = start("aside", "--resume", "checkpoint.keep=1", NULL);
	wait_until_gone("aside", pid, "checkpoint-00000028.safetensors");
	wait_for_step("aside", pid, 37);
	kill(pid, SIGKILL);
	if (finish(pid, "aside") == -SIGKILL) {
		expect(run("aside", "--resume", NULL), 0);
		expect_said("resumed at step");
	}
	assert_true(exists("aside", "checkpoint-00000035.safetensors.unreadable"));
	assert_true(exists("aside", "checkpoint-00000040.safetensors.unreadable"));
	same_losses("unbroken", "aside");
}

/* From a checkpoint that is not the newest: what came after it goes, but only when asked to. */
static void older(void **state)
{
	char argument[PATH_MAX + 400];
	expect(run("older", "checkpoint.keep=9", NULL), 0);
	snprintf(argument, sizeof argument, "--resume=%s",
		 in("older", "checkpoint-00000014.safetensors"));
	expect(run("older", argument, NULL), 1);
	expect_said("--overwrite removes what came after it");
	assert_true(exists("older", "checkpoint-00000040.safetensors"));
	pid_t pid = start("older", argument, "--overwrite", "checkpoint.keep=1", NULL);
	wait_until_gone("older", pid, "checkpoint-00000040.safetensors");
	wait_for_step("older", pid, 23);
	kill(pid, SIGKILL);
	if (finish(pid, "older") == -SIGKILL) {
		expect(run("older", "--resume", NULL), 0);
		expect_said("resumed at step");
	}
	same_losses("unbroken", "older");
}

/* Of a tensor, in one of the places that there are for them. */
static const void *values(unsigned place, struct safetensors *file, const char *name)
{
	static char places[256][1 << 16], error[SAFETENSORS_ERROR_MAX];
	const struct safetensors_tensor *found = safetensors_find(file, name);
	if (!found)
		fail_msg("no tensor %s", name);
	assert_true(place < 256 && found->size <= sizeof places[0]);
	if (safetensors_read(file, found, places[place], error))
		fail_msg("%s", error);
	return places[place];
}

/*
 * The exported model is the average; with a warm-up as long as the run, the average is the weights.
 */
static void averaged(void **state)
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
		snprintf(name, sizeof name, "ema.%s", t->name);
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
static void smoothed(void **state)
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
static void growing(void **state)
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

/*
 * Weights that are not finite end the run with the step and remedies; fine-tuning and evaluation
 * alone on the way.
 */
static void diverged(void **state)
{
	char error[SAFETENSORS_ERROR_MAX], argument[PATH_MAX + 400];
	struct safetensors *file;
	snprintf(argument, sizeof argument, "model.pretrained=%s",
		 in("unbroken", "model.safetensors"));
	expect(run("evaluated", argument, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	static struct losses before, after;
	read_log("unbroken", &before);
	read_log("evaluated", &after);
	assert_int_equal(after.evals, 1);
	assert_string_equal(strchr(before.eval[1], ' '), strchr(after.eval[0], ' '));

	/* Mirroring an image and its mirror image changes nothing but rounding. */
	static struct losses flipped, mirrored;
	expect(run("flipped", argument, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_flip=yes", NULL),
	       0);
	expect(run("mirrored", argument, "train.epochs=0", "schedule.warmup=0",
		   "train.eval_flip=yes", "data.val_pipeline=hflip(1)", NULL),
	       0);
	read_log("flipped", &flipped);
	read_log("mirrored", &mirrored);
	double loss = strtod(strchr(flipped.eval[0], ' '), NULL);
	assert_true(fabs(loss - strtod(strchr(mirrored.eval[0], ' '), NULL)) < 1e-5);
	assert_true(fabs(loss - strtod(strchr(after.eval[0], ' '), NULL)) > 1e-5);

	/* Views that are moved count. */
	static struct losses shifted, turned;
	expect(run("shifted", argument, "train.epochs=0", "schedule.warmup=0", "train.eval_shift=1",
		   NULL),
	       0);
	expect(run("turned", argument, "train.epochs=0", "schedule.warmup=0", "train.eval_shift=15",
		   NULL),
	       0);
	read_log("shifted", &shifted);
	read_log("turned", &turned);
	loss = strtod(strchr(shifted.eval[0], ' '), NULL);
	assert_true(fabs(loss - strtod(strchr(after.eval[0], ' '), NULL)) > 1e-5);
	assert_true(fabs(loss - strtod(strchr(turned.eval[0], ' '), NULL)) > 1e-5);
	expect(run("shifted", "--overwrite", "train.eval_shift=16", NULL), 1);
	expect_said("train.eval_shift = 16: images of data.val are 16 x 16, so it is at most 15");

	assert_int_equal(safetensors_open(in("unbroken", "model.safetensors"), &file, error), 0);
	struct safetensors_tensor tensors[256];
	size_t count = safetensors_count(file);
	assert_true(count <= 256);
	for (size_t i = 0; i < count; i++) {
		tensors[i] = *safetensors_at(file, i);
		tensors[i].data = values((unsigned)i, file, tensors[i].name);
		if (!strcmp(tensors[i].name, "fc.bias"))
			((float *)(uintptr_t)tensors[i].data)[3] = NAN;
	}
	struct safetensors_writer writer = {tensors, count, NULL, 0, NULL, NULL};
	snprintf(argument, sizeof argument, "model.pretrained=%s/bad.safetensors", fixture.folder);
	assert_int_equal(safetensors_write(strchr(argument, '=') + 1, &writer, error), 0);
	safetensors_close(file);
	expect(run("diverged", argument, NULL), 1);
	expect_said("step 1 (epoch 0.000): the loss is");
	expect_said("a lower optim.lr");
	assert_false(exists("diverged", "model.safetensors"));
	expect(run("not-finite", argument, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	json_t *summary = json_load_file(in("not-finite", "summary.json"), 0, NULL);
	assert_true(json_is_null(json_object_get(summary, "val_loss")));
	json_decref(summary);
	/* which tensor it was, on every kind of device */
	for (int gpu = 0; gpu < 2; gpu++) {
		trainer = getenv(gpu ? "TRAINER_EMULATED" : "TRAINER");
		int status = run("anomaly", argument, "--detect-anomaly",
				 gpu ? "--device=cuda" : "--device=cpu", NULL);
		trainer = getenv("TRAINER");
		expect(status, 1);
		expect_said("step 1: computing: fc: its result is not finite");
	}
}

/* On a daemon that others share; it is the same run. */
static void shared_daemon(void **state)
{
	fixture_start(&fixture, NULL, NULL);
	expect(run("shared", "--socket", fixture.socket, NULL), 0);
	same_losses("unbroken", "shared");
	pid_t pid = start("orphan", "--socket", fixture.socket, NULL);
	wait_for_step("orphan", pid, 10);
	fixture_stop(&fixture, SIGKILL);
	expect(finish(pid, "orphan"), 1);
	expect_said("the daemon went away");
	expect(run("orphan", "--resume", NULL), 0);
	same_losses("unbroken", "orphan");
}

static unsigned sockets_of(pid_t pid)
{
	char path[PATH_MAX], target[64];
	unsigned count = 0;
	for (int fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
		ssize_t n = readlink(path, target, sizeof target);
		count += n > 7 && !strncmp(target, "socket:", 7);
	}
	return count;
}

/* Another trainer that comes and goes between a trainer's look at the folder and its lock: what it left stays. */
static void overtaken(void **state)
{
	static const char checkpoint[] = "checkpoint-00000040.safetensors", log[] = "log.jsonl";
	fixture_start(&fixture, NULL, NULL);
	for (int resumes = 0; resumes < 2; resumes++) {
		const char *name = resumes ? "overtaken-resumed" : "overtaken";
		mkdir(in(name, ""), 0777);
		kill(fixture.daemon, SIGSTOP);
		pid_t pid =
			start(name, "--socket", fixture.socket, resumes ? "--resume" : NULL, NULL);
		for (int i = 0; i < 60000 && sockets_of(pid) == 0; i++)
			usleep(1000);
		assert_int_equal(link(in("unbroken", checkpoint), in(name, checkpoint)), 0);
		assert_int_equal(link(in("unbroken", log), in(name, log)), 0);
		kill(fixture.daemon, SIGCONT);
		expect(finish(pid, name), 1);
		expect_said("another trainer was at work in this folder");
		assert_true(exists(name, checkpoint));
	}
	fixture_stop(&fixture, SIGTERM);
	/* the logs are one file with that of "unbroken", which was not cut */
	same_losses("unbroken", "again");
}

static unsigned times_said(const char *text)
{
	unsigned count = 0;
	for (const char *at = said; (at = strstr(at, text)); at++)
		count++;
	return count;
}

/* What a run's log begins with. */
static json_t *start_of(const char *run)
{
	FILE *file = fopen(in(run, "log.jsonl"), "r");
	assert_non_null(file);
	json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(line);
	fclose(file);
	return line;
}

static void expect_batches(const char *run, const char *how)
{
	json_t *line = start_of(run);
	assert_string_equal(json_string_value(json_object_get(line, "batches")), how);
	json_decref(line);
}

/* Every step's MFU is what its rate makes of the FLOP that the trainer names; of the emulated GPU's 4 x 128 x 2 at 1 GHz in fp32. */
static void check_mfu(const char *run)
{
	const char *step = strstr(said, "step     ");
	double gflop = step ? strtod(step + 9, NULL) : 0;
	char line[8192];
	unsigned steps = 0;
	FILE *file = fopen(in(run, "log.jsonl"), "r");
	assert_non_null(file);
	assert_true(gflop > 0);
	expect_said("MFU ");
	while (fgets(line, sizeof line, file)) {
		json_t *json = json_loads(line, 0, NULL);
		const char *event = json_string_value(json_object_get(json, "event"));
		double rate = json_number_value(json_object_get(json, "images_per_second"));
		double mfu = json_number_value(json_object_get(json, "mfu"));
		if (!strcmp(event, "step") && rate > 0) {
			assert_true(fabs(mfu / rate * 1024 - gflop) < 0.00051);
			steps++;
		}
		json_decref(json);
	}
	fclose(file);
	assert_true(steps > 0);
}

/* How a GPU gets at batches makes no difference to them: a ring mapped read-only, or writable, or copies. Each is said once, evaluations or not. */
static void mapped(void **state)
{
	static const char asks[] = "asking the daemon for memory to map writable",
			  copies[] = "batches are copied twice";
	static const struct {
		const char *run, *registering, *writable_rings, *batches, *why;
	} ways[] = {
		{"read-only", NULL, "own", "direct", NULL},
		{"writable", "writable", "own", "direct", NULL},
		{"staged", "none", "own", "staged", "could not be registered"},
		{"forbidden", "writable", "none", "staged", "set writable_rings = own"},
	};
	char setting[64];
	for (unsigned i = 0; i < 4; i++) {
		snprintf(setting, sizeof setting, "access.writable_rings=%s",
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
		assert_int_equal(times_said(asks), ways[i].registering != NULL);
		assert_int_equal(times_said(copies), ways[i].why != NULL);
		if (ways[i].why)
			expect_said(ways[i].why);
		expect_batches(ways[i].run, ways[i].batches);
		same_losses(ways[0].run, ways[i].run);
	}
	check_mfu(ways[3].run);
}

/* Patterns without a plan are taken apart, and named, those of evaluation too; with plans for all of them nothing is said. */
static void taken_apart(void **state)
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
		expected = times_said("training, 16 x 16: ");
		assert_int_equal(times_said(": no plan for "),
				 expected + times_said("evaluation, 16 x 16: "));
		json_t *start = start_of(runs[i]);
		assert_int_equal(json_integer_value(json_object_get(start, "fallbacks")), expected);
		json_decref(start);
		if (!i)
			assert_int_equal(times_said("no plan"), 0);
	}
	assert_true(expected > 0);
	expect_said("training, 16 x 16: conv1: no plan for forward 3x3");
	expect_said("evaluation, 16 x 16: conv1: no plan for forward 3x3");
}

/* How far the losses of two runs are apart at most, as a share. */
static double apart(const char *a, const char *b)
{
	static struct losses x, y;
	double most = 0;
	read_log(a, &x);
	read_log(b, &y);
	assert_int_equal(x.steps, y.steps);
	for (unsigned i = 0; i < x.steps; i++)
		most = fmax(most, fabs(strtod(x.step[i], NULL) / strtod(y.step[i], NULL) - 1));
	return most;
}

/* AdamW with clipping: resumed bit for bit, and the same training on a GPU. */
static void adamw(void **state)
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

/* Lookahead: at its updates the weights are their average, and so a resumed run goes on. */
static void ahead(void **state)
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
		if (strncmp(t->name, "ema.", 4))
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

/* Batches that the device still reads are held, in training and in evaluations, but never so many that none is left for the next. */
static void few_slots(void **state)
{
	trainer = getenv("TRAINER_EMULATED");
	int most = run("many-slots", "--device", "cuda", "train.epochs=1", "data.slots=9", NULL);
	int least = run("few-slots", "--device", "cuda", "train.epochs=1", "data.slots=2", NULL);
	trainer = getenv("TRAINER");
	expect(least, 0);
	expect(most, 0);
	same_losses("many-slots", "few-slots");
}

/* --plan trains nothing; without cuDNN it says what is missing. */
static void planned(void **state)
{
	int status = run("planned", "--plan=" DEVICES "/h200.json", "--size=32", NULL);
	if (status == 0) {
		expect_said("images/s");
		expect_said("in all,");
	} else {
		expect(status, 1);
		expect_said(strstr(said, "built without") ? "install" : "Install");
	}
	assert_false(exists("planned", "log.jsonl"));
	bool built = !strstr(said, "built without");
	/* every fused pattern, with nothing in the environment, for the driver's stand-in lies beside the trainer */
	int every = run("planned", "--plan=" DEVICES "/h200.json", "model.name=resnet50",
			"model.width=1", "data.batch_size=256", "train.precision=fp16", NULL);
	if (status == 0) {
		expect(every, 0);
		expect_said("patterns of this level without a plan: 0\n");
	}
	expect(run("planned", "--plan=/nonexistent.json", NULL), 1);
	expect_said(built ? "/nonexistent.json" : "built without");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unbroken),	   cmocka_unit_test(killed),
		cmocka_unit_test(stopped),	   cmocka_unit_test(refused),
		cmocka_unit_test(another_dataset), cmocka_unit_test(replaced_dataset),
		cmocka_unit_test(failed_feed),	   cmocka_unit_test(changed),
		cmocka_unit_test(damaged),	   cmocka_unit_test(damaged_ones_are_set_aside),
		cmocka_unit_test(older),	   cmocka_unit_test(averaged),
		cmocka_unit_test(smoothed),	   cmocka_unit_test(growing),
		cmocka_unit_test(diverged),	   cmocka_unit_test(shared_daemon),
		cmocka_unit_test(overtaken),	   cmocka_unit_test(mapped),
		cmocka_unit_test(taken_apart),	   cmocka_unit_test(adamw),
		cmocka_unit_test(ahead),	   cmocka_unit_test(few_slots),
		cmocka_unit_test(planned),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
