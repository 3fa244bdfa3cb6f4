/*
 * exp and log from additions and multiplications alone: the C library picks variants by processor that differ in the last
 * bit, and a crop's size must not. Relative error under 1e-14. Pure functions.
 */
#pragma once

/* |x| <= 700 */
double portable_exp(double x);
/* x > 0 and normal */
double portable_log(double x);
