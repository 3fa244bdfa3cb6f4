/*
 * Division by a number known at launch: a multiplication and a shift instead of some twenty
 * instructions.
 */
#ifndef TRAINER_DEVICE_CUDA_DIVIDE_H
#define TRAINER_DEVICE_CUDA_DIVIDE_H

#include <stdint.h>

/*
 * n / divisor = n factor >> shift, for n below 2^31: factor = 2^shift / divisor, rounded up, shift
 * = 31 + log2 divisor, rounded up.
 */
struct divider {
	uint32_t divisor, factor, shift;
};
/* divisor from 1 to 2^31. */
static inline struct divider divider_of(uint32_t divisor)
{
	struct divider d = {divisor, 0, 31};

	while (1ull << (d.shift - 31) < divisor)
		d.shift++;
	d.factor = (uint32_t)(((1ull << d.shift) + divisor - 1) / divisor);
	return d;
}

#endif
