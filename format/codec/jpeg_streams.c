#include "jpeg_streams.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
	STREAMS = 4, /* five and six gained nothing */
	LOADS = 4,   /* between looks at the ends */
	SYMBOLS = 3, /* a load: 57 / JPEG_ENTRY_BITS_MAX */
	/* Bits that a finished stream may have run on, 16 + 15 a symbol at most. */
	SLACK = LOADS * SYMBOLS * 31,
};

void jpeg_cycle_init(struct jpeg_cycle *cycle, const struct jpeg_frame *frame,
		     const struct jpeg_table *const *dc, const struct jpeg_table *const *ac)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < frame->component_count; i++)
		for (uint32_t b = frame->components[i].h * frame->components[i].v; b > 0;
		     b--, count++) {
			struct jpeg_state *state = &cycle->states[2 * count];

			state[0] = (struct jpeg_state){dc[i]->lookup, &state[1], NULL, dc[i]};
			state[1] = (struct jpeg_state){ac[i]->lookup, &state[1], &state[2], ac[i]};
		}
	cycle->states[2 * count - 1].next = &cycle->states[0];
}

/* What a stream consists of; addresses as numbers, since a block's end is found by its alignment. */
struct stream {
	uint64_t position; /* bits */
	uint64_t place;	   /* address one past the last coefficient, in zigzag order */
	uint64_t finish;   /* address at which the task is done; 0: idle */
	const struct jpeg_state *state;
	uint64_t end;
};

static inline __attribute__((always_inline)) uint64_t load_bits(const uint8_t *scan,
								uint64_t position)
{
	uint64_t value;

	memcpy(&value, scan + (position >> 3), sizeof value);
	return __builtin_bswap64(value) << (position & 7);
}

/* In zigzag order an end of block leaves its 0 in the next block, whose coefficients are yet to come. */
static inline __attribute__((always_inline)) void store(uint64_t place, int16_t value,
							const bool zigzag)
{
	uint64_t at = place - 2;

	if (!zigzag)
		at = (at & ~UINT64_C(127)) + jpeg_places[0][at & 127];
	*(int16_t *)at = value;
}

/*
 * Moves on by one symbol. Leaving a block shows in the address passing a multiple of 128; then the next block begins there. No
 * branch depends on the data.
 */
static inline __attribute__((always_inline)) void
advance(uint64_t *place, const struct jpeg_state **state, uint64_t to)
{
	uint64_t block = to & ~UINT64_C(127);
	const struct jpeg_state *stay = (*state)->stay;

#ifdef __x86_64__
	/* Compilers make a branch of it, which is mispredicted once a block. */
	__asm__("cmpq %[old], %[block]\n\t"
		"cmovaq %[block], %[to]\n\t"
		"cmovaq %[next], %[stay]"
		: [to] "+r"(to), [stay] "+r"(stay)
		: [block] "r"(block), [old] "r"(*place), [next] "m"((*state)->next)
		: "cc");
#else
	const struct jpeg_state *next = (*state)->next;
	bool left = block > *place;

	to = left ? block : to;
	stay = left ? next : stay;
#endif
	*place = to;
	*state = stay;
}

static void begin(struct stream *stream, const struct jpeg_cycle *cycle,
		  const struct jpeg_task *task)
{
	stream->position = task->position;
	stream->end = task->end;
	stream->place = (uint64_t)(uintptr_t)task->blocks;
	stream->finish = stream->place + 128 * (uint64_t)task->block_count;
	stream->state = &cycle->states[0];
}

struct queue {
	const struct jpeg_cycle *cycle;
	const uint8_t *scan;
	uint64_t limit; /* bits: no stream may be beyond it when it loads */
	const struct jpeg_task *next, *end;
};

/* A symbol that the table does not hold, or -EBADMSG. position is where it begins. */
static __attribute__((noinline)) int symbol_long(const struct queue *queue,
						 const struct stream *stream,
						 const struct jpeg_table *table, uint64_t position,
						 uint64_t place, struct jpeg_symbol *ret_symbol)
{
	struct jpeg_symbol symbol = jpeg_symbol_long(table, load_bits(queue->scan, position));

	if (symbol.bits == 0) {
		if (place < stream->finish)
			return -EBADMSG;
		/* The stream is done, and reading what is not its own. */
		symbol = (struct jpeg_symbol){.advance = 2, .bits = 1};
	}
	*ret_symbol = symbol;
	return 0;
}

/*
 * Runs count streams side by side until one is done and no task is left to take its place. count and zigzag are constants where this
 * is inlined. -EBADMSG: a code that is not in its table, or too far.
 */
