/*
 * A parsed pipeline: the transforms in the order of the text, and the format of the finished
 * sample. grammar.c writes it; geometry.c and pipeline.c read it. Immutable once parsed and fixed.
 */
#pragma once

#include "format/augment/grammar/transform_rows.h"
#include "format/augment/pipeline.h"

#include <stdbool.h>

enum {
	TRANSFORM_SIZES_MAX = 16, /* entries of a schedule */
	TRANSFORM_PAD_MAX = PIPELINE_SIDE_MAX,
	TRANSFORM_MIX_WIDTH_MAX = 16,
	TRANSFORM_LIST_MAX = 16, /* numbers of a list */
};

enum transform_kind {
#define KIND(constant, ...) TRANSFORM_##constant,
	TRANSFORMS_OF_GEOMETRY(KIND) TRANSFORMS_OF_BOXES(KIND) TRANSFORMS_OF_PIXELS(KIND,
										    KIND(EFFECT))
		TRANSFORMS_OF_FORM(KIND) TRANSFORMS_OF_VALUES(KIND) TRANSFORMS_OF_BATCHES(KIND)
#undef KIND
			TRANSFORM_GEOMETRY_COUNT = TRANSFORM_CLAMP_BOXES, /* geometry comes first */
	TRANSFORM_BOXES_COUNT = TRANSFORM_COLOR_JITTER,                   /* then steps for boxes */
	TRANSFORM_PIXELS_COUNT = TRANSFORM_NORMALIZE,                     /* format transforms */
	TRANSFORM_FORM_COUNT = TRANSFORM_FILL,         /* settings of named values */
	TRANSFORM_VALUES_COUNT = TRANSFORM_COPY_PASTE, /* steps for batches come last */
};

/* Parameters of color_jitter and random_photometric_distort, in the order of the arguments. */
enum transform_jitter {
	TRANSFORM_JITTER_BRIGHTNESS,
	TRANSFORM_JITTER_CONTRAST,
	TRANSFORM_JITTER_SATURATION,
	TRANSFORM_JITTER_HUE,
	TRANSFORM_JITTERS,
};

/* A size, used from an epoch on. */
struct transform_size {
	uint64_t epoch;
	uint32_t width;
	uint32_t height; /* 0 if width is the length of the short side */
};

/* Numbers of a list, in the order of the text. */
struct transform_list {
	double numbers[TRANSFORM_LIST_MAX];
	unsigned count;
};

/* Dataset for which an AutoAugment policy was learned. */
enum transform_learned {
	TRANSFORM_LEARNED_IMAGENET,
	TRANSFORM_LEARNED_CIFAR10,
	TRANSFORM_LEARNED_SVHN,
	TRANSFORM_LEARNED_COUNT,
};

/* Parameters of rand_augment, trivial_augment_wide, aug_mix and auto_augment. */
struct transform_policy {
	unsigned operations; /* rand_augment */
	unsigned magnitude;  /* rand_augment: bin; aug_mix: severity, exclusive end of the bins */
	unsigned bins;       /* rand_augment, trivial_augment_wide */
	unsigned width;      /* aug_mix: number of chains */
	unsigned depth;      /* aug_mix: length of a chain; 0 for 1 to 3 at random */
	double alpha;
	bool all_operations;
	uint8_t learned; /* enum transform_learned */
};

/* Ranges of random_rotation and random_affine, and warp options of policies. */
struct transform_warp {
	double degrees[2];
	double translate[2]; /* fractions of width and height, in both directions */
	double scale[2];
	double shear_x[2], shear_y[2]; /* degrees */
	bool bilinear;                 /* bilinear interpolation; nearest if false */
	bool filled; /* pixels from outside the image are the transform's fill; black if false */
};

/* Parameters of mixup, cutmix and targets. */
struct transform_batch {
	double alpha;
	bool chance;      /* p is given */
	uint8_t pairs;    /* targets: 1 for two labels and a share, 0 for a weight of each class */
	double smoothing; /* targets */
	unsigned classes; /* targets */
	bool counts;      /* targets: classes is given */
};

/* Parameters of patch_resize. */
struct transform_patches {
	unsigned size;                   /* pixels of a side */
	unsigned tokens_min, tokens_max; /* patches of an image */
};

