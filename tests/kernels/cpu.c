#include "tests/kernels/cpu.h"

#include "format/base/random.h"
#include "tests/kernels/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	MEMORY_MAX = 16, /* maximum allocations per test */
	CANARIES = 64,   /* canary bytes before each allocation */
	TURNS = 40,      /* turns per case; the fastest is printed */
};
#define TURN_NS  1e6 /* duration of a turn, for kernels that can be called repeatedly */
#define TURNS_NS 5e8 /* maximum duration of all turns but the first two */

static struct random_stream rng;
static uint64_t seed;

/* An allocation, in the order in which the test requests them. */
static struct memory {
	struct guarded guard;
	uint8_t *data; /* NULL for a result that the test passes to cpu_result() */
	size_t size, compared;
	uint8_t *before;    /* contents of cpu_updates() memory before the call */
	uint8_t *reference; /* [compared]: output of the C reference */
} memory[MEMORY_MAX];
static unsigned count, current_isa;

/* Measurement of a case. */
static struct {
	uint64_t calls, call; /* calls per turn; index of the current call */
	unsigned turn;
	double turn_began, all, best; /* ns */
	double units;
} timing;
static bool measuring, ran;

uint32_t cpu_random(void)
{
	return random_u32(&rng);
}

uint32_t cpu_below(uint32_t bound)
{
	return random_below(&rng, bound);
}

uint32_t cpu_between(uint32_t low, uint32_t high)
{
	return low + random_below(&rng, high - low + 1);
}

double cpu_uniform(double low, double high)
{
	return low + (high - low) * (double)random_float(&rng);
}

static struct memory *new_memory(size_t size, size_t compared)
{
	struct memory *m = &memory[count++];

	assert_true(count <= MEMORY_MAX);
	m->data = guarded_new(&m->guard, CANARIES + size) + CANARIES;
	m->size = size;
	m->compared = compared;
	memset(m->data - CANARIES, CPU_CANARY, CANARIES + size);
	return m;
}

static void fill(uint8_t *bytes, size_t size)
{
	bool extreme = random_below(&rng, 4) == 0;

	for (size_t i = 0; i < size; i++)
		bytes[i] = extreme ? (uint8_t)(random_u32(&rng) & 1 ? 255 : 0)
				   : (uint8_t)random_u32(&rng);
}

void *cpu_reads(size_t size)
{
	struct memory *m = new_memory(size, 0);

	fill(m->data, size);
	return m->data;
}

void *cpu_writes(size_t size, size_t room)
{
	return new_memory(room, size)->data;
}

void *cpu_updates(size_t size)
{
	struct memory *m = new_memory(size, size);

	fill(m->data, size);
	m->before = malloc(size);
	assert_non_null(m->before);
	return m->data;
}

/* Compares the output with that of the reference, or stores it as the reference. */
static void compare(struct memory *m, unsigned index, const uint8_t *got)
{
	if (current_isa == 0) {
		m->reference = malloc(m->compared ? m->compared : 1);
		assert_non_null(m->reference);
		memcpy(m->reference, got, m->compared);
		return;
	}
	for (size_t i = 0; i < m->compared; i++)
		if (got[i] != m->reference[i])
			kernels_fail("byte %zu of %zu of memory %u is %u, the reference's %u", i,
				     m->compared, index, got[i], m->reference[i]);
}

void cpu_result(const void *result, size_t size)
{
	struct memory *m = &memory[count++];

	assert_true(count <= MEMORY_MAX);
	m->compared = size;
	if (!measuring)
		compare(m, count - 1, result);
}

/* ---- running and timing ---- */

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Restores memory that the kernel updates in place. Returns true if there is any. */
static bool restore(void)
{
	bool any = false;

	for (unsigned i = 0; i < count; i++)
		if (memory[i].before) {
			memcpy(memory[i].data, memory[i].before, memory[i].size);
			any = true;
		}
	return any;
}

