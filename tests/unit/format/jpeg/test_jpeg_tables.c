/*
 * The cache of Huffman tables: tables that are requested repeatedly stay cached, those of a frame
 * stay while it is decoded, and tables are filled completely.
 */
#include "format/codec/jpeg/jpeg_huffman.h"
#include "tests/test.h"

enum { SPEC_SIZE = 16 + 256, MANY = 1000 };

/* Makes an AC table of eight 4-bit codes, with symbols that depend on `number`. */
static void spec_make(uint32_t number, uint8_t spec[SPEC_SIZE])
{
	memset(spec, 0, SPEC_SIZE);
	spec[3] = 8;
	for (unsigned i = 0; i < 8; i++)
		spec[16 + i] = (uint8_t)((number >> 2 * i & 3) + 1 + 16 * i);
}

static const struct jpeg_table *get(struct jpeg_tables *tables, uint32_t number)
{
	const struct jpeg_table *table;
	uint8_t spec[SPEC_SIZE];

	spec_make(number, spec);
	assert_int_equal(jpeg_tables_get(tables, spec, 1, 0, &table), 0);
	assert_memory_equal(table->symbols, spec + 16, 8);
	return table;
}

TEST(kept)
{
	struct jpeg_tables tables;

	jpeg_tables_init(&tables, 1);
	const struct jpeg_table *common = get(&tables, 0);
	assert_ptr_equal(get(&tables, 0), common);
	uint64_t serial = common->serial;
	for (uint32_t i = 1; i <= MANY; i++)
		get(&tables, i);
	assert_ptr_equal(get(&tables, 0), common);
	assert_int_equal(common->serial, serial);
	jpeg_tables_deinit(&tables);
}

/*
 * The tables of the frames being decoded stay, even if the cache is full of tables that were
 * requested repeatedly.
 */
TEST(frames)
{
	for (uint32_t frames = 1; frames <= JPEG_TABLES_MAX / JPEG_FRAME_TABLES_MAX; frames++) {
		uint32_t in_use = frames * JPEG_FRAME_TABLES_MAX;
		const struct jpeg_table *own[JPEG_TABLES_MAX];
		struct jpeg_tables tables;

		jpeg_tables_init(&tables, frames);
		for (uint32_t i = 0; i < MANY; i++) {
			own[i % in_use] = get(&tables, i);
			if (i < JPEG_TABLES_MAX)
				get(&tables, i);
			for (uint32_t j = i < in_use ? 0 : i - in_use + 1; j <= i; j++) {
				uint8_t spec[SPEC_SIZE];

				spec_make(j, spec);
				assert_memory_equal(own[j % in_use]->symbols, spec + 16, 8);
			}
		}
		jpeg_tables_deinit(&tables);
	}
}

TEST(pairs)
{
	const struct jpeg_pair *pair[JPEG_FRAME_PAIRS_MAX], *again;
	struct jpeg_tables tables;

	jpeg_tables_init(&tables, 1);
	for (uint32_t round = 0; round < MANY; round++) {
		const struct jpeg_table *table[3];

		for (uint32_t i = 0; i < 3; i++)
			table[i] = get(&tables, 3 * round + i);
		for (uint32_t i = 0; i < JPEG_FRAME_PAIRS_MAX; i++)
			assert_int_equal(
				jpeg_tables_pair(&tables, table[i % 3], table[i / 3], &pair[i]), 0);
		for (uint32_t i = 0; i < JPEG_FRAME_PAIRS_MAX; i++) {
			assert_int_equal(pair[i]->ac_serial, table[i % 3]->serial);
			assert_int_equal(pair[i]->dc_serial, table[i / 3]->serial);
			if (round % 2 == 0)
				continue;
			assert_int_equal(
				jpeg_tables_pair(&tables, table[i % 3], table[i / 3], &again), 0);
			assert_ptr_equal(again, pair[i]);
		}
	}
	jpeg_tables_deinit(&tables);
}

/* A cache slot is filled with one table, then with another. */
TEST(refilled)
{
	static const uint8_t full[SPEC_SIZE] = {[1] = 4, [16] = 1, 2, 3, 4};
	uint8_t spec[SPEC_SIZE] = {[15] = 1, [16] = 0x21};
	const uint32_t low = (1 << 16) - JPEG_TOP_SIZE;
	const struct jpeg_table *table;
	struct jpeg_tables tables;

	jpeg_tables_init(&tables, 1);
	for (uint32_t i = 0; i < JPEG_FRAME_TABLES_MAX; i++) {
		uint8_t other[SPEC_SIZE];

		memcpy(other, full, sizeof(other));
		other[16] = (uint8_t)(0x11 + 16 * i);
		assert_int_equal(jpeg_tables_get(&tables, other, 1, 0, &table), 0);
		assert_int_not_equal(table->lookup[0], 0);
		assert_int_not_equal(table->top[JPEG_TOP_SIZE - 1], 0);
	}
	assert_int_equal(jpeg_tables_get(&tables, spec, 1, 0, &table), 0);
	for (uint32_t i = 0; i < 1 << JPEG_LOOKUP_BITS; i++)
		assert_int_equal(table->lookup[i], 0);
	for (uint32_t i = 0; i < JPEG_TOP_SIZE; i++)
		assert_int_equal(table->top[i], 0);
	/* A single code of 16 bits, the last possible one. */
	spec[15] = 0;
	for (unsigned length = 1; length <= 15; length++)
		spec[length - 1] = 1;
	spec[15] = 1;
	for (unsigned i = 0; i < 16; i++)
		spec[16 + i] = (uint8_t)(16 * i % 0xf0 + 1 + i / 15);
	assert_int_equal(jpeg_tables_get(&tables, spec, 1, 0, &table), 0);
	for (uint32_t window = low; window < 1 << 16; window++) {
		uint32_t ones = (uint32_t)__builtin_clz(~(window << 16)),
			 length = ones < 15 ? ones + 1 : 16;
		uint32_t entry = table->top[window - low];

		if (window == 0xffff)
			assert_int_equal(entry, 0);
		else
			assert_int_equal((entry & 63) - (spec[16 + length - 1] & 15), length);
	}
	jpeg_tables_deinit(&tables);
}
