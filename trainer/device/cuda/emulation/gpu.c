/*
 * gpu.h in host memory. Work is run as late as CUDA could: when somebody waits for it or asks an event, and then only
 * what the awaited depends on. So a missing wait shows as a wrong result, every time. Fresh device memory is all ones (NaN in every
 * element) unless a test wants it otherwise, and under AddressSanitizer only queued work may touch it.
 */
#include "queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes)   ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#define ALIGNMENT 256
#define GPUS	  4 /* for as many ranks; each has the memory of its own process */

enum item_kind { WORK, RECORD, WAIT, LAUNCH };

struct item {
	struct item *next;
	enum item_kind kind;
	emulation_work work;
	gpu_event event;
	uint64_t number;     /* of the event's records: which one is made or awaited */
	gpu_stream recorded; /* where the awaited record was queued */
	gpu_graph graph;
	_Alignas(16) unsigned char arguments[];
};

struct list {
	struct item *first, **end;
};

struct CUgraphExec_st {
	struct list
		items; /* in order of queueing, which is one order that their dependencies allow */
	bool invalid;  /* something was done during the capture that CUDA forbids */
};

struct CUstream_st {
	struct CUstream_st *next;
	struct list items; /* not run yet */
	gpu_graph capture; /* that the stream records into */
	bool origin;	   /* the capture began here */
	bool joined;	   /* it entered another's capture, which has not waited for it since */
};

struct CUevent_st {
	bool timing;
	uint64_t recorded, passed; /* records queued and run */
	gpu_stream stream;	   /* of the last record */
	gpu_graph capture;	   /* that the last record went into */
	struct timespec time;
};

struct range {
	struct range *next;
	char *memory;
	uint64_t bytes;
	bool device, owned;
};

static struct {
	char error[512];
	gpu_stream streams;
	struct range *ranges; /* device memory and page-locked memory */
	uint64_t limit, used; /* bytes of device memory */
	uint64_t allocations, launches, works;
	unsigned running; /* depth of work under way, which may touch device memory */
	bool no_read_only, no_registering;
	bool polls_idle; /* asking an event runs nothing */
	uint8_t fresh;	 /* every byte of memory that is allocated */
} gpu = {.fresh = 0xff};

static int __attribute__((format(printf, 2, 3))) fail(int result, const char *format, ...)
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

void emulation_limit_memory(uint64_t bytes)
{
	gpu.limit = bytes;
}

void emulation_fresh_memory(uint8_t byte)
{
	gpu.fresh = byte;
}

void emulation_run_when_polled(bool run)
{
	gpu.polls_idle = !run;
}

void emulation_allow_registering(bool read_only, bool writable)
{
	gpu.no_read_only = !read_only;
	gpu.no_registering = !writable;
}

uint64_t emulation_allocations(void)
{
	return gpu.allocations;
}

uint64_t emulation_launches(void)
{
	return gpu.launches;
}

uint64_t emulation_works(void)
{
	return gpu.works;
}

