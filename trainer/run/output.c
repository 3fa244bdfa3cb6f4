/*
 * The output folder: checks its contents before a run, and writes the run's files other than
 * checkpoints. Rank 0 only.
 */
#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Remedy for a lack of space, if that is the error. */
static const char *remedy(int code)
{
	switch (code) {
	case -ENOSPC:
		return "free space on that disk, then";
	case -EDQUOT:
		return "free some of the quota there, then";
	case -EFBIG:
		return "raise the limit on the size of files (ulimit -f), then";
	default:
		return "once that is mended,";
	}
}

int run_fail_write(struct run *run, int code, const char *sentence)
{
	const struct run_options *options = &run->options;
	char path[CHECKPOINT_PATH_MAX];
	bool saved = run->saved_step != RUN_NO_STEP;
	bool here = saved && !checkpoint_path(options->output, run->saved_step, path) &&
		    !access(path, F_OK);
	const char *kept = here ? path : saved ? options->resume_path : NULL;
	if (!kept)
		return run_fail(run, code,
				"%.900s. This run has no complete checkpoint yet: %s the same "
				"command starts it again",
				sentence, remedy(code));
	return run_fail(run, code,
			"%.900s. The last complete checkpoint is %.700s, of step %llu (epoch "
			"%.3f): %s the same command with %s goes on from it",
			sentence, kept, (unsigned long long)run->saved_step,
			(double)run->saved_step / (double)run->state.batches_per_epoch,
			remedy(code),
			!here                  ? "that --resume"
			: options->resume_path ? "--resume in place of --resume=CHECKPOINT"
			: options->overwrite   ? "--resume in place of --overwrite"
					       : "--resume");
}

/* Reports a failed write of a file in the output folder. */
static int output_fail_put(struct run *run, int code, const char *name)
{
	char sentence[CHECKPOINT_ERROR_MAX];
	snprintf(sentence, sizeof(sentence), "%.800s/%s: cannot be written: %s",
		 run->options.output, name, strerror(-code));
	return run_fail_write(run, code, sentence);
}

int run_end_line(struct run *run, struct metrics_log *metrics, const char *name)
{
	int r = metrics_log_end(metrics);
	if (r)
		return output_fail_put(run, r, name);
	for (size_t i = 0; i < LOG_SINK_COUNT && metrics == run->metrics; i++) {
		struct sink *sink = run->sinks[i];
		r = sink ? sink->put(sink, metrics_log_line(metrics)) : 0;
		if (r)
			return output_fail_put(run, r, sink->name);
	}
	return 0;
}

void run_end_failed(struct run *run, int code)
{
	metrics_log_begin(run->metrics, "end", run->state.step);
	metrics_log_text(run->metrics, "outcome", "failed");
	metrics_log_text(run->metrics, "error", *run->error ? run->error : strerror(-code));
	metrics_log_end(run->metrics);
}

int run_sync_logs(struct run *run)
{
	int r = metrics_log_sync(run->metrics);
	if (r)
		return output_fail_put(run, r, "log.jsonl");
	r = metrics_log_sync(run->samples);
	return r ? output_fail_put(run, r, "samples.jsonl") : 0;
}

/* Path of a file in the output folder; CHECKPOINT_PATH_MAX bytes. */
static int output_make_path(struct run *run, const char *name, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s/%s", run->options.output, name);
	return length < CHECKPOINT_PATH_MAX ? 0
					    : run_fail(run, -ENAMETOOLONG, "--output is too long");
}

int run_put(struct run *run, const char *name, int (*print)(const struct run *run, FILE *file))
{
	char path[CHECKPOINT_PATH_MAX], *text = NULL;
	size_t size = 0;
	int r = output_make_path(run, name, path);
	if (r)
		return r;
	FILE *file = open_memstream(&text, &size);
	r = file ? print(run, file) : -ENOMEM;
	if (file && fclose(file) && !r)
		r = -errno;
	if (!r)
		r = atomic_file_put(path, text, size);
	free(text);
	return r ? output_fail_put(run, r, name) : 0;
}

int run_refuse_ranks(struct run *run, const char *option)
{
	if (run->comm->world == 1)
		return 0;
	return run_fail_everywhere(
		run, -EINVAL,
		"%s is for one rank, and there are %u: start the trainer without "
		"mpirun",
		option, run->comm->world);
}

/* Path `name` with an ending; CHECKPOINT_PATH_MAX bytes. */
static int output_result_path(struct run *run, const char *option, const char *name,
			      const char *ending, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s%s", name, ending);
	return length < CHECKPOINT_PATH_MAX
		       ? 0
		       : run_fail(run, -ENAMETOOLONG, "%s=%.100s... is too long", option, name);
}

static int output_fail_result(struct run *run, int code, const char *option, const char *path)
{
	return run_fail(run, code, "%s: %.900s cannot be written: %s", option, path,
			strerror(-code));
}

