/*
 * --trace (trace.c): records what loop and device do in some steps. Rank 0 only. Written by its own
 * functions.
 */
#pragma once

#include "trainer/log/trace.h"
#include "trainer/run/context.h"

struct tracer {
	struct run_context *ctx;
	struct trace *trace; /* not NULL while steps are traced */
	uint64_t start;      /* step that the run began at */
};

/* Before the first step. -EINVAL if the run of `steps` ends before the steps to trace. */
int tracer_open(struct tracer *tracer, uint64_t step, uint64_t steps);
/* Before each step: starts the trace or writes it, when due. */
void tracer_step(struct tracer *tracer, uint64_t step);
/* Writes the spans traced so far, if any. Failures are reported but not returned. */
void tracer_close(struct tracer *tracer, uint64_t step);
/* Bracket a span of the loop; the name is given at its end. No-ops while no trace is active. */
uint64_t tracer_span_begin(const struct tracer *tracer);
__attribute__((format(printf, 3, 4))) void
tracer_span_end(const struct tracer *tracer, uint64_t begin_ns, const char *format, ...);
