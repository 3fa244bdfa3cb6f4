/* metrics.csv: a row per line of log.jsonl with measurements; the table below lists the columns. */
#include "format/base/text/sentence.h"
#include "trainer/log/append_file.h"
#include "trainer/log/sink.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const csv_columns[] = {
	"epoch",
	"loss",
	"loss_mean",
	"top1",
	"top5",
	"lr",
	"grad_norm",
	"loss_scale",
	"samples",
	"bad_samples",
	"skipped_updates",
	"images_per_second",
	"mfu",
	"data_wait",
	"train_seconds",
	"seconds",
	"sent_sums",
	"sent_reduce_scatters",
	"sent_all_gathers",
	"map",
	"f1",
	"r2",
	"mae",
	"rmse",
};

enum {
	CSV_COLUMNS = sizeof(csv_columns) / sizeof(csv_columns[0]),
	CSV_ROW_MAX = 64 + 32 * CSV_COLUMNS, /* for numbers of at most 24 characters */
};

struct csv {
	struct sink sink; /* must be the first member */
	int fd;
};

/* Formats the header line, without newline. */
static void csv_header(char *ret_text)
{
	int length = snprintf(ret_text, CSV_ROW_MAX, "event,step,time");
	for (size_t i = 0; i < CSV_COLUMNS; i++)
		length += snprintf(ret_text + length, CSV_ROW_MAX - (size_t)length, ",%s",
				   csv_columns[i]);
}

static int csv_put(struct sink *sink, const struct metrics_log_line *line)
{
	struct csv *csv = (struct csv *)sink;
	char row[CSV_ROW_MAX];
	if (!sink_is_measured(line))
		return 0;
	int length = snprintf(row, sizeof(row), "%s,%llu,%.3f", line->event,
			      (unsigned long long)line->step, line->time);
	for (size_t i = 0; i < CSV_COLUMNS; i++) {
		const char *key = csv_columns[i];
		double value = NAN;
		for (size_t n = 0; n < line->count; n++)
			if (strcmp(line->numbers[n].key, key) == 0)
				value = line->numbers[n].value;
		/* leave missing or NaN values empty */
		length += snprintf(row + length, sizeof(row) - (size_t)length,
				   isfinite(value) ? ",%.9g" : ",", value);
	}
	row[length++] = '\n';
	return append_file_write(csv->fd, row, (size_t)length);
}

static void csv_close(struct sink *sink)
{
	struct csv *csv = (struct csv *)sink;
	if (csv->fd >= 0)
		close(csv->fd);
	free(csv);
}

static uint64_t csv_step_of(const char *line)
{
	char header[CSV_ROW_MAX], *end;
	const char *comma = strchr(line, ',');
	csv_header(header);
	if (strcmp(line, header) == 0)
		return 0;
	errno = 0;
	unsigned long long step = comma ? strtoull(comma + 1, &end, 10) : 0;
	return comma && end != comma + 1 && *end == ',' && !errno ? step : APPEND_FILE_NO_STEP;
}

/* Prepares an existing file for appending. -EBADMSG if it has other columns. */
static int csv_continue(int fd, uint64_t step)
{
	char header[CSV_ROW_MAX], found[CSV_ROW_MAX] = "";
	csv_header(header);
	size_t length = strlen(header);
	ssize_t n = pread(fd, found, length + 1, 0);
	if (n < 0)
		return -errno;
	if (n > 0 && (memcmp(found, header, length) != 0 || found[length] != '\n'))
		return -EBADMSG;
	return n ? append_file_truncate(fd, step, csv_step_of) : 0;
}

static int csv_begin(int fd, uint64_t step, bool fresh)
{
	char header[CSV_ROW_MAX];
	int r = fresh ? (ftruncate(fd, 0) ? -errno : 0) : csv_continue(fd, step);
	if (r < 0 || lseek(fd, 0, SEEK_END) > 0)
		return r;
	csv_header(header);
	size_t length = strlen(header);
	header[length++] = '\n';
	return append_file_write(fd, header, length);
}

int log_open_csv(const char *folder, uint64_t step, bool fresh, struct sink **ret_sink, char *error)
{
	char path[4096];
	struct csv *csv = calloc(1, sizeof(*csv));
	if (!csv)
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, -ENOMEM, "out of memory");
	csv->sink = (struct sink){csv_put, csv_close, "metrics.csv"};
	int length = snprintf(path, sizeof(path), "%s/%s", folder, csv->sink.name);
	csv->fd = length < (int)sizeof(path) ? append_file_open(path) : -ENAMETOOLONG;
	int r = csv->fd < 0 ? csv->fd : csv_begin(csv->fd, step, fresh);
	if (r < 0) {
		csv_close(&csv->sink);
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, r, "%.300s: %s", path,
				     r == -EBADMSG ? "has other columns than this version writes: "
						     "move it away, then use --resume"
						   : append_file_error(r));
	}
	*ret_sink = &csv->sink;
	return 0;
}
