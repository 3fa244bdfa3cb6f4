/*
 * Tokens of vision transformers: positions of an image with embeddings added, behind a class token
 * or not, and one of them taken.
 */
#ifndef TRAINER_DEVICE_CUDA_TOKENS_H
#define TRAINER_DEVICE_CUDA_TOKENS_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/kernels/divide.h"
#include "trainer/device/positions.h"

/* A launcher reads what its comment names. NULL: there is none. */
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
	/* filled in by the launcher: of channels that a thread has at once, and so on */
	uint32_t groups;
	struct divider by_groups, by_tokens, by_places;
};

/*
 * y = x + positions; with one token more than places the first is class_token + its position. Reads
 * x and writes y once. -EINVAL, as all here: n tokens channels is 2^31 or more.
 */
int tokens_forward(const struct kernel_device *device, const struct tokens_arguments *arguments);
/*
 * dx = dy of the places; dpositions, and dclass_token of the first, are sums over n in the order of
 * samples. Any of them may be NULL. Reads dy once, writes dx once.
 */
int tokens_backward(const struct kernel_device *device, const struct tokens_arguments *arguments);

/* to = from at another size, as positions.h has it; and the gradients of these. */
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
