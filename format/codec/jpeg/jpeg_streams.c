#include "format/codec/jpeg/jpeg_streams.h"

#include "format/codec/jpeg/jpeg_streams_x86.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

enum {
	LOADS = JPEG_LANE_LOADS, /* loads between checks for the end */
	SYMBOLS = 3,             /* symbols per load of 57 bits: 57 / JPEG_ENTRY_BITS_MAX */
};

/* Returns the number of MCUs that make a multiple of JPEG_LANE_PHASES blocks. */
static uint32_t cycle_repeats(uint32_t blocks)
{
	uint32_t count = 1;

	while (count * blocks % JPEG_LANE_PHASES)
		count++;
	return count;
}

int jpeg_cycle_init(struct jpeg_cycle *cycle, const struct jpeg_frame *frame,
		    struct jpeg_tables *tables, const struct jpeg_table *const *dc,
		    const struct jpeg_table *const *ac, bool checked)
{
	uint32_t blocks = 0, component[JPEG_MCU_BLOCKS_MAX], pair_own = 0, pair_follower = 0;
	const struct jpeg_pair *pair = NULL;

	for (uint32_t i = 0; i < frame->component_count; i++)
		for (uint32_t b = frame->components[i].h * frame->components[i].v; b > 0; b--)
			component[blocks++] = i;
	uint32_t count = checked ? blocks * cycle_repeats(blocks) : blocks;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t next = (i + 1) % count;
		uint32_t own = component[i % blocks], follower = component[next % blocks];

		/* Consecutive blocks of one component share the pair. */
		if (i == 0 || own != pair_own || follower != pair_follower) {
			int r = jpeg_tables_pair(tables, ac[own], dc[follower], &pair);

			if (r < 0)
				return r;
			pair_own = own;
			pair_follower = follower;
		}
		cycle->dc[i] = (struct jpeg_state){.lookup = dc[own]->lookup,
						   .top = dc[own]->top,
						   .next = &cycle->ac[i],
						   .enter = &cycle->dc[i],
						   .table = dc[own],
						   .number = i - 1};
		cycle->ac[i] = (struct jpeg_state){.lookup = pair->lookup,
						   .top = ac[own]->top,
						   .next = &cycle->ac[next],
						   .enter = &cycle->dc[i],
						   .table = ac[own],
						   .number = i};
	}
	return 0;
}

static inline __attribute__((always_inline)) uint64_t lane_load_bits(const uint8_t *next,
								     uint64_t used)
{
	uint64_t value;

	memcpy(&value, next, sizeof(value));
	return __builtin_bswap64(value) << used;
}

static void lane_consume(struct jpeg_lane *lane, uint32_t bits)
{
	lane->used += bits;
	lane->next += lane->used >> 3;
	lane->used &= 7;
}

/*
 * Stores a coefficient. In natural order, an end of block stores 0 to the last coefficient of the
 * block, which no symbol has set.
 */
static inline __attribute__((always_inline)) void lane_store(uint64_t cursor, int16_t value,
							     bool natural)
{
	uint64_t at = cursor - 2;

	if (natural)
		at += (uint64_t)jpeg_moves[cursor & 127];
	*(int16_t *)at = value;
}

/* Decodes a symbol that is not in the lookup. -EBADMSG if the code is invalid. */
static inline __attribute__((always_inline)) int lane_read_symbol(struct jpeg_lane *lane,
								  bool natural)
{
	const struct jpeg_state *state = lane->state;

	lane_consume(lane, 0);
	struct jpeg_symbol symbol =
		jpeg_symbol_long(state->table, lane_load_bits(lane->next, lane->used));
	if (symbol.bits == 0) {
		if (lane->cursor < lane->finish || lane->checked)
			return -EBADMSG;
		/* The task is done, and the stream reads bytes after its end. */
		symbol = (struct jpeg_symbol){.advance = 2, .bits = 1};
	}
	lane_consume(lane, symbol.bits);
	if (symbol.advance == JPEG_END_OF_BLOCK) {
		lane->cursor |= 127;
		lane->state = state->next->enter;
		return 0;
	}
	if (!state->table->is_ac) {
		symbol.advance = 3;
		lane->state = state->next;
	}
	lane->cursor += symbol.advance;
	lane_store(lane->cursor, (int16_t)symbol.value, natural);
	if (!(lane->cursor & 127)) {
		lane->cursor--;
		lane->state = state->next->enter;
	}
	return 0;
}

bool jpeg_lane_in_step(const struct jpeg_lane *lane)
{
	return (((uint32_t)(lane->cursor >> 7) - lane->state->number - lane->phase) &
		(JPEG_LANE_PHASES - 1)) == 0;
}

