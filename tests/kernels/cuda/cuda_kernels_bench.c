/*
 * Times kernels: bytes per second at ResNet-50's shapes, with a copy on the device timed in
 * alternation for comparison.
 *
 * Repetitions of a kernel are captured into one graph, like a training step. Each uses another
 * slice of a large arena, so that the L2 cache holds nothing that it would not hold in a step.
 */
#include "tests/kernels/cuda/cuda_kernels_bench.h"

#include "format/base/median.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#ifdef KERNELS_ON_DEVICE
	SAMPLES = 256,
	ROUNDS = 5,
	REPEATS_MIN = 8,
	REPEATS_MAX = 200,
#else /* small enough for an emulated GPU, whose rates are meaningless */
	SAMPLES = 1,
	ROUNDS = 1,
	REPEATS_MIN = 1,
	REPEATS_MAX = 1,
#endif
	ALIGNMENT = 256,
};

#ifdef KERNELS_ON_DEVICE
#define ARENA_LARGEST (12ull << 30)
#else
#define ARENA_LARGEST (64ull << 20)
#endif
#define ROUND_BYTES (4ull << 30) /* bytes moved per round, approximately */
#define COPY_BYTES  (1ull << 30)
#define NOISE_BYTES (16ull << 20)
#define KEPT_BYTES  (1ull << 20)

/* Memory of one repetition, divided into pieces. */
static struct slice {
	char *at;       /* next free byte in device memory */
	uint64_t taken; /* bytes used by the pieces so far */
	uint64_t moved; /* bytes that the kernel must read and write */
} slice;

/* Contents of operands that are not noise; all repetitions share them. */
static struct constants {
	char *memory; /* on the device */
	uint64_t taken;
	char bytes[KEPT_BYTES];
} kept;

struct arena {
	char *memory;
	uint64_t bytes;
};

static void bench_must(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, *gpu_error() ? gpu_error() : strerror(-result));
	exit(2);
}

static void *bench_allocate(uint64_t bytes)
{
	void *memory;

	bench_must(gpu_allocate(bytes, &memory), "memory of the device");
	return memory;
}

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *bench_keep(const void *bytes, uint64_t count)
{
	uint64_t at = kept.taken;

	if (count > KEPT_BYTES - at)
		bench_must(-ENOBUFS, "what operands are made of");
	memcpy(kept.bytes + at, bytes, count);
	kept.taken += aligned(count);
	return kept.memory + at;
}

void bench_operand(struct array *array, unsigned times)
{
	uint64_t bytes = array->count * array->size;

	slice.moved += times * bytes;
	if (array->data)
		return;
	array->data = slice.at;
	slice.at += aligned(bytes);
	slice.taken += aligned(bytes);
}

/* Allocates the arena and fills it with numbers of all magnitudes up to 1, like activations. */
static struct arena make_arena(const struct gpu_properties *properties, enum cuda_element element)
{
	struct arena arena = {.bytes = properties->memory_free / 2 < ARENA_LARGEST
					       ? properties->memory_free / 2
					       : ARENA_LARGEST};
	uint16_t *noise = malloc(NOISE_BYTES);
	uint64_t state = 1;

	if (!noise)
		bench_must(-ENOMEM, "noise");
	for (uint64_t i = 0; i < NOISE_BYTES / 2; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		/*
		 * clears exponent bits, so that magnitudes are below 1; the exponent has 5 or 8
		 * bits
		 */
		noise[i] = (uint16_t)(state >> 48) & (element == CUDA_F16 ? 0xbbff : 0xbf7f);
	}
	arena.bytes = arena.bytes / NOISE_BYTES * NOISE_BYTES;
	arena.memory = bench_allocate(arena.bytes);
	bench_must(gpu_copy_in(arena.memory, noise, NOISE_BYTES, kernels_device.stream), "noise");
	for (uint64_t at = NOISE_BYTES; at < arena.bytes; at += NOISE_BYTES)
		bench_must(gpu_copy(arena.memory + at, arena.memory, NOISE_BYTES,
				    kernels_device.stream),
			   "noise");
	bench_must(gpu_stream_synchronize(kernels_device.stream), "noise");
	free(noise);
	return arena;
}

struct work {
	gpu_graph graph;
	uint32_t repeats;
	uint64_t moved;    /* bytes of one repetition */
	double us[ROUNDS]; /* microseconds of one repetition */
};

static uint32_t repeats_for(uint64_t moved)
{
	uint64_t repeats = ROUND_BYTES / moved;

	return (uint32_t)(repeats < REPEATS_MIN   ? REPEATS_MIN
			  : repeats > REPEATS_MAX ? REPEATS_MAX
						  : repeats);
}

static void queue_at(const struct kernel_case *k, enum cuda_element element, char *memory)
{
	slice = (struct slice){.at = memory};
	kept.taken = 0;
	k->check(k, element);
	kernels_release();
}

