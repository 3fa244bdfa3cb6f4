#include "trainer/log/journal.h"

#include "format/base/text/sentence.h"
#include "trainer/log/appended.h"

#include <errno.h>
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
	FILE *stream; /* writes to `text` */
	size_t length;
	char *text;
	struct journal_line line;
};

static void journal_note(struct journal *journal, const char *key, double value)
{
	struct journal_line *line = &journal->line;
	if (line->count < JOURNAL_NUMBERS_MAX)
		line->numbers[line->count++] = (struct journal_number){key, value};
}

static uint64_t journal_step_of(const char *line)
{
	json_t *json = json_loads(line, 0, NULL), *at = json_object_get(json, "step");
	uint64_t step = json_is_integer(at) ? (uint64_t)json_integer_value(at) : APPENDED_NO_STEP;
	json_decref(json);
	return step;
}

int journal_cut(struct journal *journal, uint64_t step, bool fresh)
{
	if (!fresh)
		return appended_cut(journal->fd, step, journal_step_of);
	return ftruncate(journal->fd, 0) ? -errno : 0;
}

int journal_open(const char *path, struct journal **ret_journal, char *error)
{
	struct journal *journal = calloc(1, sizeof(*journal));
	if (journal)
		journal->stream = open_memstream(&journal->text, &journal->length);
	if (!journal || !journal->stream) {
		free(journal);
		return sentence_fail(error, JOURNAL_ERROR_MAX, -ENOMEM, "%s: out of memory", path);
	}
	journal->fd = appended_open(path);
	int r = journal->fd < 0 ? journal->fd : 0;
	/* This lock protects the whole output folder; it ends with the process. */
	if (!r && flock(journal->fd, LOCK_EX | LOCK_NB))
		r = -errno;
	if (r) {
		journal_close(journal);
		return sentence_fail(error, JOURNAL_ERROR_MAX, r, "%s: %s", path,
				     r == -EWOULDBLOCK
					     ? "another trainer is at work in this folder, "
					       "or a user who may read that file "
					       "keeps it locked: lslocks says who"
					     : appended_why(r));
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
	free(journal->text);
	free(journal);
}

void journal_begin(struct journal *journal, const char *event, uint64_t step)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	journal->line = (struct journal_line){
		.event = event,
		.step = step,
		.time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9,
	};
	rewind(journal->stream);
	fprintf(journal->stream, "{\"event\":\"%s\",\"step\":%llu,\"time\":%lld.%03ld", event,
		(unsigned long long)step, (long long)now.tv_sec, now.tv_nsec / 1000000);
}

void journal_text(struct journal *journal, const char *key, const char *value)
{
	struct journal_line *line = &journal->line;
	if (line->text_count < JOURNAL_TEXTS_MAX)
		line->texts[line->text_count++] = (struct journal_text){key, value};
	json_t *json = json_string(value);
	char *text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
	/* Invalid UTF-8, such as an odd path, cannot be written as JSON. */
	fprintf(journal->stream, ",\"%s\":%s", key, text ? text : "null");
	free(text);
	json_decref(json);
}

void journal_count(struct journal *journal, const char *key, uint64_t value)
{
	journal_note(journal, key, (double)value);
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
	journal_note(journal, key, value);
	if (isfinite(value))
		fprintf(journal->stream, ",\"%s\":%.6g", key, value);
	else
		fprintf(journal->stream, ",\"%s\":null", key);
}

void journal_exact(struct journal *journal, const char *key, double value)
{
	journal_note(journal, key, value);
	if (isfinite(value))
		fprintf(journal->stream, ",\"%s\":%.17g,\"%s_hex\":\"%a\"", key, value, key, value);
	else
		fprintf(journal->stream, ",\"%s\":null,\"%s_hex\":\"%a\"", key, key, value);
}

int journal_end(struct journal *journal)
{
	fprintf(journal->stream, "}\n");
	if (ferror(journal->stream) || fflush(journal->stream))
		return -ENOMEM;
	return appended_put(journal->fd, journal->text, journal->length);
}

const struct journal_line *journal_line(const struct journal *journal)
{
	return &journal->line;
}

int journal_sync(struct journal *journal)
{
	return journal && fsync(journal->fd) ? -errno : 0;
}
