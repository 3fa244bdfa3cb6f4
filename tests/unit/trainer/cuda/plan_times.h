/* Plan times on the emulated GPU for tests of tuning, to pass to emulation_time_plans(). */
#pragma once

#include "tests/gpu/emulation/engines.h"

#define AGES 1e9 /* ms; longer than any pass on the emulated GPU */

double fused_is_fast(const struct conv_problem *problem);
double fused_is_slow(const struct conv_problem *problem);
