/*
 * exp, log, sin and cos from additions and multiplications alone: the C library picks variants by
 * processor that differ in the last bit, and a crop's size must not. Relative error under 1e-14, of
 * sin and cos absolute. Pure functions.
 */
#pragma once

/* |x| <= 700 */
double portable_exp(double x);
/* x > 0 and normal */
double portable_log(double x);
/* |x| <= 1e5 */
double portable_sin(double x);
double portable_cos(double x);
