/*
 * Tokens of vision transformers: adds position embeddings, with or without a class token; takes a
 * single token.
 */
#ifndef TRAINER_DEVICE_CUDA_TOKENS_H
#define TRAINER_DEVICE_CUDA_TOKENS_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/kernels/divide.h"
#include "trainer/device/positions.h"

/* A launcher reads the operands in its comment. NULL if absent. */
struct tokens_arguments {
	const void *x, *dy;       /* x, dx [n][places][channels] of E */
	void *y, *dx;             /* y, dy [n][tokens][channels] of E */
	const float *positions;   /* [tokens][channels] */
	const float *class_token; /* [channels] */
	float *dpositions, *dclass_token;
	uint32_t add_positions, add_class_token; /* += instead of = */
	uint32_t n, places, tokens, channels;
	uint32_t taken; /* a place */
	enum cuda_element element;
	/* set by the launcher: channels per thread etc. */
	uint32_t groups;
	struct divider by_groups, by_tokens, by_places;
};

/*
 * y = x + positions; if there is one more token than places, the first is class_token + its
 * position. Reads x and writes y once. -EINVAL, here and below: n tokens channels is 2^31 or more.
 */
int tokens_forward(const struct kernel_device *device, const struct tokens_arguments *arguments);
/*
 * dx = dy of the places; dpositions, and dclass_token of the first, are sums over n in the order of
 * samples. Any of them may be NULL. Reads dy once, writes dx once.
 */
int tokens_backward(const struct kernel_device *device, const struct tokens_arguments *arguments);

/* to = from resized as in positions.h; and the gradients. */
struct tokens_resize {
	const float *from;
	float *to;
	uint32_t add; /* backward: += instead of = */
	struct positions_size size;
	struct divider by_channels; /* filled in by the launcher */
};
int tokens_resize(const struct kernel_device *device, const struct tokens_resize *arguments);
int tokens_resize_backward(const struct kernel_device *device,
			   const struct tokens_resize *arguments);

/* y [n][channels] = the taken place of x; and dx from dy, 0 elsewhere. */
int tokens_take(const struct kernel_device *device, const struct tokens_arguments *arguments);
int tokens_take_backward(const struct kernel_device *device,
			 const struct tokens_arguments *arguments);

#endif
