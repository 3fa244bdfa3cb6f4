/*
 * Baseline Huffman decoding: T.81 annex F.2.2. Tables are built once per content and kept in a
 * small cache that one thread owns; a reader runs along one unstuffed scan. The input is untrusted:
 * every function ends after work bounded by the number of blocks asked for, and touches only the
 * buffers it was given.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* one more holds more codes, but less stays in the first-level cache */
	JPEG_LOOKUP_BITS = 10,
	JPEG_TOP_SIZE = 1 << 10,
	/* entries written at once when tables are filled, and room for them behind */
	JPEG_FILL = 8,
	JPEG_TABLES_MAX = 48, /* kept in a cache */
	JPEG_FRAME_TABLES_MAX = 6,
	JPEG_FRAME_PAIRS_MAX = 9,
	/* readable zero bytes behind an unstuffed scan: more than a block can take */
	JPEG_SCAN_PADDING = 320,
};

/*
 * One code table. lookup[the next 10 bits] = mask of the value's bits << 17 | JPEG_LEAVES for codes
 * that lead to another table | advance << 8 | total bits (code and value); 0 when the code is
 * longer, code and value take more than JPEG_ENTRY_BITS_MAX, or the value more than
 * JPEG_CATEGORY_MAX. advance is the way in bytes from one coefficient to the next, 2 * (run + 1),
 * or, where the entry leaves, from the last byte of the block before the next coefficient: 3 to a
 * DC coefficient, JPEG_END_OF_BLOCK to where nothing is.
 */
struct jpeg_table {
	uint32_t lookup[(1 << JPEG_LOOKUP_BITS) + JPEG_FILL];
	/*
	 * the same by the next 16 bits, for the highest of them: there long codes are; no limit to
	 * the total
	 */
	uint32_t top[JPEG_TOP_SIZE + JPEG_FILL];
	/* AC, once asked for: whole symbols within the next 10 bits, for skipping */
	uint32_t runs[1 << JPEG_LOOKUP_BITS];
	int32_t code_max[18]; /* largest code of a length, -1: none; [17] is a sentinel */
	int32_t offset[17];   /* symbol index minus code, of a length */
	uint8_t symbols[256];
	uint8_t counts[16];
	uint16_t symbol_count;
	/* AC: entries of the lookup among which are all ends of block */
	uint16_t ends_first, ends_end;
	uint8_t is_ac;
	uint8_t has_runs;
	uint64_t serial; /* of this content, never given twice */
};

enum {
	JPEG_LEAVES = 1 << 16,
	JPEG_END_OF_BLOCK = 129,
	JPEG_ENTRY_BITS_MAX = 19, /* so that one load of 57 bits serves three symbols */
	JPEG_CATEGORY_MAX = 9,
};

/*
 * An AC table whose ends of block take along the DC code that follows, where both codes have 10
 * bits: the block's end and the next one's beginning in one step.
 */
struct jpeg_pair {
	uint32_t lookup[1 << JPEG_LOOKUP_BITS];
	uint64_t ac_serial, dc_serial;
};

/* What is known of a cache's entry without touching it. */
struct jpeg_slot {
	uint64_t key;  /* of its content, seldom the same for two */
	uint64_t used; /* stamp of the last use, 0: it is empty */
	bool kept;     /* it was asked for again */
};

/*
 * Tables and pairs by content. Files with tables of their own, which no other has, take turns at
 * few places, so that these and what is asked for again and again stay in the processor's caches.
 */
struct jpeg_tables {
	struct jpeg_slot slots[JPEG_TABLES_MAX], pair_slots[JPEG_TABLES_MAX];
	struct jpeg_table *entries[JPEG_TABLES_MAX];
	struct jpeg_pair *pairs[JPEG_TABLES_MAX];
	uint32_t frames; /* whose tables are in use at a time */
	uint64_t clock;
};

/*
 * For so many frames that are in use at a time, from 1 to JPEG_TABLES_MAX / JPEG_FRAME_TABLES_MAX.
 */
