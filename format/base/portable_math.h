/*
 * exp, log, sin, cos and atan2 from additions and multiplications only. The C library selects
 * variants by processor that differ in the last bit, but a result such as the size of a crop must
 * not depend on the processor. The error is below 1e-14: relative for exp and log, absolute for the
 * others. Pure functions.
 */
#pragma once

/* |x| <= 700 */
double portable_exp(double x);
/* x > 0 and normal */
double portable_log(double x);
/* |x| <= 1e5 */
double portable_sin(double x);
double portable_cos(double x);
/* The angle of the point (x, y), -pi to pi; finite numbers. 0 if both are 0. */
double portable_atan2(double y, double x);
