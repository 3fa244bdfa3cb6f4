/*
 * Names of the transforms that a feed can leave to its client (pipeline_defer()), for programs that
 * explain this feature: one string, "random_crop, hflip, ... ", with ", " after each name.
 * Generated from the rows marked DEFERS.
 */
#pragma once

#include "format/augment/grammar/transform_rows.h"
#include "format/augment/kernels/effect_rows.h"

#define DEFERRABLE_STAYS(name)
#define DEFERRABLE_DEFERS(name)                            name ", "
#define DEFERRABLE_TRANSFORM(constant, where, name, ...)   DEFERRABLE_##where(name)
#define DEFERRABLE_EFFECT(constant, how, where, name, ...) DEFERRABLE_##where(name)
#define DEFERRABLE_TRANSFORMS                                                                      \
	TRANSFORMS_OF_GEOMETRY(DEFERRABLE_TRANSFORM)                                               \
	TRANSFORMS_OF_PIXELS(DEFERRABLE_TRANSFORM, EFFECT_TRANSFORMS(DEFERRABLE_EFFECT))
