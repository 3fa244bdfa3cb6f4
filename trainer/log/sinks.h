/*
 * Forms besides log.jsonl that the numbers of a run are written in as they come. A row is a key of
 * [log], its help, and in a file of that name log_open_NAME(), which sink.h has.
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