/* Decodes one symbol from the next bits. */
static inline __attribute__((always_inline)) int lane_step(struct jpeg_lane *lane, uint64_t *bits)
{
	const struct jpeg_state *state = lane->state;
	uint32_t entry = state->lookup[*bits >> (64 - JPEG_LOOKUP_BITS)];
	uint64_t mask = entry >> 17, total = entry & 63, last = lane->cursor | 127;

	if (!entry) {
		int r = lane_read_symbol(lane, true);

		*bits = lane_load_bits(lane->next, lane->used);
		return r;
	}
	if (entry & JPEG_LEAVES) {
		lane->cursor = last;
		lane->state = state->next;
	}
	lane->cursor += entry >> 8 & 255;
	lane->used += total;
	*bits = *bits << total | *bits >> (-total & 63);
	lane_store(lane->cursor, jpeg_values[(*bits & mask) + mask], true);
	/*
	 * The block ended before the next DC code was decoded: the block is full, or its
	 * end-of-block entry does not include that code.
	 */
	if (__builtin_expect(!(lane->cursor & 127), 0)) {
		lane->cursor = last;
		lane->state = state->next->enter;
	}
	return 0;
}

/*
 * Runs lanes side by side until one is done or past its limit. count is constant where this is
 * inlined. -EBADMSG for an unknown code.
 */
static inline __attribute__((always_inline)) int lanes_run(struct jpeg_lane *lanes, const int count)
{
	uint64_t bits[JPEG_STREAMS];

	for (;;) {
		for (int load = 0; load < LOADS; load++) {
#pragma GCC unroll 4
			for (int i = 0; i < count; i++) {
				lane_consume(&lanes[i], 0);
				bits[i] = lane_load_bits(lanes[i].next, lanes[i].used);
			}
			for (int symbol = 0; symbol < SYMBOLS; symbol++) {
#pragma GCC unroll 4
				for (int i = 0; i < count; i++)
					if (lane_step(&lanes[i], &bits[i]) < 0)
						return -EBADMSG;
			}
		}
		for (int i = 0; i < count; i++)
			if (lanes[i].cursor >= lanes[i].finish || lanes[i].next > lanes[i].limit ||
			    (lanes[i].checked && !jpeg_lane_in_step(&lanes[i])))
				return 0;
	}
}

/* clang-format off */
#define RUN(count)                                                                                 \
	static int lanes_run_##count(struct jpeg_lane *lanes)                                            \
	{                                                                                          \
		return lanes_run(lanes, count);                                                    \
	}
RUN(1) RUN(2) RUN(3) RUN(4)
#undef RUN

/* Indexed by the number of lanes less one. */
#define RUNS(name) {name##_1, name##_2, name##_3, name##_4}
const jpeg_lanes_run jpeg_lanes_c[JPEG_STREAMS] = RUNS(lanes_run);
/* clang-format on */

#ifdef __x86_64__
#define ASSEMBLED(name)                                                                            \
	int name##_1(struct jpeg_lane *lanes);                                                     \
	int name##_2(struct jpeg_lane *lanes);                                                     \
	int name##_3(struct jpeg_lane *lanes);                                                     \
	int name##_4(struct jpeg_lane *lanes);                                                     \
	const jpeg_lanes_run name[JPEG_STREAMS] = RUNS(name)
ASSEMBLED(jpeg_lanes_natural);
ASSEMBLED(jpeg_lanes_zigzag);
ASSEMBLED(jpeg_lanes_natural_checked);
ASSEMBLED(jpeg_lanes_zigzag_checked);
#undef ASSEMBLED

int jpeg_lane_symbol(struct jpeg_lane *lane, int natural);

/* Called by the assembly for symbols that its tables do not hold. */
int jpeg_lane_symbol(struct jpeg_lane *lane, int natural)
{
	return lane_read_symbol(lane, natural);
}

static_assert(offsetof(struct jpeg_lane, next) == JPEG_LANE_NEXT, "");
static_assert(offsetof(struct jpeg_lane, used) == JPEG_LANE_USED, "");
static_assert(offsetof(struct jpeg_lane, cursor) == JPEG_LANE_CURSOR, "");
static_assert(offsetof(struct jpeg_lane, state) == JPEG_LANE_STATE, "");
static_assert(offsetof(struct jpeg_lane, finish) == JPEG_LANE_FINISH, "");
static_assert(offsetof(struct jpeg_lane, limit) == JPEG_LANE_LIMIT, "");
static_assert(sizeof(struct jpeg_lane) == JPEG_LANE_SIZE, "");
static_assert(offsetof(struct jpeg_state, lookup) == JPEG_STATE_LOOKUP, "");
static_assert(offsetof(struct jpeg_state, top) == JPEG_STATE_TOP, "");
static_assert(offsetof(struct jpeg_state, next) == JPEG_STATE_NEXT, "");
static_assert(offsetof(struct jpeg_state, enter) == JPEG_STATE_ENTER, "");
static_assert(offsetof(struct jpeg_state, number) == JPEG_STATE_NUMBER, "");
static_assert(offsetof(struct jpeg_lane, phase) == JPEG_LANE_PHASE, "");
static_assert(LOADS * SYMBOLS < JPEG_LANE_PHASES, "");
static_assert(JPEG_LOOKUP_BITS == JPEG_LANE_LOOKUP_BITS, "");
static_assert(JPEG_TOP_SIZE == JPEG_LANE_TOP_SIZE, "");
static_assert(4 << JPEG_CATEGORY_MAX == JPEG_LANE_VALUES_SIZE, "");
#endif

