/*
 * exp, log, sin and cos from additions and multiplications only. The C library selects variants by
 * processor that differ in the last bit, but the size of a crop must not depend on the processor.
 * Relative error below 1e-14; absolute for sin and cos. Pure functions.
 */
#pragma once

/* |x| <= 700 */
double portable_exp(double x);
/* x > 0 and normal */
double portable_log(double x);
/* |x| <= 1e5 */
double portable_sin(double x);
double portable_cos(double x);
