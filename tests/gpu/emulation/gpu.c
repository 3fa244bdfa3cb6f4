/*
 * Implements gpu.h in host memory. Queued work runs as late as CUDA permits: only when the host
 * waits for or queries an event, and then only the work on which the event depends. So a missing
 * wait gives a wrong result every time. Sums over ranks also run as early as CUDA permits.
 */
#include "tests/gpu/emulation/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 4 /* supports as many ranks; each process has separate device memory */

enum item_kind { WORK, RECORD, WAIT, LAUNCH };

struct item {
	struct item *next;
	enum item_kind kind;
	emulation_work work;
	gpu_event event;
	uint64_t number;     /* number of the record of this event that is made or awaited */
	gpu_stream recorded; /* stream in which the awaited record was queued */
	gpu_graph graph;
	_Alignas(16) unsigned char arguments[];
};

struct list {
	struct item *first, **end;
};

struct CUgraphExec_st {
	struct list items; /* in the order of queueing, which respects their dependencies */
	bool invalid;      /* the capture contained an operation that CUDA forbids */
};

struct CUstream_st {
	struct CUstream_st *next;
	struct list items; /* not run yet */
	gpu_graph capture; /* graph that the stream records into */
	bool origin;       /* the capture began on this stream */
	bool joined;       /* joined another capture that does not yet wait for this stream */
};

struct CUevent_st {
	bool timing;
	uint64_t recorded, passed; /* number of records queued, and of those that have run */
	gpu_stream stream;         /* of the last record */
	gpu_graph capture;         /* graph that contains the last record, if it was captured */
	struct timespec time;
};

static struct {
	char error[512];
	gpu_stream streams;
	uint64_t launches, works;
	bool polls_idle; /* querying an event runs no work */
	bool broken;     /* every wait fails */
} gpu;

int emulation_fail(int result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(gpu.error, sizeof(gpu.error), format, arguments);
	va_end(arguments);
	return result;
}

const char *gpu_error(void)
{
	return gpu.error;
}

void emulation_run_when_polled(bool run)
{
	gpu.polls_idle = !run;
}

void emulation_break(bool broken)
{
	gpu.broken = broken;
}

uint64_t emulation_launches(void)
{
	return gpu.launches;
}

uint64_t emulation_works(void)
{
	return gpu.works;
}

int gpu_select(unsigned index, struct gpu_properties *ret_properties)
{
	const char *registering = getenv(EMULATION_REGISTERING), *memory = getenv(EMULATION_MEMORY);

	if (memory)
		emulation_limit_memory(strtoull(memory, NULL, 10));
	if (registering)
		emulation_allow_registering(false, strcmp(registering, "writable") == 0);
	if (index >= GPUS)
		return emulation_fail(-ENODEV, "there are %d emulated GPUs, and none of index %u",
				      GPUS, index);
	*ret_properties = (struct gpu_properties){
		.name = "emulated GPU",
		.compute_major = 9,
		.multiprocessors = 4,
		.clock_khz = 1000000,
		.driver_version = 13000,
		.runtime_version = 13000,
	};
	emulation_describe_memory(ret_properties);
	return 0;
}

/* ---- queues ---- */

