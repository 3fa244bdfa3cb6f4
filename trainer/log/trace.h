/*
 * Timeline of a run for chrome://tracing and Perfetto: a row of nested spans for the loop, one for
 * the device, where spans of layers are inside the span of their pass, and rows of counters.
 *
 * Format: Trace Event Format (Duvall and Sinclair, Google), "JSON Object Format" with complete
 * events ("X"), counters ("C") and row names as metadata ("M"). Spans stay in memory until written.
 * The run owns the trace and uses it from its thread.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct trace;

/* device: name of the device's row. Returns NULL if out of memory. */
struct trace *trace_new(const char *device);
void trace_free(struct trace *trace); /* accepts NULL */
/* Adds a span of the loop, in CLOCK_MONOTONIC nanoseconds. Add inner spans before outer ones. */
void trace_add(struct trace *trace, const char *name, uint64_t begin_ns, uint64_t end_ns);
/*
 * Adds a span of the device. Consecutive spans of the same pass are enclosed in one named after it.
 */
void trace_add_device(struct trace *trace, const char *name, const char *kind, const char *pass,
		      uint64_t begin_ns, uint64_t end_ns);
enum { TRACE_COUNTS = 3 };
/* Values of a row of counters; the names must outlive the trace. */
struct trace_counts {
	const char *names[TRACE_COUNTS];
	uint64_t values[TRACE_COUNTS];
};
/* Sets the values of the row `name` from a time on. The name must outlive the trace. */
void trace_add_counts(struct trace *trace, const char *name, uint64_t at_ns,
		      const struct trace_counts *counts);
/* Sorts the spans by start. -ENOMEM if spans were lost. */
int trace_sort(struct trace *trace);
/* Writes the spans, with times relative to the earliest one. Call after trace_sort(). */
void trace_write(const struct trace *trace, FILE *file);
