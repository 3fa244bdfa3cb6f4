/*
 * Position embeddings at another size than they were made for: bicubic with antialiasing, as timm's
 * resample_abs_pos_embed has it and PyTorch's interpolate(mode="bicubic", antialias=True) before
 * it (Keys 1981 with a = -0.5, stretched where the grid becomes smaller). Embeddings are [first +
 * side side][channels]: `first` tokens that have no place stay as they are.
 *
 * The weights are for C and CUDA C; whoever includes them is compiled with flags of their own.
 */
#ifndef TRAINER_DEVICE_POSITIONS_H
#define TRAINER_DEVICE_POSITIONS_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define POSITIONS_INLINE static __device__ __forceinline__
#else
#define POSITIONS_INLINE static inline __attribute__((always_inline))
#endif

/* What one place of the new side is made of: `count` places of the old one. */
struct positions_window {
	uint32_t first, count;
	float centre, narrow, sum;
};

POSITIONS_INLINE float positions_weight(const struct positions_window *window, uint32_t place)
{
	float x = fabsf(((float)place - window->centre + 0.5f) * window->narrow);

	if (x < 1)
		return (1.5f * x - 2.5f) * x * x + 1;
	return x < 2 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : 0;
}

/* Of place `at` of `to`, in a side of `from`. */
POSITIONS_INLINE struct positions_window positions_window(uint32_t at, uint32_t from, uint32_t to)
{
	struct positions_window window;
	float scale = (float)from / (float)to, support = scale > 1 ? 2 * scale : 2, begin, end;

	window.centre = scale * ((float)at + 0.5f);
	window.narrow = scale > 1 ? 1 / scale : 1;
	begin = window.centre - support + 0.5f;
	end = window.centre + support + 0.5f;
	window.first = begin > 0 ? (uint32_t)begin : 0;
	window.count = (end < (float)from ? (uint32_t)end : from) - window.first;
	window.sum = 0;
	for (uint32_t i = 0; i < window.count; i++)
		window.sum += positions_weight(&window, window.first + i);
	return window;
}

struct positions_size {
	uint32_t first, side; /* the embeddings' own */
	uint32_t h, w;        /* that are wanted */
	uint32_t channels;
};

/* to [first + h w][channels] */
void positions_resize(const struct positions_size *size, const float *from, float *to);
/* From the gradient of what positions_resize() made to that of what it was made of. */
void positions_resize_backward(const struct positions_size *size, const float *gradient, float *to);

#endif
