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

int run_end_line(struct run *run, struct journal *journal, const char *name)
{
	int r = journal_end(journal);
	if (r)
		return output_fail_put(run, r, name);
	for (size_t i = 0; i < LOG_SINK_COUNT && journal == run->journal; i++) {
		struct sink *sink = run->sinks[i];
		r = sink ? sink->put(sink, journal_line(journal)) : 0;
		if (r)
			return output_fail_put(run, r, sink->name);
	}
	return 0;
}

void run_end_failed(struct run *run, int code)
{
	journal_begin(run->journal, "end", run->state.step);
	journal_text(run->journal, "outcome", "failed");
	journal_text(run->journal, "error", *run->error ? run->error : strerror(-code));
	journal_end(run->journal);
}

int run_sync_logs(struct run *run)
{
	int r = journal_sync(run->journal);
	if (r)
		return output_fail_put(run, r, "log.jsonl");
	r = journal_sync(run->samples);
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
static int output_name_found(struct run *run, const char *option, const char *name,
			     const char *ending, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s%s", name, ending);
	return length < CHECKPOINT_PATH_MAX
		       ? 0
		       : run_fail(run, -ENAMETOOLONG, "%s=%.100s... is too long", option, name);
}

static int output_fail_found(struct run *run, int code, const char *option, const char *path)
{
	return run_fail(run, code, "%s: %.900s cannot be written: %s", option, path,
			strerror(-code));
}

int run_check_found(struct run *run)
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
			int r = output_name_found(run, all[i].option, all[i].name,
						  all[i].endings[e], path);
			if (r)
				return r;
			r = atomic_file_check(path);
			if (r)
				return output_fail_found(run, r, all[i].option, path);
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

int run_put_found(struct run *run, const char *option, const char *name, const char *ending,
		  void (*write)(const void *found, FILE *file), const void *found)
{
	char path[CHECKPOINT_PATH_MAX];
	struct atomic_file file;
	int r = output_name_found(run, option, name, ending, path);
	if (r)
		return r;
	r = atomic_file_create(&file, path);
	if (!r)
		r = atomic_file_close(&file, output_fill(file.fd, write, found));
	return r ? output_fail_found(run, r, option, path) : 0;
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

static int output_open_file(struct run *run, const char *name, struct journal **ret_journal)
{
	char path[CHECKPOINT_PATH_MAX];
	int r = output_make_path(run, name, path);
	return r ? r : journal_open(path, ret_journal, run->error);
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
	r = output_open_file(run, "log.jsonl", &run->journal);
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

static int output_cut_journals(struct run *run)
{
	int r = journal_cut(run->journal, run->state.step, !run->resumed);
	if (r)
		return run_fail(run, r, "log.jsonl: %s", strerror(-r));
	if (!run->recipe->log.samples)
		return 0;
	r = output_open_file(run, "samples.jsonl", &run->samples);
	if (!r && (r = journal_cut(run->samples, run->state.step, !run->resumed)))
		run_fail(run, r, "samples.jsonl: %s", strerror(-r));
	return r;
}

static int output_write_start(struct run *run)
{
	const struct device_info *device = device_info(run->device);
	struct journal *journal = run->journal;
	char dataset[UUID_TEXT];
	struct device_graph_info graph;
	device_graph_info(run->train.graph, &graph);
	journal_begin(journal, run->resumed ? "resume" : "start", run->state.step);
	journal_text(journal, "model", run->recipe->model.name);
	journal_text(journal, "device", device->name);
	journal_text(journal, "precision", run_precision(run));
	journal_text(journal, "batches", run->staged ? "staged" : "direct");
	journal_count(journal, "fallbacks", graph.fallbacks);
	journal_count(journal, "threads", device->threads);
	journal_count(journal, "ranks", run->comm->world);
	uuid_write(run->data.train_uuid.bytes, dataset);
	journal_text(journal, "dataset", dataset);
	journal_count(journal, "samples", run->data.samples);
	journal_count(journal, "classes", run->data.classes);
	journal_count(journal, "batch_size", run->recipe->data.batch_size);
	journal_count(journal, "accumulate", run->recipe->train.accumulate);
	journal_count(journal, "batches_per_epoch", run->state.batches_per_epoch);
	journal_count(journal, "steps", run->steps);
	journal_count(journal, "seed", run->recipe->train.seed);
	return run_end_line(run, journal, "log.jsonl");
}

/* Writes the complete recipe next to the run, for people and for reruns. */
static int print_recipe(const struct run *run, FILE *file)
{
	return recipe_write(run->recipe, file);
}

/*
 * Removes files of another run or of later steps; otherwise checkpoint_prune() would count them
 * among the newest and the next --resume would use them. The caller holds the journal's lock.
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
		r = output_cut_journals(run);
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
