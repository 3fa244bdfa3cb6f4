/*
 * The transforms of a pipeline, one row each. The rows generate the transform kinds (transforms.h),
 * the vocabulary of the grammar (grammar_set.c) and the tables of transform functions. To add a
 * transform, add a row here and the functions that it names.
 *
 * The second entry of a row says where the transform runs if the pipeline defers
 * (pipeline_defer()). DEFERS: on the client, because struct deferred can describe it. STAYS: in the
 * daemon.
 *
 * A row ends with the transform's parameters: their bounds, their defaults and their members in
 * struct transform. The bounds are generous: a value outside them is a typing error. loaderd(1)
 * repeats names, sentences, parameters and defaults; the test augment-documents compares them.
 */
#pragma once

/* clang-format off */
#define AT(member)    offsetof(struct transform, member)
#define INTO(member)  .into = AT(member)
#define PARAM_CHROMA   {"chroma", VALUE_WORD, .words = "exact|fast", INTO(chroma_fast)}
#define PARAM_FILTER   {"interpolation", VALUE_WORD, .words = "bilinear|bicubic", INTO(bicubic)}
#define PARAM_FILL     {"fill", VALUE_COLOUR, 0, 255, INTO(fill)}
/*
 * For policies. Without a fill, bilinear interpolation blends with black, as torchvision's
 * fill=None does.
 */
#define PARAM_FADE     {"fill", VALUE_COLOUR, 0, 255, INTO(fill), .given = AT(warp.filled)}
#define PARAM_BORDER                                                                               \
	{"fill", VALUE_COLOUR, 0, 255, .words = "reflect", INTO(fill), .word = AT(reflect)}
#define PARAM_P(usual) {"p", VALUE_NUMBER, 0, 1, .otherwise = {usual}, INTO(probability)}
#define PARAM_P_FLIP                                                                               \
	{"p", VALUE_NUMBER, 0, 1, .words = "alternate", .otherwise = {0.5}, INTO(probability),     \
	 .word = AT(alternate)}
#define PARAM_SIZE     {"size", VALUE_SIZE, .required = true}
#define PARAM_RATIO(low, high)                                                                     \
	{"ratio", VALUE_RANGE, 0.01, 100, .otherwise = {low, high}, INTO(ratio)}