static void list_init(struct list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

static void list_add(struct list *list, struct item *item)
{
	item->next = NULL;
	*list->end = item;
	list->end = &item->next;
}

static struct item *list_take(struct list *list)
{
	struct item *item = list->first;

	list->first = item->next;
	if (!list->first)
		list->end = &list->first;
	return item;
}

/*
 * Runs an item of queued work. The work may access device memory, but must not run other queued
 * work.
 */
static void run_work(const struct item *item)
{
	gpu.works++;
	emulation_protect(false);
	item->work(item->arguments);
	emulation_protect(true);
}

static void run_graph(gpu_graph graph)
{
	emulation_protect(false);
	for (const struct item *item = graph->items.first; item; item = item->next)
		if (item->kind == WORK) {
			gpu.works++;
			item->work(item->arguments);
		}
	emulation_protect(true);
}

static void run_first(gpu_stream stream);

static void run_until(gpu_stream stream, gpu_event event, uint64_t number)
{
	while (event->passed < number && stream->items.first)
		run_first(stream);
}

/* Runs the oldest item of a stream, after everything that it depends on. */
static void run_first(gpu_stream stream)
{
	struct item *item = list_take(&stream->items);

	switch (item->kind) {
	case WORK:
		run_work(item);
		break;
	case LAUNCH:
		run_graph(item->graph);
		break;
	case RECORD:
		item->event->passed = item->number;
		clock_gettime(CLOCK_MONOTONIC, &item->event->time);
		break;
	case WAIT:
		run_until(item->recorded, item->event, item->number);
		break;
	}
	free(item);
}

void emulation_run_ready(gpu_stream stream)
{
	const struct item *item;

	while (!stream->capture && (item = stream->items.first) &&
	       (item->kind != WAIT || item->event->passed >= item->number))
		run_first(stream);
}

void emulation_drain(void)
{
	for (gpu_stream stream = gpu.streams; stream; stream = stream->next)
		while (stream->items.first)
			run_first(stream);
}

/* CUDA's capture mode is thread-local, and the emulation has a single thread. */
bool emulation_forbidden(const char *what)
{
	bool captures = false;

	for (gpu_stream stream = gpu.streams; stream; stream = stream->next) {
		if (!stream->capture)
			continue;
		captures = stream->capture->invalid = true;
	}
	if (captures)
		emulation_fail(-EIO, "%s during a capture", what);
	return captures;
}

/* Fails waits if the GPU is broken or the thread is capturing. */
static bool refuse_wait(const char *what)
{
	if (gpu.broken)
		emulation_fail(-EIO, "%s: an illegal memory access was encountered", what);
	return gpu.broken || emulation_forbidden(what);
}

bool emulation_void_capture(gpu_stream stream)
{
	if (!stream->capture)
		return false;
	stream->capture->invalid = true;
	return true;
}

static struct item *queue(gpu_stream stream, enum item_kind kind, size_t size)
{
	struct item *item = aligned_alloc(16, (sizeof(*item) + size + 15) / 16 * 16);

	if (!item) {
		emulation_fail(-ENOMEM, "no memory to queue work");
		return NULL;
	}
	*item = (struct item){.kind = kind};
	list_add(stream->capture ? &stream->capture->items : &stream->items, item);
	return item;
}

int emulation_queue(gpu_stream stream, emulation_work work, const void *arguments, size_t size)
{
	struct item *item = queue(stream, WORK, size);

	if (!item)
		return -ENOMEM;
	item->work = work;
	if (size)
		memcpy(item->arguments, arguments, size);
	stream->joined = stream->capture && !stream->origin;
	return 0;
}

int gpu_stream_new(gpu_stream *ret_stream)
{
	gpu_stream stream = calloc(1, sizeof(*stream));

	if (!stream)
		return emulation_fail(-ENOMEM, "no memory for a stream");
	list_init(&stream->items);
	stream->next = gpu.streams;
	gpu.streams = stream;
	*ret_stream = stream;
	return 0;
}

void gpu_stream_free(gpu_stream stream)
{
	gpu_stream *at = &gpu.streams;

	if (!stream)
		return;
	emulation_drain();
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
}

int gpu_stream_synchronize(gpu_stream stream)
{
	if (refuse_wait("waiting for a stream"))
		return -EIO;
	while (stream->items.first)
		run_first(stream);
	return 0;
}

/* ---- events ---- */

int gpu_event_new(bool timing, gpu_event *ret_event)
{
	gpu_event event = calloc(1, sizeof(*event));

	if (!event)
		return emulation_fail(-ENOMEM, "no memory for an event");
	event->timing = timing;
	*ret_event = event;
	return 0;
}

void gpu_event_free(gpu_event event)
{
	if (!event)
		return;
	emulation_drain();
	free(event);
}

int gpu_event_record(gpu_event event, gpu_stream stream)
{
	event->stream = stream;
	event->capture = stream->capture;
	if (stream->capture)
		return 0;
	struct item *item = queue(stream, RECORD, 0);
	if (!item)
		return -ENOMEM;
	item->event = event;
	item->number = ++event->recorded;
	return 0;
}

int gpu_event_query(gpu_event event)
{
	if (event->capture)
		return emulation_fail(-EIO, "asking an event that was recorded in a capture");
	if (refuse_wait("asking an event"))
		return -EIO;
	if (event->passed < event->recorded && !gpu.polls_idle)
		run_first(event->stream);
	return event->passed < event->recorded ? -EAGAIN : 0;
}

int gpu_event_synchronize(gpu_event event)
{
	if (event->capture)
		return emulation_fail(-EIO, "waiting for an event that was recorded in a capture");
	if (refuse_wait("waiting for an event"))
		return -EIO;
	run_until(event->stream, event, event->recorded);
	return 0;
}

int gpu_event_elapsed(gpu_event from, gpu_event to, float *ret_milliseconds)
{
	if (!from->timing || !to->timing || !from->passed || !to->passed)
		return emulation_fail(-EIO,
				      "time between events that have not passed or keep no time");
	*ret_milliseconds = (float)((double)(to->time.tv_sec - from->time.tv_sec) * 1e3 +
				    (double)(to->time.tv_nsec - from->time.tv_nsec) * 1e-6);
	return 0;
}

int gpu_stream_wait(gpu_stream stream, gpu_event event)
{
	if (event->capture) {
		if (stream->capture && stream->capture != event->capture)
			return emulation_fail(-EIO, "a captured stream waits for another capture");
		event->stream->joined = false;
		stream->joined = !stream->origin;
		stream->capture = event->capture;
		return 0;
	}
	if (emulation_void_capture(stream))
		return emulation_fail(
			-EIO, "a captured stream waits for an event from outside its capture");
	if (event->passed == event->recorded)
		return 0;
	struct item *item = queue(stream, WAIT, 0);
	if (!item)
		return -ENOMEM;
	item->event = event;
	item->number = event->recorded;
	item->recorded = event->stream;
	return 0;
}

/* ---- captures ---- */

int gpu_capture_begin(gpu_stream stream)
{
	if (stream->capture)
		return emulation_fail(-EIO, "the stream is being captured already");
	gpu_graph graph = malloc(sizeof(*graph));
	if (!graph)
		return emulation_fail(-ENOMEM, "no memory for a captured graph");
	list_init(&graph->items);
	graph->invalid = false;
	stream->capture = graph;
	stream->origin = true;
	return 0;
}

int gpu_capture_end(gpu_stream stream, gpu_graph *ret_graph)
{
	gpu_graph graph = stream->capture;
	bool unjoined = false;

	if (!graph || !stream->origin)
		return emulation_fail(-EIO, "no capture to end here");
	for (gpu_stream other = gpu.streams; other; other = other->next) {
		if (other->capture != graph)
			continue;
		unjoined = unjoined || other->joined;
		other->capture = NULL;
		other->joined = other->origin = false;
	}
	if (unjoined || graph->invalid) {
		int r = emulation_fail(
			-EIO, unjoined ? "a stream that entered the capture was not joined again"
				       : "what was done during the capture has made it void");

		gpu_graph_free(graph);
		return r;
	}
	*ret_graph = graph;
	return 0;
}

int gpu_graph_launch(gpu_graph graph, gpu_stream stream)
{
	if (stream->capture)
		return emulation_fail(-EIO, "a graph is launched within a capture");
	struct item *item = queue(stream, LAUNCH, 0);
	if (!item)
		return -ENOMEM;
	item->graph = graph;
	gpu.launches++;
	return 0;
}

void gpu_graph_free(gpu_graph graph)
{
	if (!graph)
		return;
	emulation_drain();
	while (graph->items.first)
		free(list_take(&graph->items));
	free(graph);
}

void gpu_range_push(const char *name)
{
}

void gpu_range_pop(void)
{
}
