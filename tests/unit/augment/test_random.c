#include "format/base/random.h"
#include "tests/test.h"

/* Random123's published test vectors for philox4x32-10: counter, key, result. */
TEST(philox_known_answers)
{
	static const uint32_t vectors[][10] = {
		{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
		 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
		 0x94fdcceb, 0x5001e420, 0x24126ea1},
	};

	for (unsigned i = 0; i < 3; i++) {
		uint32_t block[4];

		random_philox(vectors[i] + 4, vectors[i], block);
		assert_memory_equal(block, vectors[i] + 6, sizeof(block));
	}
}

/* A stream is determined by its four keys, and by nothing else. */
TEST(streams_are_named)
{
	static const uint64_t names[][4] = {
		{1, 2, 3, RANDOM_AUGMENT},
		{2, 2, 3, RANDOM_AUGMENT},
		{1 + (1ull << 32), 2, 3, RANDOM_AUGMENT},
		{1, 3, 3, RANDOM_AUGMENT},
		{1, 2 + (1ull << 32), 3, RANDOM_AUGMENT},
		{1, 2, 4, RANDOM_AUGMENT},
		{1, 2, 3 + (1ull << 32), RANDOM_AUGMENT},
		{1, 2, 3, RANDOM_ORDER},
	};
	uint32_t drawn[8][9];

	for (unsigned i = 0; i < 8; i++) {
		struct random_stream stream, again;

		random_init(&stream, names[i][0], names[i][1], names[i][2],
			    (enum random_purpose)names[i][3]);
		random_init(&again, names[i][0], names[i][1], names[i][2],
			    (enum random_purpose)names[i][3]);
		for (unsigned j = 0; j < 9; j++) {
			drawn[i][j] = random_u32(&stream);
			assert_int_equal(random_u32(&again), drawn[i][j]);
		}
		for (unsigned j = 0; j < i; j++)
			assert_memory_not_equal(drawn[i], drawn[j], sizeof(drawn[i]));
	}
}

/* The numbers drawn with a seed must never change, so that later versions can reproduce runs. */
TEST(streams_do_not_change)
{
	struct random_stream stream;

	random_init(&stream, 42, 7, 1234, RANDOM_AUGMENT);
	uint32_t key[2] = {42, 0}, name[4] = {7, 0, RANDOM_AUGMENT, 0}, block[4];

	random_philox(key, name, block);
	key[0] = block[0];
	key[1] = block[1];
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t counter[4] = {i, 0, 1234, 0};

		random_philox(key, counter, block);
		for (unsigned j = 0; j < 4; j++)
			assert_int_equal(random_u32(&stream), block[j]);
	}
}

TEST(floats_are_uniform)
{
	struct random_stream stream;
	unsigned bins[16] = {0};

	random_init(&stream, 1, 0, 0, RANDOM_AUGMENT);
	for (int i = 0; i < 160000; i++) {
		float value = random_float(&stream);

		assert_true(value >= 0 && value < 1);
		assert_true(value * 0x1p24f == (float)(uint32_t)(value * 0x1p24f));
		bins[(unsigned)(value * 16)]++;
	}
	/* Six standard deviations of a bin with mean 10000. */
	for (int i = 0; i < 16; i++)
		assert_in_range(bins[i], 10000 - 582, 10000 + 582);
}

TEST(below_is_unbiased)
{
	struct random_stream stream;
	/*
	 * With this bound, every third value would be twice as likely as the others without
	 * rejection.
	 */
	uint32_t bound = 3u << 30;
	unsigned bins[3] = {0};

	random_init(&stream, 2, 0, 0, RANDOM_ORDER);
	for (int i = 0; i < 30000; i++) {
		uint32_t value = random_below(&stream, bound);

		assert_true(value < bound);
		bins[value >> 30]++;
	}
	for (int i = 0; i < 3; i++)
		assert_in_range(bins[i], 10000 - 490, 10000 + 490);
	unsigned thirds[3] = {0};

	for (int i = 0; i < 30000; i++)
		thirds[random_below(&stream, bound) % 3]++;
	for (int i = 0; i < 3; i++)
		assert_in_range(thirds[i], 10000 - 490, 10000 + 490);
	for (int i = 0; i < 100; i++)
		assert_int_equal(random_below(&stream, 1), 0);
}