struct transform {
	enum transform_kind kind;
	int position; /* byte offset in the text */
	/* bucket_resize: the largest bucket, from pipeline_fix_buckets() on */
	struct transform_size sizes[TRANSFORM_SIZES_MAX];
	unsigned size_count;
	bool chroma_fast; /* resizing transforms: resize planes before colour conversion */
	bool bicubic;     /* resizing transforms: use Pillow's bicubic filter */
	bool crop_random; /* bucket_resize: crop a random part */
	/* Fraction of the image area; random_zoom_out, random_iou_crop, mosaic: factor of sides. */
	double scale[2];
	double ratio[2];     /* aspect ratio, width : height */
	double ratio_log[2]; /* natural logarithm of ratio */
	double probability;
	double each;     /* random_photometric_distort: probability of each change */
	bool alternate;  /* hflip, vflip: alternate between epochs */
	bool reflect;    /* pad, random_crop: mirror the picture instead of filling */
	uint32_t pad[2]; /* x, y; cutout: width and height of the hole */
	uint8_t fill[3];
	uint32_t values;                     /* bits of the values that are named; 0 for all */
	double amount_outside;               /* fill */
	uint8_t filter;                      /* filter: enum pipeline_filter */
	unsigned element;                    /* to, of single values: enum schema_element */
	double min_size, min_area;           /* sanitize_boxes: pixels, and pixels of area */
	double min_visibility;               /* mosaic: fraction of a box's area */
	struct transform_list overlaps;      /* random_iou_crop: least intersections over unions */
	unsigned trials;                     /* random_iou_crop: windows drawn for each of them */
	double jitter[TRANSFORM_JITTERS][2]; /* LOW and HIGH */
	unsigned effect;                     /* TRANSFORM_EFFECT: enum effect_kind */
	double amount;      /* solarize: threshold; posterize: bits; sharpness: factor */
	uint32_t kernel[2]; /* width, height */
	double sigma[2];
	struct transform_warp warp;
	struct transform_policy policy;
	struct transform_batch batch;
	struct pipeline_paste paste; /* copy_paste: its thresholds */
	struct transform_patches patches;
	/* random_erasing, cutout: fill with noise. */
	bool noise;
	/*
	 * Erase from the finished sample, because a format transform precedes; value is then in its
	 * units.
	 */
	bool finished;
	float value[3];
};

enum pipeline_statistics { STATISTICS_NONE, STATISTICS_GIVEN, STATISTICS_DATASET };

struct pipeline {
	struct transform transforms[PIPELINE_TRANSFORMS_MAX];
	unsigned transform_count;
	struct pipeline_value values[PIPELINE_VALUES_MAX];
	unsigned value_count;
	enum pipeline_element element;
	enum pipeline_layout layout;
	uint32_t channels;
	enum pipeline_statistics statistics;
	bool statistics_known;
	double mean[3], std[3];             /* 0..1 */
	uint32_t fixed_width, fixed_height; /* 0 if not fixed */
	/* The client runs the transforms from delivered_transforms on: pipeline_defer(). */
	bool defers;
	unsigned delivered_transforms;
	struct pipeline_paste paste;
	struct pipeline_batch batch;
	/* probabilities of mixup and cutmix; below 0 if not given */
	double batch_p[2];
	/*
	 * Its views, owned; the transforms above are then those that stand before the first one,
	 * and no sample is made by them alone.
	 */
	struct pipeline *views[PIPELINE_VIEWS_MAX];
	unsigned view_count;
	/* Of a view: */
	char view_name[PIPELINE_NAME_MAX + 1];
	unsigned copies;
	/* the first transforms, which stand before the views and decide alike for all of them */
	unsigned shared_transforms;
};

/* Returns the number of copies of all views, 0 for a pipeline without views. */
unsigned pipeline_view_copies(const struct pipeline *pipeline);
/* Returns true for the rows of TRANSFORMS_OF_BOXES. */
bool transform_is_of_boxes(enum transform_kind kind);
/* Returns the pipeline's random_iou_crop, of which there is at most one, or NULL. */
const struct transform *pipeline_iou_crop(const struct pipeline *pipeline);
/* Returns the pipeline's mosaic, which is its first step, or NULL. */
const struct transform *pipeline_mosaic_step(const struct pipeline *pipeline);
/* Returns the name of a kind in a pipeline. */
const char *transform_name(enum transform_kind kind);

/*
 * Parses a pipeline (grammar in pipeline.h) into `pipeline`, which holds the defaults. Error
 * positions are byte offsets in the text. Returns -EINVAL with the position and what was expected,
 * or -E2BIG if a limit is exceeded. error may be NULL. In grammar.c.
 */
int grammar_parse(const char *text, struct pipeline *pipeline, struct pipeline_error *error);

/* Returns the size that a transform uses in an epoch. */
const struct transform_size *transform_size_at(const struct transform *transform, uint64_t epoch);

/*
 * Computes the size of a sample after the first `count` transforms in an epoch, from its stored
 * size. 0 x 0 means unknown, for input and output. Returns -EINVAL if a transform cannot work on
 * such a size, -E2BIG if the result exceeds PIPELINE_SIDE_MAX. error may be NULL.
 */
int pipeline_size_after(const struct pipeline *pipeline, unsigned count, uint64_t epoch,
			uint32_t width, uint32_t height, uint32_t *ret_width, uint32_t *ret_height,
			struct pipeline_error *error);
/*
 * Returns true if all samples have the same size after the first `count` transforms, and a sample
 * of that size can be delivered.
 */
bool pipeline_size_known_after(const struct pipeline *pipeline, unsigned count);

/*
 * Returns -EINVAL if a picture of width x height is too small for the transform's reflected border.
 * error may be NULL.
 */
int transform_check_reflect(const struct transform *transform, uint64_t width, uint64_t height,
			    struct pipeline_error *error);

/* Computes the size to which a resize transform resizes an image, with torchvision's rounding. */
void transform_resize_size(const struct transform_size *size, uint32_t width, uint32_t height,
			   uint64_t *ret_width, uint64_t *ret_height);

/* Formats a message with its position into *error (may be NULL). Returns `result`. */
int pipeline_fail(struct pipeline_error *error, int result, int position, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
