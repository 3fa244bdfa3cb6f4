/*
 * mlperf.log: input of MLPerf Training's result tools, one line per event, with the names of
 * github.com/mlcommons/logging (mllog/constants.py). time_ms is wall-clock time; epochs count from
 * 1. A resumed run appends to the file and keeps lines of steps after its checkpoint, because their
 * time counts.
 */
#include "format/base/text/sentence.h"
#include "trainer/log/append_file.h"
#include "trainer/log/sink.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mlperf {
	struct sink sink; /* must be the first member */
	int fd;
	double epoch_began; /* seconds since 1970 */
};

/* Writes an event. Takes ownership of value (NULL for null) and metadata (NULL for none). */
static int put_event(int fd, double seconds, const char *type, const char *key, json_t *value,
		     json_t *metadata)
{
	static const char begin[] = ":::MLLOG ";
	json_t *json = json_object();
	json_object_set_new(json, "namespace", json_string(""));
	json_object_set_new(json, "time_ms", json_integer((json_int_t)llround(seconds * 1e3)));
	json_object_set_new(json, "event_type", json_string(type));
	json_object_set_new(json, "key", json_string(key));
	json_object_set_new(json, "value", value ? value : json_null());
	json_object_set_new(json, "metadata", metadata ? metadata : json_object());
	char *text = json_dumps(json, 0), *line = NULL;
	int length = text ? asprintf(&line, "%s%s\n", begin, text) : -1;
	int r = length < 0 ? -ENOMEM : append_file_write(fd, line, (size_t)length);
	if (length >= 0)
		free(line);
	free(text);
	json_decref(json);
	return r;
}

static double number_of(const struct metrics_log_line *line, const char *key)
{
	for (size_t i = 0; i < line->count; i++)
		if (strcmp(line->numbers[i].key, key) == 0)
			return line->numbers[i].value;
	return NAN;
}

static const char *text_of(const struct metrics_log_line *line, const char *key)
{
	for (size_t i = 0; i < line->text_count; i++)
		if (strcmp(line->texts[i].key, key) == 0)
			return line->texts[i].value;
	return "";
}

static json_t *epoch_of(const struct metrics_log_line *line)
{
	json_t *json = json_object();
	json_object_set_new(json, "epoch_num", json_real(number_of(line, "epoch")));
	return json;
}

static int put_start(int fd, const struct metrics_log_line *line)
{
	static const struct {
		const char *key, *number;
	} facts[] = {
		{"global_batch_size", "batch_size"},
		{"gradient_accumulation_steps", "accumulate"},
		{"train_samples", "samples"},
		{"seed", "seed"},
	};
	int r = put_event(fd, line->time, "INTERVAL_START", "run_start", NULL, NULL);
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]) && r == 0; i++)
		r = put_event(fd, line->time, "POINT_IN_TIME", facts[i].key,
			      json_integer((json_int_t)number_of(line, facts[i].number)), NULL);
	return r;
}

static int put_eval(int fd, const struct metrics_log_line *line)
{
	double begin = line->time - number_of(line, "seconds");
	int r = put_event(fd, begin, "INTERVAL_START", "eval_start", NULL, epoch_of(line));
	if (r < 0)
		return r;
	r = put_event(fd, line->time, "POINT_IN_TIME", "eval_accuracy",
		      json_real(number_of(line, "top1")), epoch_of(line));
	return r < 0 ? r
		     : put_event(fd, line->time, "INTERVAL_END", "eval_stop", NULL, epoch_of(line));
}

static int put_end(int fd, const struct metrics_log_line *line)
{
	bool success = strcmp(text_of(line, "outcome"), "finished") == 0;
	json_t *status = json_object();
	json_object_set_new(status, "status", json_string(success ? "success" : "aborted"));
	return put_event(fd, line->time, "INTERVAL_END", "run_stop", NULL, status);
}

static int put_epoch(const struct mlperf *mlperf, const struct metrics_log_line *line)
{
	int r = put_event(mlperf->fd, mlperf->epoch_began, "INTERVAL_START", "epoch_start", NULL,
			  epoch_of(line));
	return r < 0 ? r
		     : put_event(mlperf->fd, line->time, "INTERVAL_END", "epoch_stop", NULL,
				 epoch_of(line));
}

static int mlperf_put(struct sink *sink, const struct metrics_log_line *line)
{
	struct mlperf *mlperf = (struct mlperf *)sink;
	bool starts = strcmp(line->event, "start") == 0, ends = strcmp(line->event, "epoch") == 0;
	int r = 0;
	if (starts)
		r = put_start(mlperf->fd, line);
	else if (ends)
		r = put_epoch(mlperf, line);
	else if (strcmp(line->event, "eval") == 0)
		r = put_eval(mlperf->fd, line);
	else if (strcmp(line->event, "end") == 0)
		r = put_end(mlperf->fd, line);
	if (starts || ends || strcmp(line->event, "resume") == 0)
		mlperf->epoch_began = line->time;
	return r;
}

static void mlperf_close(struct sink *sink)
{
	struct mlperf *mlperf = (struct mlperf *)sink;
	if (mlperf->fd >= 0)
		close(mlperf->fd);
	free(mlperf);
}

int log_open_mlperf(const char *folder, uint64_t step, bool fresh, struct sink **ret_sink,
		    char *error)
{
	char path[4096];
	struct mlperf *mlperf = calloc(1, sizeof(*mlperf));
	if (!mlperf)
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, -ENOMEM, "out of memory");
	mlperf->sink = (struct sink){mlperf_put, mlperf_close, "mlperf.log"};
	int length = snprintf(path, sizeof(path), "%s/%s", folder, mlperf->sink.name);
	mlperf->fd = length < (int)sizeof(path) ? append_file_open(path) : -ENAMETOOLONG;
	int r = mlperf->fd < 0 ? mlperf->fd : 0;
	if (r == 0 && fresh && ftruncate(mlperf->fd, 0))
		r = -errno;
	if (r < 0) {
		mlperf_close(&mlperf->sink);
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, r, "%.300s: %s", path,
				     append_file_error(r));
	}
	*ret_sink = &mlperf->sink;
	return 0;
}
