/*
 * Kernel grids on the host. The threads of a block run in the order of a queue, which starts with
 * all threads; later, barriers and warp shuffles append the threads that they release. A thread
 * runs on a fiber until it has to wait. A thread that ends passes its fiber to the next thread that
 * has not started, so kernels without barriers never switch stacks. Fibers are kept for later
 * blocks.
 */
#include "tests/gpu/emulation/launch.h"

#include "tests/gpu/emulation/queue.h"
#include "trainer/device/cuda/gpu.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS_MAX 1024
#define WARP        32
#define SHARED_MAX  16 /* arrays per kernel */
#define STACK_BYTES (256 << 10)
#define GUARD_BYTES (4 << 10)
/*
 * Stack colouring: successive stacks start at COLOURS different offsets, COLOUR bytes apart. With
 * equal offsets all stacks would compete for the same cache sets.
 */
#define COLOURS 64
#define COLOUR  64

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__

/* A suspended context: its stack pointer, which points to the callee-saved registers. */
struct context {
	void *stack_pointer;
};

void emulation_switch(void **save, void *load);
__asm__(".text\n"
	".p2align 4\n"
	".hidden emulation_switch\n"
	".globl emulation_switch\n"
	".type emulation_switch, @function\n"
	"emulation_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size emulation_switch, . - emulation_switch\n");

static void context_init(struct context *context, void *stack, size_t size, void (*entry)(void))
{
	/*
	 * six registers; the address that the switch returns to (entry); and NULL as the return
	 * address of entry
	 */
	void **top = (void **)((char *)stack + size) - 8;

	memset(top, 0, 8 * sizeof(*top));
	top[6] = (void *)entry;
	context->stack_pointer = top;
}

static void context_switch(struct context *from, const struct context *to)
{
	emulation_switch(&from->stack_pointer, to->stack_pointer);
}

#else

#include <ucontext.h>

struct context {
	ucontext_t registers;
};

static void context_init(struct context *context, void *stack, size_t size, void (*entry)(void))
{
	getcontext(&context->registers);
	context->registers.uc_stack.ss_sp = stack;
	context->registers.uc_stack.ss_size = size;
	makecontext(&context->registers, entry, 0);
}

static void context_switch(struct context *from, const struct context *to)
{
	swapcontext(&from->registers, &to->registers);
}

#endif

struct fiber {
	struct context context;
	void *stack;        /* [STACK_BYTES] */
	void *fake_stack;   /* AddressSanitizer's fake stack */
	uint32_t thread;    /* thread that runs on it */
	struct fiber *next; /* in the list of free fibers */
};

enum state { THREAD_NEW, THREAD_READY, THREAD_BARRIER, THREAD_SHUFFLE, THREAD_DONE };

struct thread {
	enum state state;
	struct fiber *fiber;
	const char *file; /* where the thread waits */
	int line;
};

struct warp {
	uint32_t waiting;
	uint32_t mask;
	uint32_t phase; /* slots of the next shuffle; phases of lanes differ by at most 1 */
	uint64_t slots[2][WARP];
	struct emulation_fragment fragments[2][WARP];
};

static struct {
	void (*kernel)(const void *arguments);
	const void *arguments;
	uint32_t threads;
	struct thread thread[THREADS_MAX];
	struct warp warp[THREADS_MAX / WARP];
	uint32_t queue[THREADS_MAX]; /* ring buffer of runnable threads */
	uint32_t queue_first, queue_count;
	uint32_t at_barrier;
	const void *shared[SHARED_MAX]; /* shared arrays already filled in this block */
	uint32_t shared_count;
} block;

struct emulation_index threadIdx, blockIdx, gridDim;

static struct fiber scheduler; /* the launching stack */
#ifdef HAVE_ASAN
static struct fiber *previous;
static const void *scheduler_stack;
static size_t scheduler_bytes;
#endif
static struct fiber *free_fibers, *current = &scheduler;
static uint32_t fibers;
static uint64_t order_state;

static uint64_t random_next(void)
{
	uint64_t z = order_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void emulation_order(uint64_t seed)
{
	order_state = seed;
}

/* Fills order with 0..count-1, ascending or shuffled. */
static void arrange(uint32_t *order, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	if (!order_state)
		return;
	for (uint32_t i = count; i > 1; i--) {
		uint32_t j = (uint32_t)(random_next() % i), swap = order[i - 1];

		order[i - 1] = order[j];
		order[j] = swap;
	}
}

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "emulation: block (%u, %u), thread %u: ", blockIdx.x, blockIdx.y,
		threadIdx.x);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	abort();
}

void emulation_misaligned(const void *address, size_t alignment)
{
	give_up("%p is not aligned to %zu bytes", address, alignment);
}

