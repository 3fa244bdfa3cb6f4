#include "format/codec/jpeg/jpeg_huffman.h"

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int16_t jpeg_values[2 << JPEG_CATEGORY_MAX];
uint8_t jpeg_block_offsets[2][256];
int8_t jpeg_moves[128];

__attribute__((constructor)) static void huffman_fill_tables(void)
{
	for (int category = 0; category <= JPEG_CATEGORY_MAX; category++) {
		int mask = (1 << category) - 1;

		for (int bits = 0; bits <= mask; bits++)
			jpeg_values[bits + mask] =
				(int16_t)(category && !(bits >> (category - 1)) ? bits - mask
										: bits);
	}
	for (unsigned i = 0; i < 256; i++) {
		jpeg_block_offsets[0][i] =
			i < 128 ? (uint8_t)(2 * jpeg_zigzag_position[i / 2]) : 126;
		jpeg_block_offsets[1][i] = i < 128 ? (uint8_t)(i & ~1u) : 126;
	}
	for (int i = 0; i < 64; i++)
		jpeg_moves[2 * (i + 1) & 127] = (int8_t)(2 * (jpeg_zigzag_position[i] - i));
}

void jpeg_tables_init(struct jpeg_tables *tables, uint32_t frames)
{
	*tables = (struct jpeg_tables){.frames = frames};
}

void jpeg_tables_deinit(struct jpeg_tables *tables)
{
	for (unsigned i = 0; i < JPEG_TABLES_MAX; i++) {
		free(tables->entries[i]);
		free(tables->pairs[i]);
	}
	*tables = (struct jpeg_tables){0};
}

static uint32_t width_of(uint32_t mask)
{
	return mask ? 32 - (uint32_t)__builtin_clz(mask) : 0;
}

static uint32_t symbol_advance(unsigned symbol, int is_ac)
{
	if (!is_ac)
		return 3;
	if ((symbol & 15) == 0 && symbol != 0xf0)
		return JPEG_END_OF_BLOCK;
	return 2 * ((symbol >> 4) + 1);
}

/*
 * Builds the lookup entry of a symbol. A DC symbol is the category. An AC symbol is run << 4 |
 * category; 0x00 is end of block, 0xf0 a run of sixteen zeros.
 */
static uint32_t symbol_entry(unsigned symbol, unsigned length, int is_ac)
{
	unsigned category = is_ac ? symbol & 15 : symbol, advance = symbol_advance(symbol, is_ac);

	if (category > JPEG_CATEGORY_MAX)
		return 0;
	return ((1u << category) - 1) << 17 | (advance & 1 ? JPEG_LEAVES : 0) | advance << 8 |
	       (length + category);
}

enum {
	JPEG_RUN_ADVANCE_MAX = 126,
	JPEG_RUN_BITS_MAX = 18, /* so that a load of 56 bits holds three runs */
	RUN_ENDS = 1 << 16,     /* bit of a runs entry: the last symbol is an end of block */
};

/*
 * runs is indexed by the next 10 bits. Bit fields of an entry:
 *
 *    16      RUN_ENDS
 *    8..15   total advance of the symbols
 *    0..7    total bits of the symbols, value bits included
 *
 * An entry covers as many symbols as fit completely and is 0 if not even one fits. An end of block
 * ends the run, because a DC code from another table follows.
 */
static void huffman_build_runs(struct jpeg_table *table)
{
	const uint32_t size = 1 << JPEG_LOOKUP_BITS;

	for (uint32_t i = 0; i < size; i++) {
		uint32_t bits = 0, advance = 0, ends = 0;

		while (!ends) {
			uint32_t entry = table->lookup[i << bits & (size - 1)];

			/*
			 * The first symbol may be longer than 10 bits: skipping ignores its value
			 * bits.
			 */
			if (!entry ||
			    bits + (entry & 63) > (bits ? JPEG_LOOKUP_BITS : JPEG_RUN_BITS_MAX))
				break;
			bits += entry & 63;
			if ((entry >> 8 & 255) == JPEG_END_OF_BLOCK)
				ends = RUN_ENDS;
			else
				advance += entry >> 8 & 255;
			if (advance >= JPEG_RUN_ADVANCE_MAX || bits >= JPEG_LOOKUP_BITS)
				break;
		}
		table->runs[i] =
			bits && advance < JPEG_RUN_ADVANCE_MAX ? ends | advance << 8 | bits : 0;
	}
	table->has_runs = 1;
}

