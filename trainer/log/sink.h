/*
 * An additional output format for the metrics of a run, written line by line (sinks.h). The run
 * owns it and uses it from its thread.
 */
#pragma once

#include "trainer/log/metrics_log.h"
#include "trainer/log/sinks.h"

#include <string.h>

struct sink {
	/*
	 * Writes a line of log.jsonl. On failure, returns a negative errno and writes no part of
	 * it.
	 */
	int (*put)(struct sink *sink, const struct metrics_log_line *line);
	void (*close)(struct sink *sink);
	char name[128]; /* file name in the run's folder */
};

/* True for lines with measurements; numbers in other lines only describe events. */
static inline bool sink_is_measured(const struct metrics_log_line *line)
{
	return strcmp(line->event, "step") == 0 || strcmp(line->event, "epoch") == 0 ||
	       strcmp(line->event, "eval") == 0;
}

/*
 * Opens the sink in a run's folder. Removes or voids entries of steps beyond `step`, where the run
 * resumes; if `fresh`, all entries. error: METRICS_LOG_ERROR_MAX bytes.
 */
typedef int log_open_sink(const char *folder, uint64_t step, bool fresh, struct sink **ret_sink,
			  char *error);

#define LOG_OPEN(name, help) log_open_sink log_open_##name;
LOG_SINKS(LOG_OPEN)
#undef LOG_OPEN

#define LOG_COUNT(name, help) +1
enum { LOG_SINK_COUNT = 0 LOG_SINKS(LOG_COUNT) };
#undef LOG_COUNT