/* ---- fibers ---- */

static void enter(struct fiber *to)
{
	struct fiber *from = current;

	current = to;
#ifdef HAVE_ASAN
	previous = from;
	bool home = to == &scheduler;

	__sanitizer_start_switch_fiber(&from->fake_stack, home ? scheduler_stack : to->stack,
				       home ? scheduler_bytes : STACK_BYTES);
#endif
	context_switch(&from->context, &to->context);
#ifdef HAVE_ASAN
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static uint32_t take_next(void)
{
	uint32_t thread = block.queue[block.queue_first];

	if (++block.queue_first == block.threads)
		block.queue_first = 0;
	block.queue_count--;
	threadIdx.x = thread;
	return thread;
}

static bool next_is_new(void)
{
	return block.queue_count &&
	       block.thread[block.queue[block.queue_first]].state == THREAD_NEW;
}

static void fiber_main(void)
{
	struct fiber *self = current;

#ifdef HAVE_ASAN
	bool from_home = previous == &scheduler;

	__sanitizer_finish_switch_fiber(NULL, from_home ? &scheduler_stack : NULL,
					from_home ? &scheduler_bytes : NULL);
#endif
	for (;;) {
		block.thread[self->thread].state = THREAD_READY;
		block.kernel(block.arguments);
		block.thread[self->thread].state = THREAD_DONE;
		block.thread[self->thread].fiber = NULL;
		if (next_is_new()) {
			self->thread = take_next();
			block.thread[self->thread].fiber = self;
			continue;
		}
		self->next = free_fibers;
		free_fibers = self;
		enter(block.queue_count ? block.thread[take_next()].fiber : &scheduler);
	}
}

static struct fiber *fiber_new(void)
{
	struct fiber *fiber = free_fibers;
	size_t colour = fibers % COLOURS * COLOUR;

	if (fiber) {
		free_fibers = fiber->next;
		return fiber;
	}
	/* never freed; there are at most as many as threads in a block */
	char *memory =
		mmap(NULL, GUARD_BYTES + COLOURS * COLOUR + STACK_BYTES + sizeof(*fiber),
		     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) < 0)
		give_up("no memory for the stack of a thread: %s", strerror(errno));
	fibers++;
	fiber = (struct fiber *)(memory + GUARD_BYTES + colour + STACK_BYTES);
	fiber->stack = memory + GUARD_BYTES + colour;
	context_init(&fiber->context, fiber->stack, STACK_BYTES, fiber_main);
	return fiber;
}

/* Switches to the next runnable thread, or to the launching stack if there is none. */
static void enter_next(void)
{
	if (!block.queue_count) {
		enter(&scheduler);
		return;
	}
	struct thread *next = &block.thread[take_next()];
	if (!next->fiber) {
		next->fiber = fiber_new();
		next->fiber->thread = threadIdx.x;
	}
	if (next->fiber != current)
		enter(next->fiber);
}

/* ---- waiting ---- */

static void make_ready(uint32_t thread)
{
	uint32_t place = block.queue_first + block.queue_count++;

	block.queue[place < block.threads ? place : place - block.threads] = thread;
}

static void suspend(enum state state, const char *file, int line)
{
	struct thread *self = &block.thread[threadIdx.x];

	self->state = state;
	self->file = file;
	self->line = line;
	enter_next();
	self->state = THREAD_READY;
}

static void release_barrier(void)
{
	uint32_t order[THREADS_MAX];

	for (uint32_t i = 1; i < block.threads; i++)
		if (block.thread[i].line != block.thread[0].line ||
		    (block.thread[i].file != block.thread[0].file &&
		     strcmp(block.thread[i].file, block.thread[0].file) != 0))
			give_up("waits at %s:%d, thread %u at %s:%d", block.thread[0].file,
				block.thread[0].line, i, block.thread[i].file,
				block.thread[i].line);
	block.at_barrier = 0;
	arrange(order, block.threads);
	for (uint32_t i = 0; i < block.threads; i++)
		make_ready(order[i]);
}

void emulation_barrier(const char *file, int line)
{
	block.thread[threadIdx.x].file = file;
	block.thread[threadIdx.x].line = line;
	if (++block.at_barrier == block.threads)
		release_barrier();
	suspend(THREAD_BARRIER, file, line);
}

/*
 * Blocks a lane until all lanes of its warp have called this function with the same operation: a
 * shuffle with `mask`, or an exchange of fragments if mask is WARP. The slots of this phase stay
 * valid until the lane's second call from now.
 */
