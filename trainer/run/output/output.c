#include "trainer/run/output/output.h"

#include "format/base/system/atomic_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void output_set_saved(struct output *output, uint64_t step)
{
	output->saved_step = step;
}

void output_describe_saved(const struct output *output, char *ret_text, size_t size)
{
	snprintf(ret_text, size, "no checkpoint has been written yet");
	if (output->saved_step != RUN_NO_STEP)
		snprintf(ret_text, size, "the last checkpoint is that of step %llu",
			 (unsigned long long)output->saved_step);
}

/* Returns a remedy if the error is a lack of space. */
static const char *output_remedy(int code)
{
	switch (code) {
	case -ENOSPC:
		return "free space on that disk, then";
	case -EDQUOT:
		return "free some of the disk quota, then";
	case -EFBIG:
		return "raise the limit on the size of files (ulimit -f), then";
	default:
		return "once that is fixed,";
	}
}

int output_fail_write(struct output *output, int code, const char *sentence)
{
	const struct run_options *options = &output->ctx->options;
	char path[CHECKPOINT_PATH_MAX];
	bool saved = output->saved_step != RUN_NO_STEP;
	uint64_t step = RUN_NO_STEP;
	bool here = saved &&
		    checkpoint_newest(options->output, output->saved_step + 1, &step, path) == 0 &&
		    step == output->saved_step;
	const char *resumable = here ? path : saved ? options->resume_path : NULL;
	if (!resumable)
		return run_fail(output->ctx, code,
				"%.900s. This run has no complete checkpoint yet: %s repeat the "
				"same command to start again",
				sentence, output_remedy(code));
	return run_fail(output->ctx, code,
			"%.900s. The last complete checkpoint is %.700s, of step %llu (epoch "
			"%.3f): %s repeat the same command with %s to continue from it",
			sentence, resumable, (unsigned long long)output->saved_step,
			(double)output->saved_step / (double)output->state->batches_per_epoch,
			output_remedy(code),
			!here                  ? "that --resume"
			: options->resume_path ? "--resume instead of --resume=CHECKPOINT"
			: options->overwrite   ? "--resume instead of --overwrite"
					       : "--resume");
}

/* Reports that writing a file in the folder failed. */
static int output_fail_file(struct output *output, int code, const char *name)
{
	char sentence[CHECKPOINT_ERROR_MAX];
	snprintf(sentence, sizeof(sentence), "%.800s/%s: cannot be written: %s",
		 output->ctx->options.output, name, strerror(-code));
	return output_fail_write(output, code, sentence);
}

int output_end_line(struct output *output)
{
	int r = metrics_log_end(output->metrics);
	if (r < 0)
		return output_fail_file(output, r, "log.jsonl");
	for (size_t i = 0; i < LOG_SINK_COUNT; i++) {
		struct sink *sink = output->sinks[i];
		if (!sink)
			continue;
		r = sink->put(sink, metrics_log_line(output->metrics));
		if (r < 0)
			return output_fail_file(output, r, sink->name);
	}
	return 0;
}

int output_write_sample_ids(struct output *output, uint64_t step, const uint64_t *ids, size_t count)
{
	struct run_context *ctx = output->ctx;
	int r = comm_gather(ctx->data_comm, ids, count * sizeof(*ids), output->sample_ids);
	if (r < 0)
		return run_fail(ctx, r, "%s", comm_error(ctx->data_comm));
	if (!output->samples)
		return 0;
	metrics_log_begin(output->samples, "samples", step);
	metrics_log_counts(output->samples, "samples", output->sample_ids,
			   ctx->recipe->data.batch_size);
	r = metrics_log_end(output->samples);
	return r < 0 ? output_fail_file(output, r, "samples.jsonl") : 0;
}

void output_end_failed(struct output *output, int code)
{
	const char *error = output->ctx->error;
	metrics_log_begin(output->metrics, "end", output->state->step);
	metrics_log_text(output->metrics, "outcome", "failed");
	metrics_log_text(output->metrics, "error", *error ? error : strerror(-code));
	metrics_log_end(output->metrics);
}

int output_sync(struct output *output)
{
	int r = metrics_log_sync(output->metrics);
	if (r < 0)
		return output_fail_file(output, r, "log.jsonl");
	r = metrics_log_sync(output->samples);
	return r < 0 ? output_fail_file(output, r, "samples.jsonl") : 0;
}

static int output_print_to(const char *path, int (*print)(const void *data, FILE *file),
			   const void *data)
{
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);
	if (!file)
		return -ENOMEM;
	int r = print(data, file);
	if (fclose(file) && r == 0)
		r = -errno;
	if (r == 0)
		r = atomic_file_put(path, text, size);
	free(text);
	return r;
}

int output_write_text(struct output *output, const char *name,
		      int (*print)(const void *data, FILE *file), const void *data)
{
	char path[CHECKPOINT_PATH_MAX];
	int r = output_path(output, name, path);
	if (r < 0)
		return r;
	r = output_print_to(path, print, data);
	return r < 0 ? output_fail_file(output, r, name) : 0;
}

int output_export(struct output *output, const char *name, struct device_params *params,
		  enum device_slot slot, const struct checkpoint_about *about)
{
	char path[CHECKPOINT_PATH_MAX], error[CHECKPOINT_ERROR_MAX];
	int r = output_path(output, name, path);
	if (r < 0)
		return r;
	r = checkpoint_export(path, params, slot, about, error);
	return r < 0 ? output_fail_write(output, r, error) : 0;
}
