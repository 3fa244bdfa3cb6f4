#include "tests/integration/trainer/trainer_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ARGUMENTS_MAX = 48 };

struct fixture fixture;
const char *trainer;
unsigned trainer_threads = 1;
char validation[PATH_MAX + 64], said[65536];
static char recipe[PATH_MAX + 64];

int trainer_setup(void **state)
{
	trainer = getenv("TRAINER");
	fixture_init(&fixture);
	char dataset[PATH_MAX + 64];
	snprintf(dataset, sizeof(dataset), "%s",
		 fixture_dataset(&fixture, "train", 325, FIXTURE_RAW, 16));
	snprintf(validation, sizeof(validation), "%s",
		 fixture_dataset(&fixture, "val", 50, FIXTURE_RAW, 16));
	snprintf(recipe, sizeof(recipe), "%s/tiny.ini", fixture.folder);
	FILE *file = fopen(recipe, "w");
	fprintf(file,
		"[data]\ntrain = %s\nval = %s\nbatch_size = 16\npipeline = random_crop(16, "
		"padding=2) hflip(0.5)\n"
		"[model]\nname = resnet_cifar\ndepth = 8\nwidth = 0.5\n"
		"[optim]\nlr = 0.1\n[schedule]\nwarmup = 0.25\n"
		"[train]\nepochs = 2\nseed = 4\nthreads = %u\nprecision = fp32\nlabel_smoothing = "
		"0.1\nema = 0.9\n"
		"[log]\ninterval = 1\n[checkpoint]\nevery_steps = 7\n",
		dataset, validation, trainer_threads);
	fclose(file);
	return 0;
}

int trainer_setup_unbroken(void **state)
{
	trainer_setup(state);
	int status = run("unbroken", NULL);
	if (status != 0)
		print_error("exit status %d:\n%s", status, said);
	return status;
}

int trainer_teardown(void **state)
{
	fixture_deinit(&fixture);
	return 0;
}

const char *run_path(const char *run, const char *name)
{
	static char paths[4][PATH_MAX + 300];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, sizeof(paths[0]), "%s/%s/%s", fixture.folder, run, name);
	return path;
}

bool exists(const char *run, const char *name)
{
	return access(run_path(run, name), F_OK) == 0;
}

/* `option` may be NULL. */
static pid_t start_list(const char *run, const char *option, va_list list)
{
	static char output[PATH_MAX + 300];
	char log[PATH_MAX + 300];
	const char *arguments[ARGUMENTS_MAX] = {trainer, recipe, "--output", output, option};
	unsigned count = option ? 5 : 4;
	assert_non_null(trainer);
	while (count < ARGUMENTS_MAX - 1 && (arguments[count] = va_arg(list, const char *)))
		count++;
	snprintf(output, sizeof(output), "%s", run_path(run, ""));
	snprintf(log, sizeof(log), "%s/%s.err", fixture.folder, run);
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

pid_t start(const char *run, ...)
{
	va_list list;
	va_start(list, run);
	pid_t pid = start_list(run, NULL, list);
	va_end(list);
	return pid;
}

static void read_output(const char *run)
{
	char log[PATH_MAX + 300];
	snprintf(log, sizeof(log), "%s/%s.err", fixture.folder, run);
	FILE *file = fopen(log, "r");
	size_t n = fread(said, 1, sizeof(said) - 1, file);
	said[n] = '\0';
	fclose(file);
}

int finish(pid_t pid, const char *run)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	read_output(run);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int run(const char *name, ...)
{
	va_list list;
	va_start(list, name);
	pid_t pid = start_list(name, NULL, list);
	va_end(list);
	return finish(pid, name);
}

int run_emulated(const char *name, ...)
{
	va_list list;
	va_start(list, name);
	trainer = getenv("TRAINER_EMULATED");
	pid_t pid = start_list(name, "--device=cuda", list);
	trainer = getenv("TRAINER");
	va_end(list);
	return finish(pid, name);
}

static void kill_list(const char *name, unsigned step, va_list list)
{
	pid_t pid = start_list(name, NULL, list);
	wait_for_step(name, pid, step);
	kill(pid, SIGKILL);
	finish(pid, name);
}

void run_killed(const char *name, unsigned step, ...)
{
	va_list list;
	va_start(list, step);
	kill_list(name, step, list);
	va_end(list);
}

int run_interrupted(const char *name, unsigned step, ...)
{
	va_list list;
	va_start(list, step);
	kill_list(name, step, list);
	va_end(list);
	va_start(list, step);
	pid_t pid = start_list(name, "--resume", list);
	va_end(list);
	return finish(pid, name);
}

void expect(int status, int expected)
{
	if (status != expected)
		fail_msg("exit status %d, expected %d:\n%s", status, expected, said);
}

void expect_in_file(const char *run, const char *name, const char *text)
{
	static char content[1 << 16];
	FILE *file = fopen(run_path(run, name), "r");
	assert_non_null(file);
	content[fread(content, 1, sizeof(content) - 1, file)] = '\0';
	fclose(file);
	if (!strstr(content, text))
		fail_msg("%s of %s has no \"%s\"", name, run, text);
}

void expect_output(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" was not said, but:\n%s", text, said);
}

