/*
 * A parsed pipeline: the steps in the order of the text, and the form of the finished sample.
 * Written by grammar.c, read by plan.c and transform.c; immutable once parsed and fixed.
 */
#pragma once

#include "loaderd/augment/grammar/step_rows.h"
#include "loaderd/augment/transform.h"

#include <stdbool.h>

enum {
	STEP_SIZES_MAX = 16, /* entries of a schedule */
	STEP_PAD_MAX = TRANSFORM_SIDE_MAX,
	STEP_MIX_WIDTH_MAX = 16,
};

enum step_kind {
#define KIND(constant, ...) STEP_##constant,
	STEPS_OF_GEOMETRY(KIND) STEPS_OF_PIXELS(KIND, KIND(EFFECT)) STEPS_OF_FORM(KIND)
#undef KIND
		STEP_GEOMETRY_COUNT = STEP_COLOR_JITTER, /* geometry stands first, */
	STEP_PIXELS_COUNT = STEP_NORMALIZE,              /* the form last */
};

/* What color_jitter changes, in the order of its arguments. */
enum step_jitter {
	STEP_JITTER_BRIGHTNESS,
	STEP_JITTER_CONTRAST,
	STEP_JITTER_SATURATION,
	STEP_JITTER_HUE,
	STEP_JITTERS,
};

/* A size from an epoch on. */
struct step_size {
	uint64_t epoch;
	uint32_t width;
	uint32_t height; /* 0: width is that of the short side */
};

/* What AutoAugment's policy was learned on. */
enum step_learned {
	STEP_LEARNED_IMAGENET,
	STEP_LEARNED_CIFAR10,
	STEP_LEARNED_SVHN,
	STEP_LEARNED_COUNT,
};

/* rand_augment, trivial_augment_wide, aug_mix, auto_augment. */
struct step_policy {
	unsigned operations; /* rand_augment */
	unsigned magnitude;  /* rand_augment: bin; aug_mix: severity, bins below it */
	unsigned bins;       /* rand_augment, trivial_augment_wide */
	unsigned width;      /* aug_mix: chains */
	unsigned depth;      /* aug_mix: of a chain; 0: 1 to 3 at random */
	double alpha;
	bool all_operations;
	uint8_t learned; /* enum step_learned */
};

/* What random_rotation and random_affine draw from, and what policies warp with. */
struct step_warp {
	double degrees[2];
	double translate[2]; /* fractions of width and height, to either side */
	double scale[2];
	double shear_x[2], shear_y[2]; /* degrees */
	bool bilinear;                 /* or nearest */
	bool filled;                   /* what comes from outside is fill of the step; else black */
};

struct step {
	enum step_kind kind;
	int position; /* in the text */
	struct step_size sizes[STEP_SIZES_MAX];
	unsigned size_count;
	bool chroma_fast;    /* resizing steps: planes before colour conversion */
	bool bicubic;        /* resizing steps: with Pillow's bicubic filter */
	double scale[2];     /* of the area */
	double ratio[2];     /* width : height */
	double ratio_log[2]; /* natural logarithm of the same */
	double probability;
	bool alternate;  /* hflip, vflip: the other way in each epoch */
	bool reflect;    /* pad, random_crop: the border mirrors the picture; no fill */
	uint32_t pad[2]; /* x, y; cutout: width and height of the hole */
	uint8_t fill[3];
	double jitter[STEP_JITTERS][2]; /* low and high */
	unsigned effect;                /* of STEP_EFFECT: enum effect_kind */
	double amount;      /* solarize: threshold; posterize: bits; sharpness: factor */
	uint32_t kernel[2]; /* width, height */
	double sigma[2];
	struct step_warp warp;
	struct step_policy policy;
	/* random_erasing and cutout */
	bool noise;
	/* of the finished sample, after normalize and the like; value is then in its units */
	bool finished;
	float value[3];
};

enum steps_statistics { STATISTICS_NONE, STATISTICS_GIVEN, STATISTICS_DATASET };

struct transform {
	struct step steps[TRANSFORM_STEPS_MAX];
	unsigned step_count;
	enum transform_element element;
	enum transform_layout layout;
	uint32_t channels;
	enum steps_statistics statistics;
	bool statistics_known;
	double mean[3], std[3];             /* 0..1 */
	uint32_t fixed_width, fixed_height; /* 0: not fixed */
	/* the steps from delivered_steps on are left to the client: transform_defer() */
	bool defers;
	unsigned delivered_steps;
};

/*
 * The pipeline grammar of transform.h: text to steps, into a transform that holds the defaults.
 * Positions in errors are bytes from the start of the text. 0; -EINVAL with what was expected and
 * where; -E2BIG beyond a limit. error may be NULL. In grammar.c.
 */
int grammar_parse(const char *text, struct transform *transform, struct transform_error *error);

/* The size of a step in an epoch. */
const struct step_size *step_size_at(const struct step *step, uint64_t epoch);

/*
 * Size of a sample after the first `count` steps in an epoch, for a stored size; 0 x 0 stands for
 * unknown, on either side. -EINVAL when a step cannot work on such a size, -E2BIG when the result
 * breaks TRANSFORM_SIDE_MAX; error may be NULL.
 */
int steps_size(const struct transform *transform, unsigned count, uint64_t epoch, uint32_t width,
	       uint32_t height, uint32_t *ret_width, uint32_t *ret_height,
	       struct transform_error *error);
/* Is the size after the first `count` steps the same for all samples, and one to deliver? */
bool steps_have_size(const struct transform *transform, unsigned count);

/*
 * -EINVAL, unless a picture of width x height has the pixels that a step's border reflects; error
 * may be NULL.
 */
int step_check_reflect(const struct step *step, uint64_t width, uint64_t height,
		       struct transform_error *error);

/* The size that resize gives an image: torchvision's rounding. */
void step_resize_size(const struct step_size *size, uint32_t width, uint32_t height,
		      uint64_t *ret_width, uint64_t *ret_height);

/* Puts a sentence with its position into error, which may be NULL; returns result. */
int transform_fail(struct transform_error *error, int result, int position, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
