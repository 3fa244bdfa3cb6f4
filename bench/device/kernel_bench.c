/*
 * Bytes per second of the CUDA backend's own kernels, at ResNet-50's shapes, beside a copy on the
 * device that is measured in turn with them.
 *
 * Repetitions of a kernel are captured into one graph, as a training step is, each on another slice
 * of a large arena, so that nothing is found in the L2 cache that a step would not find there.
 * Needs an NVIDIA GPU: exit status 77 without.
 */
#include "bench/device/kernel_cases.h"
#include "format/base/options.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KERNEL_BENCH_SMALL
#define ROUNDS        1
#define REPEATS_MIN   1
#define REPEATS_MAX   1
#define ARENA_LARGEST (64ull << 20)
#else
#define ROUNDS        5
#define REPEATS_MIN   8
#define REPEATS_MAX   200
#define ARENA_LARGEST (12ull << 30)
#endif
#define ROUND_BYTES (4ull << 30) /* that a round moves, roughly */
#define COPY_BYTES  (1ull << 30)
#define NOISE_BYTES (16ull << 20)

struct options {
	enum cuda_element element;
	const char *kernel;
	bool json;
};

struct arena {
	char *memory;
	uint64_t bytes;
};

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "kernel_bench: %s: %s\n", what,
		*gpu_error() ? gpu_error() : strerror(-result));
	exit(2);
}

static void *allocate(uint64_t bytes)
{
	void *memory;

	check(gpu_allocate(bytes, &memory), "memory of the device");
	return memory;
}

static void *upload(const void *from, uint64_t bytes, gpu_stream stream)
{
	void *memory = allocate(bytes);

	check(gpu_copy_in(memory, from, bytes, stream), "copying to the device");
	check(gpu_stream_synchronize(stream), "copying to the device");
	return memory;
}

/* ---- what kernels read meaning from ---- */

static struct update_chunk *make_chunks(const struct kernel_bench *bench, uint32_t *ret_count)
{
	uint32_t count = (KERNEL_PARAMETERS + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX;
	struct update_chunk *chunks = calloc(count, sizeof(*chunks));
	void *copy = allocate((uint64_t)KERNEL_PARAMETERS * cuda_element_size(bench->element));

	if (!chunks)
		check(-ENOMEM, "table of chunks");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t first = i * UPDATE_CHUNK_MAX, rest = KERNEL_PARAMETERS - first;

		chunks[i] = (struct update_chunk){
			.offset = first,
			.count = rest < UPDATE_CHUNK_MAX ? rest : UPDATE_CHUNK_MAX,
			.first = first,
			.copy = copy,
			.columns = 1,
			.copy_columns = 1,
			.trained = 1,
		};
	}
	*ret_count = count;
	return chunks;
}

static void make_fixed(struct kernel_bench *bench)
{
	int32_t labels[KERNEL_SAMPLES];
	struct device_params_state state = {.loss_scale = 65536};
	struct update_decision decision = {
		.gradient_scale = 1, .correction1 = 1, .correction2 = 1, .made = 1};
	struct step_arguments step = {
		.count = KERNEL_SAMPLES,
		.channels = 3,
		.element = DEVICE_ELEMENT_U8,
		.hyper = {.momentum = 0.9f,
			  .beta1 = 0.9f,
			  .beta2 = 0.999f,
			  .epsilon = 1e-8f,
			  .ema_decay = 0.999f},
	};
	uint64_t image_bytes = (uint64_t)KERNEL_SAMPLES * 224 * 224 * 3;
	gpu_stream stream = bench->device.stream;
	struct update_chunk *chunks = make_chunks(bench, &bench->chunk_count);

	for (int i = 0; i < KERNEL_SAMPLES; i++)
		labels[i] = i * 37 % 1000;
	bench->images = allocate(image_bytes);
	check(gpu_fill(bench->images, 97, image_bytes, stream), "images");
	step.images = bench->images;
	step.labels = upload(labels, sizeof(labels), stream);
	bench->step = upload(&step, sizeof(step), stream);
	bench->state = upload(&state, sizeof(state), stream);
	bench->decision = upload(&decision, sizeof(decision), stream);
	bench->results = allocate(sizeof(*bench->results));
	bench->chunks = upload(chunks, bench->chunk_count * sizeof(*chunks), stream);
	free(chunks);
}

