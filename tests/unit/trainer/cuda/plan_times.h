/* What plans take on the emulated GPU in tests of tuning, for emulation_time_plans(). */
#pragma once

#include "tests/gpu/emulation/engines.h"

#define AGES 1e9 /* ms: whatever the emulated GPU takes for a pass is less */

double fused_is_fast(const struct conv_problem *problem);
double fused_is_slow(const struct conv_problem *problem);