int run_check_results(struct run *run)
{
	const struct run_options *options = &run->options;
	const struct {
		const char *option, *name, *endings[3];
	} all[] = {
		{"--predictions", options->predictions, {".csv", ".json", ".svg"}},
		{"--onnx", options->onnx, {""}},
		{"--find-lr", options->find_lr, {".csv", ".svg"}},
		{"--find-batch-size", options->find_batch_size, {".csv", ".svg"}},
		{"--trace", options->trace, {""}},
	};
	char path[CHECKPOINT_PATH_MAX];
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].name && !*all[i].name)
			return run_fail(run, -EINVAL,
					"%s is empty: expected what the names of its files begin "
					"with",
					all[i].option);
		for (size_t e = 0; e < 3 && all[i].name && all[i].endings[e]; e++) {
			int r = output_result_path(run, all[i].option, all[i].name,
						   all[i].endings[e], path);
			if (r)
				return r;
			r = atomic_file_check(path);
			if (r)
				return output_fail_result(run, r, all[i].option, path);
		}
	}
	return 0;
}

/* Writes through `write` to a descriptor, which stays open. */
static int output_fill(int fd, void (*write)(const void *found, FILE *file), const void *found)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *file = copy < 0 ? NULL : fdopen(copy, "w");
	if (!file) {
		int r = -errno;
		io_close(copy);
		return r;
	}
	errno = 0;
	write(found, file);
	int r = !ferror(file) ? 0 : errno ? -errno : -EIO;
	return fclose(file) && !r ? -errno : r;
}

int run_write_result(struct run *run, const char *option, const char *name, const char *ending,
		     void (*write)(const void *found, FILE *file), const void *found)
{
	char path[CHECKPOINT_PATH_MAX];
	struct atomic_file file;
	int r = output_result_path(run, option, name, ending, path);
	if (r)
		return r;
	r = atomic_file_create(&file, path);
	if (!r)
		r = atomic_file_close(&file, output_fill(file.fd, write, found));
	return r ? output_fail_result(run, r, option, path) : 0;
}

struct checkpoint_about run_about(const struct run *run)
{
	bool normalised = run->batch.element == FEED_U8;
	return (struct checkpoint_about){
		.mean = normalised ? run->data.mean : NULL,
		.std = normalised ? run->data.std : NULL,
		.class_names = run->data.class_names,
	};
}

int run_export(struct run *run, const char *name, const char *evaluation)
{
	char path[CHECKPOINT_PATH_MAX], error[CHECKPOINT_ERROR_MAX];
	struct checkpoint_about about = run_about(run);
	about.evaluation = evaluation;
	int r = output_make_path(run, name, path);
	if (r)
		return r;
	r = checkpoint_export(path, run->params, run_weights(run), &about, error);
	return r ? run_fail_write(run, r, error) : 0;
}

/* Step of the folder's newest checkpoint, or RUN_NO_STEP. */
static uint64_t output_newest_step(const struct run *run)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t step;
	int r = checkpoint_newest(run->options.output, UINT64_MAX, &step, path);
	return r ? RUN_NO_STEP : step;
}

/* Creates a folder and its parents. */
static int output_make_folder(const char *path)
{
	char above[CHECKPOINT_PATH_MAX];
	if (!mkdir(path, 0777) || errno == EEXIST)
		return 0;
	size_t length = strlen(path);
	while (length && path[length - 1] == '/')
		length--;
	while (length && path[length - 1] != '/')
		length--;
	if (errno != ENOENT || length < 2 || length >= sizeof(above))
		return -errno;
	snprintf(above, sizeof(above), "%.*s", (int)length - 1, path);
	int r = output_make_folder(above);
	return r || !mkdir(path, 0777) || errno == EEXIST ? r : -errno;
}

int run_check_folder(struct run *run)
{
	struct stat status;
	if (!stat(run->options.output, &status) && !S_ISDIR(status.st_mode))
		return run_fail(run, -ENOTDIR, "--output=%s is no folder, but a file",
				run->options.output);
	run->found_step = output_newest_step(run);
	if (run->options.resume || run->options.dry || run->options.overwrite ||
	    run->found_step == RUN_NO_STEP)
		return 0;
	return run_fail(run, -EEXIST,
			"%s holds a run that reached step %llu: --resume continues it, "
			"--output DIR puts the new one elsewhere, --overwrite replaces it",
			run->options.output, (unsigned long long)run->found_step);
}

int run_check_later(struct run *run, uint64_t step)
{
	if (!run->options.resume_path || run->options.dry || run->options.overwrite ||
	    run->found_step == RUN_NO_STEP || run->found_step <= step)
		return 0;
	return run_fail(run, -EEXIST,
			"%s holds a run that reached step %llu, and %s is of step %llu: "
			"--output DIR goes on elsewhere, --overwrite removes what came after it",
			run->options.output, (unsigned long long)run->found_step,
			run->options.resume_path, (unsigned long long)step);
}

static int output_open_file(struct run *run, const char *name, struct metrics_log **ret_metrics)
{
	char path[CHECKPOINT_PATH_MAX];
	int r = output_make_path(run, name, path);
	return r ? r : metrics_log_open(path, ret_metrics, run->error);
}

/*
 * Locks the folder, and checks that no other trainer has written checkpoints since this one looked.
 */