/*
 * Writes at least `count` entries from `at` on, rounded up to JPEG_FILL. The next call overwrites
 * the excess, because tables are filled in ascending order; padding holds that of the last call.
 * Most codes are long and take few entries, so constant-size chunks are faster than exact loops.
 */
static void huffman_fill(uint32_t *at, uint32_t count, uint32_t entry)
{
	for (uint32_t *end = at + count; at < end; at += JPEG_FILL)
		for (unsigned i = 0; i < JPEG_FILL; i++)
			at[i] = entry;
}

/* Writes `entry` for `size` 16-bit indexes from `first` on, if `top` covers them. */
static void huffman_fill_top(struct jpeg_table *table, uint32_t first, uint32_t size,
			     uint32_t entry)
{
	const uint32_t low = (1u << 16) - JPEG_TOP_SIZE;

	if (first + size <= low)
		return;
	if (first < low) {
		size -= low - first;
		first = low;
	}
	huffman_fill(table->top + (first - low), size, entry);
}

/*
 * Adds the codes of one length, in ascending order. k is the number of symbols with shorter codes.
 */
static int huffman_build_codes(struct jpeg_table *table, unsigned length, uint32_t code, uint32_t k)
{
	for (uint32_t end = code + table->counts[length - 1]; code < end; code++, k++) {
		uint32_t first = code << (16 - length), size = 1u << (16 - length);

		if (!table->is_ac && table->symbols[k] > 15)
			return -EBADMSG;
		uint32_t entry = symbol_entry(table->symbols[k], length, table->is_ac);
		huffman_fill_top(table, first, size, entry);
		if (length > JPEG_LOOKUP_BITS)
			continue;
		first >>= 16 - JPEG_LOOKUP_BITS;
		size >>= 16 - JPEG_LOOKUP_BITS;
		if ((entry & 63) > JPEG_ENTRY_BITS_MAX)
			entry = 0;
		huffman_fill(table->lookup + first, size, entry);
		if (table->is_ac && entry & JPEG_LEAVES) {
			if (table->ends_end == 0)
				table->ends_first = (uint16_t)first;
			table->ends_end = (uint16_t)(first + size);
		}
	}
	return 0;
}

static int huffman_build(struct jpeg_table *table)
{
	uint32_t code = 0, k = 0, lookup_end = 0;

	table->ends_first = table->ends_end = 0;
	for (unsigned length = 1; length <= 16; length++) {
		unsigned count = table->counts[length - 1];

		code <<= 1;
		table->offset[length] = (int32_t)k - (int32_t)code;
		table->code_max[length] = count ? (int32_t)(code + count - 1) : -1;
		if (code + count > 1u << length)
			return -EBADMSG;
		int r = huffman_build_codes(table, length, code, k);
		if (r < 0)
			return r;
		code += count;
		k += count;
		if (length == JPEG_LOOKUP_BITS)
			lookup_end = code;
	}
	/* Indexes that no code matches. */
	for (uint32_t i = lookup_end; i < 1u << JPEG_LOOKUP_BITS; i++)
		table->lookup[i] = 0;
	huffman_fill_top(table, code, (1u << 16) - code, 0);
	table->has_runs = 0;
	return 0;
}

static bool huffman_same(const struct jpeg_table *table, const uint8_t *spec, unsigned count,
			 int is_ac)
{
	return table->is_ac == is_ac && table->symbol_count == count &&
	       memcmp(table->counts, spec, 16) == 0 &&
	       memcmp(table->symbols, spec + 16, count) == 0;
}

