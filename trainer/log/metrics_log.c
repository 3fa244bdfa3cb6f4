#include "trainer/log/metrics_log.h"

#include "format/base/text/sentence.h"
#include "trainer/log/append_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct metrics_log {
	int fd;
	FILE *stream; /* writes to `text` */
	size_t length;
	char *text;
	struct metrics_log_line line;
};

static void metrics_log_note(struct metrics_log *metrics, const char *key, double value)
{
	struct metrics_log_line *line = &metrics->line;
	if (line->count < METRICS_LOG_NUMBERS_MAX)
		line->numbers[line->count++] = (struct metrics_log_number){key, value};
}

static uint64_t metrics_log_step_of(const char *line)
{
	json_t *json = json_loads(line, 0, NULL), *at = json_object_get(json, "step");
	uint64_t step =
		json_is_integer(at) ? (uint64_t)json_integer_value(at) : APPEND_FILE_NO_STEP;
	json_decref(json);
	return step;
}

int metrics_log_truncate(struct metrics_log *metrics, uint64_t step, bool fresh)
{
	if (!fresh)
		return append_file_truncate(metrics->fd, step, metrics_log_step_of);
	return ftruncate(metrics->fd, 0) ? -errno : 0;
}

int metrics_log_open(const char *path, struct metrics_log **ret_metrics, char *error)
{
	struct metrics_log *metrics = calloc(1, sizeof(*metrics));
	if (metrics)
		metrics->stream = open_memstream(&metrics->text, &metrics->length);
	if (!metrics || !metrics->stream) {
		free(metrics);
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, -ENOMEM, "%s: out of memory",
				     path);
	}
	metrics->fd = append_file_open(path);
	int r = metrics->fd < 0 ? metrics->fd : 0;
	/* the lock protects the whole output folder, until the process ends */
	if (r == 0 && flock(metrics->fd, LOCK_EX | LOCK_NB))
		r = -errno;
	if (r < 0) {
		metrics_log_close(metrics);
		return sentence_fail(
			error, METRICS_LOG_ERROR_MAX, r, "%s: %s", path,
			r == -EWOULDBLOCK
				? "another trainer is using this folder, or a user who may read "
				  "the file has locked it: lslocks shows the process"
				: append_file_error(r));
	}
	*ret_metrics = metrics;
	return 0;
}

void metrics_log_close(struct metrics_log *metrics)
{
	if (!metrics)
		return;
	if (metrics->fd >= 0)
		close(metrics->fd);
	fclose(metrics->stream);
	free(metrics->text);
	free(metrics);
}

void metrics_log_begin(struct metrics_log *metrics, const char *event, uint64_t step)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	metrics->line = (struct metrics_log_line){
		.event = event,
		.step = step,
		.time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9,
	};
	rewind(metrics->stream);
	fprintf(metrics->stream, "{\"event\":\"%s\",\"step\":%llu,\"time\":%lld.%03ld", event,
		(unsigned long long)step, (long long)now.tv_sec, now.tv_nsec / 1000000);
}

void metrics_log_text(struct metrics_log *metrics, const char *key, const char *value)
{
	struct metrics_log_line *line = &metrics->line;
	if (line->text_count < METRICS_LOG_TEXTS_MAX)
		line->texts[line->text_count++] = (struct metrics_log_text){key, value};
	json_t *json = json_string(value);
	char *text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
	/* NULL if invalid UTF-8, such as in a path, prevents a JSON string */
	fprintf(metrics->stream, ",\"%s\":%s", key, text ? text : "null");
	free(text);
	json_decref(json);
}

void metrics_log_count(struct metrics_log *metrics, const char *key, uint64_t value)
{
	metrics_log_note(metrics, key, (double)value);
	fprintf(metrics->stream, ",\"%s\":%llu", key, (unsigned long long)value);
}

void metrics_log_counts(struct metrics_log *metrics, const char *key, const uint64_t *values,
			size_t count)
{
	fprintf(metrics->stream, ",\"%s\":[", key);
	for (size_t i = 0; i < count; i++)
		fprintf(metrics->stream, i ? ",%llu" : "%llu", (unsigned long long)values[i]);
	fprintf(metrics->stream, "]");
}

void metrics_log_number(struct metrics_log *metrics, const char *key, double value)
{
	metrics_log_note(metrics, key, value);
	if (isfinite(value))
		fprintf(metrics->stream, ",\"%s\":%.6g", key, value);
	else
		fprintf(metrics->stream, ",\"%s\":null", key);
}

void metrics_log_exact(struct metrics_log *metrics, const char *key, double value)
{
	metrics_log_note(metrics, key, value);
	if (isfinite(value))
		fprintf(metrics->stream, ",\"%s\":%.17g,\"%s_hex\":\"%a\"", key, value, key, value);
	else
		fprintf(metrics->stream, ",\"%s\":null,\"%s_hex\":\"%a\"", key, key, value);
}

int metrics_log_end(struct metrics_log *metrics)
{
	fprintf(metrics->stream, "}\n");
	if (ferror(metrics->stream) || fflush(metrics->stream))
		return -ENOMEM;
	return append_file_write(metrics->fd, metrics->text, metrics->length);
}

const struct metrics_log_line *metrics_log_line(const struct metrics_log *metrics)
{
	return &metrics->line;
}

int metrics_log_sync(struct metrics_log *metrics)
{
	return metrics && fsync(metrics->fd) ? -errno : 0;
}