static inline __attribute__((always_inline)) int run(struct stream *streams, struct queue *queue,
						     const int count, const bool zigzag)
{
	const uint8_t *scan = queue->scan;
	uint64_t position[STREAMS], place[STREAMS], bits[STREAMS];
	const struct jpeg_state *state[STREAMS];

#pragma GCC unroll 4
	for (int i = 0; i < count; i++) {
		position[i] = streams[i].position;
		place[i] = streams[i].place;
		state[i] = streams[i].state;
	}
	for (;;) {
		bool done = false;

		for (int load = 0; load < LOADS; load++) {
#pragma GCC unroll 4
			for (int i = 0; i < count; i++)
				bits[i] = load_bits(scan, position[i]);
#pragma GCC unroll 3
			for (int symbol = 0; symbol < SYMBOLS; symbol++) {
#pragma GCC unroll 4
				for (int i = 0; i < count; i++) {
					uint32_t entry = state[i]->lookup[bits[i] >>
									  (64 - JPEG_LOOKUP_BITS)];
					uint64_t to;

					if (__builtin_expect(entry != 0, 1)) {
						uint64_t mask = entry >> 16;

						bits[i] = bits[i] << (entry & 63) |
							  bits[i] >> (-entry & 63);
						position[i] += entry & 255;
						to = place[i] + (entry >> 8 & 255);
						store(to, jpeg_values[(bits[i] & mask) + mask],
						      zigzag);
					} else {
						struct jpeg_symbol s;

						if (symbol_long(queue, &streams[i], state[i]->table,
								position[i], place[i], &s) < 0)
							return -EBADMSG;
						position[i] += s.bits;
						bits[i] = load_bits(scan, position[i]);
						to = place[i] + s.advance;
						store(to, (int16_t)s.value, zigzag);
					}
					advance(&place[i], &state[i], to);
				}
			}
		}
#pragma GCC unroll 4
		for (int i = 0; i < count; i++)
			done |= place[i] >= streams[i].finish || position[i] > queue->limit;
		if (__builtin_expect(!done, 1))
			continue;
		done = false;
#pragma GCC unroll 4
		for (int i = 0; i < count; i++) {
			if (place[i] < streams[i].finish && position[i] <= queue->limit)
				continue;
			if (position[i] > streams[i].end + SLACK || place[i] < streams[i].finish)
				return -EBADMSG;
			if (queue->next < queue->end) {
				begin(&streams[i], queue->cycle, queue->next++);
				position[i] = streams[i].position;
				place[i] = streams[i].place;
				state[i] = streams[i].state;
			} else {
				streams[i].finish = 0;
				done = true;
			}
		}
		if (done)
			break;
	}
#pragma GCC unroll 4
	for (int i = 0; i < count; i++) {
		streams[i].position = position[i];
		streams[i].place = place[i];
		streams[i].state = state[i];
	}
	return 0;
}

#define RUNNER(name, count, zigzag)                                                                \
	static __attribute__((noinline)) int name(struct stream *streams, struct queue *queue)     \
	{                                                                                          \
		return run(streams, queue, count, zigzag);                                         \
	}
RUNNER(natural1, 1, false)
RUNNER(natural2, 2, false)
RUNNER(natural3, 3, false)
RUNNER(natural4, 4, false)
RUNNER(zigzag1, 1, true)
RUNNER(zigzag2, 2, true)
RUNNER(zigzag3, 3, true)
RUNNER(zigzag4, 4, true)

int jpeg_streams_decode(const struct jpeg_cycle *cycle, const uint8_t *scan, size_t scan_size,
			const struct jpeg_task *tasks, uint32_t task_count, bool zigzag)
{
	static int (*const runners[2][STREAMS])(struct stream *, struct queue *) = {
		{natural1, natural2, natural3, natural4},
		{zigzag1, zigzag2, zigzag3, zigzag4},
	};
	struct queue queue = {cycle, scan, 8 * (uint64_t)scan_size, tasks, tasks + task_count};
	struct stream streams[STREAMS];
	int live = 0;

	for (uint32_t i = 0; i < task_count; i++)
		if (tasks[i].position > queue.limit)
			return -EBADMSG;
	while (live < STREAMS && queue.next < queue.end)
		begin(&streams[live++], cycle, queue.next++);
	while (live > 0) {
		int r = runners[zigzag][live - 1](streams, &queue), kept = 0;

		if (r < 0)
			return r;
		for (int i = 0; i < live; i++)
			if (streams[i].finish)
				streams[kept++] = streams[i];
		live = kept;
	}
	return 0;
}