unsigned count_output(const char *text)
{
	unsigned count = 0;
	for (const char *at = said; (at = strstr(at, text)); at++)
		count++;
	return count;
}

void read_log(const char *run, struct losses *losses)
{
	char line[8192];
	FILE *file = fopen(run_path(run, "log.jsonl"), "r");
	uint64_t last = 0;
	assert_non_null(file);
	*losses = (struct losses){0};
	while (fgets(line, sizeof(line), file)) {
		json_error_t error;
		json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, &error);
		if (!json)
			fail_msg("%s: %s", error.text, line);
		const char *event = json_string_value(json_object_get(json, "event"));
		uint64_t step = (uint64_t)json_integer_value(json_object_get(json, "step"));
		assert_true(step >= last);
		last = step;
		if (strcmp(event, "step") == 0) {
			assert_int_equal(step, losses->steps + 1);
			snprintf(losses->step[losses->steps++], sizeof(losses->step[0]), "%s",
				 json_string_value(json_object_get(json, "loss_hex")));
			double exact = json_number_value(json_object_get(json, "loss"));
			assert_true(exact == strtod(losses->step[step - 1], NULL));
		} else if (strcmp(event, "eval") == 0) {
			snprintf(losses->eval[losses->evals++], sizeof(losses->eval[0]),
				 "%llu %s %g", (unsigned long long)step,
				 json_string_value(json_object_get(json, "loss_hex")),
				 json_number_value(json_object_get(json, "top1")));
		}
		json_decref(json);
	}
	fclose(file);
}

json_t *start_event(const char *run)
{
	FILE *file = fopen(run_path(run, "log.jsonl"), "r");
	assert_non_null(file);
	json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(line);
	fclose(file);
	return line;
}

void expect_end(const char *run, const char *outcome, const char *error)
{
	char text[65536], last[65536] = "";
	FILE *file = fopen(run_path(run, "log.jsonl"), "r");
	assert_non_null(file);
	while (fgets(text, sizeof(text), file))
		strcpy(last, text);
	fclose(file);
	json_t *line = json_loads(last, 0, NULL);
	const char *said_error = json_string_value(json_object_get(line, "error"));
	const char *said_outcome = json_string_value(json_object_get(line, "outcome"));
	if (!said_outcome || strcmp(said_outcome, outcome) != 0 || !error != !said_error ||
	    (error && !strstr(said_error, error)))
		fail_msg("%s ends with %s", run, last);
	json_decref(line);
}

void same_losses(const char *a, const char *b)
{
	static struct losses x, y;
	read_log(a, &x);
	read_log(b, &y);
	assert_int_equal(x.steps, y.steps);
	assert_int_equal(x.evals, y.evals);
	for (unsigned i = 0; i < x.steps; i++)
		if (strcmp(x.step[i], y.step[i]) != 0)
			fail_msg("step %u: %s has loss %s, %s has %s", i + 1, a, x.step[i], b,
				 y.step[i]);
	for (unsigned i = 0; i < x.evals; i++)
		assert_string_equal(x.eval[i], y.eval[i]);
}

double max_difference(const char *a, const char *b)
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

void same_file(const char *a, const char *b, const char *name)
{
	FILE *x = fopen(run_path(a, name), "r"), *y = fopen(run_path(b, name), "r");
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

const void *values(unsigned place, struct safetensors *file, const char *name)
{
	static char places[256][1 << 16], error[SAFETENSORS_ERROR_MAX];
	const struct safetensors_tensor *found = safetensors_find(file, name);
	if (!found)
		fail_msg("no tensor %s", name);
	assert_true(place < 256 && found->size <= sizeof(places[0]));
	if (safetensors_read(file, found, places[place], error))
		fail_msg("%s", error);
	return places[place];
}

void wait_for_step(const char *run, pid_t pid, unsigned step)
{
	char text[64];
	snprintf(text, sizeof(text), "\"event\":\"step\",\"step\":%u,", step);
	for (int i = 0; i < 300000; i++) {
		FILE *file = fopen(run_path(run, "log.jsonl"), "r");
		char line[8192];
		while (file && fgets(line, sizeof(line), file)) {
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

void wait_until_gone(const char *run, pid_t pid, const char *name)
{
	for (int i = 0; i < 30000 && exists(run, name); i++) {
		if (kill(pid, 0))
			fail_msg("the trainer is gone");
		usleep(1000);
	}
	assert_false(exists(run, name));
}
