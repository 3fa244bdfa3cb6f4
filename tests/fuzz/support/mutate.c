#include "tests/fuzz/support/mutate.h"

#include <string.h>

uint64_t mutate_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

size_t mutate_bytes(uint8_t *data, size_t size, uint64_t *state)
{
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x40, 0xd9};

	for (uint64_t count = 1 + mutate_random(state) % 4; count > 0 && size > 0; count--) {
		size_t at = mutate_random(state) % size, length = 1 + mutate_random(state) % 16;
		if (length > size - at)
			length = size - at;
		switch (mutate_random(state) % 5) {
		case 0:
			data[at] ^= (uint8_t)(1u << mutate_random(state) % 8);
			break;
		case 1:
			data[at] = values[mutate_random(state) % sizeof(values)];
			break;
		case 2:
			memset(data + at, values[mutate_random(state) % sizeof(values)], length);
			break;
		case 3:
			memmove(data + at, data + mutate_random(state) % (size - length + 1),
				length);
			break;
		default:
			if (mutate_random(state) % 4 == 0)
				size = at;
			break;
		}
	}
	return size;
}
