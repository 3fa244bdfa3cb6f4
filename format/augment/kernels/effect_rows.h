/*
 * The effects, one row each. The rows generate the effect kinds (effects.h), the pipeline
 * transforms that are a single effect (grammar_rules.c) and the table of effect functions
 * (effects.c). To add an effect, add a row here and the function that it names.
 *
 * The second entry of a row is how pixels change. TABLE(name): byte by byte, through the table made
 * by effect_table_name() in effect_tables.c. PIXELS(name): by effects_name() in effects.c.
 */
#pragma once

/* clang-format off */
/* Effects with a transform: constant, TABLE or PIXELS, name, default p, parameter if any. */
#define EFFECT_TRANSFORMS(X)                                                                       \
	X(GRAYSCALE, PIXELS(grayscale), "random_grayscale", 0.1)                                   \
	X(INVERT, TABLE(invert), "random_invert", 0.5)                                             \
	X(SOLARIZE, TABLE(solarize), "random_solarize", 0.5,                                       \
	  {"threshold", VALUE_NUMBER, 0, 255, .required = true})                                   \
	X(POSTERIZE, TABLE(posterize), "random_posterize", 0.5,                                    \
	  {"bits", VALUE_WHOLE, 0, 8, .required = true})                                           \
	X(AUTOCONTRAST, TABLE(autocontrast), "random_autocontrast", 0.5)                           \
	X(EQUALIZE, TABLE(equalize), "random_equalize", 0.5)                                       \
	X(SHARPNESS, PIXELS(sharpness), "random_adjust_sharpness", 0.5,                            \
	  {"sharpness_factor", VALUE_NUMBER, 0, 1000, .required = true})

/* Effects that other transforms append. */
#define EFFECTS_OF_OTHERS(X)                                                                       \
	X(BRIGHTNESS, TABLE(brightness))  /* factor */                                             \
	X(CONTRAST, TABLE(contrast))      /* factor */                                             \
	X(SATURATION, PIXELS(saturation)) /* factor */                                             \
	X(HUE, PIXELS(hue)) /* factor: turns of the colour circle, -0.5 .. 0.5 */                  \
	X(BLUR, PIXELS(blur))                                                                      \
	X(WARP, PIXELS(warp))                                                                      \
	X(ERASE, PIXELS(erase))                                                                    \
	/*                                                                                         \
	 * Mixing: BEGIN saves the picture and starts a sum with weight * picture. ADD adds        \
	 * weight * current picture and restores the saved one. END replaces the picture with the  \
	 * sum, rounded down.                                                                      \
	 */                                                                                        \
	X(MIX_BEGIN, PIXELS(mix_begin)) /* weight */                                               \
	X(MIX_ADD, PIXELS(mix_add))     /* weight */                                               \
	X(MIX_END, PIXELS(mix_end))
/* clang-format on */

#define EFFECTS(X) EFFECTS_OF_OTHERS(X) EFFECT_TRANSFORMS(X)
