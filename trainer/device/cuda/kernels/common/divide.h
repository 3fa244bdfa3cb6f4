/* Division by a number known at launch, as one multiplication and one shift. */
#ifndef TRAINER_DEVICE_CUDA_DIVIDE_H
#define TRAINER_DEVICE_CUDA_DIVIDE_H

#include <stdint.h>

/*
 * n / divisor = n * factor >> shift, for n below 2^31.
 * - shift = 31 + ceil(log2(divisor))
 * - factor = ceil(2^shift / divisor)
 */
struct divider {
	uint32_t divisor, factor, shift;
};
/* Requires divisor in 1..2^31. */
static inline struct divider divider_of(uint32_t divisor)
{
	struct divider d = {divisor, 0, 31};

	while (1ull << (d.shift - 31) < divisor)
		d.shift++;
	d.factor = (uint32_t)(((1ull << d.shift) + divisor - 1) / divisor);
	return d;
}

#endif
