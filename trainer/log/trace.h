/*
 * What a run did in which microseconds, as chrome://tracing and Perfetto draw it: a row for the
 * loop, where spans lie within spans, and one for the device, layer by layer within its passes.
 *
 * The form is that of the Trace Event Format (Duvall and Sinclair, Google), "JSON Object Format"
 * with complete events ("X") and names of the rows as metadata ("M"). Spans are kept in memory
 * until all of them are there. Owned by the run, used by its thread.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct trace;

/* device: what its row is called. NULL: out of memory. */
struct trace *trace_new(const char *device);
void trace_free(struct trace *trace); /* accepts NULL */
/* A span of the loop, on CLOCK_MONOTONIC; those within it were added before. */
void trace_add(struct trace *trace, const char *name, uint64_t begin_ns, uint64_t end_ns);
/* A span of the device; those of one pass that follow each other lie within one of its name. */
void trace_add_device(struct trace *trace, const char *name, const char *kind, const char *pass,
		      uint64_t begin_ns, uint64_t end_ns);
/* The first span is at 0. -ENOMEM: some of the spans were lost. */
int trace_sort(struct trace *trace);
/* After trace_sort(). */
void trace_write(const struct trace *trace, FILE *file);
