/*
 * Resizes position embeddings: bicubic with antialiasing, as timm's resample_abs_pos_embed and
 * PyTorch's interpolate(mode="bicubic", antialias=True) (Keys 1981 with a = -0.5, stretched when
 * shrinking). Embeddings are [first + side * side][channels]; the `first` tokens without a position
 * are copied.
 *
 * The inline functions are for C and CUDA C; the includer's compiler flags apply.
 */
#ifndef TRAINER_DEVICE_POS_EMBED_H
#define TRAINER_DEVICE_POS_EMBED_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define POS_EMBED_INLINE static __device__ __forceinline__
#else
#define POS_EMBED_INLINE static inline __attribute__((always_inline))
#endif

/* Window of old positions that a new position is computed from. */
struct pos_embed_window {
	uint32_t first, count;
	float centre, narrow, sum;
};

POS_EMBED_INLINE float pos_embed_weight(const struct pos_embed_window *window, uint32_t place)
{
	float x = fabsf(((float)place - window->centre + 0.5f) * window->narrow);

	if (x < 1)
		return (1.5f * x - 2.5f) * x * x + 1;
	return x < 2 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : 0;
}

/* Window of new position `at`, in one dimension, when resizing from `from` to `to` positions. */
POS_EMBED_INLINE struct pos_embed_window pos_embed_window(uint32_t at, uint32_t from, uint32_t to)
{
	struct pos_embed_window window;
	float scale = (float)from / (float)to, support = scale > 1 ? 2 * scale : 2;

	window.centre = scale * ((float)at + 0.5f);
	window.narrow = scale > 1 ? 1 / scale : 1;
	float begin = window.centre - support + 0.5f;
	float end = window.centre + support + 0.5f;
	window.first = begin > 0 ? (uint32_t)begin : 0;
	window.count = (end < (float)from ? (uint32_t)end : from) - window.first;
	window.sum = 0;
	for (uint32_t i = 0; i < window.count; i++)
		window.sum += pos_embed_weight(&window, window.first + i);
	return window;
}

struct pos_embed_size {
	uint32_t first, side; /* of the stored embeddings */
	uint32_t h, w;        /* target size */
	uint32_t channels;
};

/* to: [first + h * w][channels]. */
void pos_embed_resize(const struct pos_embed_size *size, const float *from, float *to);
/* Gradient of the embeddings, given the gradient of pos_embed_resize()'s result. */
void pos_embed_resize_backward(const struct pos_embed_size *size, const float *gradient, float *to);

#endif
