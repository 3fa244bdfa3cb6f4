/*
 * Effects change the pixels of a picture after geometry: colour, blur, warping, erasing. The random
 * decisions about a sample are in its list of effects (draw.h, policy.h); running the list needs no
 * other input. The arithmetic is that of torchvision's transforms.v2.functional on uint8 tensors;
 * tests/golden/augment holds results of it.
 *
 * A struct effects is the scratch memory of one thread. It owns the picture while effects run and
 * allocates only when a picture is larger than all before. A pixel takes four bytes (red, green,
 * blue, zero), so that it is one vector lane and one table lookup; rows are contiguous. All
 * instruction sets produce the same bytes.
 */
#pragma once

#include "format/augment/kernels/effect_rows.h"
#include "format/augment/kernels/erase.h"
#include "format/base/system/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	EFFECTS_MAX = 256, /* effects per sample */
};

enum effect_kind {
	EFFECT_NONE,
#define EFFECT(constant, ...) EFFECT_##constant,
	EFFECTS(EFFECT) EFFECT_KINDS
#undef EFFECT
};

enum {
	EFFECT_BLUR_SIDE_MAX = 127, /* maximum side of a blur kernel; odd */
};

struct effect_gauss {
	uint32_t width, height; /* size of the kernel: odd, at most EFFECT_BLUR_SIDE_MAX */
	double sigma;           /* > 0 */
};

struct effect_warp {
	float matrix[6];  /* warp_matrix() */
	float forward[6]; /* warp_forward(); zero for the operations of policies */
	bool bilinear;    /* bilinear interpolation; nearest if false */
	/*
	 * Pixels from outside the picture are fill. If false, they are black; bilinear
	 * interpolation blends with it.
	 */
	bool filled;
	uint8_t fill[3];
};

struct effect {
	enum effect_kind kind;
	union {
		double factor; /* factor, or the only number of the transform */
		float weight;
		uint8_t channels[3]; /* permute: which one each channel of the result is */
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

/* Appends an effect, whose members the caller sets. The list must have room. */
struct effect *effect_list_add(struct effect_list *list);

struct effects;

int effects_new(enum cpu_isa isa, struct effects **ret_effects);
void effects_free(struct effects *effects);

/*
 * Provides memory for a picture of width x height pixels, 4 bytes each, which the caller writes.
 * Returns 0 or -ENOMEM.
 */
int effects_begin(struct effects *effects, uint32_t width, uint32_t height, uint8_t **ret_pixels);
/* Runs effects on the picture. Returns 0 or -ENOMEM. */
int effects_run(struct effects *effects, const struct effect *list, unsigned count);
/* Returns a row of the picture, 4 bytes per pixel. */
const uint8_t *effects_row(const struct effects *effects, uint32_t row);
/* Copies a row as RGB, 3 bytes per pixel. */
void effects_take_row(const struct effects *effects, uint32_t row, uint8_t *pixels);
