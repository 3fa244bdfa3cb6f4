/*
 * Table of output formats besides log.jsonl. A row is a key of [log] and its help; a file of that
 * name defines log_open_NAME(), declared in sink.h.
 */
#pragma once

#define LOG_SINKS(SINK)                                                                            \
	SINK(csv, "Write the numbers of step, epoch and eval lines to metrics.csv, too, a column " \
		  "for each kind.")                                                                \
	SINK(mlperf,                                                                               \
	     "Write run, epochs and evaluations to mlperf.log, too, in the lines of MLPerf's "     \
	     "results (\":::MLLOG {...}\").")                                                      \
	SINK(tensorboard, "Write them as scalars to an event file, too, which TensorBoard and "    \
			  "what reads its files show as the run goes: "                            \
			  "\"tensorboard --logdir runs\".")