void jpeg_streams_begin(struct jpeg_streams *streams, const struct jpeg_cycle *cycle,
			const jpeg_lanes_run *runs)
{
	streams->count = 0;
	streams->cycle = cycle;
	streams->runs = runs;
}

void jpeg_streams_add(struct jpeg_streams *streams, const struct jpeg_task *task)
{
	struct jpeg_lane *lane = &streams->lanes[streams->count++];

	lane->next = task->begin;
	lane->used = task->bits;
	lane->cursor = (uint64_t)(uintptr_t)task->blocks - 1;
	lane->finish = lane->cursor + 128 * (uint64_t)task->block_count;
	lane->limit = task->end;
	lane->tag = task->tag;
	lane->checked = 0;
	lane->state = &streams->cycle->dc[0];
}

int jpeg_streams_run(struct jpeg_streams *streams, uint32_t *ret_tag)
{
	struct jpeg_lane *lane = streams->lanes;

	for (;;) {
		for (lane = streams->lanes; lane < streams->lanes + streams->count; lane++)
			if (lane->cursor >= lane->finish) {
				*ret_tag = lane->tag;
				*lane = streams->lanes[--streams->count];
				return 0;
			} else if (lane->next > lane->limit) {
				return -EBADMSG;
			}
		if (streams->runs[streams->count - 1](streams->lanes) < 0)
			return -EBADMSG;
	}
}

void jpeg_lane_begin(struct jpeg_lane *lane, const struct jpeg_cycle *cycle, const uint8_t *begin,
		     const uint8_t *end)
{
	*lane = (struct jpeg_lane){
		.next = begin, .limit = end, .state = &cycle->dc[0], .checked = 1};
}

void jpeg_lane_move(struct jpeg_lane *lane, int16_t *blocks, uint32_t block_count)
{
	uint64_t base = (uint64_t)(uintptr_t)blocks - 1;

	lane->cursor = base + (lane->cursor - lane->finish);
	lane->finish = base + 128 * (uint64_t)block_count;
	lane->phase = (uint32_t)(lane->cursor >> 7) - lane->state->number;
}

uint32_t jpeg_lane_surplus(const struct jpeg_lane *lane)
{
	return (uint32_t)((lane->cursor - lane->finish + 126) >> 7);
}

int jpeg_lane_end(struct jpeg_lane *lane, bool zigzag)
{
	lane_consume(lane, 0);
	while (lane->cursor < lane->finish) {
		uint64_t last = lane->cursor | 127;
		bool is_ac = lane->state->table->is_ac;

		if (lane->next > lane->limit || lane_read_symbol(lane, !zigzag) < 0 ||
		    (is_ac && lane->cursor > last))
			return -EBADMSG;
	}
	return 8 * (lane->next - lane->limit) + (int64_t)lane->used > 0 ? -EBADMSG : 0;
}

void jpeg_sum_dc(const struct jpeg_frame *frame, int16_t predictors[JPEG_COMPONENTS_MAX],
		 int16_t *blocks, uint32_t mcus)
{
	uint32_t luma = frame->components[0].h * frame->components[0].v;
	uint16_t y = (uint16_t)predictors[0], cb = (uint16_t)predictors[1],
		 cr = (uint16_t)predictors[2];

	for (; mcus > 0; mcus--) {
		for (uint32_t b = luma; b > 0; b--, blocks += 64)
			blocks[0] = (int16_t)(y = (uint16_t)(y + (uint16_t)blocks[0]));
		if (frame->component_count == 1)
			continue;
		blocks[0] = (int16_t)(cb = (uint16_t)(cb + (uint16_t)blocks[0]));
		blocks[64] = (int16_t)(cr = (uint16_t)(cr + (uint16_t)blocks[64]));
		blocks += 128;
	}
	predictors[0] = (int16_t)y;
	predictors[1] = (int16_t)cb;
	predictors[2] = (int16_t)cr;
}
