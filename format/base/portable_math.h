/*
 * exp, log, sin and cos from additions and multiplications only. The C library selects variants by
 * processor that differ in the last bit, but a result such as the size of a crop must not depend on
 * the processor. The error is below 1e-14: relative for exp and log, absolute for sin and cos. Pure
 * functions.
 */
#pragma once

/* |x| <= 700 */
double portable_exp(double x);
/* x > 0 and normal */
double portable_log(double x);
/* |x| <= 1e5 */
double portable_sin(double x);
double portable_cos(double x);
