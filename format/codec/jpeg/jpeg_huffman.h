/*
 * Baseline Huffman decoding (T.81 annex F.2.2). Tables are built once per content and cached; one
 * thread owns the cache. A reader runs along one unstuffed scan. The input is untrusted: the work
 * of every function is bounded by the number of blocks requested, and it touches only the buffers
 * passed in.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* 11 bits would cover more codes but evict more of the L1 cache */
	JPEG_LOOKUP_BITS = 10,
	JPEG_TOP_SIZE = 1 << 10,
	/* entries written at once when filling tables, and the padding that this needs */
	JPEG_FILL = 8,
	JPEG_TABLES_MAX = 48, /* tables in a cache */
	JPEG_FRAME_TABLES_MAX = 6,
	JPEG_FRAME_PAIRS_MAX = 9,
	/* readable zero bytes after an unstuffed scan: more than a block can consume */
	JPEG_SCAN_PADDING = 320,
};

/*
 * One code table. lookup[next 10 bits] = value mask << 17
 *
 * JPEG_LEAVES if the code leads to another table
 *
 * advance << 8
 *
 * total bits (code and value). The entry is 0 if the code is longer, code and value exceed
 * JPEG_ENTRY_BITS_MAX, or the value exceeds JPEG_CATEGORY_MAX bits. advance is the distance in
 * bytes from one coefficient to the next, 2 * (run + 1). If the entry leaves the table, it counts
 * from the last byte of the block before the next coefficient: 3 for a DC coefficient,
 * JPEG_END_OF_BLOCK for none.
 */
struct jpeg_table {
	uint32_t lookup[(1 << JPEG_LOOKUP_BITS) + JPEG_FILL];
	/*
	 * like lookup, by the next 16 bits, but only for the highest values, where the long codes
	 * are; no limit on the total
	 */
	uint32_t top[JPEG_TOP_SIZE + JPEG_FILL];
	/* AC, built on request: whole symbols within the next 10 bits, for skipping */
	uint32_t runs[1 << JPEG_LOOKUP_BITS];
	int32_t code_max[18]; /* largest code of a length, -1 if none; [17] is a sentinel */
	int32_t offset[17];   /* symbol index minus code, by length */
	uint8_t symbols[256];
	uint8_t counts[16];
	uint16_t symbol_count;
	/* AC: range of the lookup that contains all end-of-block entries */
	uint16_t ends_first, ends_end;
	uint8_t is_ac;
	uint8_t has_runs;
	uint64_t serial; /* identifies the content, never reused */
};

enum {
	JPEG_LEAVES = 1 << 16,
	JPEG_END_OF_BLOCK = 129,
	JPEG_ENTRY_BITS_MAX = 19, /* a load of 57 bits then serves three symbols */
	JPEG_CATEGORY_MAX = 9,
};

/*
 * An AC table whose end-of-block entries include the following DC code if both fit 10 bits: end of
 * block and start of the next in one step.
 */
struct jpeg_pair {
	uint32_t lookup[1 << JPEG_LOOKUP_BITS];
	uint64_t ac_serial, dc_serial;
};

/* Key data of a cache entry, kept apart so that a search does not touch the entries. */
struct jpeg_slot {
	uint64_t key;  /* hash of the content, collisions are rare */
	uint64_t used; /* stamp of the last use, 0 if empty */
	bool kept;     /* requested more than once */
};

/*
 * Cache of tables and pairs by content. Tables used by only one file share a few slots, so that
 * they and the frequently used tables stay in the CPU caches.
 */
struct jpeg_tables {
	struct jpeg_slot slots[JPEG_TABLES_MAX], pair_slots[JPEG_TABLES_MAX];
	struct jpeg_table *entries[JPEG_TABLES_MAX];
	struct jpeg_pair *pairs[JPEG_TABLES_MAX];
	uint32_t frames; /* frames whose tables are in use at a time */
	uint64_t clock;
};

/*
 * frames is the number of frames in use at a time, from 1 to JPEG_TABLES_MAX /
 * JPEG_FRAME_TABLES_MAX.
 */
