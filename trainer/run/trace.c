/*
 * trainer --trace: records what loop and device do in some steps, after earlier ones have warmed up
 * caches and libraries. torch.profiler's schedule has wait, warm-up and active steps for that; here
 * the first and last traced step are given.
 */
#include "trainer/log/trace.h"
#include "format/base/system/clock.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdarg.h>

int run_open_trace(struct run *run)
{
	const struct run_options *options = &run->options;
	uint64_t left = run->steps - run->state.step;
	run->trace_after = run->state.step;
	if (!options->trace || options->trace_first <= left)
		return 0;
	return run_fail(
		run, -EINVAL,
		"--trace=%s: step %llu from the beginning of the run is the first that is "
		"traced, and there are %llu to make: set others by --trace-steps=FIRST-LAST",
		options->trace, (unsigned long long)options->trace_first, (unsigned long long)left);
}

uint64_t run_span_begin(const struct run *run)
{
	return run->trace ? clock_ns(CLOCK_MONOTONIC) : 0;
}

void run_span_end(const struct run *run, uint64_t begin_ns, const char *format, ...)
{
	char name[64];
	va_list arguments;
	/* 0 if the trace began within the span */
	if (!run->trace || !begin_ns)
		return;
	va_start(arguments, format);
	vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	trace_add(run->trace, name, begin_ns, clock_ns(CLOCK_MONOTONIC));
}

static void trace_watch(void *of, const struct device_span *span)
{
	trace_add_device(of, span->name, span->kind, span->pass, span->begin_ns, span->end_ns);
}

static void trace_put(const void *found, FILE *file)
{
	trace_write(found, file);
}

void run_end_trace(struct run *run)
{
	const char *path = run->options.trace;
	if (!run->trace)
		return;
	device_watch_steps(run->device, NULL, NULL);
	int r = trace_sort(run->trace);
	if (r)
		run_fail(run, r, "--trace=%s: out of memory", path);
	else
		r = run_write_result(run, "--trace", path, "", trace_put, run->trace);
	/* a failed trace does not fail the run */
	if (r)
		progress_line(&run->progress, "%s", run->error);
	else
		progress_line(&run->progress, "--trace=%s has the trace, to step %llu", path,
			      (unsigned long long)run->state.step);
	if (r)
		*run->error = 0;
	trace_free(run->trace);
	run->trace = NULL;
}

void run_trace_step(struct run *run)
{
	uint64_t step = run->state.step - run->trace_after + 1;
	if (!run->options.trace || run->comm->rank)
		return;
	if (step == run->options.trace_last + 1)
		run_end_trace(run);
	if (step != run->options.trace_first)
		return;
	run->trace = trace_new(device_info(run->device)->name);
	if (run->trace)
		device_watch_steps(run->device, trace_watch, run->trace);
	else
		progress_line(&run->progress, "--trace=%s: out of memory", run->options.trace);
}
