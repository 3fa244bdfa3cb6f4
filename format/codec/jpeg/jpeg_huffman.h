/*
 * Baseline Huffman decoding (T.81 annex F.2.2). A cache, owned by one thread, builds each table
 * once per content. A jpeg_reader decodes one unstuffed scan. The input is untrusted: the number of
 * blocks requested bounds the work of every function, and a function accesses only the buffers
 * passed in.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/* 11 bits cover more codes but evict more of the L1 cache */
	JPEG_LOOKUP_BITS = 10,
	JPEG_TOP_SIZE = 1 << 10,
	/* entries written at once when filling tables; tables have this many padding entries */
	JPEG_FILL = 8,
	JPEG_TABLES_MAX = 48, /* tables in a cache */
	JPEG_FRAME_TABLES_MAX = 6,
	JPEG_FRAME_PAIRS_MAX = 9,
	/* readable zero bytes after an unstuffed scan, more than one block can consume */
	JPEG_SCAN_PADDING = 320,
};

/*
 * One code table. lookup is indexed by the next 10 bits. Bit fields of an entry:
 *
 *    17..25  mask of the value bits, 2^category - 1
 *    16      JPEG_LEAVES: the next symbol needs another table
 *    8..15   advance
 *    0..7    total bits of code and value
 *
 * An entry is 0 if the code has more than 10 bits, code and value together have more than
 * JPEG_ENTRY_BITS_MAX bits, or the value has more than JPEG_CATEGORY_MAX bits. advance is the
 * distance in bytes from one coefficient to the next, 2 * (run + 1). With JPEG_LEAVES, advance is 3
 * for a DC code and JPEG_END_OF_BLOCK for an end of block: odd, because the position before a DC
 * code is the last byte before the block.
 */
struct jpeg_table {
	uint32_t lookup[(1 << JPEG_LOOKUP_BITS) + JPEG_FILL];
	/*
	 * like lookup, but indexed by the next 16 bits, covers only the highest indexes, where the
	 * long codes are, and does not limit the total bits
	 */
	uint32_t top[JPEG_TOP_SIZE + JPEG_FILL];
	/*
	 * AC, built on request for skipping: the symbols that the next 10 bits contain completely
	 */
	uint32_t runs[1 << JPEG_LOOKUP_BITS];
	int32_t code_max[18]; /* largest code of each length, -1 if none; [17] is a sentinel */
	int32_t offset[17];   /* symbol index minus code, for each length */
	uint8_t symbols[256];
	uint8_t counts[16];
	uint16_t symbol_count;
	/* AC: range of lookup indexes that contains all end-of-block entries */
	uint16_t ends_first, ends_end;
	uint8_t is_ac;
	uint8_t has_runs;
	uint64_t serial; /* identifies the content, never reused */
};

enum {
	JPEG_LEAVES = 1 << 16,
	JPEG_END_OF_BLOCK = 129,
	JPEG_ENTRY_BITS_MAX = 19, /* so that a load of 57 bits holds three symbols */
	JPEG_CATEGORY_MAX = 9,
};

/*
 * The lookup of an AC table in which an end-of-block entry also decodes the DC code of the
 * following block, if both fit 10 bits.
 */
struct jpeg_pair {
	uint32_t lookup[1 << JPEG_LOOKUP_BITS];
	uint64_t ac_serial, dc_serial;
};

/* Cache key of an entry. Kept apart from the entries so that a search does not touch them. */
struct jpeg_slot {
	uint64_t key;  /* hash of the content; compare the content too, in case of a collision */
	uint64_t used; /* stamp of the last use, 0 if empty */
	bool kept;     /* requested more than once */
};

/*
 * Cache of tables and pairs by content. Tables requested only once share a few slots, so that the
 * frequently used tables stay in the CPU caches.
 */
struct jpeg_tables {
	struct jpeg_slot slots[JPEG_TABLES_MAX], pair_slots[JPEG_TABLES_MAX];
	struct jpeg_table *entries[JPEG_TABLES_MAX];
	struct jpeg_pair *pairs[JPEG_TABLES_MAX];
	uint32_t frames; /* frames whose tables are in use at a time */
	uint64_t clock;
};

/*
 * frames is the maximum number of frames in use at a time, from 1 to JPEG_TABLES_MAX /
 * JPEG_FRAME_TABLES_MAX.
 */