/* Returns a hash of the content. Collisions are possible but rare. */
static uint64_t huffman_key(const uint8_t *spec, unsigned count, int is_ac)
{
	uint64_t key = count << 1 | (unsigned)is_ac, word;

	for (unsigned i = 0; i + sizeof(word) <= 16 + count; i += sizeof(word)) {
		memcpy(&word, spec + i, sizeof(word));
		key = (key ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		key ^= key >> 32;
	}
	return key;
}

/*
 * Chooses the slot for a new entry: if at least `fresh` slots were requested only once, the least
 * recently used of them; else an empty slot; else the least recently used one.
 */
static unsigned slot_choose(const struct jpeg_slot slots[JPEG_TABLES_MAX], unsigned fresh)
{
	unsigned oldest = 0, oldest_fresh = 0, count = 0;

	for (unsigned i = 0; i < JPEG_TABLES_MAX; i++) {
		if (slots[i].used == 0)
			return count < fresh ? i : oldest_fresh;
		if (slots[i].used < slots[oldest].used)
			oldest = i;
		if (slots[i].kept)
			continue;
		if (count++ == 0 || slots[i].used < slots[oldest_fresh].used)
			oldest_fresh = i;
	}
	return count < fresh ? oldest : oldest_fresh;
}

/* Finds the table, or else the slot for a new one. */
static bool huffman_find(const struct jpeg_tables *tables, const uint8_t *spec, unsigned count,
			 int is_ac, uint64_t key, unsigned *ret_slot)
{
	for (unsigned i = 0; i < JPEG_TABLES_MAX && tables->slots[i].used; i++)
		if (tables->slots[i].key == key &&
		    huffman_same(tables->entries[i], spec, count, is_ac)) {
			*ret_slot = i;
			return true;
		}
	*ret_slot = slot_choose(tables->slots, tables->frames * JPEG_FRAME_TABLES_MAX);
	return false;
}

int jpeg_tables_get(struct jpeg_tables *tables, const uint8_t *spec, int is_ac, int skipping,
		    const struct jpeg_table **ret_table)
{
	struct jpeg_table *table;
	unsigned count = 0, i;
	int r = 0;

	for (i = 0; i < 16; i++)
		count += spec[i];
	uint64_t key = huffman_key(spec, count, is_ac);
	bool found = huffman_find(tables, spec, count, is_ac, key, &i);
	if (!tables->entries[i])
		tables->entries[i] = calloc(1, sizeof(*table));
	table = tables->entries[i];
	if (!table)
		return -ENOMEM;
	tables->slots[i] = (struct jpeg_slot){.key = key, .used = ++tables->clock, .kept = found};
	if (!found) {
		table->is_ac = (uint8_t)is_ac;
		table->symbol_count = (uint16_t)count;
		memcpy(table->counts, spec, 16);
		memcpy(table->symbols, spec + 16, count);
		table->serial = tables->clock;
		r = huffman_build(table);
	}
	if (r < 0) {
		table->symbol_count = UINT16_MAX; /* matches nothing */
		return r;
	}
	if (skipping && is_ac && !table->has_runs)
		huffman_build_runs(table);
	*ret_table = table;
	return 0;
}

/* Adds the following DC code to each end-of-block entry, if both fit. */
static void huffman_fuse(uint32_t *lookup, const struct jpeg_table *ac, const struct jpeg_table *dc)
{
	const uint32_t size = 1 << JPEG_LOOKUP_BITS;

	for (uint32_t i = ac->ends_first; i < ac->ends_end; i++) {
		uint32_t total = lookup[i] & 63;

		if (!(lookup[i] & JPEG_LEAVES))
			continue;
		uint32_t follower = dc->lookup[i << total & (size - 1)];
		/* The DC code must fit the 10 index bits; its value bits need not. */
		uint32_t code_max = JPEG_LOOKUP_BITS - total + width_of(follower >> 17);
		if (follower && (follower & 63) <= code_max &&
		    total + (follower & 63) <= JPEG_ENTRY_BITS_MAX)
			lookup[i] = follower + total;
	}
}

int jpeg_tables_pair(struct jpeg_tables *tables, const struct jpeg_table *ac,
		     const struct jpeg_table *dc, const struct jpeg_pair **ret_pair)
{
	uint64_t key = ac->serial ^ dc->serial << 32;
	struct jpeg_pair *pair;
	bool found = false;
	unsigned i;

	for (i = 0; i < JPEG_TABLES_MAX && tables->pair_slots[i].used && !found; i++)
		found = tables->pair_slots[i].key == key &&
			tables->pairs[i]->ac_serial == ac->serial &&
			tables->pairs[i]->dc_serial == dc->serial;
	i = found ? i - 1 : slot_choose(tables->pair_slots, tables->frames * JPEG_FRAME_PAIRS_MAX);
	if (!tables->pairs[i])
		tables->pairs[i] = malloc(sizeof(*pair));
	pair = tables->pairs[i];
	if (!pair)
		return -ENOMEM;
	tables->pair_slots[i] = (struct jpeg_slot){key, ++tables->clock, found};
	if (!found) {
		pair->ac_serial = ac->serial;
		pair->dc_serial = dc->serial;
		memcpy(pair->lookup, ac->lookup, sizeof(pair->lookup));
		huffman_fuse(pair->lookup, ac, dc);
	}
	*ret_pair = pair;
	return 0;
}

size_t jpeg_unstuff(const uint8_t *data, size_t size, uint8_t *output, uint32_t *segments,
		    uint32_t segment_max, uint32_t *ret_segment_count)
{
	const uint8_t *end = data + size;
	const struct jpeg_kernels *kernels = jpeg_kernels_get();
	uint8_t *out = output;
	uint32_t count = 0;

	for (;;) {
		size_t read;

		out += kernels->unstuff(data, (size_t)(end - data), out, &read);
		const uint8_t *mark = data + read;
		if (end - mark < 2)
			break;
		data = mark + 2;
		if (mark[1] == 0xd0 + (count & 7) && count < segment_max) {
			segments[count++] = (uint32_t)(out - output);
		} else if (mark[1] == 0xff) {
			/*
			 * Fill bytes are valid only before markers. Leave any other use of them to
			 * libjpeg-turbo.
			 */
			while (data < end && *data == 0xff)
				data++;
			if (data == end || *data == 0)
				break;
			data--;
		} else {
			break;
		}
	}
	memset(out, 0, JPEG_SCAN_PADDING);
	*ret_segment_count = count;
	return (size_t)(out - output);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, sizeof(value));
	return __builtin_bswap64(value);
}

