/*
 * trainer --trace: records what loop and device do in some steps. The options give the first and
 * last step to trace; earlier steps warm up caches and libraries, like the wait and warm-up steps
 * of torch.profiler's schedule.
 */
#include "trainer/run/output/tracer.h"

#include "format/base/system/clock.h"
#include "trainer/device/device.h"
#include "trainer/device/steps.h"
#include "trainer/run/output/result_files.h"

#include <errno.h>
#include <stdarg.h>

int tracer_open(struct tracer *tracer, uint64_t step, uint64_t steps)
{
	const struct run_options *options = &tracer->ctx->options;
	uint64_t left = steps - step;
	tracer->start = step;
	if (!options->trace || options->trace_first <= left)
		return 0;
	return run_fail(tracer->ctx, -EINVAL,
			"--trace=%s: the first step to trace is %llu, but only %llu remain: set "
			"--trace-steps=FIRST-LAST",
			options->trace, (unsigned long long)options->trace_first,
			(unsigned long long)left);
}

uint64_t tracer_span_begin(const struct tracer *tracer)
{
	return tracer->trace ? clock_ns(CLOCK_MONOTONIC) : 0;
}

void tracer_span_end(const struct tracer *tracer, uint64_t begin_ns, const char *format, ...)
{
	char name[64];
	va_list arguments;
	/* begin_ns is 0 if the trace began within the span */
	if (!tracer->trace || !begin_ns)
		return;
	va_start(arguments, format);
	vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	trace_add(tracer->trace, name, begin_ns, clock_ns(CLOCK_MONOTONIC));
}

void tracer_add_sent(const struct tracer *tracer, uint64_t begin_ns, const struct comm_sent *sent)
{
	const struct trace_counts counts = {
		.names = {"sums", "reduce-scatters", "all-gathers"},
		.values = {sent->sums, sent->reduce_scatters, sent->all_gathers},
	};
	/* begin_ns is 0 if the trace began within the step */
	if (tracer->trace && begin_ns && tracer->ctx->comm->world > 1)
		trace_add_counts(tracer->trace, "bytes sent", begin_ns, &counts);
}

static void tracer_add_device_span(void *trace, const struct device_span *span)
{
	trace_add_device(trace, span->name, span->kind, span->pass, span->begin_ns, span->end_ns);
}

static void tracer_print(const void *trace, FILE *file)
{
	trace_write(trace, file);
}

static int tracer_write(struct tracer *tracer)
{
	const char *path = tracer->ctx->options.trace;
	int r = trace_sort(tracer->trace);
	if (r < 0)
		return run_fail(tracer->ctx, r, "--trace=%s: out of memory", path);
	return result_file_write(tracer->ctx, "--trace", path, "", tracer_print, tracer->trace);
}

void tracer_close(struct tracer *tracer, uint64_t step)
{
	struct run_context *ctx = tracer->ctx;
	if (!tracer->trace)
		return;
	device_watch_steps(ctx->device, NULL, NULL);
	/* a failed trace does not fail the run */
	if (tracer_write(tracer) < 0) {
		progress_line(&ctx->progress, "%s", ctx->error);
		run_clear_error(ctx);
	} else {
		progress_line(&ctx->progress, "--trace=%s: wrote the trace, up to step %llu",
			      ctx->options.trace, (unsigned long long)step);
	}
	trace_free(tracer->trace);
	tracer->trace = NULL;
}

void tracer_step(struct tracer *tracer, uint64_t step)
{
	struct run_context *ctx = tracer->ctx;
	uint64_t number = step - tracer->start + 1;
	if (!ctx->options.trace || ctx->comm->rank)
		return;
	if (number == ctx->options.trace_last + 1)
		tracer_close(tracer, step);
	if (number != ctx->options.trace_first)
		return;
	tracer->trace = trace_new(device_info(ctx->device)->name);
	if (tracer->trace)
		device_watch_steps(ctx->device, tracer_add_device_span, tracer->trace);
	else
		progress_line(&ctx->progress, "--trace=%s: out of memory", ctx->options.trace);
}
