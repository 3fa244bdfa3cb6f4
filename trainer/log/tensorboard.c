/*
 * Scalars for TensorBoard: EVENT/KEY of the lines of log.jsonl, such as "eval/top1", over steps.
 *
 * An event file is a sequence of TFRecords. Each has a length (8 bytes, little endian), the masked
 * CRC-32C of the length, the event, and the masked CRC-32C of the event
 * (tensorflow/core/lib/io/record_writer.h, tensorflow/core/lib/hash/crc32c.h). A resumed run begins
 * another file; its first event voids events of later steps in earlier files.
 */
#include "format/base/text/sentence.h"
#include "trainer/log/append_file.h"
#include "trainer/log/events.pb-c.h"
#include "trainer/log/sink.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_BEGIN "events.out.tfevents."
/* suffix that distinguishes these files from those of other programs */
#define EVENTS_END   ".trainer"
#define CRC32C_POLY  0x82f63b78u
#define CRC_MASK_ADD 0xa282ead8u

enum { RECORD_HEAD = 12, RECORD_TAIL = 4 };

struct tensorboard {
	struct sink sink; /* must be the first member */
	int fd;
};

static uint32_t masked_crc(const uint8_t *data, size_t size)
{
	uint32_t crc = 0xffffffffu;
	for (size_t i = 0; i < size; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLY : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + CRC_MASK_ADD;
}

static void store32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

static int put_event(int fd, const Loaderd__Events__Event *event)
{
	size_t size = loaderd__events__event__get_packed_size(event);
	uint8_t *record = calloc(1, RECORD_HEAD + size + RECORD_TAIL);
	if (!record)
		return -ENOMEM;
	store32(record, (uint32_t)size);
	store32(record + 8, masked_crc(record, 8));
	loaderd__events__event__pack(event, record + RECORD_HEAD);
	store32(record + RECORD_HEAD + size, masked_crc(record + RECORD_HEAD, size));
	int r = append_file_write(fd, record, RECORD_HEAD + size + RECORD_TAIL);
	free(record);
	return r;
}

static int tensorboard_put(struct sink *sink, const struct metrics_log_line *line)
{
	struct tensorboard *board = (struct tensorboard *)sink;
	Loaderd__Events__Scalar scalars[METRICS_LOG_NUMBERS_MAX], *values[METRICS_LOG_NUMBERS_MAX];
	char tags[METRICS_LOG_NUMBERS_MAX][64];
	Loaderd__Events__Summary summary = LOADERD__EVENTS__SUMMARY__INIT;
	Loaderd__Events__Event event = LOADERD__EVENTS__EVENT__INIT;
	if (!sink_is_measured(line))
		return 0;
	for (size_t i = 0; i < line->count; i++) {
		snprintf(tags[i], sizeof(tags[i]), "%s/%s", line->event, line->numbers[i].key);
		loaderd__events__scalar__init(&scalars[i]);
		scalars[i].tag = tags[i];
		scalars[i].value_case = LOADERD__EVENTS__SCALAR__VALUE_SIMPLE_VALUE;
		scalars[i].simple_value = (float)line->numbers[i].value;
		values[i] = &scalars[i];
	}
	summary.n_value = line->count;
	summary.value = values;
	event.wall_time = line->time;
	event.step = (int64_t)line->step;
	event.what_case = LOADERD__EVENTS__EVENT__WHAT_SUMMARY;
	event.summary = &summary;
	return put_event(board->fd, &event);
}

static void tensorboard_close(struct sink *sink)
{
	struct tensorboard *board = (struct tensorboard *)sink;
	if (board->fd >= 0)
		close(board->fd);
	free(board);
}

static bool is_run_file(const char *name)
{
	size_t length = strlen(name), end = strlen(EVENTS_END);
	return strncmp(name, EVENTS_BEGIN, strlen(EVENTS_BEGIN)) == 0 && length > end &&
	       strcmp(name + length - end, EVENTS_END) == 0;
}

/* Removes the event files of a run that this one replaces. */
static int remove_others(const char *folder)
{
	DIR *directory = opendir(folder);
	int r = directory ? 0 : -errno;
	struct dirent *entry;
	while (r == 0 && (entry = readdir(directory)))
		if (is_run_file(entry->d_name) && unlinkat(dirfd(directory), entry->d_name, 0))
			r = -errno;
	if (directory)
		closedir(directory);
	return r;
}

static int put_start_event(int fd, double now, uint64_t step, bool fresh)
{
	char version[] = "brain.Event:2";
	Loaderd__Events__SessionLog start = LOADERD__EVENTS__SESSION_LOG__INIT;
	Loaderd__Events__Event event = LOADERD__EVENTS__EVENT__INIT;
	event.wall_time = now;
	event.what_case = LOADERD__EVENTS__EVENT__WHAT_FILE_VERSION;
	event.file_version = version;
	int r = put_event(fd, &event);
	if (r < 0 || fresh)
		return r;
	start.status = LOADERD__EVENTS__SESSION_LOG__STATUS__START;
	event.step = (int64_t)step + 1;
	event.what_case = LOADERD__EVENTS__EVENT__WHAT_SESSION_LOG;
	event.session_log = &start;
	return put_event(fd, &event);
}

int log_open_tensorboard(const char *folder, uint64_t step, bool fresh, struct sink **ret_sink,
			 char *error)
{
	char path[4096], host[64] = "";
	struct timespec now;
	struct tensorboard *board = calloc(1, sizeof(*board));
	if (!board)
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, -ENOMEM, "out of memory");
	clock_gettime(CLOCK_REALTIME, &now);
	gethostname(host, sizeof(host) - 1);
	board->sink = (struct sink){.put = tensorboard_put, .close = tensorboard_close};
	snprintf(board->sink.name, sizeof(board->sink.name),
		 EVENTS_BEGIN "%010lld.%s.%d" EVENTS_END, (long long)now.tv_sec, host,
		 (int)getpid());
	int length = snprintf(path, sizeof(path), "%s/%s", folder, board->sink.name);
	int r = length < (int)sizeof(path) ? 0 : -ENAMETOOLONG;
	if (r == 0 && fresh)
		r = remove_others(folder);
	board->fd = r < 0 ? r : append_file_open(path);
	if (r == 0)
		r = board->fd < 0 ? board->fd
				  : put_start_event(board->fd, (double)now.tv_sec, step, fresh);
	if (r < 0) {
		tensorboard_close(&board->sink);
		return sentence_fail(error, METRICS_LOG_ERROR_MAX, r, "%.300s: %s", path,
				     append_file_error(r));
	}
	*ret_sink = &board->sink;
	return 0;
}