void jpeg_tables_init(struct jpeg_tables *tables, uint32_t frames);
void jpeg_tables_deinit(struct jpeg_tables *tables);
/*
 * The table for a DHT payload (16 counts, then symbols, at most 256), which nobody changes.
 * skipping: jpeg_block_skip will be called with it. -EBADMSG when it is no prefix code, -ENOMEM.
 * Valid until as many others were asked for as the frames have.
 */
int jpeg_tables_get(struct jpeg_tables *tables, const uint8_t *spec, int is_ac, int skipping,
		    const struct jpeg_table **ret_table);
/* The pair of an AC table and the DC table of the block behind. -ENOMEM. Valid like tables. */
int jpeg_tables_pair(struct jpeg_tables *tables, const struct jpeg_table *ac,
		     const struct jpeg_table *dc, const struct jpeg_pair **ret_pair);

/*
 * Copies entropy-coded bytes without stuffing, up to the end of data or the first marker that is
 * not the next restart marker in turn, and JPEG_SCAN_PADDING zero bytes behind them. output has
 * room for size + JPEG_SCAN_PADDING bytes. segments[i] is the output offset at which the bytes
 * behind restart marker i begin, at most segment_max of them. Returns the number of output bytes
 * without padding. data may change meanwhile: nothing but these size bytes is read, nothing outside
 * of output and segments written, and each step leads forward.
 */
size_t jpeg_unstuff(const uint8_t *data, size_t size, uint8_t *output, uint32_t *segments,
		    uint32_t segment_max, uint32_t *ret_segment_count);

/* A place in an unstuffed scan; next and end are what it begins with. */
struct jpeg_reader {
	const uint8_t *next; /* next byte to load */
	const uint8_t *end;  /* of the data; JPEG_SCAN_PADDING bytes behind it are readable */
	uint64_t bits;       /* left-aligned */
	int64_t bit_count;   /* valid ones; negative is never reached between calls */
};

/* Has it consumed more bits than there are? */
int jpeg_reader_overrun(const struct jpeg_reader *reader);
/* Bits consumed since `begin`, a place at or before where the reader started. */
uint64_t jpeg_reader_position(const struct jpeg_reader *reader, const uint8_t *begin);

/*
 * Decodes one block. *dc is the component's DC predictor, updated. coefficients: 64, not yet
 * dequantised, all zero before. places: their order, an entry of jpeg_places. 0, or -EBADMSG for a
 * code that is not in the table or a run beyond the block.
 */
int jpeg_block_decode(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		      const struct jpeg_table *ac_table, int32_t *dc, int16_t *coefficients,
		      const uint8_t places[256]);
/* The same without keeping the coefficients. */
int jpeg_block_skip(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		    const struct jpeg_table *ac_table, int32_t *dc);

/* A symbol read the long way: for codes and values that the lookup does not hold. */
struct jpeg_symbol {
	uint32_t advance; /* as in a table's entry */
	int32_t value;
	uint32_t bits; /* total; 0: no such code */
};

/* bits: at least 32 valid ones, left-aligned. */
struct jpeg_symbol jpeg_symbol_long(const struct jpeg_table *table, uint64_t bits);

/*
 * jpeg_values[bits + mask] is the coefficient that `bits` stand for in the category whose mask is
 * 2^category - 1 (T.81 F.2.2.1, EXTEND): the categories lie one behind the other. Larger categories
 * take the long way.
 */
extern int16_t jpeg_values[2 << JPEG_CATEGORY_MAX];
/*
 * Place in a block, in bytes, of the coefficient at a byte offset in zigzag order; [0] in natural
 * order, [1] in zigzag order. An end of block leads to offsets from 128 on; it carries the value 0,
 * and the last place is free when one is met.
 */
extern uint8_t jpeg_places[2][256];
/*
 * In natural order, bytes from a coefficient's place in zigzag order to its own; by the place of
 * the one behind it.
 */
extern int8_t jpeg_moves[128];
