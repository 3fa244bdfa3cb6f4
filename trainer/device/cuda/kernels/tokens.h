/*
 * Token operations of vision transformers: add position embeddings, with or without a class token,
 * and extract a single token.
 */
#ifndef TRAINER_DEVICE_CUDA_TOKENS_H
#define TRAINER_DEVICE_CUDA_TOKENS_H

#include "trainer/device/cuda/kernels/common/divide.h"
#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/pos_embed.h"

/*
 * Operands of all kernels here. Each launcher reads the ones that its comment mentions; the others
 * may be NULL.
 */
struct tokens_arguments {
	const void *x, *dy;       /* x and dx: [n][places][channels] of E */
	void *y, *dx;             /* y and dy: [n][tokens][channels] of E */
	const float *positions;   /* [tokens][channels] */
	const float *class_token; /* [channels] */
	float *dpositions, *dclass_token;
	uint32_t add_positions, add_class_token; /* accumulate (+=) instead of storing */
	uint32_t n, places, tokens, channels;
	uint32_t taken; /* index of the place to extract */
	enum cuda_element element;
	/* set by the launcher: groups of channels per row, and divisors */
	uint32_t groups;
	struct divider by_groups, by_tokens, by_places;
};

/*
 * y = x + positions. If tokens is places + 1, the first token of y is class_token plus its position
 * embedding. Reads x and writes y once. All functions in this file return -EINVAL for tensors of
 * 2^31 elements or more.
 */
int tokens_forward(const struct kernel_device *device, const struct tokens_arguments *arguments);
/*
 * dx is dy without the class token. dpositions is the sum of dy over samples, dclass_token that of
 * the first token; both are summed in sample order. Any of the three may be NULL. Reads dy once,
 * writes dx once.
 */
int tokens_backward(const struct kernel_device *device, const struct tokens_arguments *arguments);

/* Resizes `from` into `to` as in pos_embed.h. The backward function propagates the gradients. */
struct tokens_resize {
	const float *from;
	float *to;
	uint32_t add; /* backward pass: accumulate (+=) instead of storing */
	struct pos_embed_size size;
	struct divider by_channels; /* filled in by the launcher */
};
int tokens_resize(const struct kernel_device *device, const struct tokens_resize *arguments);
int tokens_resize_backward(const struct kernel_device *device,
			   const struct tokens_resize *arguments);

/*
 * y [n][channels] = place `taken` of x. The backward pass copies dy to that place of dx and writes
 * 0 elsewhere.
 */
int tokens_take(const struct kernel_device *device, const struct tokens_arguments *arguments);
int tokens_take_backward(const struct kernel_device *device,
			 const struct tokens_arguments *arguments);

#endif