/* Numbers of every size up to 1, as activations are; the arena is full of them. */
static struct arena make_arena(const struct gpu_properties *properties, enum cuda_element element,
			       gpu_stream stream)
{
	struct arena arena = {.bytes = properties->memory_free / 2 < ARENA_LARGEST
					       ? properties->memory_free / 2
					       : ARENA_LARGEST};
	uint16_t *noise = malloc(NOISE_BYTES);
	uint64_t state = 1;

	if (!noise)
		check(-ENOMEM, "noise");
	for (uint64_t i = 0; i < NOISE_BYTES / 2; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		/* exponents below 1's, of 5 or of 8 bits */
		noise[i] = (uint16_t)(state >> 48) & (element == CUDA_F16 ? 0xbbff : 0xbf7f);
	}
	arena.bytes = arena.bytes / NOISE_BYTES * NOISE_BYTES;
	arena.memory = allocate(arena.bytes);
	check(gpu_copy_in(arena.memory, noise, NOISE_BYTES, stream), "noise");
	for (uint64_t at = NOISE_BYTES; at < arena.bytes; at += NOISE_BYTES)
		check(gpu_copy(arena.memory + at, arena.memory, NOISE_BYTES, stream), "noise");
	check(gpu_stream_synchronize(stream), "noise");
	free(noise);
	return arena;
}

/* ---- measuring ---- */

struct work {
	gpu_graph graph;
	uint32_t repeats;
	uint64_t moved;    /* bytes of one repetition */
	double us[ROUNDS]; /* of one repetition */
};

static uint32_t repeats_for(uint64_t moved)
{
	uint64_t repeats = ROUND_BYTES / moved;

	return (uint32_t)(repeats < REPEATS_MIN   ? REPEATS_MIN
			  : repeats > REPEATS_MAX ? REPEATS_MAX
						  : repeats);
}

/* false: the arena is too small for one slice. */
static bool capture_case(const struct kernel_bench *bench, const struct kernel_case *k,
			 const struct arena *arena, struct work *work)
{
	gpu_stream stream = bench->device.stream;
	struct slice slice = {.at = arena->memory};
	uint64_t taken;

	/* once, to see what it takes: captured and thrown away, since it may not fit */
	check(gpu_capture_begin(stream), k->kernel);
	check(k->queue(bench, k, &slice), k->kernel);
	check(gpu_capture_end(stream, &work->graph), k->kernel);
	gpu_graph_free(work->graph);
	work->graph = NULL;
	taken = slice.taken;
	if (taken > arena->bytes)
		return false;
	work->moved = slice.moved;
	work->repeats = repeats_for(slice.moved);
	check(gpu_capture_begin(stream), k->kernel);
	for (uint32_t i = 0; i < work->repeats; i++) {
		slice = (struct slice){.at = arena->memory + i % (arena->bytes / taken) * taken};
		check(k->queue(bench, k, &slice), k->kernel);
	}
	check(gpu_capture_end(stream, &work->graph), k->kernel);
	return true;
}

static void capture_copy(const struct kernel_bench *bench, const struct arena *arena,
			 struct work *work)
{
	uint64_t bytes = arena->bytes / 2 < COPY_BYTES ? arena->bytes / 2 : COPY_BYTES;

	work->moved = 2 * bytes;
	work->repeats = repeats_for(work->moved);
	check(gpu_capture_begin(bench->device.stream), "copy");
	for (uint32_t i = 0; i < work->repeats; i++)
		check(gpu_copy(arena->memory + (i % 2 ? 0 : bytes),
			       arena->memory + (i % 2 ? bytes : 0), bytes, bench->device.stream),
		      "copy");
	check(gpu_capture_end(bench->device.stream, &work->graph), "copy");
}

static double run(const struct work *work, gpu_event from, gpu_event to, gpu_stream stream)
{
	float milliseconds;

	check(gpu_event_record(from, stream), "event");
	check(gpu_graph_launch(work->graph, stream), "launch");
	check(gpu_event_record(to, stream), "event");
	check(gpu_event_synchronize(to), "run");
	check(gpu_event_elapsed(from, to, &milliseconds), "time");
	return (double)milliseconds * 1e3 / work->repeats;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

static double rate(const struct work *work, double us)
{
	return (double)work->moved / us * 1e-3;
}

/* ---- reporting ---- */

struct report {
	json_t *rows;
	double *copies; /* GB/s beside every case, [copy_count] */
	unsigned copy_count;
	bool json;
};

static void add_row(struct report *report, const struct kernel_case *k, struct work *work,
		    struct work *copy)
{
	double us = median(work->us), copied = rate(copy, median(copy->us));

	report->copies[report->copy_count++] = copied;
	json_array_append_new(report->rows,
			      json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:f}", "kernel",
					k->kernel, "case", k->name, "us", us, "us_least",
					work->us[0], "us_most", work->us[ROUNDS - 1], "gb_per_s",
					rate(work, us), "bytes", (json_int_t)work->moved,
					"copy_gb_per_s", copied));
	if (!report->json)
		printf("%-30s %-30s %9.1f us %8.0f GB/s %5.1f %% of copy\n", k->kernel, k->name, us,
		       rate(work, us), 100 * rate(work, us) / copied);
}

