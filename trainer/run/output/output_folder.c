#include "trainer/run/output/output.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int output_path(struct output *output, const char *name, char *ret_path)
{
	int length =
		snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s/%s", output->ctx->options.output, name);
	if (length >= CHECKPOINT_PATH_MAX)
		return run_fail(output->ctx, -ENAMETOOLONG, "--output is too long");
	return 0;
}

/* Returns the step of the folder's newest checkpoint, or RUN_NO_STEP. */
static uint64_t output_newest_step(const struct output *output)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t step;
	int r = checkpoint_newest(output->ctx->options.output, UINT64_MAX, &step, path);
	return r < 0 ? RUN_NO_STEP : step;
}

/* Creates a folder and its parents. */
static int output_make_folder(const char *path)
{
	char above[CHECKPOINT_PATH_MAX];
	if (mkdir(path, 0777) == 0 || errno == EEXIST)
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
	if (r < 0)
		return r;
	return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

int output_check_folder(struct output *output)
{
	const struct run_options *options = &output->ctx->options;
	struct stat status;
	if (stat(options->output, &status) == 0 && !S_ISDIR(status.st_mode))
		return run_fail(output->ctx, -ENOTDIR, "--output=%s is a file, not a folder",
				options->output);
	output->found_step = output_newest_step(output);
	if (options->resume || options->dry || options->overwrite ||
	    output->found_step == RUN_NO_STEP)
		return 0;
	return run_fail(output->ctx, -EEXIST,
			"%s contains a run that reached step %llu: use --resume to continue it, "
			"--output DIR for another folder, or --overwrite to replace it",
			options->output, (unsigned long long)output->found_step);
}

int output_check_later(struct output *output, uint64_t step)
{
	const struct run_options *options = &output->ctx->options;
	if (!options->resume_path || options->dry || options->overwrite ||
	    output->found_step == RUN_NO_STEP || output->found_step <= step)
		return 0;
	return run_fail(
		output->ctx, -EEXIST,
		"%s contains a run that reached step %llu, but %s is of step %llu: use --output "
		"DIR to continue in another folder, or --overwrite to remove the later checkpoints",
		options->output, (unsigned long long)output->found_step, options->resume_path,
		(unsigned long long)step);
}

static int output_open_log(struct output *output, const char *name,
			   struct metrics_log **ret_metrics)
{
	char path[CHECKPOINT_PATH_MAX];
	int r = output_path(output, name, path);
	return r < 0 ? r : metrics_log_open(path, ret_metrics, output->ctx->error);
}

/*
 * Locks the folder, and checks that no other trainer has written checkpoints since
 * output_check_folder().
 */
static int output_lock(struct output *output)
{
	const char *folder = output->ctx->options.output;
	int r = output_make_folder(folder);
	if (r < 0)
		return run_fail(output->ctx, r, "--output=%s: cannot create the folder: %s", folder,
				strerror(-r));
	r = output_open_log(output, "log.jsonl", &output->metrics);
	if (r < 0)
		return r;
	if (output_newest_step(output) != output->found_step)
		return run_fail(output->ctx, -EBUSY,
				"%s: another trainer has written checkpoints to this folder since "
				"this one started; nothing was changed: start again",
				folder);
	return 0;
}

static int output_truncate(struct output *output, struct metrics_log *metrics, const char *name,
			   bool resumed)
{
	int r = metrics_log_truncate(metrics, output->state->step, !resumed);
	return r < 0 ? run_fail(output->ctx, r, "%s: %s", name, strerror(-r)) : 0;
}

static int output_open_sinks(struct output *output, bool resumed)
{
	const struct recipe_log *log = &output->ctx->recipe->log;
	static const struct {
		size_t wanted; /* offset of a bool in struct recipe_log */
		log_open_sink *open;
	} kinds[] = {
#define KIND(name, help) {offsetof(struct recipe_log, name), log_open_##name},
		LOG_SINKS(KIND)
#undef KIND
	};
	for (size_t i = 0; i < LOG_SINK_COUNT; i++) {
		if (!*(const bool *)((const char *)log + kinds[i].wanted))
			continue;
		int r = kinds[i].open(output->ctx->options.output, output->state->step, !resumed,
				      &output->sinks[i], output->ctx->error);
		if (r < 0)
			return r;
	}
	return 0;
}

int output_init_samples(struct output *output)
{
	const struct recipe *recipe = output->ctx->recipe;
	if (!recipe->log.samples)
		return 0;
	output->sample_ids = calloc(recipe->data.batch_size, sizeof(*output->sample_ids));
	return output->sample_ids ? 0 : run_fail(output->ctx, -ENOMEM, "out of memory");
}

int output_open(struct output *output, bool resumed)
{
	int r = output_lock(output);
	if (r < 0)
		return r;
	r = output_truncate(output, output->metrics, "log.jsonl", resumed);
	if (r < 0)
		return r;
	if (output->ctx->recipe->log.samples) {
		r = output_open_log(output, "samples.jsonl", &output->samples);
		if (r < 0)
			return r;
		r = output_truncate(output, output->samples, "samples.jsonl", resumed);
		if (r < 0)
			return r;
	}
	return output_open_sinks(output, resumed);
}

void output_close(struct output *output)
{
	for (size_t i = 0; i < LOG_SINK_COUNT; i++)
		if (output->sinks[i])
			output->sinks[i]->close(output->sinks[i]);
	metrics_log_close(output->metrics);
	metrics_log_close(output->samples);
	free(output->sample_ids);
}

/* Otherwise, checkpoint_prune() and --resume would treat these checkpoints as the newest. */
int output_clear(struct output *output, bool resumed)
{
	static const char *const results[] = {"best.safetensors", "model.safetensors",
					      "summary.json"};
	const struct run_options *options = &output->ctx->options;
	char path[CHECKPOINT_PATH_MAX];
	uint64_t first = resumed ? output->state->step + 1 : 0;
	int r = checkpoint_clear(options->output, first, !options->overwrite);
	if (r < 0)
		return run_fail(output->ctx, r,
				"%s: cannot remove the checkpoints of step %llu and later: %s",
				options->output, (unsigned long long)first, strerror(-r));
	if (!options->overwrite || resumed)
		return 0;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		r = output_path(output, results[i], path);
		if (r < 0)
			return r;
		if (unlink(path) < 0 && errno != ENOENT)
			return run_fail(output->ctx, -errno, "%s: %s", path, strerror(errno));
	}
	return 0;
}