static void warp_barrier(struct warp *warp, uint32_t mask, const char *file, int line)
{
	uint32_t thread = threadIdx.x, first = thread - thread % WARP, order[WARP];

	if (!warp->waiting)
		warp->mask = mask;
	if (mask != warp->mask || mask > WARP)
		give_up("%s:%d: shuffles by %u, another lane by %u", file, line, mask, warp->mask);
	if (++warp->waiting == WARP) {
		warp->waiting = 0;
		warp->phase = !warp->phase;
		arrange(order, WARP);
		for (uint32_t i = 0; i < WARP; i++)
			make_ready(first + order[i]);
	}
	suspend(THREAD_SHUFFLE, file, line);
}

static uint64_t shuffle(uint64_t value, uint32_t mask, const char *file, int line)
{
	uint32_t thread = threadIdx.x, lane = thread % WARP;
	struct warp *warp = &block.warp[thread / WARP];
	const uint64_t *slots = warp->slots[warp->phase];

	warp->slots[warp->phase][lane] = value;
	warp_barrier(warp, mask < WARP ? mask : WARP + 1, file, line);
	return slots[lane ^ mask];
}

const struct emulation_fragment *emulation_exchange(const struct emulation_fragment *own,
						    const char *file, int line)
{
	uint32_t thread = threadIdx.x;
	struct warp *warp = &block.warp[thread / WARP];
	struct emulation_fragment *all = warp->fragments[warp->phase];

	all[thread % WARP] = *own;
	warp_barrier(warp, WARP, file, line);
	return all;
}

float emulation_shuffle_f32(float value, uint32_t mask, const char *file, int line)
{
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof(value));
	bits = shuffle(bits, mask, file, line);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

double emulation_shuffle_f64(double value, uint32_t mask, const char *file, int line)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits = shuffle(bits, mask, file, line);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

uint32_t emulation_shuffle_u32(uint32_t value, uint32_t mask, const char *file, int line)
{
	return (uint32_t)shuffle(value, mask, file, line);
}

void emulation_shared(void *memory, size_t size)
{
	for (uint32_t i = 0; i < block.shared_count; i++)
		if (block.shared[i] == memory)
			return;
	if (block.shared_count == SHARED_MAX)
		give_up("more than %d shared arrays", SHARED_MAX);
	block.shared[block.shared_count++] = memory;
	memset(memory, 0xff, size);
}

/* ---- grids ---- */

static void run_block(void)
{
	memset(block.thread, 0, block.threads * sizeof(*block.thread));
	for (uint32_t i = 0; i < block.threads / WARP; i++)
		block.warp[i].waiting = block.warp[i].phase = 0;
	block.shared_count = block.at_barrier = 0;
	block.queue_first = 0;
	block.queue_count = block.threads;
	arrange(block.queue, block.threads);
	enter_next();
	for (uint32_t i = 0; i < block.threads; i++) {
		threadIdx.x = i;
		if (block.thread[i].state != THREAD_DONE)
			give_up("waits at %s:%d for threads that do not come there",
				block.thread[i].file, block.thread[i].line);
	}
}

struct launch {
	void (*kernel)(const void *arguments);
	uint32_t blocks_x, blocks_y, threads;
	max_align_t arguments[]; /* of the kernel */
};

static void run_grid(const void *copy)
{
	const struct launch *launch = copy;
	uint32_t blocks = launch->blocks_x * launch->blocks_y;
	uint32_t *order = malloc(blocks * sizeof(*order));

	if (!order)
		give_up("no memory for %u blocks", blocks);
	block.kernel = launch->kernel;
	block.arguments = launch->arguments;
	block.threads = launch->threads;
	gridDim.x = launch->blocks_x;
	gridDim.y = launch->blocks_y;
	arrange(order, blocks);
	for (uint32_t i = 0; i < blocks; i++) {
		blockIdx.x = order[i] % launch->blocks_x;
		blockIdx.y = order[i] / launch->blocks_x;
		run_block();
	}
	free(order);
}

int gpu_launch(const struct gpu_kernel *kernel, uint32_t blocks_x, uint32_t blocks_y,
	       uint32_t threads, const void *arguments, size_t size, gpu_stream stream)
{
	size_t bytes = sizeof(struct launch) + size;

	/* limits that CUDA also enforces */
	if (!blocks_x || !blocks_y || blocks_y > 65535 || threads % WARP || !threads ||
	    threads > THREADS_MAX || size > 4096)
		return -EIO;
	struct launch *launch = malloc(bytes);
	if (!launch)
		return -ENOMEM;
	launch->kernel = (void (*)(const void *))kernel->function;
	launch->blocks_x = blocks_x;
	launch->blocks_y = blocks_y;
	launch->threads = threads;
	memcpy(launch->arguments, arguments, size);
	int r = emulation_queue(stream, run_grid, launch, bytes);
	free(launch);
	return r;
}