void jpeg_tables_init(struct jpeg_tables *tables, uint32_t frames);
void jpeg_tables_deinit(struct jpeg_tables *tables);
/*
 * Returns the table of a DHT payload (16 counts, then at most 256 symbols), which must not change
 * during the call. Set skipping if jpeg_block_skip() will use the table. -EBADMSG if it is not a
 * prefix code, -ENOMEM. Valid until as many other tables were requested as the frames have.
 */
int jpeg_tables_get(struct jpeg_tables *tables, const uint8_t *spec, int is_ac, int skipping,
		    const struct jpeg_table **ret_table);
/*
 * Returns the pair of an AC table and the DC table of the next block. -ENOMEM. Valid as long as
 * tables.
 */
int jpeg_tables_pair(struct jpeg_tables *tables, const struct jpeg_table *ac,
		     const struct jpeg_table *dc, const struct jpeg_pair **ret_pair);

/*
 * Copies entropy-coded bytes without stuffing, up to the end of data or the first marker that is
 * not the next restart marker in sequence, and appends JPEG_SCAN_PADDING zero bytes. output has
 * room for size + JPEG_SCAN_PADDING bytes. segments[i] receives the output offset of the first byte
 * after restart marker i, for at most segment_max of them. Returns the number of output bytes
 * without padding. data may change during the call: the function reads only these size bytes,
 * writes only inside output and segments, and every step moves forward.
 */
size_t jpeg_unstuff(const uint8_t *data, size_t size, uint8_t *output, uint32_t *segments,
		    uint32_t segment_max, uint32_t *ret_segment_count);

/* A position in an unstuffed scan; initialise next and end, zero the rest. */
struct jpeg_reader {
	const uint8_t *next; /* next byte to load */
	const uint8_t *end;  /* end of the data, followed by JPEG_SCAN_PADDING readable bytes */
	uint64_t bits;       /* left-aligned */
	int64_t bit_count;   /* valid bits; never negative between calls */
};

/* True if it has consumed more bits than there are. */
int jpeg_reader_overrun(const struct jpeg_reader *reader);
/* Returns the bits consumed since `begin`, which is at or before the reader's start. */
uint64_t jpeg_reader_position(const struct jpeg_reader *reader, const uint8_t *begin);

/*
 * Decodes one block. Updates *dc, the component's DC predictor. coefficients: 64 values, all zero
 * before, not dequantised. places: an element of jpeg_places, selects their order. Returns 0, or
 * -EBADMSG for an unknown code or a run beyond the block.
 */
int jpeg_block_decode(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		      const struct jpeg_table *ac_table, int32_t *dc, int16_t *coefficients,
		      const uint8_t places[256]);
/* Like jpeg_block_decode(), without storing coefficients. */
int jpeg_block_skip(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		    const struct jpeg_table *ac_table, int32_t *dc);

/* A symbol decoded without the lookup, which does not hold long codes and values. */
struct jpeg_symbol {
	uint32_t advance; /* as in a table's entry */
	int32_t value;
	uint32_t bits; /* total, 0 if the code is invalid */
};

/* bits holds at least 32 valid bits, left-aligned. */
struct jpeg_symbol jpeg_symbol_long(const struct jpeg_table *table, uint64_t bits);

/*
 * jpeg_values[bits + mask] is the coefficient that `bits` encode in the category whose mask is
 * 2^category - 1 (T.81 F.2.2.1, EXTEND). The categories follow one another. Larger categories use
 * jpeg_symbol_long().
 */
extern int16_t jpeg_values[2 << JPEG_CATEGORY_MAX];
/*
 * Place in a block, in bytes, of the coefficient at a byte offset in zigzag order: [0] for natural
 * order, [1] for zigzag order. An end of block leads to offsets from 128 on; it stores the value 0
 * in the last place, which is still unused then.
 */
extern uint8_t jpeg_places[2][256];
/*
 * For natural order: distance in bytes from a coefficient's place in zigzag order to its actual
 * place, indexed by the place after it.
 */
extern int8_t jpeg_moves[128];