static uint64_t memory_of_host(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int gpu_select(unsigned index, struct gpu_properties *ret_properties)
{
	uint64_t total = gpu.limit ? gpu.limit : memory_of_host();
	const char *registering = getenv(EMULATION_REGISTERING);

	if (registering)
		emulation_allow_registering(false, !strcmp(registering, "writable"));
	if (index >= GPUS)
		return fail(-ENODEV, "there are %d emulated GPUs, and none of index %u", GPUS,
			    index);
	*ret_properties = (struct gpu_properties){
		.name = "emulated GPU",
		.compute_major = 9,
		.multiprocessors = 4,
		.clock_khz = 1000000,
		.memory_total = total,
		.memory_free = total > gpu.used ? total - gpu.used : 0,
		.registers_read_only = !gpu.no_read_only,
		.driver_version = 13000,
		.runtime_version = 13000,
	};
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

static void protect(bool on)
{
	for (struct range *range = gpu.ranges; range; range = range->next) {
		if (!range->device)
			continue;
		if (on)
			ASAN_POISON_MEMORY_REGION(range->memory, range->bytes);
		else
			ASAN_UNPOISON_MEMORY_REGION(range->memory, range->bytes);
	}
}

static void run_work(const struct item *item)
{
	gpu.works++;
	if (!gpu.running++)
		protect(false);
	item->work(item->arguments);
	if (!--gpu.running)
		protect(true);
}

static void run_graph(gpu_graph graph)
{
	if (!gpu.running++)
		protect(false);
	for (const struct item *item = graph->items.first; item; item = item->next)
		if (item->kind == WORK) {
			gpu.works++;
			item->work(item->arguments);
		}
	if (!--gpu.running)
		protect(true);
}

static void run_first(gpu_stream stream);

static void run_until(gpu_stream stream, gpu_event event, uint64_t number)
{
	while (event->passed < number && stream->items.first)
		run_first(stream);
}

/* Runs the oldest item of a stream, and before it what it waits for. */
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

static void drain_all(void)
{
	for (gpu_stream stream = gpu.streams; stream; stream = stream->next)
		while (stream->items.first)
			run_first(stream);
}

/*
 * What a thread must not call while it captures: its captures are void then. True: it does. CUDA's mode of capture is the thread's own, and
 * there is one thread here.
 */
static bool forbidden(const char *what)
{
	bool captures = false;

	for (gpu_stream stream = gpu.streams; stream; stream = stream->next) {
		if (!stream->capture)
			continue;
		captures = stream->capture->invalid = true;
	}
	if (captures)
		fail(-EIO, "%s during a capture", what);
	return captures;
}

static struct item *queue(gpu_stream stream, enum item_kind kind, size_t size)
{
	struct item *item = aligned_alloc(16, (sizeof(*item) + size + 15) / 16 * 16);

	if (!item) {
		fail(-ENOMEM, "no memory to queue work");
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
		return fail(-ENOMEM, "no memory for a stream");
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
	drain_all();
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
}

int gpu_stream_synchronize(gpu_stream stream)
{
	if (forbidden("waiting for a stream"))
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
		return fail(-ENOMEM, "no memory for an event");
	event->timing = timing;
	*ret_event = event;
	return 0;
}

void gpu_event_free(gpu_event event)
{
	if (!event)
		return;
	drain_all();
	free(event);
}

int gpu_event_record(gpu_event event, gpu_stream stream)
{
	struct item *item;

	event->stream = stream;
	event->capture = stream->capture;
	if (stream->capture)
		return 0;
	item = queue(stream, RECORD, 0);
	if (!item)
		return -ENOMEM;
	item->event = event;
	item->number = ++event->recorded;
	return 0;
}

int gpu_event_query(gpu_event event)
{
	if (event->capture)
		return fail(-EIO, "asking an event that was recorded in a capture");
	if (forbidden("asking an event"))
		return -EIO;
	if (event->passed < event->recorded && !gpu.polls_idle)
		run_first(event->stream);
	return event->passed < event->recorded ? -EAGAIN : 0;
}

int gpu_event_synchronize(gpu_event event)
{
	if (event->capture)
		return fail(-EIO, "waiting for an event that was recorded in a capture");
	if (forbidden("waiting for an event"))
		return -EIO;
	run_until(event->stream, event, event->recorded);
	return 0;
}

int gpu_event_elapsed(gpu_event from, gpu_event to, float *ret_milliseconds)
{
	if (!from->timing || !to->timing || !from->passed || !to->passed)
		return fail(-EIO, "time between events that have not passed or keep no time");
	*ret_milliseconds = (float)((double)(to->time.tv_sec - from->time.tv_sec) * 1e3 +
				    (double)(to->time.tv_nsec - from->time.tv_nsec) * 1e-6);
	return 0;
}

int gpu_stream_wait(gpu_stream stream, gpu_event event)
{
	struct item *item;

	if (event->capture) {
		if (stream->capture && stream->capture != event->capture)
			return fail(-EIO, "a captured stream waits for another capture");
		event->stream->joined = false;
		stream->joined = !stream->origin;
		stream->capture = event->capture;
		return 0;
	}
	if (stream->capture) {
		stream->capture->invalid = true;
		return fail(-EIO, "a captured stream waits for an event from outside its capture");
	}
	if (event->passed == event->recorded)
		return 0;
	item = queue(stream, WAIT, 0);
	if (!item)
		return -ENOMEM;
	item->event = event;
	item->number = event->recorded;
	item->recorded = event->stream;
	return 0;
}

/* ---- memory ---- */

static struct range *range_of(const void *memory, uint64_t bytes, bool device)
{
	const char *from = memory;

	for (struct range *range = gpu.ranges; range; range = range->next)
		if (range->device == device && from >= range->memory &&
		    from + bytes <= range->memory + range->bytes)
			return range;
	return NULL;
}

static int add_range(void *memory, uint64_t bytes, bool device, bool owned)
{
	struct range *range = malloc(sizeof(*range));

	if (!range)
		return fail(-ENOMEM, "no memory for bookkeeping");
	*range = (struct range){gpu.ranges, memory, bytes, device, owned};
	gpu.ranges = range;
	return 0;
}

static void remove_range(void *memory, bool device, bool owned)
{
	struct range **at = &gpu.ranges, *range;

	while (*at && ((*at)->memory != memory || (*at)->device != device || (*at)->owned != owned))
		at = &(*at)->next;
	range = *at;
	if (!range)
		abort(); /* freed twice, or never allocated */
	*at = range->next;
	if (device) {
		ASAN_UNPOISON_MEMORY_REGION(range->memory, range->bytes);
		gpu.used -= range->bytes;
	}
	free(range);
}

static int allocate(uint64_t bytes, bool device, void **ret_memory)
{
	uint64_t rounded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
	void *memory;
	int r;

	gpu.allocations++;
	if (forbidden("allocating memory"))
		return -EIO;
	if (device && gpu.limit && gpu.used + rounded > gpu.limit)
		return fail(-ENOMEM, "out of emulated memory");
	memory = aligned_alloc(ALIGNMENT, rounded);
	if (!memory)
		return fail(-ENOMEM, "out of memory");
	memset(memory, gpu.fresh, rounded);
	r = add_range(memory, rounded, device, true);
	if (r < 0) {
		free(memory);
		return r;
	}
	if (device) {
		gpu.used += rounded;
		ASAN_POISON_MEMORY_REGION(memory, rounded);
	}
	*ret_memory = memory;
	return 0;
}

int gpu_allocate(uint64_t bytes, void **ret_memory)
{
	return allocate(bytes, true, ret_memory);
}

int gpu_allocate_host(uint64_t bytes, void **ret_memory)
{
	return allocate(bytes, false, ret_memory);
}

void gpu_free(void *memory)
{
	if (!memory)
		return;
	forbidden("freeing memory");
	drain_all();
	remove_range(memory, true, true);
	free(memory);
}

void gpu_free_host(void *memory)
{
	if (!memory)
		return;
	forbidden("freeing memory");
	drain_all();
	remove_range(memory, false, true);
	free(memory);
}

/* Whether the program could write all of it, by the kernel's list of mappings, which is in order of addresses. */
static bool is_writable(const char *memory, uint64_t bytes)
{
	uintptr_t begin, end, next = (uintptr_t)memory;
	char line[4096], mode[5];
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return false;
	while (next < (uintptr_t)memory + bytes && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, mode) == 3 &&
		    begin <= next && next < end) {
			if (mode[1] != 'w')
				break;
			next = end;
		}
	fclose(maps);
	return next >= (uintptr_t)memory + bytes;
}

int gpu_register_host(void *memory, uint64_t bytes, bool read_only)
{
	if (forbidden("registering host memory"))
		return -EIO;
	if (gpu.no_registering || (read_only && gpu.no_read_only))
		return fail(-ENOTSUP, "host memory cannot be registered%s",
			    gpu.no_registering ? "" : " read-only");
	if (!read_only && !is_writable(memory, bytes))
		return fail(-EIO, "host memory that is mapped read-only was registered as if it "
				  "were not");
	return add_range(memory, bytes, false, false);
}

void gpu_unregister_host(void *memory)
{
	drain_all();
	remove_range(memory, false, false);
}

/* ---- copies ---- */

struct copy {
	void *to;
	const void *from; /* NULL: what follows the structure */
	uint64_t bytes;
};

static void run_copy(const void *arguments)
{
	const struct copy *copy = arguments;

	memcpy(copy->to, copy->from ? copy->from : copy + 1, copy->bytes);
}

/* From memory that is not page-locked: CUDA takes its contents during the call. */
static int copy_pageable(const struct copy *copy, gpu_stream stream)
{
	struct copy *own;
	int r;

	if (stream->capture) {
		stream->capture->invalid = true;
		return fail(-EIO, "a copy from pageable memory is captured");
	}
	own = malloc(sizeof(*own) + copy->bytes);
	if (!own)
		return fail(-ENOMEM, "no memory for a copy");
	*own = (struct copy){.to = copy->to, .bytes = copy->bytes};
	memcpy(own + 1, copy->from, copy->bytes);
	r = emulation_queue(stream, run_copy, own, sizeof(*own) + copy->bytes);
	free(own);
	return r;
}

int gpu_copy_in(void *device, const void *host, uint64_t bytes, gpu_stream stream)
{
	struct copy copy = {device, host, bytes};

	if (!bytes)
		return 0;
	if (!range_of(device, bytes, true))
		return fail(-EIO, "a copy to what is not device memory");
	if (!range_of(host, bytes, false))
		return copy_pageable(&copy, stream);
	return emulation_queue(stream, run_copy, &copy, sizeof(copy));
}

int gpu_copy_out(void *host, const void *device, uint64_t bytes, gpu_stream stream)
{
	struct copy copy = {host, device, bytes};
	int r;

	if (!bytes)
		return 0;
	if (!range_of(device, bytes, true))
		return fail(-EIO, "a copy from what is not device memory");
	if (!range_of(host, bytes, false) && stream->capture) {
		stream->capture->invalid = true;
		return fail(-EIO, "a copy to pageable memory is captured");
	}
	r = emulation_queue(stream, run_copy, &copy, sizeof(copy));
	if (r == 0 && !range_of(host, bytes, false))
		r = gpu_stream_synchronize(stream);
	return r;
}

int gpu_copy(void *to, const void *from, uint64_t bytes, gpu_stream stream)
{
	struct copy copy = {to, from, bytes};

	if (!bytes)
		return 0;
	if (!range_of(to, bytes, true) || !range_of(from, bytes, true))
		return fail(-EIO, "a copy between what is not device memory");
	return emulation_queue(stream, run_copy, &copy, sizeof(copy));
}

struct fill {
	void *memory;
	uint64_t bytes;
	uint8_t value;
};

static void run_fill(const void *arguments)
{
	const struct fill *fill = arguments;

	memset(fill->memory, fill->value, fill->bytes);
}

int gpu_fill(void *memory, uint8_t value, uint64_t bytes, gpu_stream stream)
{
	struct fill fill = {memory, bytes, value};

	if (!bytes)
		return 0;
	if (!range_of(memory, bytes, true))
		return fail(-EIO, "filling what is not device memory");
	return emulation_queue(stream, run_fill, &fill, sizeof(fill));
}

/* ---- captures ---- */

int gpu_capture_begin(gpu_stream stream)
{
	gpu_graph graph;

	if (stream->capture)
		return fail(-EIO, "the stream is being captured already");
	graph = malloc(sizeof(*graph));
	if (!graph)
		return fail(-ENOMEM, "no memory for a captured graph");
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
		return fail(-EIO, "no capture to end here");
	for (gpu_stream other = gpu.streams; other; other = other->next) {
		if (other->capture != graph)
			continue;
		unjoined = unjoined || other->joined;
		other->capture = NULL;
		other->joined = other->origin = false;
	}
	if (unjoined || graph->invalid) {
		int r = fail(-EIO,
			     unjoined ? "a stream that entered the capture was not joined again"
				      : "what was done during the capture has made it void");

		gpu_graph_free(graph);
		return r;
	}
	*ret_graph = graph;
	return 0;
}

int gpu_graph_launch(gpu_graph graph, gpu_stream stream)
{
	struct item *item;

	if (stream->capture)
		return fail(-EIO, "a graph is launched within a capture");
	item = queue(stream, LAUNCH, 0);
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
	drain_all();
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
