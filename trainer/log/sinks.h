/*
 * Table of output formats besides log.jsonl. A row is a key of [log] and its help; a file of that
 * name defines log_open_NAME(), declared in sink.h.
 */
#pragma once

#define LOG_SINKS(SINK)                                                                            \
	SINK(csv, "Also write the numbers of step, epoch and eval lines to metrics.csv, one "      \
		  "column per kind.")                                                              \
	SINK(mlperf, "Also write run, epochs and evaluations to mlperf.log, in the format of "     \
		     "MLPerf's results (\":::MLLOG {...}\").")                                     \
	SINK(tensorboard, "Also write them as scalars to a TensorBoard event file, updated "       \
			  "during the run: \"tensorboard --logdir runs\".")