static void measure(const struct kernel_bench *bench, const struct kernel_case *k,
		    const struct arena *arena, struct work *copy, struct report *report)
{
	gpu_stream stream = bench->device.stream;
	gpu_event from, to;
	struct work work = {0};

	if (!capture_case(bench, k, arena, &work)) {
		fprintf(stderr, "kernel_bench: left out for want of memory: %s, %s\n", k->kernel,
			k->name);
		return;
	}
	check(gpu_event_new(true, &from), "event");
	check(gpu_event_new(true, &to), "event");
	run(&work, from, to, stream);
	for (int i = 0; i < ROUNDS; i++) {
		copy->us[i] = run(copy, from, to, stream);
		work.us[i] = run(&work, from, to, stream);
	}
	add_row(report, k, &work, copy);
	gpu_event_free(from);
	gpu_event_free(to);
	gpu_graph_free(work.graph);
}

static void print_json(const struct report *report, const struct gpu_properties *properties,
		       enum cuda_element element)
{
	static const char *const elements[] = {"f32", "f16", "bf16"};
	double sum = 0;
	json_t *all;

	for (unsigned i = 0; i < report->copy_count; i++)
		sum += report->copies[i];
	all = json_pack("{s:s, s:s, s:i, s:f, s:O}", "device", properties->name, "element",
			elements[element], "rounds", ROUNDS, "copy_gb_per_s",
			report->copy_count ? sum / report->copy_count : 0, "rows", report->rows);
	if (!all || json_dumpf(all, stdout, JSON_INDENT(1)) < 0)
		check(-EIO, "writing JSON");
	putchar('\n');
	json_decref(all);
}

/* ---- command line ---- */

static const struct argp_option argp_options[] = {
	{"element", 'e', "ELEMENT", 0, "of activations: f16 (default), bf16, f32", 0},
	{"kernel", 'k', "TEXT", 0, "only kernels whose name has this in it", 0},
	{"json", 'j', 0, 0, "as JSON", 0},
	{0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'e':
		if (!strcmp(argument, "f16"))
			options->element = CUDA_F16;
		else if (!strcmp(argument, "bf16"))
			options->element = CUDA_BF16;
		else if (!strcmp(argument, "f32"))
			options->element = CUDA_F32;
		else
			argp_error(state, "--element is f16, bf16 or f32, not %s", argument);
		return 0;
	case 'k':
		options->kernel = argument;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	argp_options, parse,
	NULL,         "Measures the CUDA backend's own kernels against a copy on the device.",
	NULL,         NULL,
	NULL};

int main(int argc, char **argv)
{
	struct options options = {.element = CUDA_F16};
	struct gpu_properties properties;
	struct kernel_bench bench = {0};
	struct report report = {0};
	struct work copy = {0};
	struct arena arena;

	options_parse(&argp, argc, argv, &options);
	if (gpu_select(0, &properties) < 0) {
		fprintf(stderr, "kernel_bench: %s\n", gpu_error());
		return 77;
	}
	bench.element = options.element;
	bench.device.multiprocessors = properties.multiprocessors;
	check(gpu_stream_new(&bench.device.stream), "stream");
	make_fixed(&bench);
	arena = make_arena(&properties, options.element, bench.device.stream);
	capture_copy(&bench, &arena, &copy);
	report.json = options.json;
	report.rows = json_array();
	report.copies = calloc(kernel_case_count, sizeof(*report.copies));
	if (!report.rows || !report.copies)
		check(-ENOMEM, "report");
	for (unsigned i = 0; i < kernel_case_count; i++)
		if (!options.kernel || strstr(kernel_cases[i].kernel, options.kernel))
			measure(&bench, &kernel_cases[i], &arena, &copy, &report);
	if (options.json)
		print_json(&report, &properties, options.element);
	json_decref(report.rows);
	free(report.copies);
	gpu_graph_free(copy.graph);
	gpu_free(arena.memory);
	gpu_stream_free(bench.device.stream);
	return 0;
}
