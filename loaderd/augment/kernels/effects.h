/*
 * Effects: what happens to a picture that has its size and place: colour, blur, warping, erasing. A
 * list of effects is a sample's decisions already taken (draw.h, policy.h); running it depends on
 * nothing else. The arithmetic is that of torchvision's transforms.v2.functional on uint8 tensors,
 * of which tests/golden/augment holds results.
 *
 * A struct effects is the scratch of one thread: it owns the picture while effects run and
 * allocates only when it meets a larger one than before. A pixel takes four bytes (red, green,
 * blue, zero), so that it is one lane of a vector and of a table look-up; rows follow each other
 * without gaps. Every instruction set gives the same bytes.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "loaderd/augment/kernels/effect_rows.h"
#include "loaderd/augment/kernels/erase.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	EFFECTS_MAX = 256, /* of one sample */
};

enum effect_kind {
	EFFECT_NONE,
#define EFFECT(constant, ...) EFFECT_##constant,
	EFFECTS(EFFECT) EFFECT_KINDS
#undef EFFECT
};

enum {
	EFFECT_BLUR_SIDE_MAX = 127, /* of a blur's kernel; an odd number */
};

struct effect_gauss {
	uint32_t width, height; /* of the kernel: odd, at most EFFECT_BLUR_SIDE_MAX */
	double sigma;           /* > 0 */
};

struct effect_warp {
	float matrix[6]; /* warp.h */
	bool bilinear;   /* or nearest */
	/* what comes from outside is fill; else black, into which bilinear fades */
	bool filled;
	uint8_t fill[3];
};

struct effect {
	enum effect_kind kind;
	union {
		double factor; /* or the one number of a step */
		float weight;
		struct effect_gauss gauss;
		struct effect_warp warp;
		struct erase erase;
	};
};

/* The effects of a sample, in order. */
struct effect_list {
	struct effect effects[EFFECTS_MAX];
	unsigned count;
};

/* Appends an effect for the caller to fill in; there must be room. */
struct effect *effect_list_add(struct effect_list *list);

struct effects;

int effects_new(enum cpu_isa isa, struct effects **ret_effects);
void effects_free(struct effects *effects);

/* Gives a picture of width x height pixels to be written, 4 bytes each. 0 or -ENOMEM. */
int effects_begin(struct effects *effects, uint32_t width, uint32_t height, uint8_t **ret_pixels);
/* Runs effects on the picture. 0 or -ENOMEM. */
int effects_run(struct effects *effects, const struct effect *list, unsigned count);
/* Row number row of the picture, 4 bytes a pixel. */
const uint8_t *effects_row(const struct effects *effects, uint32_t row);
/* Copies a row as RGB, 3 bytes a pixel. */
void effects_take_row(const struct effects *effects, uint32_t row, uint8_t *pixels);