static int output_lock_output(struct run *run)
{
	int r = output_make_folder(run->options.output);
	if (r)
		return run_fail(run, r, "--output=%s: the folder cannot be made: %s",
				run->options.output, strerror(-r));
	r = output_open_file(run, "log.jsonl", &run->metrics);
	if (r || output_newest_step(run) == run->found_step)
		return r;
	return run_fail(run, -EBUSY,
			"%s: another trainer was at work in this folder and left checkpoints since "
			"this one started; nothing of it was changed, start again",
			run->options.output);
}

static int output_open_sinks(struct run *run)
{
	const struct recipe_log *log = &run->recipe->log;
	static const struct {
		size_t wanted; /* offset of a bool in struct recipe_log */
		log_open_sink *open;
	} kinds[] = {
#define KIND(name, help) {offsetof(struct recipe_log, name), log_open_##name},
		LOG_SINKS(KIND)
#undef KIND
	};
	int r = 0;
	for (size_t i = 0; i < LOG_SINK_COUNT && !r; i++)
		if (*(const bool *)((const char *)log + kinds[i].wanted))
			r = kinds[i].open(run->options.output, run->state.step, !run->resumed,
					  &run->sinks[i], run->error);
	return r;
}

static int output_truncate_logs(struct run *run)
{
	int r = metrics_log_truncate(run->metrics, run->state.step, !run->resumed);
	if (r)
		return run_fail(run, r, "log.jsonl: %s", strerror(-r));
	if (!run->recipe->log.samples)
		return 0;
	r = output_open_file(run, "samples.jsonl", &run->samples);
	if (!r && (r = metrics_log_truncate(run->samples, run->state.step, !run->resumed)))
		run_fail(run, r, "samples.jsonl: %s", strerror(-r));
	return r;
}

static int output_write_start(struct run *run)
{
	const struct device_info *device = device_info(run->device);
	struct metrics_log *metrics = run->metrics;
	char dataset[UUID_TEXT];
	struct device_graph_info graph;
	device_graph_info(run->train.graph, &graph);
	metrics_log_begin(metrics, run->resumed ? "resume" : "start", run->state.step);
	metrics_log_text(metrics, "model", run->recipe->model.name);
	metrics_log_text(metrics, "device", device->name);
	metrics_log_text(metrics, "precision", run_precision(run));
	metrics_log_text(metrics, "batches", run->staged ? "staged" : "direct");
	metrics_log_count(metrics, "fallbacks", graph.fallbacks);
	metrics_log_count(metrics, "threads", device->threads);
	metrics_log_count(metrics, "ranks", run->comm->world);
	uuid_write(run->data.train_uuid.bytes, dataset);
	metrics_log_text(metrics, "dataset", dataset);
	metrics_log_count(metrics, "samples", run->data.samples);
	metrics_log_count(metrics, "classes", run->data.classes);
	metrics_log_count(metrics, "batch_size", run->recipe->data.batch_size);
	metrics_log_count(metrics, "accumulate", run->recipe->train.accumulate);
	metrics_log_count(metrics, "batches_per_epoch", run->state.batches_per_epoch);
	metrics_log_count(metrics, "steps", run->steps);
	metrics_log_count(metrics, "seed", run->recipe->train.seed);
	return run_end_line(run, metrics, "log.jsonl");
}

/* Writes the complete recipe next to the run, for people and for reruns. */
static int print_recipe(const struct run *run, FILE *file)
{
	return recipe_write(run->recipe, file);
}

/*
 * Removes files of another run or of later steps; otherwise checkpoint_prune() would count them
 * among the newest and the next --resume would use them. The caller holds the lock of log.jsonl.
 */
static int output_clear_output(struct run *run)
{
	static const char *const results[] = {"best.safetensors", "model.safetensors",
					      "summary.json"};
	char path[CHECKPOINT_PATH_MAX];
	uint64_t first = run->resumed ? run->state.step + 1 : 0;
	bool fresh = run->options.overwrite && !run->resumed;
	int r = checkpoint_clear(run->options.output, first, !run->options.overwrite);
	if (r)
		return run_fail(run, r,
				"%s: checkpoints of step %llu and later cannot be removed: %s",
				run->options.output, (unsigned long long)first, strerror(-r));
	for (size_t i = 0; fresh && i < sizeof(results) / sizeof(results[0]); i++) {
		r = output_make_path(run, results[i], path);
		if (r)
			return r;
		if (unlink(path) && errno != ENOENT)
			return run_fail(run, -errno, "%s: %s", path, strerror(errno));
	}
	return 0;
}

int run_open_output(struct run *run)
{
	if (run->options.dry)
		return 0;
	int r = output_lock_output(run);
	if (!r)
		r = output_truncate_logs(run);
	if (!r)
		r = output_open_sinks(run);
	if (!r)
		r = output_write_start(run);
	if (r)
		return r;
	r = output_clear_output(run);
	if (!r)
		r = run_put(run, "recipe.ini", print_recipe);
	if (r)
		run_end_failed(run, r);
	return r;
}