int jpeg_reader_overrun(const struct jpeg_reader *reader)
{
	return (reader->next - reader->end) * 8 > reader->bit_count;
}

uint64_t jpeg_reader_position(const struct jpeg_reader *reader, const uint8_t *begin)
{
	return 8 * (uint64_t)(reader->next - begin) - (uint64_t)reader->bit_count;
}

/*
 * Refills to at least 56 valid bits, in whole bytes. Bits past bit_count equal the bits that the
 * next load brings, so or-ing these in again changes nothing. Past the end the reader loads the
 * zeros of the padding.
 */
static inline __attribute__((always_inline)) void reader_refill(struct jpeg_reader *reader)
{
	reader->bits |= load64(reader->next) >> reader->bit_count;
	reader->next += (63 - reader->bit_count) >> 3;
	reader->bit_count |= 56;
}

__attribute__((noinline)) struct jpeg_symbol jpeg_symbol_long(const struct jpeg_table *table,
							      uint64_t bits)
{
	uint32_t window = (uint32_t)(bits >> 48), length = 1;
	struct jpeg_symbol result = {0};

	while (length <= 16 && (int32_t)(window >> (16 - length)) > table->code_max[length])
		length++;
	if (length > 16)
		return result;
	unsigned symbol =
		table->symbols[(int32_t)(window >> (16 - length)) + table->offset[length]];
	unsigned category = table->is_ac ? symbol & 15 : symbol;
	result.advance = symbol_advance(symbol, table->is_ac);
	if (category) {
		int32_t raw = (int32_t)(bits << length >> (64 - category));

		result.value = raw >> (category - 1) ? raw : raw - (1 << category) + 1;
	}
	result.bits = length + category;
	return result;
}

/* Returns the value of an entry's symbol. bits start with the symbol's code. */
static inline __attribute__((always_inline)) int32_t entry_value(uint32_t entry, uint64_t bits)
{
	uint32_t total = entry & 63, mask = entry >> 17;
	uint64_t turned = bits << total | bits >> (-total & 63);

	return jpeg_values[(uint32_t)(turned & mask) + mask];
}

static inline __attribute__((always_inline)) int
decode_dc(struct jpeg_reader *reader, const struct jpeg_table *table, int32_t *dc)
{
	reader_refill(reader);
	uint32_t entry = table->lookup[reader->bits >> (64 - JPEG_LOOKUP_BITS)];
	if (__builtin_expect(entry != 0, 1)) {
		*dc = (int32_t)((uint32_t)*dc + (uint32_t)entry_value(entry, reader->bits));
		reader->bits <<= entry & 63;
		reader->bit_count -= entry & 63;
	} else {
		struct jpeg_symbol symbol = jpeg_symbol_long(table, reader->bits);

		if (!symbol.bits)
			return -EBADMSG;
		*dc = (int32_t)((uint32_t)*dc + (uint32_t)symbol.value);
		reader->bits <<= symbol.bits;
		reader->bit_count -= symbol.bits;
	}
	return 0;
}