static bool begin_turns(void)
{
	ran = true;
	for (unsigned i = 0; i < count; i++)
		if (memory[i].before)
			memcpy(memory[i].before, memory[i].data, memory[i].size);
	timing.calls = 1;
	timing.turn_began = cpu_ns();
	return true;
}

bool cpu_again(void)
{
	if (!ran)
		return begin_turns();
	if (!measuring)
		return false;
	if (++timing.call < timing.calls)
		return true;
	double ns = cpu_ns() - timing.turn_began;
	double each = ns / (double)timing.calls;
	timing.best = timing.turn == 0 || each < timing.best ? each : timing.best;
	timing.all += ns;
	timing.turn++;
	if (timing.turn == TURNS || (timing.turn >= 2 && timing.all > TURNS_NS))
		return false;
	if (!restore() && timing.turn == 1 && each < TURN_NS)
		timing.calls = (uint64_t)(TURN_NS / (each + 1)) + 1;
	timing.call = 0;
	timing.turn_began = cpu_ns();
	return true;
}

void cpu_units(double units)
{
	timing.units = units;
}

/* ---- implementation of struct kernel_kind ---- */

static const char *isa_names[CPU_ISA_COUNT];

static void begin_round(unsigned round)
{
}

/* Starts a test. Also frees the memory of a preceding test that failed. */
static void begin(const struct kernel_case *k, unsigned isa)
{
	for (unsigned i = 0; i < MEMORY_MAX && isa == 0; i++) {
		free(memory[i].reference);
		memory[i] = (struct memory){0};
	}
	seed += isa == 0;
	random_init(&rng, seed, 0, 0, RANDOM_AUGMENT);
	current_isa = isa;
	count = 0;
	ran = false;
	memset(&timing, 0, sizeof(timing));
}

static void end(void)
{
	for (unsigned i = 0; i < count; i++) {
		struct memory *m = &memory[i];

		if (!m->data)
			continue;
		for (unsigned j = 0; j < CANARIES; j++)
			if (m->data[(int)j - CANARIES] != CPU_CANARY)
				kernels_fail("written %d bytes before memory %u",
					     (int)(CANARIES - j), i);
		if (!measuring)
			compare(m, i, m->data);
		guarded_free(&m->guard);
		free(m->before);
		m->data = m->before = NULL;
	}
	count = 0;
}

static void print(const struct kernel_case *k, const char *implementation, double ns, double units)
{
	printf("%-34s %-13s %10.3f us %9.3f ns a %s\n", k->name ? k->name : k->kernel,
	       implementation, ns * 1e-3, ns / units, k->unit);
}

static void time_case(const struct kernel_case *k, unsigned isa)
{
	measuring = true;
	begin(k, isa);
	timing.units = (double)k->n * k->h * k->w * k->c;
	k->check(k, isa);
	print(k, isa_names[isa], timing.best, timing.units);
	end();
	measuring = false;
}

static int bench(const struct kernel_case *cases, unsigned case_count, const char *only,
		 const char *text)
{
	for (unsigned i = 0; i < case_count; i++) {
		const struct kernel_case *k = &cases[i];

		if (!kernels_selected(k, text))
			continue;
		for (unsigned isa = 0; isa < cpu_kernels.variant_count && !k->measure; isa++)
			if (!only || strcmp(only, isa_names[isa]) == 0)
				time_case(k, isa);
		if (k->measure && (!only || strcmp(only, k->implementation) == 0))
			print(k, k->implementation, k->measure(k), 1);
	}
	return 0;
}

struct kernel_kind cpu_kernels = {
	.variants = isa_names,
	.rounds = 1,
	.begin_round = begin_round,
	.begin = begin,
	.end = end,
	.bench = bench,
};

__attribute__((constructor)) static void find_sets(void)
{
	for (unsigned isa = 0; isa <= (unsigned)cpu_isa_supported(); isa++)
		isa_names[cpu_kernels.variant_count++] = cpu_isa_name((enum cpu_isa)isa);
}
