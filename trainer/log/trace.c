#include "trainer/log/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_NAME_MAX = 128, TRACE_KIND_MAX = 64, TRACE_NONE = -1 };

enum trace_row { TRACE_LOOP, TRACE_DEVICE, TRACE_ROWS };

struct trace_event {
	enum trace_row row;
	/* of two events with equal times, the one of lower rank encloses the other */
	size_t rank;
	char name[TRACE_NAME_MAX], kind[TRACE_KIND_MAX], pass[TRACE_KIND_MAX];
	uint64_t begin_ns, end_ns;
};

struct trace_count_event {
	const char *name;
	uint64_t at_ns;
	struct trace_counts counts;
};

struct trace {
	char device[TRACE_NAME_MAX];
	struct trace_event *events; /* [count] */
	size_t count, capacity;
	ptrdiff_t pass; /* index of the event enclosing the device's next spans, or TRACE_NONE */
	struct trace_count_event *count_events; /* [count_event_count] */
	size_t count_event_count, count_event_capacity;
	bool lost; /* some spans were dropped for lack of memory */
};

struct trace *trace_new(const char *device)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	if (!trace)
		return NULL;
	snprintf(trace->device, sizeof(trace->device), "%s", device);
	trace->pass = TRACE_NONE;
	return trace;
}

void trace_free(struct trace *trace)
{
	if (trace) {
		free(trace->events);
		free(trace->count_events);
	}
	free(trace);
}

/* Makes room for one more element of *items. Returns false if out of memory. */
static bool trace_grow(struct trace *trace, void **items, size_t count, size_t *capacity,
		       size_t size)
{
	if (count < *capacity)
		return true;
	size_t grown = *capacity ? 2 * *capacity : 1024;
	void *more = realloc(*items, grown * size);
	trace->lost = trace->lost || !more;
	if (!more)
		return false;
	*items = more;
	*capacity = grown;
	return true;
}

static struct trace_event *trace_append(struct trace *trace, enum trace_row row, const char *name,
					uint64_t begin_ns, uint64_t end_ns)
{
	void *events = trace->events;
	if (!trace_grow(trace, &events, trace->count, &trace->capacity, sizeof(*trace->events)))
		return NULL;
	trace->events = events;
	struct trace_event *event = &trace->events[trace->count];
	*event = (struct trace_event){
		.row = row, .rank = trace->count++, .begin_ns = begin_ns, .end_ns = end_ns};
	snprintf(event->name, sizeof(event->name), "%s", name);
	return event;
}

void trace_add(struct trace *trace, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	struct trace_event *event = trace_append(trace, TRACE_LOOP, name, begin_ns, end_ns);
	if (event)
		event->rank = SIZE_MAX - event->rank;
}

/* Continues or appends the event of a pass. Returns false if out of memory. */
static bool trace_enter_pass(struct trace *trace, const char *pass, uint64_t begin_ns,
			     uint64_t end_ns)
{
	struct trace_event *held = trace->pass == TRACE_NONE ? NULL : &trace->events[trace->pass];
	if (held && strcmp(held->name, pass) == 0) {
		held->end_ns = end_ns;
		return true;
	}
	trace->pass = TRACE_NONE;
	if (!trace_append(trace, TRACE_DEVICE, pass, begin_ns, end_ns))
		return false;
	trace->pass = (ptrdiff_t)trace->count - 1;
	return true;
}

void trace_add_device(struct trace *trace, const char *name, const char *kind, const char *pass,
		      uint64_t begin_ns, uint64_t end_ns)
{
	if (!trace_enter_pass(trace, pass, begin_ns, end_ns) || strcmp(name, pass) == 0)
		return;
	struct trace_event *event = trace_append(trace, TRACE_DEVICE, name, begin_ns, end_ns);
	if (!event)
		return;
	snprintf(event->kind, sizeof(event->kind), "%s", kind);
	snprintf(event->pass, sizeof(event->pass), "%s", pass);
}

void trace_add_counts(struct trace *trace, const char *name, uint64_t at_ns,
		      const struct trace_counts *counts)
{
	void *events = trace->count_events;
	if (!trace_grow(trace, &events, trace->count_event_count, &trace->count_event_capacity,
			sizeof(*trace->count_events)))
		return;
	trace->count_events = events;
	trace->count_events[trace->count_event_count++] =
		(struct trace_count_event){name, at_ns, *counts};
}