void jpeg_tables_init(struct jpeg_tables *tables, uint32_t frames);
void jpeg_tables_deinit(struct jpeg_tables *tables);
/*
 * Returns the table of a DHT payload (16 counts, then at most 256 symbols). The payload must not
 * change during the call. Set skipping if jpeg_block_skip() will use the table. -EBADMSG if the
 * payload is not a prefix code, -ENOMEM. The table stays valid until frames * JPEG_FRAME_TABLES_MAX
 * other tables have been requested.
 */
int jpeg_tables_get(struct jpeg_tables *tables, const uint8_t *spec, int is_ac, int skipping,
		    const struct jpeg_table **ret_table);
/*
 * Returns the pair of an AC table and the DC table of the next block. -ENOMEM. A pair stays valid
 * as long as a table of jpeg_tables_get().
 */
int jpeg_tables_pair(struct jpeg_tables *tables, const struct jpeg_table *ac,
		     const struct jpeg_table *dc, const struct jpeg_pair **ret_pair);

/*
 * Copies entropy-coded bytes without the stuffed zeros and appends JPEG_SCAN_PADDING zero bytes.
 * Stops at the end of data or at the first marker that is not the next restart marker in sequence.
 * output has room for size + JPEG_SCAN_PADDING bytes. segments[i] receives the output offset of the
 * first byte after restart marker i, for at most segment_max markers. Returns the number of output
 * bytes without padding. data may change during the call: the function reads only these size bytes,
 * writes only inside output and segments, and every step moves forward.
 */
size_t jpeg_unstuff(const uint8_t *data, size_t size, uint8_t *output, uint32_t *segments,
		    uint32_t segment_max, uint32_t *ret_segment_count);

/* A position in an unstuffed scan. The caller initialises next and end and zeroes the rest. */
struct jpeg_reader {
	const uint8_t *next; /* next byte to load */
	const uint8_t *end;  /* end of the data, followed by JPEG_SCAN_PADDING readable bytes */
	uint64_t bits;       /* left-aligned */
	int64_t bit_count;   /* valid bits; never negative between calls */
};

/* True if the reader has consumed more bits than the scan has. */
int jpeg_reader_overrun(const struct jpeg_reader *reader);
/* Returns the number of bits consumed since `begin`, which is at or before the reader's start. */
uint64_t jpeg_reader_position(const struct jpeg_reader *reader, const uint8_t *begin);

/*
 * Decodes one block. Updates *dc, the DC predictor of the component. coefficients: 64 values,
 * zeroed by the caller, not dequantised. offsets: jpeg_block_offsets[0] for natural order or
 * jpeg_block_offsets[1] for zigzag order. Returns 0, or -EBADMSG for an unknown code or a run past
 * the end of the block.
 */
int jpeg_block_decode(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		      const struct jpeg_table *ac_table, int32_t *dc, int16_t *coefficients,
		      const uint8_t offsets[256]);
/* Like jpeg_block_decode(), without storing coefficients. */
int jpeg_block_skip(struct jpeg_reader *reader, const struct jpeg_table *dc_table,
		    const struct jpeg_table *ac_table, int32_t *dc);

/* A symbol decoded without the lookup, because its code or value is too long for an entry. */
struct jpeg_symbol {
	uint32_t advance; /* as in a lookup entry */
	int32_t value;
	uint32_t bits; /* total bits of code and value; 0 if the code is invalid */
};

/* bits holds at least 32 valid bits, left-aligned. */
struct jpeg_symbol jpeg_symbol_long(const struct jpeg_table *table, uint64_t bits);

/*
 * jpeg_values[bits + mask] is the coefficient that `bits` encode in the category with mask =
 * 2^category - 1 (T.81 F.2.2.1, EXTEND). Categories above JPEG_CATEGORY_MAX use jpeg_symbol_long().
 */
extern int16_t jpeg_values[2 << JPEG_CATEGORY_MAX];
/*
 * Maps the byte offset of a coefficient in zigzag order to its byte offset in the block: [0] for
 * natural order, [1] for zigzag order. An end of block leads to offsets from 128 on. They map to
 * the last coefficient, to which the decoder then stores 0; no symbol of the block has set it.
 */
extern uint8_t jpeg_block_offsets[2][256];
/*
 * For natural order: distance in bytes from the zigzag offset of a coefficient to its natural-order
 * offset, indexed by the zigzag offset after the coefficient.
 */
extern int8_t jpeg_moves[128];
