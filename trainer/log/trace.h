/*
 * Timeline of a run for chrome://tracing and Perfetto: a row of nested spans for the loop, and one
 * for the device, where spans of layers are inside the span of their pass.
 *
 * Format: Trace Event Format (Duvall and Sinclair, Google), "JSON Object Format" with complete
 * events ("X") and row names as metadata ("M"). Spans stay in memory until written. The run owns
 * the trace and uses it from its thread.
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
/* Sorts the spans by start. -ENOMEM if spans were lost. */
int trace_sort(struct trace *trace);
/* Writes the spans, with times relative to the earliest one. Call after trace_sort(). */
void trace_write(const struct trace *trace, FILE *file);
