/*
 * The effects: one row for each, from which the list of kinds (effects.h), the pipeline's steps
 * that are one effect (grammar_rules.c) and what runs it (effects.c) are made. A new one is a row
 * here and the function that the row names.
 *
 * A row's second entry is how pixels change. TABLE(name): each byte by itself, through the table
 * that effect_table_name makes, in effect_tables.c. PIXELS(name): by effects_name, in effects.c.
 */
#pragma once

/* clang-format off */
/* Those that a step names: constant, how, the step, its p where that is not given, its number. */
#define EFFECT_STEPS(X)                                                                            \
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

/* Those that steps of their own decide on. */
#define EFFECTS_OF_OTHERS(X)                                                                       \
	X(BRIGHTNESS, TABLE(brightness))  /* factor */                                             \
	X(CONTRAST, TABLE(contrast))      /* factor */                                             \
	X(SATURATION, PIXELS(saturation)) /* factor */                                             \
	X(HUE, PIXELS(hue)) /* factor: turns of the colour circle, -0.5 .. 0.5 */                  \
	X(BLUR, PIXELS(blur))                                                                      \
	X(WARP, PIXELS(warp))                                                                      \
	X(ERASE, PIXELS(erase))                                                                    \
	/*                                                                                         \
	 * Mixing: BEGIN keeps the picture and starts a sum with weight of it. ADD adds weight of  \
	 * what the picture has become, and brings back the kept one. END replaces the picture by  \
	 * the sum, rounded down.                                                                  \
	 */                                                                                        \
	X(MIX_BEGIN, PIXELS(mix_begin)) /* weight */                                               \
	X(MIX_ADD, PIXELS(mix_add))     /* weight */                                               \
	X(MIX_END, PIXELS(mix_end))
/* clang-format on */

#define EFFECTS(X) EFFECTS_OF_OTHERS(X) EFFECT_STEPS(X)