/* Returns false if the arena is too small for one slice. */
static bool capture_case(const struct kernel_case *k, enum cuda_element element,
			 const struct arena *arena, struct work *work)
{
	gpu_stream stream = kernels_device.stream;

	/* capture once to find the size, then discard the graph, which may not fit */
	bench_must(gpu_capture_begin(stream), k->kernel);
	queue_at(k, element, arena->memory);
	bench_must(gpu_capture_end(stream, &work->graph), k->kernel);
	gpu_graph_free(work->graph);
	work->graph = NULL;
	uint64_t taken = slice.taken;
	if (taken > arena->bytes)
		return false;
	work->moved = slice.moved;
	work->repeats = repeats_for(slice.moved);
	bench_must(gpu_capture_begin(stream), k->kernel);
	for (uint32_t i = 0; i < work->repeats; i++)
		queue_at(k, element, arena->memory + i % (arena->bytes / taken) * taken);
	bench_must(gpu_capture_end(stream, &work->graph), k->kernel);
	bench_must(gpu_copy_in(kept.memory, kept.bytes, kept.taken, stream), k->kernel);
	bench_must(gpu_stream_synchronize(stream), k->kernel);
	return true;
}

static void capture_copy(const struct arena *arena, struct work *work)
{
	uint64_t bytes = arena->bytes / 2 < COPY_BYTES ? arena->bytes / 2 : COPY_BYTES;
	gpu_stream stream = kernels_device.stream;

	work->moved = 2 * bytes;
	work->repeats = repeats_for(work->moved);
	bench_must(gpu_capture_begin(stream), "copy");
	for (uint32_t i = 0; i < work->repeats; i++)
		bench_must(gpu_copy(arena->memory + (i % 2 ? 0 : bytes),
				    arena->memory + (i % 2 ? bytes : 0), bytes, stream),
			   "copy");
	bench_must(gpu_capture_end(stream, &work->graph), "copy");
}

static double run_work(const struct work *work, gpu_event from, gpu_event to)
{
	float milliseconds;

	bench_must(gpu_event_record(from, kernels_device.stream), "event");
	bench_must(gpu_graph_launch(work->graph, kernels_device.stream), "launch");
	bench_must(gpu_event_record(to, kernels_device.stream), "event");
	bench_must(gpu_event_synchronize(to), "run");
	bench_must(gpu_event_elapsed(from, to, &milliseconds), "time");
	return (double)milliseconds * 1e3 / work->repeats;
}

/* Returns GB/s from the median time; sorts the times. */
static double rate_of(struct work *work)
{
	return (double)work->moved / median_sort(work->us, ROUNDS) * 1e-3;
}

static void time_case(const struct kernel_case *k, enum cuda_element element,
		      const struct arena *arena, struct work *copy)
{
	gpu_event from, to;
	struct work work = {0};

	if (!capture_case(k, element, arena, &work)) {
		fprintf(stderr, "left out for want of memory: %s, %s\n", k->kernel, k->name);
		return;
	}
	bench_must(gpu_event_new(true, &from), "event");
	bench_must(gpu_event_new(true, &to), "event");
	run_work(&work, from, to);
	for (int i = 0; i < ROUNDS; i++) {
		copy->us[i] = run_work(copy, from, to);
		work.us[i] = run_work(&work, from, to);
	}
	double rate = rate_of(&work);
	double copied = rate_of(copy);
	printf("%-28s  %-28s %-4s %9.1f us (%.1f to %.1f) %11.3f MB %9.6g GB/s, "
	       "%5.1f %% of a copy's %.1f\n",
	       k->kernel, k->name, cuda_kernels.variants[element], work.us[ROUNDS / 2], work.us[0],
	       work.us[ROUNDS - 1], (double)work.moved * 1e-6, rate, 100 * rate / copied, copied);
	gpu_event_free(from);
	gpu_event_free(to);
	gpu_graph_free(work.graph);
}

static void time_cases(const struct kernel_case *cases, unsigned count,
		       const struct gpu_properties *properties, enum cuda_element element,
		       const char *text)
{
	struct arena arena = make_arena(properties, element);
	struct work copy = {0};

	kept.memory = bench_allocate(KEPT_BYTES);
	capture_copy(&arena, &copy);
	kernels_timing = true;
	for (unsigned i = 0; i < count; i++) {
		struct kernel_case k = cases[i];

		k.n = SAMPLES;
		if (kernels_selected(&k, text))
			time_case(&k, element, &arena, &copy);
	}
	gpu_graph_free(copy.graph);
	gpu_free(kept.memory);
	gpu_free(arena.memory);
}

int kernels_bench(const struct kernel_case *cases, unsigned count, const char *only,
		  const char *text)
{
	struct gpu_properties properties;
	int element = only ? CUDA_F32 : CUDA_F16;

	while (only && strcmp(only, cuda_kernels.variants[element]) != 0)
		element++;
	if (gpu_select(0, &properties) < 0) {
		fprintf(stderr, "no GPU to time kernels on: %s\n", gpu_error());
		return 77;
	}
	kernels_device.multiprocessors = properties.multiprocessors;
	bench_must(gpu_stream_new(&kernels_device.stream), "stream");
	time_cases(cases, count, &properties, (enum cuda_element)element, text);
	gpu_stream_free(kernels_device.stream);
	return 0;
}
