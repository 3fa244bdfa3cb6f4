/*
 * --trace: records spans of loop and device during some steps (log/trace.h). Rank 0 only. Only the
 * functions below write the struct.
 */
#pragma once

#include "trainer/log/trace.h"
#include "trainer/run/context.h"

struct tracer {
	struct run_context *ctx;
	struct trace *trace; /* NULL unless steps are being traced */
	uint64_t start;      /* step at which this process began */
};

/*
 * Call before the first step. -EINVAL if the run, of `steps`, ends before the first step to trace.
 */
int tracer_open(struct tracer *tracer, uint64_t step, uint64_t steps);
/*
 * Call before each step. Starts or writes the trace when the step is the first or past the last to
 * trace.
 */
void tracer_step(struct tracer *tracer, uint64_t step);
/* Writes the spans traced so far, if any. Reports failures, but does not return them. */
void tracer_close(struct tracer *tracer, uint64_t step);
/*
 * Bracket a span of the loop. tracer_span_end() gets the name. Both do nothing while no trace is
 * active.
 */
uint64_t tracer_span_begin(const struct tracer *tracer);
__attribute__((format(printf, 3, 4))) void
tracer_span_end(const struct tracer *tracer, uint64_t begin_ns, const char *format, ...);
/* Adds the bytes that this rank sent in the step that began then; nothing for a single rank. */
void tracer_add_sent(const struct tracer *tracer, uint64_t begin_ns, const struct comm_sent *sent);