#define PARAM_FACTOR(key, which, low, high, from, to)                                              \
	{key, VALUE_RANGE, low, high, .otherwise = {from, to},                                     \
	 INTO(jitter[TRANSFORM_JITTER_##which])}
#define PARAM_HOW(usual)                                                                           \
	{"interpolation", VALUE_WORD, .words = "nearest|bilinear", .otherwise = {usual},           \
	 INTO(warp.bilinear)}
#define PARAM_BINS                                                                                 \
	{"num_magnitude_bins", VALUE_WHOLE, 2, 1000, .otherwise = {31}, INTO(policy.bins)}
#define PARAM_DEGREES  {"degrees", VALUE_SPREAD, -360, 360, .required = true}
#define PARAM_ALPHA    {"alpha", VALUE_NUMBER, 0.001, 100, .otherwise = {1}, INTO(batch.alpha)}
#define PARAM_P_OF_BATCH                                                                           \
	{"p", VALUE_NUMBER, 0, 1, INTO(probability), .given = AT(batch.chance)}
#define PARAM_VALUE    {"value", VALUE_COLOUR, -1e6, 1e6, .words = "random", .word = AT(noise)}

/*
 * Geometry: constant, DEFERS or STAYS, name, what it does in one sentence, size function
 * (transforms.c), geometry function (apply/geometry.c), set function (grammar_set.c) or NULL,
 * parameters.
 */
#define TRANSFORMS_OF_GEOMETRY(X)                                                                  \
	X(RANDOM_RESIZED_CROP, STAYS, "random_resized_crop",                                       \
	  "Crops a random part of the image's area, of a random shape, and resizes it to "         \
	  "size.",                                                                                 \
	  size_given, geometry_resized_crop, NULL,                                                 \
	  PARAM_SIZE,                                                                              \
	  {"scale", VALUE_RANGE, 1e-6, 1, .otherwise = {0.08, 1}, INTO(scale)},                    \
	  PARAM_RATIO(3.0 / 4.0, 4.0 / 3.0), PARAM_CHROMA, PARAM_FILTER)                           \
	X(RESIZE, STAYS, "resize",                                                                 \
	  "Resizes the short side to N, keeping the shape, or exactly to WxH.",                    \
	  size_resized, geometry_resize_transform, NULL,                                           \
	  PARAM_SIZE, PARAM_CHROMA, PARAM_FILTER)                                                  \
	X(BUCKET_RESIZE, STAYS, "bucket_resize",                                                   \
	  "Resizes to cover the batch's bucket, keeping the shape, and crops the middle or a "     \
	  "random part to its size.",                                                              \
	  size_given, geometry_bucket_resize, NULL,                                                \
	  {"crop", VALUE_WORD, .words = "center|random", INTO(crop_random)},                       \
	  PARAM_CHROMA, PARAM_FILTER)                                                              \
	X(PATCH_RESIZE, STAYS, "patch_resize",                                                     \
	  "Resizes to whole patches, at most max_tokens of them, keeping the shape as nearly as "  \
	  "they allow, and delivers the patches; enlarges only images of fewer than min_tokens.",  \
	  size_patch, geometry_patch_resize, set_patches,                                          \
	  {"patch", VALUE_WHOLE, 1, 256, .otherwise = {16}, INTO(patches.size)},                   \
	  {"max_tokens", VALUE_WHOLE, 1, 65536, .otherwise = {256}, INTO(patches.tokens_max)},     \
	  {"min_tokens", VALUE_WHOLE, 1, 65536, .otherwise = {1}, INTO(patches.tokens_min)},       \
	  PARAM_CHROMA, PARAM_FILTER)                                                              \
	X(MOSAIC, STAYS, "mosaic",                                                                 \
	  "Joins the sample and three others at a random point of a picture of size, with "        \
	  "probability p, or shows it alone in the middle; each is resized to fit size, times a "  \
	  "factor drawn from scale.",                                                              \
	  size_given, geometry_mosaic, NULL,                                                       \
	  PARAM_SIZE, PARAM_P(1),                                                                  \
	  {"scale", VALUE_RANGE, 0.1, 2, .otherwise = {0.5, 1.5}, INTO(scale)},                    \
	  {"min_visibility", VALUE_NUMBER, 0, 1, .otherwise = {0.1}, INTO(min_visibility)},        \
	  {"fill", VALUE_COLOUR, 0, 255, .otherwise = {114, 114, 114}, INTO(fill)},                \
	  PARAM_CHROMA, PARAM_FILTER)                                                              \
	X(CENTER_CROP, STAYS, "center_crop",                                                       \
	  "Crops the middle; black around it if the image is smaller.",                            \
	  size_given, geometry_center_crop, NULL, PARAM_SIZE)                                      \
	X(PAD, STAYS, "pad",                                                                       \
	  "Adds a border of N pixels, or of W at the sides and H above and below.",                \
	  size_padded, geometry_border, NULL,                                                      \
	  {"size", VALUE_EXTENT, .required = true, INTO(pad)}, PARAM_BORDER)                       \
	X(ZOOM_OUT, STAYS, "random_zoom_out",                                                      \
	  "Places the image in a larger picture of fill with probability p; side_range is the "    \
	  "range of its sides, in those of the image.",                                            \
	  size_unknown, geometry_zoom_out, NULL,                                                   \
	  PARAM_FILL, {"side_range", VALUE_RANGE, 1, 100, .otherwise = {1, 4}, INTO(scale)},       \
	  PARAM_P(0.5))                                                                            \
	X(IOU_CROP, STAYS, "random_iou_crop",                                                      \
	  "Crops a random part that shows the centre of a box and has at least a drawn "           \
	  "intersection over union with it: one of sampler_options, of which 1 leaves the sample " \
	  "as it is.",                                                                             \
	  size_unknown, geometry_iou_crop, set_iou_crop,                                           \
	  {"min_scale", VALUE_NUMBER, 0.001, 1, .otherwise = {0.3}, INTO(scale[0])},               \
	  {"max_scale", VALUE_NUMBER, 0.001, 1, .otherwise = {1}, INTO(scale[1])},                 \
	  {"min_aspect_ratio", VALUE_NUMBER, 0.01, 100, .otherwise = {0.5}, INTO(ratio[0])},       \
	  {"max_aspect_ratio", VALUE_NUMBER, 0.01, 100, .otherwise = {2}, INTO(ratio[1])},         \
	  {"sampler_options", VALUE_LIST, 0, 10, .otherwise = {0, 0.1, 0.3, 0.5, 0.7, 0.9, 1},     \
	   .otherwise_count = 7, INTO(overlaps)},                                                  \
	  {"trials", VALUE_WHOLE, 1, 1000, .otherwise = {40}, INTO(trials)})                       \
	X(RANDOM_CROP, DEFERS, "random_crop",                                                      \
	  "Pads, then crops at a random place; the padded image must be at least as large.",       \
	  size_random_crop, geometry_random_crop, NULL, PARAM_SIZE,                                \
	  {"padding", VALUE_EXTENT, INTO(pad)}, PARAM_BORDER)                                      \
	X(HFLIP, DEFERS, "hflip",                                                                  \
	  "Mirrors left to right with probability p.",                                             \
	  size_kept, geometry_hflip, NULL, PARAM_P_FLIP)                                           \
	X(VFLIP, DEFERS, "vflip",                                                                  \
	  "Mirrors upside down with probability p.",                                               \
	  size_kept, geometry_vflip, NULL, PARAM_P_FLIP)

/*
 * Steps for boxes, which do not change images, masks and points: constant, name, what it does in
 * one sentence, step of the geometry (apply/geometry.h), parameters. They may also follow the
 * transforms that set the format.
 */
#define TRANSFORMS_OF_BOXES(X)                                                                     \
	X(CLAMP_BOXES, "clamp_boxes", "Clips boxes to the picture.", GEOMETRY_STEP_CLAMP)          \
	X(SANITIZE_BOXES, "sanitize_boxes",                                                        \
	  "Drops boxes that have a side below min_size pixels or an area below min_area, or that " \
	  "leave the picture, and the rows of all values that belong to the boxes.",               \
	  GEOMETRY_STEP_SANITIZE,                                                                  \
	  {"min_size", VALUE_NUMBER, 1, PACKIMG_SIDE_MAX, .otherwise = {1}, INTO(min_size)},       \
	  {"min_area", VALUE_NUMBER, 1, 4294836225, .otherwise = {1}, INTO(min_area)})

/*
 * Transforms that change pixels in place: constant, DEFERS or STAYS, name, what it does in one
 * sentence, set function (grammar_set.c) or NULL, draw function (draw.c, policy.c) or NULL,
 * parameters. EFFECT stands for the transforms that are a single effect with at most one number:
 * the rows of kernels/effect_rows.h.
 */
#define TRANSFORMS_OF_PIXELS(X, EFFECT)                                                            \
	X(COLOR_JITTER, DEFERS, "color_jitter",                                                    \
	  "Changes brightness, contrast, saturation and hue in a random order with "               \
	  "probability p.",                                                                        \
	  set_jitter, draw_jitter,                                                                 \
	  {"brightness", VALUE_SPREAD, 0, 1000}, {"contrast", VALUE_SPREAD, 0, 1000},              \
	  {"saturation", VALUE_SPREAD, 0, 1000}, {"hue", VALUE_SPREAD, -0.5, 0.5}, PARAM_P(1))     \
	X(PHOTOMETRIC_DISTORT, STAYS, "random_photometric_distort",                                \
	  "Changes brightness, contrast, saturation and hue and permutes the channels, each with " \
	  "probability p.",                                                                        \
	  NULL, draw_distortion,                                                                   \
	  PARAM_FACTOR("brightness", BRIGHTNESS, 0, 1000, 0.875, 1.125),                           \
	  PARAM_FACTOR("contrast", CONTRAST, 0, 1000, 0.5, 1.5),                                   \
	  PARAM_FACTOR("saturation", SATURATION, 0, 1000, 0.5, 1.5),                               \
	  PARAM_FACTOR("hue", HUE, -0.5, 0.5, -0.05, 0.05),                                        \
	  {"p", VALUE_NUMBER, 0, 1, .otherwise = {0.5}, INTO(each)})                               \
	EFFECT                                                                                     \
	X(BLUR, STAYS, "gaussian_blur",                                                            \
	  "Blurs with probability p; sigma, in pixels, is fixed or drawn from a range.",           \
	  set_blur, draw_blur,                                                                     \
	  {"kernel_size", VALUE_EXTENT, 1, EFFECT_BLUR_SIDE_MAX, .required = true, INTO(kernel)},  \
	  {"sigma", VALUE_SPREAD, 0.01, 100, .otherwise = {0.1, 2}}, PARAM_P(1))                   \
	X(ROTATION, STAYS, "random_rotation",                                                      \
	  "Rotates about the middle, counterclockwise, by -degrees to degrees or LOW:HIGH.",       \
	  set_rotation, draw_warp,                                                                 \
	  PARAM_DEGREES, PARAM_HOW(0), PARAM_FILL)                                                 \
	X(AFFINE, STAYS, "random_affine",                                                          \
	  "Rotates, shifts, scales and shears, each by a random amount.",                          \
	  set_affine, draw_warp,                                                                   \
	  PARAM_DEGREES, {"translate", VALUE_PAIR, 0, 1},                                          \
	  {"scale", VALUE_RANGE, 0.001, 1000, .otherwise = {1, 1}, INTO(warp.scale)},              \
	  {"shear", VALUE_SHEAR, -89, 89}, PARAM_HOW(0), PARAM_FILL)                               \
	X(ERASING, DEFERS, "random_erasing",                                                       \
	  "Erases a rectangle of a random area and shape with probability p.",                     \
	  set_erased, NULL, PARAM_P(0.5),                                                          \
	  {"scale", VALUE_RANGE, 0, 1, .otherwise = {0.02, 0.33}, INTO(scale)},                    \
	  PARAM_RATIO(0.3, 3.3), PARAM_VALUE)                                                      \
	X(CUTOUT, DEFERS, "cutout",                                                                \
	  "Erases NxN or WxH pixels round a random one, cut off at the border, with "              \
	  "probability p.",                                                                        \
	  set_erased, NULL,                                                                        \
	  {"size", VALUE_EXTENT, 1, PIPELINE_SIDE_MAX, .required = true, INTO(pad)}, PARAM_P(1),   \
	  PARAM_VALUE)                                                                             \
	X(RAND_AUGMENT, STAYS, "rand_augment",                                                     \
	  "Applies num_ops of RandAugment's fourteen operations, each at the same magnitude.",     \
	  set_rand_augment, policy_draw,                                                           \
	  {"num_ops", VALUE_WHOLE, 1, 16, .otherwise = {2}, INTO(policy.operations)},              \
	  {"magnitude", VALUE_WHOLE, 0, 999, .otherwise = {9}, INTO(policy.magnitude)},            \
	  PARAM_BINS, PARAM_HOW(0), PARAM_FADE)                                                    \
	X(TRIVIAL_AUGMENT, STAYS, "trivial_augment_wide",                                          \
	  "Applies one operation at a random magnitude from TrivialAugment's wide ranges.",        \
	  NULL, policy_draw,                                                                       \
	  PARAM_BINS, PARAM_HOW(0), PARAM_FADE)                                                    \
	X(AUG_MIX, STAYS, "aug_mix",                                                               \
	  "Mixes the picture with mixture_width chains of operations, of 1 to 3 each where "       \
	  "chain_depth is -1.",                                                                    \
	  set_aug_mix, policy_draw,                                                                \
	  {"severity", VALUE_WHOLE, 1, POLICY_AUTO_BINS, .otherwise = {3},                         \
	   INTO(policy.magnitude)},                                                                \
	  {"mixture_width", VALUE_WHOLE, 1, TRANSFORM_MIX_WIDTH_MAX, .otherwise = {3},             \
	   INTO(policy.width)},                                                                    \
	  {"chain_depth", VALUE_WHOLE, -1, 8, .otherwise = {-1}},                                  \
	  {"alpha", VALUE_NUMBER, 0.01, 1000, .otherwise = {1}, INTO(policy.alpha)},               \
	  {"all_ops", VALUE_WORD, .words = "true|false"}, PARAM_HOW(1), PARAM_FADE)                \
	X(AUTO_AUGMENT, STAYS, "auto_augment",                                                     \
	  "Applies one of the pairs of operations learned for imagenet, cifar10 or svhn.",         \
	  NULL, policy_draw,                                                                       \
	  {"policy", VALUE_WORD, .words = "imagenet|cifar10|svhn", INTO(policy.learned)},          \
	  PARAM_HOW(0), PARAM_FADE)

/*
 * Transforms that set the format of the finished sample, at most once each: constant, name, what it
 * does in one sentence, parameters. grammar.c handles them.
 */
#define TRANSFORMS_OF_FORM(X)                                                                      \
	X(NORMALIZE, "normalize",                                                                  \
	  "Computes (pixel / 255 - mean) / std, by statistics or mean and std; needs a float "     \
	  "type.",                                                                                 \
	  {"statistics", VALUE_WORD, .words = "imagenet|dataset"},                                 \
	  {"mean", VALUE_COLOUR, -1, 1, .hint = "divide means of 0 to 255 by 255"},                \
	  {"std", VALUE_COLOUR, 1e-6, 1, .hint = "divide those of 0 to 255 by 255"})               \
	X(TO, "to",                                                                                \
	  "Sets the element type; floats without normalize are pixel / 255.",                      \
	  {"type", VALUE_WORD, .words = "u8|f16|bf16|f32|u16|i16|i32|i64", .required = true})      \
	X(LAYOUT, "layout",                                                                        \
	  "Sets the layout: interleaved, the default, or planar.",                                 \
	  {"layout", VALUE_WORD, .words = "nhwc|nchw", .required = true})                          \
	X(CHANNELS, "channels",                                                                    \
	  "Sets the channels: RGB, the default, or RGB and a channel of zeros.",                   \
	  {"channels", VALUE_WORD, .words = "3|4", .required = true})

/*
 * Settings of values, which the text names before them (NAME: fill(255)): constant, name, what it
 * does in one sentence, parameters.
 */
#define TRANSFORMS_OF_VALUES(X)                                                                    \
	X(FILL, "fill",                                                                            \
	  "Sets what a mask or raster has where it shows nothing of the image; 0 without it.",     \
	  {"value", VALUE_NUMBER, -3.4e38, 3.4e38, .required = true, INTO(amount_outside)})        \
	X(FILTER, "filter",                                                                        \
	  "Sets whether resizes take a raster's nearest pixel or compute between pixels, "         \
	  "antialiased.",                                                                          \
	  {"filter", VALUE_WORD, .words = "nearest|bilinear|bicubic", .required = true, INTO(filter)})

/*
 * Steps for finished samples of several images, which come last, each at most once: constant, name,
 * what it does in one sentence, parameters. They change no single image (batch_steps.c).
 */
#define TRANSFORMS_OF_BATCHES(X)                                                                   \
	X(COPY_PASTE, "copy_paste",                                                                \
	  "Pastes some objects of another finished sample over the sample with probability p, and "\
	  "drops objects of the sample of which at most mask_occluded_thr pixels stay visible and "\
	  "a side moves by more than bbox_occluded_thr pixels.",                                   \
	  PARAM_P(0.5),                                                                            \
	  {"bbox_occluded_thr", VALUE_NUMBER, 0, PIPELINE_SIDE_MAX, .otherwise = {10},             \
	   INTO(paste.bbox_occluded_thr)},                                                         \
	  {"mask_occluded_thr", VALUE_NUMBER, 0, 16777216, .otherwise = {300},                     \
	   INTO(paste.mask_occluded_thr)})                                                         \
	X(MIXUP, "mixup",                                                                          \
	  "Blends each image of a batch with its neighbour, by a share drawn from Beta(alpha, "    \
	  "alpha), and the targets with it.",                                                      \
	  PARAM_ALPHA, PARAM_P_OF_BATCH)                                                           \
	X(CUTMIX, "cutmix",                                                                        \
	  "Exchanges a box of each image of a batch with its neighbour, whose share of the area "  \
	  "is drawn from Beta(alpha, alpha), and blends the targets by it.",                       \
	  PARAM_ALPHA, PARAM_P_OF_BATCH)                                                           \
	X(TARGETS, "targets",                                                                      \
	  "Delivers targets of this form: a weight of each class, or two labels and the share of " \
	  "the first.",                                                                            \
	  {"form", VALUE_WORD, .words = "dense|pairs", INTO(batch.pairs)},                         \
	  {"label_smoothing", VALUE_NUMBER, 0, 0.999, INTO(batch.smoothing)},                      \
	  {"num_classes", VALUE_WHOLE, 1, PIPELINE_CLASSES_MAX, INTO(batch.classes),               \
	   .given = AT(batch.counts)})
/* clang-format on */
