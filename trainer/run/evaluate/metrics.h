/*
 * What an evaluation measures beside the loss, by kind of target: names for files and for people.
 * The first metric is the score: it chooses the best weights, stops runs early and lowers the rate
 * (schedule.metric); higher is better. Pure functions.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

struct metric {
	const char *key;  /* in log.jsonl, summary.json and the output of --evaluate */
	const char *name; /* for people */
	bool percent;     /* a share, printed as a percentage */
};

struct metrics {
	unsigned count; /* at most CHECKPOINT_METRICS */
	struct metric metric[CHECKPOINT_METRICS];
};

extern const struct metrics metrics_of_classes;

/* Formats a value with its unit, such as "93.10 %". */
enum { METRIC_TEXT = 32 };
void metric_text(const struct metric *metric, double value, char *ret_text);
/*
 * Formats all metrics of the state's evaluation, such as "top-1 93.10 %  top-5 99.70 %". exact: as
 * shares with six digits and commas, for metadata.
 */
enum { METRICS_TEXT = 128 };
void metrics_text(const struct metrics *metrics, const double *values, bool exact, char *ret_text);