int jpeg_block_decode(struct jpeg_reader *shared, const struct jpeg_table *dc_table,
		      const struct jpeg_table *ac_table, int32_t *dc, int16_t *coefficients,
		      const uint8_t offsets[256])
{
	const uint32_t *lookup = ac_table->lookup;
	struct jpeg_reader reader = *shared;
	uint32_t offset = 0, advance;

	if (reader.next > reader.end + 8)
		return -EBADMSG;
	if (decode_dc(&reader, dc_table, dc) < 0)
		return -EBADMSG;
	coefficients[0] = (int16_t)*dc;
	for (;;) {
		reader_refill(&reader);
#pragma GCC unroll 2
		for (int i = 0; i < 2; i++) { /* 56 bits hold two entries; a long symbol refills */
			uint32_t entry = lookup[reader.bits >> (64 - JPEG_LOOKUP_BITS)];
			if (__builtin_expect(entry != 0, 1)) {
				advance = entry >> 8 & 255;
				offset += advance;
				coefficients[offsets[offset] / 2] =
					(int16_t)entry_value(entry, reader.bits);
				reader.bits <<= entry & 63;
				reader.bit_count -= entry & 63;
			} else {
				reader_refill(&reader);
				struct jpeg_symbol symbol = jpeg_symbol_long(ac_table, reader.bits);
				if (!symbol.bits)
					return -EBADMSG;
				advance = symbol.advance;
				offset += advance;
				coefficients[offsets[offset] / 2] = (int16_t)symbol.value;
				reader.bits <<= symbol.bits;
				reader.bit_count -= symbol.bits;
				reader_refill(&reader);
			}
			if (offset >= 126)
				goto done;
		}
	}
done:
	if (offset != 126 && advance != JPEG_END_OF_BLOCK)
		return -EBADMSG;
	*shared = reader;
	return 0;
}

/*
 * Skips one symbol if the table has no run, or the run would cross the end of the block. The reader
 * is full before and after.
 */
static int skip_symbol(struct jpeg_reader *reader, const struct jpeg_table *table, uint32_t *offset)
{
	uint32_t entry = table->lookup[reader->bits >> (64 - JPEG_LOOKUP_BITS)];
	uint32_t bits = entry & 63, advance = entry >> 8 & 255;

	if (bits == 0) {
		struct jpeg_symbol symbol = jpeg_symbol_long(table, reader->bits);

		if (!symbol.bits)
			return -EBADMSG;
		bits = symbol.bits;
		advance = symbol.advance;
	}
	reader->bits <<= bits;
	reader->bit_count -= bits;
	reader_refill(reader);
	*offset += advance;
	if (*offset > 126 && advance != JPEG_END_OF_BLOCK)
		return -EBADMSG;
	return 0;
}

int jpeg_block_skip(struct jpeg_reader *shared, const struct jpeg_table *dc_table,
		    const struct jpeg_table *ac_table, int32_t *dc)
{
	const uint32_t *runs = ac_table->runs;
	struct jpeg_reader reader = *shared;
	uint32_t offset = 0;

	if (reader.next > reader.end + 8)
		return -EBADMSG;
	if (decode_dc(&reader, dc_table, dc) < 0)
		return -EBADMSG;
	for (;;) {
		reader_refill(&reader);
#pragma GCC unroll 3
		for (int i = 0; i < 3; i++) {
			uint32_t run = runs[reader.bits >> (64 - JPEG_LOOKUP_BITS)];
			uint32_t to = offset + (run >> 8 & 255);

			if (__builtin_expect(run == 0 || to >= 126, 0)) {
				reader_refill(&reader);
				int r = skip_symbol(&reader, ac_table, &offset);
				if (r < 0)
					return r;
				if (offset >= 126)
					goto done;
				break;
			}
			offset = to;
			reader.bits <<= run & 63;
			reader.bit_count -= run & 63;
			if (run & RUN_ENDS)
				goto done;
		}
	}
done:
	*shared = reader;
	return 0;
}
