#include "format/augment/apply/widen.h"

#include <string.h>

enum { BLOCK = 256 };

bool widen_can(enum schema_element from, enum schema_element to)
{
	switch (from) {
	case SCHEMA_U8:
		return to == SCHEMA_U8 || to == SCHEMA_I16 || widen_can(SCHEMA_U16, to);
	case SCHEMA_U16:
		return to == SCHEMA_U16 || to == SCHEMA_F32 || widen_can(SCHEMA_I32, to);
	case SCHEMA_I16:
		return to == SCHEMA_I16 || to == SCHEMA_F32 || widen_can(SCHEMA_I32, to);
	case SCHEMA_I32:
		return to == SCHEMA_I32 || to == SCHEMA_I64;
	default:
		return from == to;
	}
}

static void load(enum schema_element from, const uint8_t *bytes, size_t count, int64_t *numbers)
{
	union {
		uint8_t u8[BLOCK];
		uint16_t u16[BLOCK];
		int16_t i16[BLOCK];
		int32_t i32[BLOCK];
	} block;

	memcpy(&block, bytes, count * schema_element_size(from));
	for (size_t i = 0; i < count && from == SCHEMA_U8; i++)
		numbers[i] = block.u8[i];
	for (size_t i = 0; i < count && from == SCHEMA_U16; i++)
		numbers[i] = block.u16[i];
	for (size_t i = 0; i < count && from == SCHEMA_I16; i++)
		numbers[i] = block.i16[i];
	for (size_t i = 0; i < count && from == SCHEMA_I32; i++)
		numbers[i] = block.i32[i];
}

static void store(enum schema_element to, const int64_t *numbers, size_t count, uint8_t *bytes)
{
	union {
		int16_t i16[BLOCK]; /* of u16 the same bits */
		int32_t i32[BLOCK];
		int64_t i64[BLOCK];
		float f32[BLOCK];
	} block;

	for (size_t i = 0; i < count && (to == SCHEMA_U16 || to == SCHEMA_I16); i++)
		block.i16[i] = (int16_t)numbers[i];
	for (size_t i = 0; i < count && to == SCHEMA_I32; i++)
		block.i32[i] = (int32_t)numbers[i];
	for (size_t i = 0; i < count && to == SCHEMA_I64; i++)
		block.i64[i] = numbers[i];
	for (size_t i = 0; i < count && to == SCHEMA_F32; i++)
		block.f32[i] = (float)numbers[i];
	memcpy(bytes, &block, count * schema_element_size(to));
}

void widen(enum schema_element from, enum schema_element to, void *elements, size_t count)
{
	size_t narrow = schema_element_size(from), wide = schema_element_size(to);
	uint8_t *out = elements;
	const uint8_t *in = out + count * (wide - narrow);

	if (from == to)
		return;
	/* A block ends no later than where those that are left begin. */
	for (size_t n; count > 0; count -= n, in += n * narrow, out += n * wide) {
		int64_t numbers[BLOCK];

		n = count < BLOCK ? count : BLOCK;
		load(from, in, n, numbers);
		store(to, numbers, n, out);
	}
}
