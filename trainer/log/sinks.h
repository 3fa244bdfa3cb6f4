/*
 * Table of output formats besides log.jsonl. Each row is a key of the recipe section [log] and its
 * help. NAME.c defines the row's log_open_NAME(), of the type declared in sink.h.
 */
#pragma once

#define LOG_SINKS(SINK)                                                                            \
	SINK(csv, "Also write the numbers of step, epoch and eval lines to metrics.csv, one "      \
		  "column per kind.")                                                              \
	SINK(mlperf, "Also write run, epochs and evaluations to mlperf.log, in the format of "     \
		     "MLPerf's results (\":::MLLOG {...}\").")                                     \
	SINK(tensorboard, "Also write them as scalars to a TensorBoard event file, updated "       \
			  "during the run: \"tensorboard --logdir runs\".")
