/*
 * Timeline of a run for chrome://tracing and Perfetto: a row of nested spans for the loop, and one
 * for the device, with layers inside their pass.
 *
 * Format: Trace Event Format (Duvall and Sinclair, Google), "JSON Object Format" with complete
 * events ("X") and row names as metadata ("M"). Spans stay in memory until written. Owned by the
 * run, used by its thread.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct trace;

/* device: name of its row. NULL if out of memory. */
struct trace *trace_new(const char *device);
void trace_free(struct trace *trace); /* accepts NULL */
/* Adds a span of the loop, on CLOCK_MONOTONIC; add inner spans first. */
void trace_add(struct trace *trace, const char *name, uint64_t begin_ns, uint64_t end_ns);
/* Adds a span of the device; consecutive spans of a pass are enclosed in a span named after it. */
void trace_add_device(struct trace *trace, const char *name, const char *kind, const char *pass,
		      uint64_t begin_ns, uint64_t end_ns);
/* Sorts and shifts the spans to start at 0. -ENOMEM if spans were lost. */
int trace_sort(struct trace *trace);
/* Call after trace_sort(). */
void trace_write(const struct trace *trace, FILE *file);
