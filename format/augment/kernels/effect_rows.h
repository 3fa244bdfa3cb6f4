/*
 * The effects, one row each. The rows generate the effect kinds (effects.h), the pipeline
 * transforms that are a single effect (grammar_rules.c) and the table of effect functions
 * (effects.c). To add an effect, add a row here and the function that it names.
 *
 * The second entry of a row says how pixels change. TABLE(name): byte by byte, through the table
 * that effect_table_name() in effect_tables.c makes. PIXELS(name): by effects_name() in effects.c.
 * The third entry is DEFERS if a client can make the change (as the DEFERRED_ constant of the same
 * name in deferred.h), otherwise STAYS, for example if a pixel depends on other pixels.
 */
#pragma once

/* clang-format off */
/*
 * Effects that are also transforms: constant, TABLE or PIXELS, DEFERS or STAYS, name, what it does
 * in one sentence, default p, parameter if any.
 */
#define EFFECT_TRANSFORMS(X)                                                                       \
	X(GRAYSCALE, PIXELS(grayscale), DEFERS, "random_grayscale",                                \
	  "Removes the colours with probability p.", 0.1)                                          \
	X(INVERT, TABLE(invert), DEFERS, "random_invert",                                          \
	  "Inverts each value with probability p.", 0.5)                                           \
	X(SOLARIZE, TABLE(solarize), DEFERS, "random_solarize",                                    \
	  "Inverts values of at least threshold with probability p.", 0.5,                         \
	  {"threshold", VALUE_NUMBER, 0, 255, .required = true})                                   \
	X(POSTERIZE, TABLE(posterize), DEFERS, "random_posterize",                                 \
	  "Keeps the upper bits of each value with probability p.", 0.5,                           \
	  {"bits", VALUE_WHOLE, 0, 8, .required = true})                                           \
	X(AUTOCONTRAST, TABLE(autocontrast), STAYS, "random_autocontrast",                         \
	  "Stretches each channel to the full range with probability p.", 0.5)                     \
	X(EQUALIZE, TABLE(equalize), STAYS, "random_equalize",                                     \
	  "Equalizes the histogram of each channel with probability p.", 0.5)                      \
	X(SHARPNESS, PIXELS(sharpness), STAYS, "random_adjust_sharpness",                          \
	  "Changes the sharpness with probability p: 0 is smooth, 1 no change, 2 twice as "        \
	  "sharp.", 0.5,                                                                           \
	  {"sharpness_factor", VALUE_NUMBER, 0, 1000, .required = true})

/* Effects that only other transforms append. */
#define EFFECTS_OF_OTHERS(X)                                                                       \
	X(BRIGHTNESS, TABLE(brightness), DEFERS)  /* factor */                                     \
	X(CONTRAST, TABLE(contrast), DEFERS)      /* factor */                                     \
	X(SATURATION, PIXELS(saturation), DEFERS) /* factor */                                     \
	X(HUE, PIXELS(hue), DEFERS) /* factor: turns of the colour circle, -0.5 .. 0.5 */          \
	X(PERMUTE, PIXELS(permute), STAYS) /* the channels */                                      \
	X(BLUR, PIXELS(blur), STAYS)                                                               \
	X(WARP, PIXELS(warp), STAYS)                                                               \
	X(ERASE, PIXELS(erase), DEFERS)                                                            \
	/*                                                                                         \
	 * Mixing: BEGIN saves the picture and starts a sum with weight * picture. ADD adds        \
	 * weight * current picture and restores the saved one. END replaces the picture with the  \
	 * sum, rounded down.                                                                      \
	 */                                                                                        \
	X(MIX_BEGIN, PIXELS(mix_begin), STAYS) /* weight */                                        \
	X(MIX_ADD, PIXELS(mix_add), STAYS)     /* weight */                                        \
	X(MIX_END, PIXELS(mix_end), STAYS)
/* clang-format on */

#define EFFECTS(X) EFFECTS_OF_OTHERS(X) EFFECT_TRANSFORMS(X)
