/*
 * The steps of a pipeline: one row for each, from which the list of kinds (steps.h), the words of
 * the grammar (grammar_set.c) and the tables of what steps do are made. A new one is a row here,
 * and those of the functions that it names that are not there yet.
 *
 * Rows end with the step's parameters. Bounds of the numbers are generous: what lies beyond them is
 * a slip of the pen.
 */
#pragma once

/* clang-format off */
#define STEP_CHROMA   {"chroma", VALUE_WORD, .words = "exact|fast"}
#define STEP_COLOUR   {"fill", VALUE_COLOUR, 0, 255}
#define STEP_BORDER   {"fill", VALUE_COLOUR, 0, 255, .words = "reflect"}
#define STEP_P        {"p", VALUE_NUMBER, 0, 1}
#define STEP_P_FLIP   {"p", VALUE_NUMBER, 0, 1, .words = "alternate"}
#define STEP_SIZE     {"size", VALUE_SIZE, .required = true}
#define STEP_HOW      {"interpolation", VALUE_WORD, .words = "nearest|bilinear"}
#define STEP_VALUE    {"value", VALUE_COLOUR, -1e6, 1e6, .words = "random"}

/*
 * Geometry. Constant, name; what becomes of the arguments, in grammar_set.c; of the size, in
 * steps.c; and of the plan, in apply/plan.c.
 */
#define STEPS_OF_GEOMETRY(X)                                                                       \
	X(RANDOM_RESIZED_CROP, "random_resized_crop", set_resized_crop, size_given,                \
	  plan_resized_crop, STEP_SIZE, {"scale", VALUE_RANGE, 1e-6, 1},                           \
	  {"ratio", VALUE_RANGE, 0.01, 100}, STEP_CHROMA)                                          \
	X(RESIZE, "resize", set_resize, size_resized, plan_resize_step, STEP_SIZE, STEP_CHROMA)    \
	X(CENTER_CROP, "center_crop", set_nothing, size_given, plan_center_crop, STEP_SIZE)        \
	X(PAD, "pad", set_pad, size_padded, plan_border,                                           \
	  {"size", VALUE_EXTENT, .required = true}, STEP_BORDER)                                   \
	X(RANDOM_CROP, "random_crop", set_random_crop, size_random_crop, plan_random_crop,         \
	  STEP_SIZE, {"padding", VALUE_EXTENT}, STEP_BORDER)                                       \
	X(HFLIP, "hflip", set_flip, size_kept, plan_hflip, STEP_P_FLIP)                            \
	X(VFLIP, "vflip", set_flip, size_kept, plan_vflip, STEP_P_FLIP)

/*
 * What changes pixels in their places. Constant, name; what becomes of the arguments, in
 * grammar_set.c; and the effects that are drawn, in draw.c. Where EFFECT stands belong the steps
 * that are one effect of one number at most: rows of kernels/effect_rows.h.
 */
#define STEPS_OF_PIXELS(X, EFFECT)                                                                 \
	X(COLOR_JITTER, "color_jitter", set_jitter, draw_jitter,                                   \
	  {"brightness", VALUE_SPREAD, 0, 1000}, {"contrast", VALUE_SPREAD, 0, 1000},              \
	  {"saturation", VALUE_SPREAD, 0, 1000}, {"hue", VALUE_SPREAD, -0.5, 0.5}, STEP_P)         \
	EFFECT                                                                                     \
	X(BLUR, "gaussian_blur", set_blur, draw_blur,                                              \
	  {"kernel_size", VALUE_EXTENT, 1, EFFECT_BLUR_SIDE_MAX, .required = true},                \
	  {"sigma", VALUE_SPREAD, 0.01, 100}, STEP_P)                                              \
	X(ROTATION, "random_rotation", set_rotation, draw_warp,                                    \
	  {"degrees", VALUE_SPREAD, -360, 360, .required = true}, STEP_HOW, STEP_COLOUR)           \
	X(AFFINE, "random_affine", set_affine, draw_warp,                                          \
	  {"degrees", VALUE_SPREAD, -360, 360, .required = true}, {"translate", VALUE_PAIR, 0, 1}, \
	  {"scale", VALUE_RANGE, 0.001, 1000}, {"shear", VALUE_SHEAR, -89, 89},                    \
	  STEP_HOW, STEP_COLOUR)                                                                   \
	X(ERASING, "random_erasing", set_erasing, NULL, STEP_P, {"scale", VALUE_RANGE, 0, 1},      \
	  {"ratio", VALUE_RANGE, 0.01, 100}, STEP_VALUE)                                           \
	X(CUTOUT, "cutout", set_cutout, NULL,                                                      \
	  {"size", VALUE_EXTENT, 1, TRANSFORM_SIDE_MAX, .required = true}, STEP_P, STEP_VALUE)     \
	X(RAND_AUGMENT, "rand_augment", set_rand_augment, policy_draw,                             \
	  {"num_ops", VALUE_WHOLE, 1, 16}, {"magnitude", VALUE_WHOLE, 0, 999},                     \
	  {"num_magnitude_bins", VALUE_WHOLE, 2, 1000}, STEP_HOW, STEP_COLOUR)                     \
	X(TRIVIAL_AUGMENT, "trivial_augment_wide", set_trivial_augment, policy_draw,               \
	  {"num_magnitude_bins", VALUE_WHOLE, 2, 1000}, STEP_HOW, STEP_COLOUR)                     \
	X(AUG_MIX, "aug_mix", set_aug_mix, policy_draw,                                            \
	  {"severity", VALUE_WHOLE, 1, POLICY_AUTO_BINS},                                          \
	  {"mixture_width", VALUE_WHOLE, 1, STEP_MIX_WIDTH_MAX},                                   \
	  {"chain_depth", VALUE_WHOLE, -1, 8}, {"alpha", VALUE_NUMBER, 0.01, 1000},                \
	  {"all_ops", VALUE_WORD, .words = "true|false"}, STEP_HOW, STEP_COLOUR)                   \
	X(AUTO_AUGMENT, "auto_augment", set_auto_augment, policy_draw,                             \
	  {"policy", VALUE_WORD, .words = "imagenet|cifar10|svhn"}, STEP_HOW, STEP_COLOUR)

/* The form of the finished sample, at most once each: constant and name; grammar.c sets it. */
#define STEPS_OF_FORM(X)                                                                           \
	X(NORMALIZE, "normalize", {"statistics", VALUE_WORD, .words = "imagenet|dataset"},         \
	  {"mean", VALUE_COLOUR, -1e6, 1e6}, {"std", VALUE_COLOUR, 0, 1e6})                        \
	X(TO, "to", {"type", VALUE_WORD, .words = "u8|f16|bf16|f32", .required = true})            \
	X(LAYOUT, "layout", {"layout", VALUE_WORD, .words = "nhwc|nchw", .required = true})        \
	X(CHANNELS, "channels", {"channels", VALUE_WORD, .words = "3|4", .required = true})
/* clang-format on */