/* Orders by time, enclosing events first: viewers nest events with equal times in file order. */
static int trace_compare(const void *one, const void *other)
{
	const struct trace_event *a = one, *b = other;
	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	if (a->begin_ns != b->begin_ns)
		return a->begin_ns < b->begin_ns ? -1 : 1;
	if (a->end_ns != b->end_ns)
		return a->end_ns > b->end_ns ? -1 : 1;
	return a->rank < b->rank ? -1 : 1;
}

int trace_sort(struct trace *trace)
{
	if (trace->count)
		qsort(trace->events, trace->count, sizeof(*trace->events), trace_compare);
	return trace->lost ? -ENOMEM : 0;
}

/* Takes ownership of the object. */
static void trace_put(json_t *object, bool first, FILE *file)
{
	if (!first)
		fputs(",\n", file);
	/* 15 digits suffice for microseconds with nanosecond resolution up to eleven days */
	if (!object || json_dumpf(object, file, JSON_COMPACT | JSON_REAL_PRECISION(15)))
		fputs("{}", file);
	json_decref(object);
}

static void trace_put_row(enum trace_row row, const char *key, json_t *value, bool first,
			  FILE *file)
{
	trace_put(json_pack("{s:s,s:s,s:i,s:i,s:{s:o}}", "name", key, "ph", "M", "pid", 1, "tid",
			    (int)row + 1, "args",
			    strcmp(key, "thread_sort_index") == 0 ? "sort_index" : "name", value),
		  first, file);
}

static void trace_put_event(const struct trace_event *event, uint64_t zero_ns, FILE *file)
{
	json_t *object = json_pack("{s:s,s:s,s:i,s:i,s:f,s:f}", "name", event->name, "ph", "X",
				   "pid", 1, "tid", (int)event->row + 1, "ts",
				   (double)(event->begin_ns - zero_ns) / 1e3, "dur",
				   (double)(event->end_ns - event->begin_ns) / 1e3);
	if (object && *event->pass) {
		json_object_set_new(object, "cat", json_string(event->pass));
		json_object_set_new(object, "args", json_pack("{s:s}", "kind", event->kind));
	}
	trace_put(object, false, file);
}

static void trace_put_counts(const struct trace_count_event *event, uint64_t zero_ns, FILE *file)
{
	json_t *values = json_object();
	for (int i = 0; i < TRACE_COUNTS; i++)
		json_object_set_new(values, event->counts.names[i],
				    json_integer((json_int_t)event->counts.values[i]));
	trace_put(json_pack("{s:s,s:s,s:i,s:f,s:o}", "name", event->name, "ph", "C", "pid", 1, "ts",
			    (double)(event->at_ns - zero_ns) / 1e3, "args", values),
		  false, file);
}

void trace_write(const struct trace *trace, FILE *file)
{
	const char *const rows[TRACE_ROWS] = {"loop", trace->device};
	uint64_t zero_ns = UINT64_MAX;
	for (size_t i = 0; i < trace->count; i++)
		if (trace->events[i].begin_ns < zero_ns)
			zero_ns = trace->events[i].begin_ns;
	for (size_t i = 0; i < trace->count_event_count; i++)
		if (trace->count_events[i].at_ns < zero_ns)
			zero_ns = trace->count_events[i].at_ns;
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
	trace_put_row(TRACE_LOOP, "process_name", json_string("trainer"), true, file);
	for (int row = 0; row < TRACE_ROWS; row++) {
		trace_put_row((enum trace_row)row, "thread_name", json_string(rows[row]), false,
			      file);
		trace_put_row((enum trace_row)row, "thread_sort_index", json_integer(row), false,
			      file);
	}
	for (size_t i = 0; i < trace->count; i++)
		trace_put_event(&trace->events[i], zero_ns, file);
	for (size_t i = 0; i < trace->count_event_count; i++)
		trace_put_counts(&trace->count_events[i], zero_ns, file);
	fputs("\n]}\n", file);
}
