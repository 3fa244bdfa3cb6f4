#include "trainer/log/journal.h"
#include "format/base/text/sentence.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct journal {
	int fd;
	FILE *stream; /* writes to line */
	size_t length;
	char *line;
};

/* Bytes of the file that a run at `step` keeps: whole lines up to the first of a later step. */
static int journal_kept_size(FILE *file, uint64_t step, off_t *ret_size)
{
	char *line = NULL;
	size_t capacity = 0;
	ssize_t length;
	off_t size = 0;
	while ((length = getline(&line, &capacity, file)) > 0) {
		json_t *json = line[length - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
		json_t *at = json_object_get(json, "step");
		bool keep = json_is_integer(at) && (uint64_t)json_integer_value(at) <= step;
		json_decref(json);
		if (!keep)
			break;
		size += length;
	}
	free(line);
	if (ferror(file))
		return -EIO;
	*ret_size = size;
	return 0;
}

int journal_cut(struct journal *journal, uint64_t step, bool fresh)
{
	off_t size = 0;
	if (!fresh) {
		int copy = fcntl(journal->fd, F_DUPFD_CLOEXEC, 0);
		FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
		if (!file)
			return -errno;
		int r = journal_kept_size(file, step, &size);
		fclose(file);
		if (r)
			return r;
	}
	return ftruncate(journal->fd, size) ? -errno : 0;
}

int journal_open(const char *path, struct journal **ret_journal, char *error)
{
	struct journal *journal = calloc(1, sizeof(*journal));
	if (journal)
		journal->stream = open_memstream(&journal->line, &journal->length);
	if (!journal || !journal->stream) {
		free(journal);
		return sentence_fail(error, JOURNAL_ERROR_MAX, -ENOMEM, "%s: out of memory", path);
	}
	journal->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	int r = journal->fd < 0 ? -errno : 0;
	/* The lock is that of the whole output folder; it goes with the process. */
	if (!r && flock(journal->fd, LOCK_EX | LOCK_NB))
		r = -errno;
	if (r) {
		journal_close(journal);
		return sentence_fail(error, JOURNAL_ERROR_MAX, r, "%s: %s", path,
				     r == -EWOULDBLOCK ? "another trainer is at work in this folder"
						       : strerror(-r));
	}
	*ret_journal = journal;
	return 0;
}

void journal_close(struct journal *journal)
{
	if (!journal)
		return;
	if (journal->fd >= 0)
		close(journal->fd);
	fclose(journal->stream);
	free(journal->line);
	free(journal);
}

void journal_begin(struct journal *journal, const char *event, uint64_t step)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	rewind(journal->stream);
	fprintf(journal->stream, "{\"event\":\"%s\",\"step\":%llu,\"time\":%lld.%03ld", event,
		(unsigned long long)step, (long long)now.tv_sec, now.tv_nsec / 1000000);
}

void journal_text(struct journal *journal, const char *key, const char *value)
{
	json_t *json = json_string(value);
	char *text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
	/* A text that is not UTF-8, such as an odd path, has no place in JSON. */
	fprintf(journal->stream, ",\"%s\":%s", key, text ? text : "null");
	free(text);
	json_decref(json);
}

void journal_count(struct journal *journal, const char *key, uint64_t value)
{
	fprintf(journal->stream, ",\"%s\":%llu", key, (unsigned long long)value);
}

void journal_counts(struct journal *journal, const char *key, const uint64_t *values, size_t count)
{
	fprintf(journal->stream, ",\"%s\":[", key);
	for (size_t i = 0; i < count; i++)
		fprintf(journal->stream, i ? ",%llu" : "%llu", (unsigned long long)values[i]);
	fprintf(journal->stream, "]");
}

void journal_number(struct journal *journal, const char *key, double value)
{
	if (isfinite(value))
		fprintf(journal->stream, ",\"%s\":%.6g", key, value);
	else
		fprintf(journal->stream, ",\"%s\":null", key);
}

void journal_exact(struct journal *journal, const char *key, double value)
{
	if (isfinite(value))
		fprintf(journal->stream, ",\"%s\":%.17g,\"%s_hex\":\"%a\"", key, value, key, value);
	else
		fprintf(journal->stream, ",\"%s\":null,\"%s_hex\":\"%a\"", key, key, value);
}

/* The beginning of a line that could not be written whole, so that another may follow. */
static void journal_take_back(struct journal *journal, size_t written)
{
	off_t size = lseek(journal->fd, 0, SEEK_END);
	if (size < (off_t)written)
		return;
	/* Where this fails, journal_cut() does it when the run goes on. */
	int r = ftruncate(journal->fd, size - (off_t)written);
	(void)r;
}

int journal_end(struct journal *journal)
{
	fprintf(journal->stream, "}\n");
	if (ferror(journal->stream) || fflush(journal->stream))
		return -ENOMEM;
	/*
	 * One write: lines of a process that is killed are whole, but for a full disk. There the
	 * rest is tried too, for the reason.
	 */
	size_t written = 0;
	while (written < journal->length) {
		ssize_t n = write(journal->fd, journal->line + written, journal->length - written);
		if (n < 0 && errno != EINTR) {
			int r = -errno;
			journal_take_back(journal, written);
			return r;
		}
		written += n < 0 ? 0 : (size_t)n;
	}
	return 0;
}

int journal_sync(struct journal *journal)
{
	return journal && fsync(journal->fd) ? -errno : 0;
}
